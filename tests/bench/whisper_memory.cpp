// SPDX-License-Identifier: MIT
// The memory of fine-tuning Whisper from tiny to large-v3 with all of its weights, by what saves memory: the
// Trainer of whisper_finetune, windows of 16 clips one at a time, 30 s and 64 tokens each, random weights of
// the real shapes. CPU, one thread: optimizers update in place, as their kernels do on NVIDIA's GPUs.
//
//   whisper_memory [--only TEXT] [--real TEXT]   prints a JSON object a row: the peak of all tensors of a
//                                                process, in bytes. Rows that contain --real's text make a
//                                                real step, whose time is a row of its own; the others make
//                                                it without arithmetic (looptorch/shapes_only), which takes
//                                                as much memory
#include <looptorch/app/command_line.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/shapes_only/shapes_only.hpp>
#include <looptorch/trainer.hpp>

#include "support/advice/candidate.hpp"
#include "support/advice/whisper.hpp"
#include "support/interleaved.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace looptorch_bench;

constexpr std::int64_t kTokens = 64, kAccumulate = 16;

/// A way to train, as flags of whisper_finetune.
struct Combination {
  std::string name, flags;
};

const std::vector<Combination> kCombinations{
    {"plain", ""},
    {"encoder recomputed", "--gradient-checkpointing encoder"},
    {"all recomputed", "--gradient-checkpointing all"},
    {"all recomputed, bf16 products", "--gradient-checkpointing all --bf16"},
    {"all recomputed, 8-bit moments", "--gradient-checkpointing all --optimizer adamw8bit"},
    {"all recomputed, bf16 products, 8-bit moments",
     "--gradient-checkpointing all --bf16 --optimizer adamw8bit"},
    {"bf16 weights and moments", "--gradient-checkpointing all --optimizer adamwbf16"},
    {"bf16 weights, 8-bit moments", "--gradient-checkpointing all --optimizer adamw8bit --bf16-weights"},
    {"bf16 weights, Adafactor", "--gradient-checkpointing all --optimizer adafactor --bf16-weights"},
    {"bf16 weights and moments, gradients in moments",
     "--gradient-checkpointing all --optimizer adamwbf16 --update-in-backward moments"},
    {"bf16 weights, 8-bit moments, gradients summed in bf16",
     "--gradient-checkpointing all --optimizer adamw8bit --bf16-weights --update-in-backward sums"},
    {"least", "--gradient-checkpointing all --optimizer adafactor --bf16-weights --update-in-backward sums"},
    {"adapters", "--gradient-checkpointing all --bf16-weights --lora 8"},
    {"adapters, weights in 8 bits", "--gradient-checkpointing all --bf16-weights --lora 8 --int8-base"},
};

/// Without accumulation.
const std::vector<Combination> kReleased{
    {"plain, accumulation 1", ""},
    {"least, accumulation 1",
     "--gradient-checkpointing all --optimizer adamw8bit --bf16-weights --update-in-backward"},
};

struct Measured {
  std::int64_t bytes = 0;
  double seconds = 0;  ///< Of the second step, in which moments are there.
};

/// Makes two steps, and returns the peak of all tensors over them.
Measured measure(const whisper::WhisperConfig& config, const std::string& flags, std::int64_t accumulate) {
  const auto options = whisper_options("whisper_finetune --batch-size 1 --gradient-accumulation " +
                                       std::to_string(accumulate) + " " + flags);
  auto& memory = looptorch::HostMemory::counted();
  const std::int64_t before = memory.allocated_bytes();
  Measured measured;
  with_whisper_trainer(config, options, [&](auto& trainer, const whisper::Whisper&) {
    memory.reset_peak();  // the model is made in fp32 here, where the program reads it weight by weight
    const WhisperBatch clip = batch_of(config, 1, kTokens);
    const std::vector<WhisperBatch> some(static_cast<std::size_t>(std::min<std::int64_t>(accumulate, 2)),
                                         clip);
    trainer.fit(some, {.epochs = 1});  // a short window, after which moments are there
    const std::vector<WhisperBatch> window(static_cast<std::size_t>(accumulate), clip);
    const auto begin = bench::Clock::now();
    trainer.fit(window, {.epochs = 2});
    measured.seconds = bench::microseconds(bench::Clock::now() - begin) / 1e6;
  });
  measured.bytes = memory.peak_bytes() - before;
  return measured;
}

struct Options {
  std::string only, real = "nothing";
};

/// The peak that full fine-tuning is to reach, in bytes.
struct Goal {
  const char* row;
  std::int64_t bytes;
};
constexpr Goal kGoals[] = {
    {"tiny: least", 500'000'000},        {"base: least", 700'000'000},
    {"small: least", 1'800'000'000},     {"medium: least", 4'000'000'000},
    {"large-v3: least", 12'000'000'000}, {"small: least, accumulation 1", 1'600'000'000}};

/// Prints a row, whose peer is in whisper_memory.py if `peer_value` is 0.
void print(const std::string& name, const char* unit, double value, const char* peer, double peer_value) {
  std::printf("{\"name\": \"%s\", \"value\": %.12g, \"unit\": \"%s\"", name.c_str(), value, unit);
  if (peer_value > 0) std::printf(", \"peer\": \"%s\", \"peer_value\": %.12g", peer, peer_value);
  std::puts("}");
  std::fflush(stdout);
}

/// Measures the rows of one size, each beside the first, "plain".
class Rows {
 public:
  Rows(std::string size, const whisper::WhisperConfig& config, const Options& options)
      : size_(std::move(size)), config_(config), options_(options) {}

  void add(const Combination& combination, std::int64_t accumulate) {
    const auto name = size_ + ": " + combination.name;
    if (name.find(options_.only) == std::string::npos) return;
    const bool is_real = name.find(options_.real) != std::string::npos;
    std::optional<looptorch::ShapesOnly> shapes_only;
    if (!is_real) shapes_only.emplace();
    const Measured measured = measure(config_, combination.flags, accumulate);
    const auto bytes = static_cast<double>(measured.bytes);
    print(name, is_real ? "bytes" : "bytes by shape", bytes, "plain", plain_bytes_);
    if (is_real) print(name + ", a step", "s", measured.seconds, "plain", plain_seconds_);
    for (const Goal& goal : kGoals)
      if (name == goal.row)
        print(name + ", and its goal", "bytes", bytes, "goal", static_cast<double>(goal.bytes));
    if (plain_bytes_ == 0) plain_bytes_ = bytes;
    if (plain_seconds_ == 0 && is_real) plain_seconds_ = measured.seconds;
  }

 private:
  std::string size_;
  whisper::WhisperConfig config_;
  const Options& options_;
  double plain_bytes_ = 0, plain_seconds_ = 0;
};

void run(const Options& options) {
  for (const auto& [size, config] : whisper_sizes()) {
    if (size == "large-v3-turbo") continue;
    Rows rows(size, config, options);
    for (const Combination& combination : kCombinations) rows.add(combination, kAccumulate);
    for (const Combination& combination : kReleased) rows.add(combination, 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  looptorch::HostMemory::counted();
  Options options;
  looptorch::app::CommandLine line("whisper_memory", "Measures the memory of fine-tuning Whisper's sizes.");
  line.option("only", "TEXT", options.only, "rows whose names contain this, as \"small: \"");
  line.option("real", "TEXT", options.real, "rows that are measured on real steps, which take minutes");
  return looptorch::app::run_main(argc, argv, line, [&] { run(options); });
}
