// SPDX-License-Identifier: MIT
// Trains a Konkani speech recogniser from scratch on a folder of manifests, and says how many characters and
// words of the test set it gets wrong. It shows a whole looptorch run: sampler, loader, objective, policies,
// `fit`.
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/state/snapshot/choose_snapshot.hpp>
#include <looptorch/trainer.hpp>

#include "command_line.hpp"
#include "corpus_layout.hpp"
#include "data.hpp"
#include "device.hpp"
#include "evaluation.hpp"
#include "left_out.hpp"
#include "resume.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
namespace kv = konkanivani;
namespace lt = looptorch;
using kv::Batch, kv::KonkaniVani;

constexpr std::int64_t kFlushBatches =
    50;  ///< between flushes of the allocator's cache, as the first project has it

/// The defaults are those of the preset "measured": the recipe that run.sh runs, whose results the README
/// gives.
struct Options {
  fs::path data, output, cache;
  std::string preset = "measured", defaults = "measured";  // as parsed; as the fields were set
  std::int64_t d_model = 128, encoder_layers = 6, decoder_layers = 3, subsampling = 4;
  std::string positions = "sinusoidal", characters = "code_point";
  std::int64_t batch_frames = 2400, batch_size = 64, gradient_accumulation_steps = 1;
  std::int64_t epochs = 5, max_steps = 0;
  double learning_rate = 2e-3;
  std::int64_t warmup_steps = 150;
  std::string schedule = "linear";
  double ctc_weight = 0.7, dropout = 0;
  bool speed_perturbation = false, spec_augment = false;
  std::int64_t mask_frames = 20, mask_bins = 15;
  bool mixed_precision = false, gradient_checkpointing = false;
  std::int64_t shortest_first_epochs = 1;
  std::string device = "auto";
  std::int64_t workers = 2, seed = 1;
  double max_seconds = 20;
  std::string on_bad_audio = "skip", resume;
  std::int64_t snapshot_every = 0;

  [[nodiscard]] fs::path snapshots() const { return output / "snapshots"; }
  [[nodiscard]] kv::BatchSize batch() const { return {.frames = batch_frames, .clips = batch_size}; }
};

/// The preset "original": the settings of the project that this example follows. For real speech on a GPU.
Options original() {
  Options options;
  options.defaults = "original";
  options.d_model = 256, options.encoder_layers = 12, options.decoder_layers = 6, options.subsampling = 1;
  options.batch_frames = 0, options.batch_size = 8, options.epochs = 50;
  options.learning_rate = 5e-4, options.warmup_steps = 0, options.schedule = "plateau";
  options.ctc_weight = 0.3, options.dropout = 0.1;
  options.spec_augment = true, options.mask_frames = 70, options.mask_bins = 27;
  options.shortest_first_epochs = 0;
  return options;
}

/// The defaults that the command line asks for by `--preset`, which must be known before the other flags are
/// listed and parsed. `check` refuses what this does not understand.
Options preset_of(int argc, char** argv) {
  constexpr std::string_view kFlag = "--preset";
  std::string_view preset;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == kFlag && i + 1 < argc) preset = argv[i + 1];
    if (word.starts_with(kFlag) && word.substr(kFlag.size()).starts_with('='))
      preset = word.substr(kFlag.size() + 1);
  }
  return preset == "original" ? original() : Options();
}

struct Data {
  kv::SpeechDataset train, validation, test;
};

