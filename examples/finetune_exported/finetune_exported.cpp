// SPDX-License-Identifier: MIT
// Fine-tunes any model that Python exported by torch.export, without the model's code. Reads a .pt2 file,
// prints the model's inputs, trains it on tensors of these names, and writes it as .pt2 and safetensors.
#include <looptorch/adapters/lora.hpp>
#include <looptorch/adapters/lora_files.hpp>
#include <looptorch/app/run/skipped_items.hpp>
#include <looptorch/app/training_program.hpp>
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/exported/save_exported.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "columns.hpp"
#include "input_table.hpp"
#include "objective.hpp"
#include "open_source.hpp"
#include "samples.hpp"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fe = finetune_exported;
namespace fs = std::filesystem;
namespace lt = looptorch;

using Figures = std::vector<std::pair<std::string, lt::Json>>;

struct Options {
  fs::path model, train, validation;
  fe::LossOptions loss;
  fe::SoundOptions sounds;
  double weight_decay = 0.01, clip = 1.0;
  std::vector<std::string> freeze, lora;
  std::int64_t lora_rank = 8;
  std::string of_sounds;  ///< a given flag that only sounds use
};

/// Throws CommandLineError for a flag that would do nothing.
void check_flags(const app::CommandLine& line, Options& options) {
  if (options.lora.empty() && line.is_given("lora-rank"))
    throw app::CommandLineError("--lora-rank needs --lora: without it there are no adapters");
  for (const char* const flag : {"sample-rate", "normalize-sound"})
    if (line.is_given(flag)) options.of_sounds = flag;
}

void add_flags(app::CommandLine& line, Options& options) {
  line.required("model", "FILE", options.model, "a .pt2 of torch.export.save")
      .required(
          "train", "DATA", options.train,
          "a .safetensors file or a folder of them, whose tensors have the names of the model's inputs; or .jsonl")
      .option("validation", "DATA", options.validation, "the same, held out")
      .choice("loss", options.loss.kind, {"own", "cross-entropy", "ctc", "mse"},
              "own: the model's output \"loss\", which is the default where it has one")
      .option("labels", "NAME", options.loss.labels, "what the data calls labels")
      .option("scores", "NAME", options.loss.scores, "which output the labels are compared with")
      .option("blank", "ID", options.loss.blank, "of CTC", {.min = 0})
      .toggle("count-labels", options.loss.count_labels,
              "weighs a batch by its labels other than -100: for a loss that is a mean over tokens")
      .option("weight-decay", "X", options.weight_decay, "of AdamW", {.min = 0})
      .option("clip", "X", options.clip, "greatest norm of the gradients", {.above = 0})
      .option("freeze", "PATTERN", options.freeze,
              "parameters that stay, as \"bert.embeddings.*\"; may be repeated")
      .option("lora", "PATTERN", options.lora,
              "linear layers that learn by adapters, as \"*.query\", while all else stays; may be repeated")
      .option("lora-rank", "N", options.lora_rank, "rank of the adapters", {.min = 1})
      .option("sample-rate", "HZ", options.sounds.sample_rate, "of sounds that .jsonl names", {.min = 1})
      .toggle("normalize-sound", options.sounds.normalize,
              "to mean 0 and variance 1, as Wav2Vec2's extractor does");
  line.on_parsed([&options](const app::CommandLine& parsed) { check_flags(parsed, options); });
}

lt::ExportedModel read_model(const fs::path& file) {
  if (file.extension() != ".pt2")
    throw app::CommandLineError("--model " + file.string() + " is no .pt2: write one by torch.export.save");
  lt::ExportedModel model(file);
  if (app::leads()) fe::print_table(std::cout, *model);
  return model;
}

/// Returns the settings that decide what is learnt and are in no policy's state.
std::map<std::string, std::string> settings_of(const fe::LossOptions& loss, const fe::SoundOptions& sounds) {
  using app::setting;
  return {{"--loss", loss.kind},
          {"--labels", loss.labels},
          {"--scores", loss.scores},
          {"--blank", setting(loss.blank)},
          {"--count-labels", setting(loss.count_labels)},
          {"--sample-rate", setting(sounds.sample_rate)},
          {"--normalize-sound", setting(sounds.normalize)}};
}

