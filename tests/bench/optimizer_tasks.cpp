// SPDX-License-Identifier: MIT
// Trains two tasks of the examples by each optimizer that keeps less than AdamW, and prints the final loss on
// their test clips beside FusedAdamW's from the same start, over the same batches: the quickstart's, Whisper
// tiny.en on air-traffic phraseology, and KonkaniVani's short one. In the rows `start off by 1e-6` FusedAdamW
// begins at weights that are rounded otherwise: so much of a difference tells nothing about an optimizer. By
// seed on stderr, with the standard error of the mean difference.
//
//   optimizer_tasks QUICKSTART KONKANIVANI [SEEDS]   the folders in which `examples/quickstart.sh` and
//                                                    `examples/konkanivani/run.sh --quick` have ended; ""
//                                                    leaves one out
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/optim/interface/any_optimizer.hpp>
#include <looptorch/trainer.hpp>

#include <torch/torch.h>

#include <konkanivani/clips/corpus_layout.hpp>
#include <konkanivani/training/objective.hpp>
#include <konkanivani/training/train_options.hpp>
#include <konkanivani/training/training_data.hpp>
#include <whisper/clips/corpus.hpp>
#include <whisper/decoding/recognizer.hpp>
#include <whisper/training/objective.hpp>
#include <whisper/training/options.hpp>
#include <whisper/training/training_clips.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
namespace kv = konkanivani;
namespace lt = looptorch;

enum class Rule { adamw, adamw_elsewhere, adamw_8bit, adamw_bf16, adamw_bf16_exact, adafactor };

constexpr struct {
  Rule rule;
  const char* name;
} kOthers[] = {{Rule::adamw_elsewhere, "FusedAdamW, start off by 1e-6"},
               {Rule::adamw_8bit, "AdamW8bit"},
               {Rule::adamw_bf16, "AdamWBf16"},
               {Rule::adamw_bf16_exact, "AdamWBf16, exact"},
               {Rule::adafactor, "Adafactor"}};

std::unique_ptr<lt::AnyOptimizer> make_optimizer(Rule rule, torch::nn::Module& model, double rate,
                                                 double decay) {
  const auto parameters = model.parameters();
  switch (rule) {
    case Rule::adamw_8bit:
      return std::make_unique<lt::AdamW8bit>(parameters,
                                             lt::AdamW8bitOptions{.lr = rate, .weight_decay = decay});
    case Rule::adamw_bf16:
    case Rule::adamw_bf16_exact:
      return std::make_unique<lt::AdamWBf16>(
          parameters,
          lt::AdamWBf16Options{.lr = rate, .weight_decay = decay, .exact = rule == Rule::adamw_bf16_exact});
    case Rule::adafactor:
      return std::make_unique<lt::Adafactor>(
          parameters,
          lt::AdafactorOptions{
              .lr = rate, .relative_step = false, .scale_parameter = false, .weight_decay = decay});
    default:
      return std::make_unique<lt::FusedAdamW>(parameters,
                                              lt::FusedAdamWOptions{.lr = rate, .weight_decay = decay});
  }
}

/// Moves the weights by a millionth of themselves, if the rule wants that.
void place(Rule rule, torch::nn::Module& model) {
  if (rule != Rule::adamw_elsewhere) return;
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.mul_(1 + 1e-6 * torch::randn_like(parameter));
}

bool has_bf16() {
  std::ifstream in("/proc/cpuinfo");
  return std::string(std::istreambuf_iterator<char>(in), {}).find("avx512_bf16") != std::string::npos;
}

bool wants_bf16_weights(Rule rule) { return rule == Rule::adamw_bf16 || rule == Rule::adamw_bf16_exact; }

/// The quickstart's fine-tuning; under AdamWBf16 the weights are bf16, too, and are measured as fp32 ones.
class QuickstartTask {
 public:
  static constexpr const char* kName = "quickstart";
  static constexpr bool kHasBf16Weights = true;

  explicit QuickstartTask(const fs::path& folder) {
    options_.model = folder / "whisper-tiny.en";
    options_.corpus.train = folder / "corpus/train.jsonl";
    options_.corpus.validation = folder / "corpus/validation.jsonl";
    options_.corpus.test = folder / "corpus/test.jsonl";
  }