/// Greedy: quick enough for each epoch. A model whose CTC head is not trained is heard by its decoder.
kv::DecodingOptions decoding_of(const Options& options) {
  if (options.ctc_weight > 0) return {.method = "greedy", .beam = {}};
  return {.method = "attention", .beam = {.beam = 1}};
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

lt::LoaderOptions loading_of(const Options& options, const kv::LeftOut* left_out) {
  return {.workers = options.workers,
          .seed = static_cast<std::uint64_t>(options.seed),
          .on_error = left_out == nullptr ? lt::OnError::fail : lt::OnError::skip};
}

kv::LossOptions loss_of(const Options& options) { return {.ctc_weight = options.ctc_weight}; }

/// Measures the validation clips after each epoch: one pass for their loss and for what is heard.
class Validation {
 public:
  Validation(kv::Recognizer& recognizer, const Options& options)
      : recognizer_(recognizer), options_(options) {}

  /// For lt::Validate.
  lt::Loss measure(KonkaniVani& model, const Batch& batch) {
    const auto encoded = model->encode(batch.mel_BMF, batch.lengths_B);
    listening_.add(batch, kv::recognize(model, encoded, decoding_of(options_)), recognizer_.vocabulary);
    return kv::joint_loss(model, encoded, batch.frames, batch.targets, loss_of(options_));
  }

  /// Publishes and prints the error rates of what was measured, and adds them to the curve.
  void report(lt::EpochContext& epoch) {
    const auto heard = listening_.take();
    step_ = epoch.run.progress().step;
    character_error_rate_ = heard.character_error_rate;
    epoch.run.metrics().publish("validation.cer", heard.character_error_rate);
    kv::add_to_curve(options_.output / "curve.csv", step_, seconds_since(begin_), heard);
    std::cout << "    CER " << heard.character_error_rate << ", WER " << heard.word_error_rate << "\n";
    kv::print_examples(std::cout, heard, 3);
    std::cout << std::flush;
  }

  /// The character error rate of the weights after `step`; nothing if those were not measured.
  [[nodiscard]] std::optional<double> rate_after(std::int64_t step) const {
    return step == step_ ? std::optional(character_error_rate_) : std::nullopt;
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  kv::Recognizer& recognizer_;
  const Options& options_;
  kv::Listening listening_;
  std::int64_t step_ = -1;
  double character_error_rate_ = 1;
};

/// Trains from `snapshot`, or anew where that is empty, and leaves the best weights in the model.
lt::FitResult train(kv::Recognizer& recognizer, const Data& data, const Options& options,
                    const fs::path& snapshot, kv::LeftOut* left_out) {
  auto& model = recognizer.model;
  lt::FusedAdamW optimizer(model->parameters(), {.lr = options.learning_rate, .weight_decay = 1e-6});
  auto objective = [weights = loss_of(options)](KonkaniVani& model, const Batch& batch) {
    const auto encoded = model->encode(batch.mel_BMF, batch.lengths_B);
    return kv::joint_loss(model, encoded, batch.frames, batch.targets, weights);
  };
  const auto loading = loading_of(options, left_out);
  lt::PinnedPrefetchLoader clips(
      data.train, loading,
      data.train.by_length(options.batch(), loading.seed, options.shortest_first_epochs));
  lt::PinnedPrefetchLoader validation_clips(data.validation, loading,
                                            data.validation.by_length(options.batch()));
  Validation validation(recognizer, options);
  const auto measure = [&](KonkaniVani& model, const Batch& batch) {
    return validation.measure(model, batch);
  };
  const auto report = [&](lt::EpochContext& epoch) { validation.report(epoch); };
  const bool on_gpu = model->parameters().front().is_cuda();
  const std::int64_t flush_steps =
      std::max<std::int64_t>(1, kFlushBatches / options.gradient_accumulation_steps);
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
                      lt::Validate{validation_clips, measure},
                      lt::CacheFlushEvery<>{flush_steps},
                      lt::ShowProgress{},
                      lt::On{lt::kObserve, report},
                      lt::SnapshotEvery{.folder = options.snapshots(), .steps = options.snapshot_every,
                                        .best = "validation.cer"});
  // clang-format on
  const auto result = trainer.fit(
      clips, {.epochs = options.epochs,
              .max_steps = options.max_steps > 0 ? std::optional(options.max_steps) : std::nullopt,
              .resume = snapshot});
  if (left_out) left_out->add(result.skipped_samples), left_out->add(validation_clips.skipped());
  if (result.status == lt::FitStatus::interrupted) throw kv::Interrupted(result.reason, result.steps);
  auto last = validation.rate_after(result.steps);
  if (!last)  // it ended within an epoch, or had ended before
    last = kv::transcribe_all(recognizer, data.validation, options.batch(), loading, decoding_of(options),
                              left_out)
               .character_error_rate;
  kv::load_best(model, trainer.policy<lt::SnapshotEvery>().best, *last,
                std::array{options.snapshots(), kv::folder_of(snapshot)}, std::cerr);
  return result;
}

void check(const Options& options) {
  if (options.preset != options.defaults)
    throw kv::CommandLineError("--preset must be written out, and given once");
  if (options.batch_frames == 0 && options.batch_size == 0)
    throw kv::CommandLineError("--batch_frames and --batch_size are both 0: a batch needs a limit");
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

Data load_data(lt::ManifestSplit corpus, const kv::Vocabulary& vocabulary, const Options& options,
               kv::LeftOut* left_out) {
  const kv::SpeechOptions speech{
      .max_seconds = options.max_seconds, .subsampling = options.subsampling, .cache = options.cache};
  kv::UnknownCharacters unknown;
  const auto dataset = [&](std::vector<lt::Utterance> utterances) {
    return kv::SpeechDataset(std::move(utterances), vocabulary, speech, unknown, left_out);
  };
  Data data{dataset(std::move(corpus.train)), dataset(std::move(corpus.validation)),
            dataset(std::move(corpus.test))};
  if (!unknown.empty()) std::cerr << unknown.describe() << std::endl;
  if (const auto count = data.train.count_too_short(); count > 0)
    std::cerr << count << " training clips are too short for their text; CTC learns nothing from them"
              << std::endl;
  kv::AugmentOptions augment;
  if (!options.speed_perturbation) augment.speeds = {1.0};
  augment.masks.max_frames = options.mask_frames, augment.masks.max_bins = options.mask_bins;
  if (!options.spec_augment) augment.masks.time_masks = augment.masks.mel_masks = 0;
  data.train.augment(augment);
  return data;
}

void run(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  check(options);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  const auto device = kv::choose_device(options.device);
  kv::LeftOut listed;
  const kv::PrintAtEnd print_at_end(listed);
  auto* const left_out = options.on_bad_audio == "skip" ? &listed : nullptr;
  auto corpus = kv::load_corpus(options.data, left_out);
  auto vocabulary = vocabulary_of(corpus.train, options);
  const auto config = config_of(options, vocabulary.size());
  kv::check_config(config, "konkanivani_train");
  const auto newest = lt::choose_snapshot(options.resume, options.snapshots());
  if (!newest.path.empty()) kv::require_same_run(config, vocabulary, newest.path);
  if (!options.resume.empty()) std::cerr << newest.describe() << std::flush;
  const auto data = load_data(std::move(corpus), vocabulary, options, left_out);
  kv::Recognizer recognizer{KonkaniVani(config), std::move(vocabulary)};
  recognizer.model->to(device);
  kv::save_identity(config, recognizer.vocabulary, options.snapshots());

  std::cout << kv::count_parameters(*recognizer.model) << " parameters, " << recognizer.vocabulary.size()
            << " characters, " << data.train.size() << " training clips" << std::endl;
  const auto test = [&] {
    return kv::transcribe_all(recognizer, data.test, options.batch(), {.workers = options.workers},
                              decoding_of(options), left_out);
  };
  const auto untrained = test();
  const auto result = train(recognizer, data, options, newest.path, left_out);
  const auto heard = test();
  fs::remove(options.output / "summary.json");  // a folder with a summary holds a finished model
  kv::save_recognizer(recognizer, options.output);

  const auto elapsed = seconds_since(begin);
  auto summary = lt::Json::object();
  summary.set("cer", heard.character_error_rate).set("wer", heard.word_error_rate);
  summary.set("cer_untrained", untrained.character_error_rate).set("steps", result.steps);
  summary.set("seconds", elapsed).set("peak_bytes", kv::peak_bytes(device));
  summary.set("left_out", static_cast<std::int64_t>(listed.count()));
  lt::write_file_atomically(options.output / "summary.json", summary.dump(2) + "\n");
  kv::print_examples(std::cout, heard, 5);
  std::cout << "test CER " << heard.character_error_rate << " (untrained " << untrained.character_error_rate
            << "), WER " << heard.word_error_rate << " after " << result.steps << " steps and " << elapsed
            << " s; the model is in " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = preset_of(argc, argv);
  kv::CommandLine line(
      "konkanivani_train",
      "Trains a Konkani speech recogniser from scratch and keeps the weights of the epoch with the "
      "lowest character error\nrate on the validation clips: model.safetensors.\nThe data folder holds train.jsonl, "
      "validation.jsonl and test.jsonl (audio_filepath, text, duration, speaker a line),\nor a "
      "corpus of Common Voice or OpenSLR as it was published; see the README.");
  line.required("data", "DIR", options.data, "the corpus; see above");
  line.required("output", "DIR", options.output, "folder for the model and summary.json");
  line.choice(
      "preset", options.preset, {"measured", "original"},
      "defaults of the flags below: measured, or original, those of the project that this example follows");
  line.option("d_model", "N", options.d_model, "width", {.min = 2, .max = 16384});
  line.option("encoder_layers", "N", options.encoder_layers, "Conformer blocks", {.min = 1, .max = 1024});
  line.option("decoder_layers", "N", options.decoder_layers, "Transformer layers", {.min = 1, .max = 1024});
  line.option("subsampling", "N", options.subsampling,
              "1, 2 or 4 mel frames of 10 ms are one of the encoder's; CTC needs one a character at least",
              {.min = 1, .max = 4});
  line.choice("positions", options.positions, {"sinusoidal", "relative"},
              "how the encoder tells frames apart");
  line.choice("characters", options.characters, {"code_point", "grapheme"}, "what the model writes");
  line.option("batch_frames", "N", options.batch_frames,
              "mel frames of 10 ms in one forward pass at most, padding included; 0: any number", {.min = 0});
  line.option("batch_size", "N", options.batch_size, "clips in one forward pass at most; 0: any number",
              {.min = 0, .max = 65536});
  line.option("gradient_accumulation_steps", "N", options.gradient_accumulation_steps, "batches in one step",
              {.min = 1, .max = 65536});
  line.option("epochs", "N", options.epochs, "passes over the training clips", {.min = 1});
  line.option("shortest_first_epochs", "N", options.shortest_first_epochs,
              "first epochs that go from the shortest clips to the longest", {.min = 0});
  line.option("max_steps", "N", options.max_steps, "ends earlier, after so many steps; 0: does not",
              {.min = 0});
  line.option("learning_rate", "X", options.learning_rate, "of AdamW, after the warm-up", {.above = 0});
  line.option("warmup_steps", "N", options.warmup_steps, "steps from rate 0 to the full rate", {.min = 0});
  line.choice("schedule", options.schedule, {"linear", "plateau"},
              "plateau: half the rate after 3 epochs without a better validation loss; linear: down to 0");
  line.option("ctc_weight", "X", options.ctc_weight, "of the loss; the decoder's is what remains",
              {.min = 0, .max = 1});
  line.option("dropout", "X", options.dropout, "share of activations", {.min = 0, .max = 0.9});
  line.flag("speed_perturbation", options.speed_perturbation, true,
            "plays clips at 0.9, 1 or 1.1 of their speed");
  line.flag("no_speed_perturbation", options.speed_perturbation, false, "plays no clip slower or faster");
  line.flag("spec_augment", options.spec_augment, true, "hides frames and mel bins of each clip");
  line.flag("no_spec_augment", options.spec_augment, false, "hides none");
  line.option("mask_frames", "N", options.mask_frames,
              "frames of 10 ms that are hidden at most, and never more than a fifth of a clip", {.min = 0});
  line.option("mask_bins", "N", options.mask_bins, "mel bins that are hidden at most", {.min = 0, .max = 80});
  line.flag("mixed_precision", options.mixed_precision, true, "fp16 on a GPU, bf16 on a CPU");
  line.flag("gradient_checkpointing", options.gradient_checkpointing, true,
            "blocks run a second time in backward: less memory, same result, more time");
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: cuda if there is one");
  line.option("workers", "N", options.workers, "threads that read audio", {.min = 0, .max = 1024});
  line.option("cache", "DIR", options.cache,
              "keeps decoded audio there, as log-mel frames at each speed, for later epochs and runs");
  line.option("snapshot_every", "STEPS", options.snapshot_every,
              "writes the whole run to OUTPUT/snapshots so often; the best epoch's and the last state are "
              "written in any case",
              {.min = 0});
  line.option(
      "resume", "auto|DIR", options.resume,
      "goes on from a snapshot or the newest in a folder; auto: in OUTPUT/snapshots, if there is one");
  line.choice("on_bad_audio", options.on_bad_audio, {"skip", "stop"},
              "leaves out lines, texts and clips that cannot be used and lists them, or stops at the first");
  line.option("seed", "N", options.seed, "weights, order and augmentation", {.min = 0});
  line.option("max_seconds", "S", options.max_seconds, "longer clips are refused", {.max = 60, .above = 0});
  return kv::run_main(argc, argv, line, [&] { run(options); });
}
