// SPDX-License-Identifier: MIT
// Trains a Konkani speech recogniser from scratch on a folder of manifests, and says how many characters and
// words of the test set it gets wrong. It shows a whole looptorch run: sampler, loader, objective, policies,
// `fit`.
#include <looptorch/data/length_bucket_sampler.hpp>
#include <looptorch/data/pinned_prefetch_loader.hpp>
#include <looptorch/state/atomic_file.hpp>
#include <looptorch/state/json.hpp>
#include <looptorch/trainer.hpp>

#include "command_line.hpp"
#include "data.hpp"
#include "device.hpp"
#include "evaluation.hpp"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>

namespace {

namespace fs = std::filesystem;
namespace kv = konkanivani;
namespace lt = looptorch;
using kv::Batch, kv::KonkaniVani;

struct Options {
  fs::path data, output;
  std::int64_t d_model = 256, encoder_layers = 12, decoder_layers = 6;
  bool subsampling = true;
  std::string positions = "sinusoidal", characters = "code_point";
  std::int64_t batch_size = 8, gradient_accumulation_steps = 1, epochs = 50, max_steps = 0;
  double learning_rate = 5e-4;
  std::int64_t warmup_steps = 0;
  std::string schedule = "plateau";
  double ctc_weight = 0.3, dropout = 0.1;
  bool spec_augment = true, mixed_precision = false, gradient_checkpointing = false;
  std::string device = "auto";
  std::int64_t workers = 2, seed = 1;
  double max_seconds = 20;
};

struct Data {
  kv::SpeechDataset train, validation, test;
};

lt::FitResult train(kv::Recognizer& recognizer, const Data& data, const Options& options) {
  auto& model = recognizer.model;
  lt::FusedAdamW optimizer(model->parameters(), {.lr = options.learning_rate, .weight_decay = 1e-6});
  const kv::LossOptions weights{.ctc_weight = options.ctc_weight};
  auto objective = [weights](KonkaniVani& model, const Batch& batch) {
    const auto encoded = model->encode(batch.mel_BMF, batch.lengths_B);
    return kv::joint_loss(model, encoded, batch.frames, batch.targets, weights);
  };
  const lt::LoaderOptions loading{.batch_size = options.batch_size, .workers = options.workers};
  const auto report = [&](lt::EpochContext&) {
    const auto heard = kv::transcribe_all(recognizer, data.validation, loading, {});
    std::cout << "    CER " << heard.character_error_rate << ", WER " << heard.word_error_rate << "\n";
    kv::print_examples(std::cout, heard, 3);
    std::cout << std::flush;
  };
  const bool on_gpu = model->parameters().front().is_cuda();
  lt::ScheduleLr schedule{.decay = lt::LinearDecay{}, .warmup_steps = options.warmup_steps};
  if (options.schedule == "plateau") schedule.decay = lt::PlateauDecay{.factor = 0.5, .patience = 3};

  // clang-format off
  lt::Trainer trainer(model, optimizer, objective,
                      lt::Accumulate<>{options.gradient_accumulation_steps},
                      lt::When{options.mixed_precision && on_gpu, lt::Autocast<lt::fp16>{}},
                      lt::When{options.mixed_precision && !on_gpu, lt::Autocast<lt::bf16>{}},
                      lt::When{options.gradient_checkpointing, lt::Checkpointed<kv::ConformerBlock>{}},
                      lt::ClipGradNorm{5.0},
                      schedule,
                      lt::Validate{lt::PinnedPrefetchLoader(data.validation, loading)},
                      lt::CacheFlushEvery<50>{},
                      lt::ShowProgress{},
                      lt::On{lt::kObserve, report});
  // clang-format on
  const lt::LengthBucketSampler batches(
      data.train.lengths(),
      {.batch_size = options.batch_size, .seed = static_cast<std::uint64_t>(options.seed)});
  return trainer.fit(lt::PinnedPrefetchLoader(data.train, {.workers = options.workers}, batches),
                     {.epochs = options.epochs,
                      .max_steps = options.max_steps > 0 ? std::optional(options.max_steps) : std::nullopt});
}

void check(const Options& options) {
  const auto choose = [](const char* flag, const std::string& value, const char* a, const char* b) {
    if (value != a && value != b)
      throw kv::CommandLineError(
          lt::detail::message("--", flag, ": \"", value, "\" is neither ", a, " nor ", b));
  };
  choose("positions", options.positions, "sinusoidal", "relative");
  choose("characters", options.characters, "code_point", "grapheme");
  choose("schedule", options.schedule, "plateau", "linear");
}

/// The vocabulary is that of the training split alone; what the others have beside it is told.
kv::Vocabulary vocabulary_of(const std::vector<lt::Utterance>& train, const Options& options) {
  std::vector<std::string> texts;
  for (const auto& utterance : train) texts.push_back(utterance.text);
  return kv::Vocabulary::of(texts,
                            options.characters == "grapheme" ? kv::Unit::grapheme : kv::Unit::code_point);
}

kv::ModelConfig config_of(const Options& options, std::int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .d_model = options.d_model,
          .encoder_layers = options.encoder_layers,
          .decoder_layers = options.decoder_layers,
          .dropout = options.dropout,
          .subsampling = options.subsampling,
          .positions = options.positions == "relative" ? kv::Positions::relative : kv::Positions::sinusoidal};
}

