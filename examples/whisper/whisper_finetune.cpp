// SPDX-License-Identifier: MIT
// Fine-tunes Whisper on a manifest of audio and text, and says what that did to the word error rate. It shows
// a whole looptorch run: loader, objective, optimizer, policies, `fit`.
#include <looptorch/data/pinned_prefetch_loader.hpp>
#include <looptorch/state/atomic_file.hpp>
#include <looptorch/state/json.hpp>
#include <looptorch/trainer.hpp>

#include "command_line.hpp"
#include "data.hpp"
#include "device.hpp"
#include "evaluation.hpp"
#include "recognizer.hpp"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>

namespace {

namespace fs = std::filesystem;
namespace lt = looptorch;
using whisper::Batch, whisper::Whisper, whisper::SpeechDataset;

struct Options {
  fs::path model, train, validation, test, output;
  std::int64_t batch_size = 8, gradient_accumulation = 1, epochs = 1, max_steps = 0;
  double learning_rate = 1e-4;
  std::int64_t warmup_steps = 5;
  double train_subset = 100;
  bool bf16 = false, gradient_checkpointing = false;
  std::string device = "auto", language = "en";
  std::int64_t workers = 2, seed = 1;
  double max_audio_seconds = 0;
};

struct Data {
  SpeechDataset train, validation, test;
};

lt::FitResult train(whisper::Recognizer& recognizer, const Data& data, const Options& options) {
  auto& model = recognizer.model;
  lt::FusedAdamW optimizer(model->parameters(), {.lr = options.learning_rate, .weight_decay = 0.0});
  auto objective = [](Whisper& model, const Batch& batch) {
    const auto logits_BLV = model(batch.mel_BMT, batch.tokens_BL);
    return lt::Loss{.value = whisper::token_mean_loss(logits_BLV, batch.labels_BL),
                    .weight = batch.label_count};
  };
  const lt::LoaderOptions loading{.batch_size = options.batch_size, .workers = options.workers};

  // clang-format off: one policy a line
  lt::Trainer trainer(model, optimizer, objective,
                      lt::Accumulate<>{options.gradient_accumulation},
                      lt::When{options.bf16, lt::Autocast<lt::bf16>{}},
                      lt::When{options.gradient_checkpointing, lt::Checkpointed<whisper::EncoderLayer>{}},
                      lt::When{options.gradient_checkpointing, lt::Checkpointed<whisper::DecoderLayer>{}},
                      lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = options.warmup_steps},
                      lt::Validate{lt::PinnedPrefetchLoader(data.validation, loading)},
                      lt::ShowProgress{});
  // clang-format on
  const auto order = lt::RandomSampler{.seed = static_cast<std::uint64_t>(options.seed)};
  return trainer.fit(lt::PinnedPrefetchLoader(data.train, loading, order),
                     {.epochs = options.epochs,
                      .max_steps = options.max_steps > 0 ? std::optional(options.max_steps) : std::nullopt});
}

Data load_data(const whisper::Recognizer& recognizer, Options& options) {
  auto train = whisper::random_subset(lt::load_manifest(options.train), options.train_subset, options.seed);
  auto validation = lt::load_manifest(options.validation), test = lt::load_manifest(options.test);
  if (options.max_audio_seconds == 0)
    options.max_audio_seconds = whisper::common_seconds({&train, &validation, &test});
  const whisper::SpeechOptions speech{.mel_bins = recognizer.model->config().num_mel_bins,
                                      .max_seconds = options.max_audio_seconds};
  const auto dataset = [&](auto& utterances) {
    return SpeechDataset(std::move(utterances), recognizer.tokenizer, recognizer.decoding, speech);
  };
  return {dataset(train), dataset(validation), dataset(test)};
}

struct Outcome {
  const whisper::Transcripts &before, &after;
  std::int64_t steps;
  double seconds;
  std::int64_t peak_bytes;
};