/// Adds adapters, sets blocks to be recomputed, and moves the model to the device.
void prepare(const app::Session& session, lt::ExportedModel& model, const Options& options) {
  if (!options.lora.empty())
    lt::add_lora(*model, {.rank = options.lora_rank,
                          .alpha = 2.0 * static_cast<double>(options.lora_rank),
                          .patterns = options.lora});
  if (session.options().gradient_checkpointing) model->checkpoint_blocks();
  model->to(session.device());
}

/// Adds the loss and the metrics over all held-out samples to the figures.
template <class Trainer>
void add_validation(Figures& figures, Trainer& trainer, const app::Session& session,
                    const fe::Samples& held_out, app::SkippedItems& skipped) {
  auto all = session.whole(held_out);  // on several ranks Validate's loader has only a shard
  const auto result = trainer.evaluate(all);
  figures.emplace_back("validation_loss", result.loss);
  for (const auto& [name, value] : result.metrics) figures.emplace_back("validation_" + name, value);
  skipped.add(all.skipped());
}

/// Writes the adapters, if there are any, and the model with adapters folded in.
void write_model(const app::Session& session, lt::ExportedModel& model, bool has_adapters) {
  if (has_adapters) {
    if (app::leads()) lt::save_lora(*model, session.output() / "adapter");
    lt::fold_lora(*model);
  }
  if (app::leads()) lt::save_exported(model, session.output() / "model.pt2");
}

void train(app::Session& session, const Options& options) {
  lt::ExportedModel model = read_model(options.model);
  auto columns = fe::columns_of(model->inputs(), options.loss.labels);
  const fe::Objective objective(options.loss, *model, columns);
  if (const auto labels = objective.label_column()) columns.push_back(*labels);
  bool has_sounds = false;
  const auto open = [&](const fs::path& file) {
    const auto source = fe::open_source(file, columns, options.sounds);
    has_sounds |= source->has_sounds();
    return fe::Samples(source, columns);
  };
  const fe::Samples samples = open(options.train);
  const bool validates = !options.validation.empty();
  // Validate needs a loader to refer to, even if When switches it off and the loader is never read.
  const fe::Samples held_out = validates ? open(options.validation) : samples;
  if (app::leads() && !options.of_sounds.empty() && !has_sounds)
    std::cerr << "--" << options.of_sounds << " is not used: the data names no sound" << std::endl;
  prepare(session, model, options);
  auto validation = session.loader(held_out);
  const auto& training = session.options();
  lt::FusedAdamW optimizer(model->parameters(),
                           {.lr = training.learning_rate, .weight_decay = options.weight_decay});
  app::RunDetails details{.settings = settings_of(objective.options(), options.sounds)};
  if (validates) details.data = {{"--validation", app::samples_of(held_out)}};
  lt::Trainer trainer(model, optimizer, objective, lt::ClipGradNorm{options.clip},
                      lt::ScheduleLr{.decay = lt::CosineDecay{}, .warmup_steps = training.warmup_steps},
                      lt::When{!options.freeze.empty(), lt::Freeze(options.freeze)},
                      lt::When{validates, lt::Validate{validation}}, session.policies(*model, details));
  app::SkippedItems skipped({.one = "sample", .many = "samples"});
  const app::PrintAtEnd print_at_end(skipped);
  session.fit(trainer, session.shuffled(samples), [&](const lt::FitResult& fit) {
    skipped.add(fit.skipped_samples);
    skipped.add(validation.skipped());
  });
  Figures figures{{"samples", samples.size()}};
  if (validates && app::leads()) add_validation(figures, trainer, session, held_out, skipped);
  figures.emplace_back("samples_skipped", static_cast<std::int64_t>(skipped.count()));
  write_model(session, model, !options.lora.empty());
  session.finish(*model, figures);
}

app::TrainingFlags flags() {
  auto flags = app::standard_flags();
  std::erase(flags.without, app::TrainingFlag::gradient_checkpointing);
  std::erase(flags.without, app::TrainingFlag::on_bad_audio);
  return flags;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::TrainingProgram program("finetune_exported",
                               "Fine-tunes a model that torch.export.save wrote, without its code.",
                               {.epochs = 3, .batch_size = 8, .learning_rate = 5e-5}, flags());
  add_flags(program.line(), options);
  program.reads(options.model).reads(options.train).reads(options.validation);
  return program.run(argc, argv, [&](app::Session& session) { train(session, options); });
}
