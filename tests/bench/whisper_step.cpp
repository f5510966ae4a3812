// SPDX-License-Identifier: MIT
// Measures a step of fine-tuning Whisper tiny.en as whisper_finetune composes it: windows of 4 batches of 4
// clips of 30 s and 64 tokens, fused AdamW; plain, with all layers recomputed, under autocast to bf16, and
// both. One thread, CPU. The rate is 0, so that each step is the same.
//
//   whisper_step FOLDER   writes the model that LOOPTORCH_WHISPER_CT2 names to FOLDER, as transformers reads
//   it; then
//                         reads names of modes from stdin, makes a step in each, and answers each with a JSON
//                         object; whisper_step.py, the peer, sends them and takes turns
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/policies/checkpointed.hpp>
#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/trainer.hpp>

#include "support/counting_allocator.hpp"
#include "support/interleaved.hpp"

#include <ATen/Parallel.h>

#include <whisper/formats/ctranslate2_import.hpp>
#include <whisper/formats/huggingface_folder.hpp>
#include <whisper/model/model.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;

namespace {

constexpr std::int64_t kAccumulate = 2, kClips = 4, kTokens = 64, kHighestToken = 50'000;

struct Speech {
  at::Tensor mel_BMT, tokens_BL, labels_BL;
};

/// Draws the batches of a window, as whisper_step.py does.
std::vector<Speech> draw_batches(const whisper::WhisperConfig& config) {
  torch::manual_seed(1);
  std::vector<Speech> batches;
  for (std::int64_t i = 0; i < kAccumulate; ++i) {
    const at::Tensor mel_BMT = torch::randn({kClips, config.num_mel_bins, 3000});
    const at::Tensor labels_BL = torch::randint(0, kHighestToken, {kClips, kTokens}, at::kLong);
    const at::Tensor start_B1 = at::full({kClips, 1}, config.decoder_start_token_id, at::kLong);
    batches.push_back({mel_BMT, at::cat({start_B1, labels_BL.narrow(1, 0, kTokens - 1)}, 1), labels_BL});
  }
  return batches;
}

class Training {
 public:
  explicit Training(whisper::Whisper model)
      : model_(std::move(model)), batches_(draw_batches(model_->config())) {}

  /// Makes a step in `mode` and prints its time, the most bytes that tensors took, and the mean loss of its
  /// batches.
  void step(const std::string& mode) {
    bench_forget_peak();
    const auto begin = bench::Clock::now();
    const double loss = steps_.at(mode)();
    const double ms = bench::microseconds(bench::Clock::now() - begin) / 1000;
    std::printf("{\"ms\": %.3f, \"bytes\": %lld, \"loss\": %.9g}\n", ms,
                static_cast<long long>(bench_peak_bytes()), loss);
    std::fflush(stdout);
  }

 private:
  double fit(bool recompute, bool bf16) {
    double loss = 0;
    const auto objective = [&loss](whisper::Whisper& model, const Speech& batch) {
      const at::Tensor value = model->loss(batch.mel_BMT, batch.tokens_BL, batch.labels_BL);
      loss += value.item<double>() / kAccumulate;
      return value;
    };
    const lt::CheckpointOptions options{
        .mode = recompute ? lt::CheckpointMode::recompute : lt::CheckpointMode::light,
        .random_state = false,
        .parts = recompute ? kClips : 1};
    lt::Trainer trainer(model_, optimizer_, objective, lt::Accumulate<kAccumulate>{},
                        lt::When{bf16, lt::Autocast<lt::bf16>{}},
                        lt::Checkpointed<whisper::EncoderLayer>{options},
                        lt::Checkpointed<whisper::DecoderLayer>{options});
    trainer.fit(batches_);
    return loss;
  }

  whisper::Whisper model_;
  lt::FusedAdamW optimizer_{model_->parameters(), {.lr = 0, .weight_decay = 0}};
  std::vector<Speech> batches_;
  std::map<std::string, std::function<double()>> steps_{
      {"plain", [this] { return fit(false, false); }},
      {"recomputed", [this] { return fit(true, false); }},
      {"bf16", [this] { return fit(false, true); }},
      {"bf16, recomputed", [this] { return fit(true, true); }},
  };
};

/// Loads the model, and writes it to `folder` for transformers.
whisper::Whisper import_model(const fs::path& folder) {
  const char* source = std::getenv("LOOPTORCH_WHISPER_CT2");
  if (!source) throw lt::UsageError("LOOPTORCH_WHISPER_CT2 does not name the weights");
  const auto file = fs::path(source) / "model.bin";
  auto [config, weights] = whisper::convert_ctranslate2(whisper::load_ctranslate2(file), file.string());
  whisper::set_token_ids(config,
                         whisper::added_token_ids(lt::load_json(fs::path(source) / "tokenizer.json")));
  fs::create_directories(folder);
  lt::save_safetensors(folder / "model.safetensors", weights, {{"format", "pt"}});
  lt::write_file_atomically(folder / "config.json", whisper::config_to_json(config).dump(2) + "\n");
  whisper::Whisper model(config);
  lt::load_state_dict(model, weights);
  return model;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return std::fputs("usage: whisper_step FOLDER\n", stderr), 2;
  at::set_num_threads(1);
  Training training(import_model(words[1]));
  std::puts("{}");  // the model is written
  std::fflush(stdout);
  for (std::string mode; std::getline(std::cin, mode);) training.step(mode);
}