Data load_data(const std::vector<lt::Utterance>& train, const kv::Vocabulary& vocabulary,
               const Options& options) {
  const kv::SpeechOptions speech{.max_seconds = options.max_seconds, .subsampling = options.subsampling};
  kv::UnknownCharacters unknown;
  const auto dataset = [&](std::vector<lt::Utterance> utterances) {
    return kv::SpeechDataset(std::move(utterances), vocabulary, speech, unknown);
  };
  Data data{dataset(train), dataset(lt::load_manifest(options.data / "validation.jsonl")),
            dataset(lt::load_manifest(options.data / "test.jsonl"))};
  if (!unknown.empty()) std::cerr << unknown.describe() << std::endl;
  if (const auto count = data.train.count_too_short(); count > 0)
    std::cerr << count << " training clips are too short for their text; CTC learns nothing from them"
              << std::endl;
  kv::AugmentOptions augment;
  if (!options.spec_augment) augment.masks.time_masks = augment.masks.mel_masks = 0;
  data.train.augment(augment);
  return data;
}

void run(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  check(options);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  const auto device = kv::choose_device(options.device);
  const auto utterances = lt::load_manifest(options.data / "train.jsonl");
  auto vocabulary = vocabulary_of(utterances, options);
  const auto config = config_of(options, vocabulary.size());
  kv::check_config(config, "konkanivani_train");
  const auto data = load_data(utterances, vocabulary, options);
  kv::Recognizer recognizer{KonkaniVani(config), std::move(vocabulary)};
  recognizer.model->to(device);
  fs::create_directories(options.output);
  fs::remove(options.output / "summary.json");  // a folder with a summary holds a finished model

  std::cout << kv::count_parameters(*recognizer.model) << " parameters, " << recognizer.vocabulary.size()
            << " characters, " << data.train.size() << " training clips" << std::endl;
  const lt::LoaderOptions loading{.batch_size = options.batch_size, .workers = options.workers};
  const auto untrained = kv::transcribe_all(recognizer, data.test, loading, {});
  const auto result = train(recognizer, data, options);
  const auto heard = kv::transcribe_all(recognizer, data.test, loading, {});
  kv::save_recognizer(recognizer, options.output);

  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  auto summary = lt::Json::object();
  summary.set("cer", heard.character_error_rate).set("wer", heard.word_error_rate);
  summary.set("cer_untrained", untrained.character_error_rate).set("steps", result.steps);
  summary.set("seconds", elapsed.count()).set("peak_bytes", kv::peak_bytes(device));
  lt::write_file_atomically(options.output / "summary.json", summary.dump(2) + "\n");
  kv::print_examples(std::cout, heard, 5);
  std::cout << "test CER " << heard.character_error_rate << " (untrained " << untrained.character_error_rate
            << "), WER " << heard.word_error_rate << " after " << result.steps << " steps and "
            << elapsed.count() << " s; the model is in " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  kv::CommandLine line("konkanivani_train",
                       "Trains a Konkani speech recogniser from scratch.\nThe data folder holds train.jsonl, "
                       "validation.jsonl and test.jsonl (audio_filepath, text, duration, speaker a line).");
  line.required("data", "DIR", options.data, "folder of the manifests");
  line.required("output", "DIR", options.output, "folder for the model and summary.json");
  line.option("d_model", "N", options.d_model, "width", {.min = 2, .max = 16384});
  line.option("encoder_layers", "N", options.encoder_layers, "Conformer blocks", {.min = 1, .max = 1024});
  line.option("decoder_layers", "N", options.decoder_layers, "Transformer layers", {.min = 1, .max = 1024});
  line.flag("no_subsampling", options.subsampling, false,
            "frames of 10 ms instead of 40, as the first project had");
  line.option("positions", "NAME", options.positions, "sinusoidal or relative");
  line.option("characters", "NAME", options.characters, "what the model writes: code_point or grapheme");
  line.option("batch_size", "N", options.batch_size, "clips in one forward pass", {.min = 1, .max = 65536});
  line.option("gradient_accumulation_steps", "N", options.gradient_accumulation_steps, "batches in one step",
              {.min = 1, .max = 65536});
  line.option("epochs", "N", options.epochs, "passes over the training clips", {.min = 1});
  line.option("max_steps", "N", options.max_steps, "ends earlier, after so many steps; 0: does not",
              {.min = 0});
  line.option("learning_rate", "X", options.learning_rate, "of AdamW, after the warm-up", {.above = 0});
  line.option("warmup_steps", "N", options.warmup_steps, "steps from rate 0 to the full rate", {.min = 0});
  line.option("schedule", "NAME", options.schedule,
              "plateau: half the rate after 3 epochs without a better validation loss; linear: down to 0");
  line.option("ctc_weight", "X", options.ctc_weight, "of the loss; the decoder's is what remains",
              {.min = 0, .max = 1});
  line.option("dropout", "X", options.dropout, "share of activations", {.min = 0, .max = 0.9});
  line.flag("no_spec_augment", options.spec_augment, false, "hides no frames and no mel bins");
  line.flag("mixed_precision", options.mixed_precision, true, "fp16 on a GPU, bf16 on a CPU");
  line.flag("gradient_checkpointing", options.gradient_checkpointing, true,
            "blocks run a second time in backward: less memory, same result, more time");
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: cuda if there is one");
  line.option("workers", "N", options.workers, "threads that read audio", {.min = 0, .max = 1024});
  line.option("seed", "N", options.seed, "weights, order and augmentation", {.min = 0});
  line.option("max_seconds", "S", options.max_seconds, "longer clips are refused", {.max = 60, .above = 0});
  return kv::run_main(argc, argv, line, [&] { run(options); });
}
