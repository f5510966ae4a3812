// SPDX-License-Identifier: MIT
// Measures the memory of KonkaniVani's training step at the sizes of the guide that the example follows:
// 256/12+6, 192/8+4 and 128/6+3, 8 clips a step, at once or as the guide's batches of 2 accumulated 4 times;
// plain, with recomputed Conformer blocks, in bf16, and with both. Clips of 8 s (800 mel frames, subsampled
// by 4) with 60 characters each; AdamW with its moments; CPU, one thread. Peaks are those of all tensors.
//
//   konkanivani_memory [SIZE]   prints a JSON object a row, of all sizes or of one
#include <looptorch/policies/checkpointed.hpp>
#include <looptorch/trainer.hpp>

#include "support/counting_allocator.hpp"

#include <ATen/Parallel.h>

#include <konkanivani/clips/batch.hpp>
#include <konkanivani/model/config.hpp>
#include <konkanivani/model/model.hpp>
#include <konkanivani/training/objective.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace kv = konkanivani;
namespace lt = looptorch;

namespace {

constexpr std::int64_t kVocabulary = 80, kFrames = 800, kCharacters = 60, kClips = 8;

struct Size {
  const char* name;
  kv::ModelConfig config;
};

const Size kSizes[] = {{"256/12+6", kv::original_size(kVocabulary)},
                       {"192/8+4", kv::optimized_size(kVocabulary)},
                       {"128/6+3", kv::minimal_size(kVocabulary)}};

/// The division of a step's kClips clips into micro-batches.
struct Window {
  const char* name;
  std::int64_t batches;
};

constexpr Window kWindows[] = {{"8", 1}, {"2 x 4", 4}};

struct Saving {
  const char* name;
  bool recompute, bf16;
};

constexpr Saving kPlain{"plain", false, false};
constexpr Saving kSavings[] = {
    {"recomputed", true, false}, {"bf16", false, true}, {"recomputed, bf16", true, true}};

kv::Batch make_batch(std::int64_t clips) {
  const std::vector<std::int64_t> text = [] {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < kCharacters; ++i)
      ids.push_back(kv::kFirstCharacter + 7 * i % (kVocabulary - kv::kFirstCharacter));
    return ids;
  }();
  const auto rows = static_cast<std::size_t>(clips);
  const std::vector<std::vector<std::int64_t>> texts(rows, text);
  return {.mel_BMF = at::randn({clips, 80, kFrames}),
          .lengths_B = at::full({clips}, kFrames, at::kLong),
          .indices = {},
          .targets = kv::make_targets(texts),
          .texts = std::vector<std::string>(rows)};
}

/// Returns the MB of all tensors at the peak of the second step; the first creates the optimizer's moments.
double peak_of(const Size& size, const Window& window, const Saving& saving) {
  torch::manual_seed(1);
  kv::KonkaniVani model(size.config);
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 5e-4, .weight_decay = 1e-6});
  lt::Trainer trainer(model, optimizer, kv::JointLoss{}, lt::Accumulate<>{window.batches},
                      lt::When{saving.bf16, lt::Autocast<lt::bf16>{}},
                      lt::When{saving.recompute, lt::Checkpointed<kv::ConformerBlock>{}},
                      lt::ClipGradNorm{5.0});
  const auto batch = make_batch(kClips / window.batches);
  for (int step = 0; step < 2; ++step) {
    bench_forget_peak();
    for (std::int64_t i = 0; i < window.batches; ++i) trainer.step(batch);
  }
  return static_cast<double>(bench_peak_bytes()) / 1e6;
}

void print(const std::string& name, double value, const char* peer, double peer_value) {
  std::printf(
      "{\"name\": \"%s\", \"value\": %.1f, \"unit\": \"MB\", \"peer\": \"%s\", \"peer_value\": %.1f}\n",
      name.c_str(), value, peer, peer_value);
  std::fflush(stdout);
}

/// Prints a row for each way to save memory beside the plain step, and one for accumulation beside all at
/// once.
void measure(const Size& size) {
  double at_once = 0;
  for (const auto& window : kWindows) {
    const auto row = std::string(size.name) + ", batch " + window.name + ": ";
    const double plain = peak_of(size, window, kPlain);
    if (window.batches == 1) at_once = plain;
    if (window.batches > 1) print(row + kPlain.name, plain, "batch 8: plain", at_once);
    for (const auto& saving : kSavings)
      print(row + saving.name, peak_of(size, window, saving), kPlain.name, plain);
  }
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (const auto& size : kSizes)
    if (argc < 2 || std::string(argv[1]) == size.name) measure(size);
}