  double final_loss(Rule rule, std::int64_t seed) {
    auto& training = options_.training;
    training.seed = seed;
    training.seed_generators();
    auto recognizer = whisper::load_recognizer(options_.model, at::kCPU, options_.language,
                                               wants_bf16_weights(rule) ? at::kBFloat16 : at::kFloat);
    place(rule, *recognizer.model);
    const auto corpus = whisper::load_corpus(options_.corpus_options(), recognizer, std::cerr);
    const auto clips = options_.clips_of(corpus, recognizer);
    const auto optimizer = make_optimizer(rule, *recognizer.model, training.learning_rate, /*decay=*/0);
    lt::Trainer trainer(
        recognizer.model, *optimizer,
        [](whisper::Whisper& model, const whisper::Batch& batch) {
          return lt::Loss{.value = whisper::loss_of(model, batch), .weight = batch.label_count};
        },
        lt::ClipGradNorm{1.0},
        lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = training.warmup_steps});
    const auto loading = training.loader_options();
    trainer.fit(
        lt::PinnedPrefetchLoader(clips, loading, lt::RandomSampler{.seed = training.unsigned_seed()}));
    recognizer.model->to(at::kFloat);
    return trainer.evaluate(lt::PinnedPrefetchLoader(corpus.test, loading)).loss;
  }

 private:
  whisper::FinetuneOptions options_;
};

/// What `run.sh --quick` trains; the weights stay fp32, and AdamWBf16's moments alone are bf16.
class KonkaniVaniTask {
 public:
  static constexpr const char* kName = "KonkaniVani";
  static constexpr bool kHasBf16Weights = false;

  explicit KonkaniVaniTask(const fs::path& folder) {
    options_.data = folder / "corpus", options_.training.cache = folder / "cache";
    options_.d_model = 96, options_.encoder_layers = 2, options_.decoder_layers = 1;
    options_.batch_frames = 1600, options_.training.epochs = 8;
    options_.training.learning_rate = 3e-3, options_.training.warmup_steps = 50;
    options_.training.workers = 1;
  }

  double final_loss(Rule rule, std::int64_t seed) {
    auto& training = options_.training;
    training.seed = seed;
    training.seed_generators();
    auto corpus = kv::load_corpus(options_.data);
    const auto vocabulary = kv::vocabulary_of(corpus.train, options_);
    const auto data = kv::load_training_data(std::move(corpus), vocabulary, options_, /*skipped=*/nullptr);
    kv::KonkaniVani model(options_.model(vocabulary.size()));
    place(rule, *model);
    const auto optimizer = make_optimizer(rule, *model, training.learning_rate, /*decay=*/1e-6);
    lt::Trainer trainer(model, *optimizer, kv::JointLoss{options_.loss()},
                        lt::When{has_bf16(), lt::Autocast<lt::bf16>{}}, lt::ClipGradNorm{5.0},
                        lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = training.warmup_steps});
    const auto loading = options_.loading();
    trainer.fit(lt::PinnedPrefetchLoader(
                    data.train, loading,
                    data.train.by_length(options_.batch(), loading.seed, options_.shortest_first_epochs)),
                {.epochs = training.epochs});
    return trainer
        .evaluate(lt::PinnedPrefetchLoader(data.test, loading, data.test.by_length(options_.batch())))
        .loss;
  }

 private:
  kv::TrainOptions options_;
};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the standard error of the mean; not a number for a single value.
double standard_error(const std::vector<double>& values) {
  const double mean = mean_of(values), count = static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1) / count);
}

/// Prints a row for each optimizer but FusedAdamW: the means over the seeds.
template <class Task>
void measure(Task task, std::int64_t seeds) {
  const auto losses_by = [&](Rule rule) {
    std::vector<double> losses;
    for (std::int64_t seed = 1; seed <= seeds; ++seed) {
      losses.push_back(task.final_loss(rule, seed));
      std::fprintf(stderr, " %.5f", losses.back());
    }
    return losses;
  };
  std::fprintf(stderr, "%s, FusedAdamW:", Task::kName);
  const std::vector<double> peers = losses_by(Rule::adamw);
  const double peer_mean = mean_of(peers);
  std::fprintf(stderr, ", mean %.5f\n", peer_mean);
  for (const auto& [rule, name] : kOthers) {
    if (rule == Rule::adamw_bf16_exact && !Task::kHasBf16Weights) continue;
    std::fprintf(stderr, "%s, %s:", Task::kName, name);
    const std::vector<double> losses = losses_by(rule);
    std::vector<double> differences;
    for (std::size_t i = 0; i < losses.size(); ++i) differences.push_back(losses[i] - peers[i]);
    std::fprintf(stderr, ", mean %.5f, %+.2f %% with a standard error of %.2f\n", mean_of(losses),
                 100 * mean_of(differences) / peer_mean, 100 * standard_error(differences) / peer_mean);
    std::printf(
        R"({"name": "%s: %s", "value": %.5f, "unit": "loss", "peer": "FusedAdamW", "peer_value": %.5f})"
        "\n",
        Task::kName, name, mean_of(losses), peer_mean);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: optimizer_tasks QUICKSTART KONKANIVANI [SEEDS]; see optimizer_tasks.cpp\n", stderr);
    return 2;
  }
  const std::int64_t seeds = argc > 3 ? std::atoll(argv[3]) : 3;
  try {
    if (*argv[1]) measure(QuickstartTask(argv[1]), seeds);
    if (*argv[2]) measure(KonkaniVaniTask(argv[2]), seeds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