void write_summary(const fs::path& file, const Outcome& outcome) {
  auto summary = lt::Json::object();
  summary.set("wer_before", outcome.before.word_error_rate).set("wer_after", outcome.after.word_error_rate);
  summary.set("steps", outcome.steps).set("seconds", outcome.seconds);
  summary.set("peak_bytes", outcome.peak_bytes);
  lt::write_file_atomically(file, summary.dump(2) + "\n");
}

void finetune(Options options) {
  const auto begin = std::chrono::steady_clock::now();
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  if (options.test.empty()) options.test = options.validation;
  const auto device = whisper::choose_device(options.device);
  auto recognizer = whisper::load_recognizer(options.model, device, options.language);
  const auto data = load_data(recognizer, options);
  fs::create_directories(options.output);
  fs::remove(options.output / "summary.json");  // a folder with a summary holds a finished model

  std::cout << "transcribing " << data.test.size() << " clips of " << options.test.string() << std::endl;
  const auto before = whisper::transcribe_all(recognizer, data.test, options.workers);
  std::cout << "training on " << data.train.size() << " clips of up to " << options.max_audio_seconds << " s"
            << std::endl;
  const auto result = train(recognizer, data, options);
  std::cout << "transcribing again" << std::endl;
  const auto after = whisper::transcribe_all(recognizer, data.test, options.workers);
  whisper::save_pretrained(recognizer.model, options.model, options.output);

  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const Outcome outcome{before, after, result.steps, elapsed.count(), whisper::peak_bytes(device)};
  write_summary(options.output / "summary.json", outcome);
  whisper::print_side_by_side(std::cout, before, after, 3);
  std::cout << "word error rate " << before.word_error_rate << " before, " << after.word_error_rate
            << " after " << outcome.steps << " steps; " << outcome.seconds << " s in all\n"
            << "the model is in " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  whisper::CommandLine line("whisper_finetune",
                            "Fine-tunes a Whisper model and measures its word error rate before and "
                            "after.\nManifests are JSONL: audio_filepath, text, duration a line.");
  line.required("model", "DIR", options.model, "Hugging Face folder of the model to begin with");
  line.required("train", "FILE", options.train, "manifest of the training clips");
  line.required("validation", "FILE", options.validation,
                "manifest of the clips whose loss each epoch reports");
  line.option("test", "FILE", options.test,
              "manifest of the clips whose word error rate is measured; else validation");
  line.required("output", "DIR", options.output, "folder for the fine-tuned model and summary.json");
  line.option("batch-size", "N", options.batch_size, "clips in one forward pass", {.min = 1, .max = 65536});
  line.option("gradient-accumulation", "N", options.gradient_accumulation, "batches in one step",
              {.min = 1, .max = 65536});
  line.option("epochs", "N", options.epochs, "passes over the training clips", {.min = 1});
  line.option("max-steps", "N", options.max_steps, "ends earlier, after so many steps; 0: does not",
              {.min = 0});
  line.option("learning-rate", "X", options.learning_rate, "of AdamW, after the warm-up", {.above = 0});
  line.option("warmup-steps", "N", options.warmup_steps, "steps from rate 0 to the full rate", {.min = 0});
  line.option("train-subset", "PERCENT", options.train_subset, "share of the training clips to use",
              {.max = 100, .above = 0});
  line.flag("bf16", options.bf16, true, "mixed precision; for GPUs from Ampere on and CPUs with AMX");
  line.flag("fp32", options.bf16, false, "single precision (default)");
  line.flag("gradient-checkpointing", options.gradient_checkpointing, true,
            "layers run a second time in backward instead of keeping their activations: less memory, same "
            "result, more time");
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: cuda if there is one");
  line.option("workers", "N", options.workers, "threads that read audio", {.min = 0, .max = 1024});
  line.option("seed", "N", options.seed, "order and choice of the training clips", {.min = 0});
  line.option("max-audio-seconds", "S", options.max_audio_seconds,
              "length that clips are padded to, at most 30; 0: that of the longest", {.min = 0, .max = 30});
  line.option("language", "CODE", options.language, "what is spoken; English-only models ignore it");
  return whisper::run_main(argc, argv, line, [&] { finetune(options); });
}
