// SPDX-License-Identifier: MIT
// Measures a window of fine-tuning Whisper on a device with the Trainer of whisper_finetune, in its modes:
// two micro-batches of clips of 30 s with 64 tokens, random weights, a rate of 0, so that each window is the
// same.
//
//   whisper_step DEVICE [quick] FOLDER   writes each model's weights below FOLDER, where whisper_step.py, the
//                                        peer, finds them
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/state/weights/save_weights.hpp>
#include <looptorch/trainer.hpp>

#include "support/advice/whisper.hpp"
#include "support/device_run.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;

namespace {

using namespace bench;
using looptorch_bench::WhisperBatch;

constexpr std::int64_t kAccumulate = 2, kTokens = 64;

/// One way to train: a name, and the flags of whisper_finetune.
struct Mode {
  const char* name;
  std::string flags;
  std::int64_t clips;
  std::int64_t windows;
  bool captures = false;
};

/// Draws a window's batches as whisper_step.py does.
std::vector<WhisperBatch> draw_batches(const whisper::WhisperConfig& config, std::int64_t clips,
                                       at::Device device) {
  torch::manual_seed(1);
  std::vector<WhisperBatch> batches;
  for (std::int64_t i = 0; i < kAccumulate; ++i) {
    const at::Tensor mel_BMT = torch::randn({clips, config.num_mel_bins, 2 * config.max_source_positions});
    const at::Tensor labels_BL = torch::randint(0, config.vocab_size - 1000, {clips, kTokens}, at::kLong);
    const at::Tensor start_B1 = at::full({clips, 1}, config.decoder_start_token_id, at::kLong);
    batches.push_back({mel_BMT.to(device),
                       at::cat({start_B1, labels_BL.narrow(1, 0, kTokens - 1)}, 1).to(device),
                       labels_BL.to(device)});
  }
  return batches;
}

class WhisperSteps {
 public:
  WhisperSteps(DeviceRun run, std::string size, whisper::WhisperConfig config)
      : run_(run), size_(std::move(size)), config_(std::move(config)) {
    torch::manual_seed(7);
    weights_ = whisper::Whisper(config_);
    const at::NoGradGuard no_gradients;
    for (at::Tensor& parameter : weights_->parameters())
      if (parameter.dim() > 1) parameter.normal_(0, 0.02);
  }

  void save(const fs::path& folder) const {
    fs::create_directories(folder);
    lt::save_weights(*weights_, folder / "model.safetensors", {{"format", "pt"}}, at::kFloat);
    lt::write_file_atomically(folder / "config.json", whisper::config_to_json(config_).dump(2) + "\n");
  }

  void measure(const Mode& mode) {
    const auto options =
        looptorch_bench::whisper_options("whisper_finetune --batch-size 1 --gradient-accumulation " +
                                         std::to_string(kAccumulate) + " " + mode.flags);
    whisper::Whisper model(config_);
    copy_weights(model);
    model->to(run_.device);
    const auto optimizer = options.memory.make_optimizer(model, /*learning_rate=*/0.0);
    const auto objective = [](whisper::Whisper& model, const WhisperBatch& batch) {
      return model->loss(batch.mel_BMT, batch.tokens_BL, batch.labels_BL);
    };
    const auto& training = options.training;
    lt::Trainer trainer(
        model, *optimizer, objective, lt::Accumulate<kAccumulate>{},
        lt::When{training.mixed_precision(), lt::Autocast<>{.type = training.autocast_type()}},
        lt::BackendFlags{.tf32 = true}, lt::When{mode.captures, lt::CaptureGraphs{}},
        lt::Checkpointed<whisper::EncoderLayer>{options.checkpoint(options.recompute != "none")},
        lt::Checkpointed<whisper::DecoderLayer>{options.checkpoint(options.recompute == "all")},
        lt::ClipGradNorm{1.0});
    const auto window = draw_batches(config_, mode.clips, run_.device);
    // Kernels, moments, graphs and the allocator's blocks are there from the fourth window on.
    TimedBatches timed(run_, window, 3 * kAccumulate, mode.windows * kAccumulate);
    trainer.fit(timed, {.epochs = 1});
    print(mode, timed.cost(mode.windows));
  }

 private:
  void copy_weights(whisper::Whisper& model) const {
    const at::NoGradGuard no_gradients;
    const auto from = weights_->parameters(), to = model->parameters();
    for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  }

  void print(const Mode& mode, const Cost& cost) const {
    const std::string name = "whisper " + size_ + ", B " + std::to_string(mode.clips) + " x 2, " + mode.name;
    print_row(name, cost.ms, "ms/window");
    print_row(name + ": host", cost.host_ms, "ms/window");
    print_row(name + ": peak", static_cast<double>(cost.peak_bytes) / 1e6, "MB");
  }

  DeviceRun run_;
  std::string size_;
  whisper::WhisperConfig config_;
  whisper::Whisper weights_ = nullptr;
};

whisper::WhisperConfig size_of(const std::string& name) {
  for (const auto& [size, config] : looptorch_bench::whisper_sizes())
    if (size == name) return config;
  throw lt::UsageError("there is no Whisper " + name);
}

/// Returns a model so small that a CPU makes a step of it at once.
whisper::WhisperConfig quick_config() {
  auto config = looptorch_bench::whisper_size(64, 2, 2);
  config.vocab_size = 2000;
  config.decoder_start_token_id = config.bos_token_id = config.pad_token_id = 1, config.eos_token_id = 2;
  config.max_source_positions = 100;
  return config;
}

bool measure_size(const DeviceRun& run, const fs::path& folder, const std::string& size,
                  const whisper::WhisperConfig& config, const std::vector<Mode>& modes) {
  WhisperSteps steps(run, size, config);
  steps.save(folder / size);
  bool all = true;
  for (const Mode& mode : modes)
    all = attempt(run, "whisper " + size + ", " + mode.name, [&] { steps.measure(mode); }) && all;
  return all;
}

}  // namespace

int main(int count, char** words) {
  const DeviceRun run = DeviceRun::of(count - 1, words);  // the last word is the folder
  const fs::path folder = words[count - 1];
  if (run.quick)
    return measure_size(run, folder, "quick", quick_config(), {{"bf16", "--bf16", 2, 2}}) ? 0 : 1;
  const std::string recomputed = "--bf16 --gradient-checkpointing all";
  const bool small = measure_size(run, folder, "small", size_of("small"),
                                  {{"tf32", "", 8, 6},
                                   {"bf16", "--bf16", 8, 8},
                                   {"fp16", "--fp16", 8, 8},
                                   {"bf16, recomputed", recomputed, 8, 6},
                                   {"bf16", "--bf16", 32, 4},
                                   {"tf32, captured", "", 8, 6, true},
                                   {"bf16, captured", "--bf16", 8, 8, true},
                                   {"fp16, captured", "--fp16", 8, 8, true},
                                   {"bf16, recomputed, captured", recomputed, 8, 6, true},
                                   {"bf16, captured", "--bf16", 32, 4, true}});
  const bool tiny = measure_size(run, folder, "tiny", size_of("tiny"),
                                 {{"bf16", "--bf16", 8, 20}, {"bf16, captured", "--bf16", 8, 20, true}});
  return small && tiny ? 0 : 1;
}
