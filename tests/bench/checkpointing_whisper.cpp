// SPDX-License-Identifier: MIT
// Measures how Whisper's layers should save memory, and which: tiny.en's training step (forward, backward,
// AdamW) on batches of 4 clips of 30 s and 64 tokens, beside the step that keeps everything. One thread, CPU,
// fp32. The choices take turns. The rate is 0, so that each makes the same step, and all must have the same
// bits in loss and gradients.
//
//   checkpointing_whisper   with the weights that LOOPTORCH_WHISPER_CT2 names; prints a JSON object a row
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/state/weights/module_state.hpp>

#include "support/counting_allocator.hpp"
#include "support/interleaved.hpp"

#include <ATen/Parallel.h>

#include <whisper/formats/ctranslate2_import.hpp>
#include <whisper/model/model.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;

namespace {

constexpr std::int64_t kBatch = 4, kTokens = 64;
constexpr int kWarmUp = 1, kRounds = 5;

struct Layer {
  bool is_encoder;
  std::size_t number;  ///< Its index in its stack, from 0.
};

using Mode = lt::CheckpointMode;

/// A row: how each layer saves memory.
struct Choice {
  const char* name;
  std::function<Mode(const Layer&)> mode;
};

Mode recompute_if(bool chosen) { return chosen ? Mode::recompute : Mode::off; }

const Choice kChoices[] = {
    {"all light", [](const Layer&) { return Mode::light; }},
    {"all layers", [](const Layer&) { return Mode::recompute; }},
    {"the encoder's", [](const Layer& layer) { return recompute_if(layer.is_encoder); }},
    {"the decoder's", [](const Layer& layer) { return recompute_if(!layer.is_encoder); }},
    {"the encoder's, others light",
     [](const Layer& layer) { return layer.is_encoder ? Mode::recompute : Mode::light; }},
    {"every second of the encoder",
     [](const Layer& layer) { return recompute_if(layer.is_encoder && layer.number % 2 == 1); }},
};

/// The cost of one step.
struct Step {
  double ms;
  double peak_bytes;  ///< All tensors, including parameters, gradients and moments.
  double loss;
  double gradients;  ///< The sum of their squares.
};

class Training {
 public:
  explicit Training(whisper::Whisper model)
      : model_(std::move(model)), optimizer_(model_->parameters(), {.lr = 0, .weight_decay = 0}) {}

  void choose(const std::function<Mode(const Layer&)>& mode) {
    choose<whisper::EncoderLayer>(*model_->encoder(), true, mode);
    choose<whisper::DecoderLayer>(*model_->decoder(), false, mode);
  }

  Step step() {
    bench_forget_peak();
    const auto begin = bench::Clock::now();
    const at::Tensor loss = model_->loss(mel_BMT_, tokens_BL_, labels_BL_);
    loss.backward();
    optimizer_.step();
    const double ms = bench::microseconds(bench::Clock::now() - begin) / 1000;
    const auto peak_bytes = static_cast<double>(bench_peak_bytes());
    return {ms, peak_bytes, loss.item<double>(), take_gradients()};
  }

 private:
  /// Clears the gradients and returns the sum of their squares.
  double take_gradients() {
    double squares = 0;
    for (at::Tensor& parameter : model_->parameters()) {
      if (parameter.grad().defined()) squares += parameter.grad().pow(2).sum().item<double>();
      parameter.mutable_grad().reset();
    }
    return squares;
  }

  template <class Of>
  static void choose(torch::nn::Module& stack, bool is_encoder,
                     const std::function<Mode(const Layer&)>& mode) {
    std::size_t number = 0;
    for (const auto& module : stack.modules())
      if (auto* layer = module->as<lt::Checkpointed<Of>>())
        layer->checkpoint.mode = mode({is_encoder, number++});
  }

  whisper::Whisper model_;
  lt::FusedAdamW optimizer_;
  at::Tensor mel_BMT_ = torch::randn({kBatch, 80, 3000});
  at::Tensor tokens_BL_ = torch::randint(0, 50000, {kBatch, kTokens}, at::kLong);
  at::Tensor labels_BL_ = torch::randint(0, 50000, {kBatch, kTokens}, at::kLong);
};

whisper::Whisper load_model() {
  const char* folder = std::getenv("LOOPTORCH_WHISPER_CT2");
  if (!folder) throw lt::UsageError("LOOPTORCH_WHISPER_CT2 does not name the weights");
  const auto file = std::filesystem::path(folder) / "model.bin";
  auto [config, weights] = whisper::convert_ctranslate2(whisper::load_ctranslate2(file), file.string());
  whisper::Whisper model(config);
  lt::load_state_dict(model, weights);
  return model;
}

void check(const char* name, const Step& plain, const Step& chosen) {
  if (plain.loss == chosen.loss && plain.gradients == chosen.gradients) return;
  std::fprintf(stderr, "%s: loss %.17g and gradients %.17g, without recomputation %.17g and %.17g\n", name,
               chosen.loss, chosen.gradients, plain.loss, plain.gradients);
  std::exit(1);
}

double median_of(const std::vector<Step>& steps, double Step::*what) {
  std::vector<double> values;
  for (const Step& step : steps) values.push_back(step.*what);
  return bench::median(std::move(values));
}

void print(const char* name, const char* what, const char* unit, double value, double plain) {
  std::printf(
      "{\"name\": \"%s: %s\", \"value\": %.0f, \"unit\": \"%s\", \"peer\": \"none recomputed\", \"peer_value\": "
      "%.0f}\n",
      name, what, value, unit, plain);
  std::fflush(stdout);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  torch::manual_seed(1);
  Training training(load_model());

  std::vector<Step> plain;
  std::vector<std::vector<Step>> chosen(std::size(kChoices));
  const auto step = [&](const Choice& choice) {
    training.choose(choice.mode);
    return training.step();
  };
  for (int round = -kWarmUp; round < kRounds; ++round) {
    const Step without = step({"none", [](const Layer&) { return Mode::off; }});
    if (round >= 0) plain.push_back(without);
    for (std::size_t i = 0; i < std::size(kChoices); ++i) {
      const Step with = step(kChoices[i]);
      check(kChoices[i].name, without, with);
      if (round >= 0) chosen[i].push_back(with);
    }
  }
  for (std::size_t i = 0; i < std::size(kChoices); ++i) {
    print(kChoices[i].name, "ms/step", "ms", median_of(chosen[i], &Step::ms), median_of(plain, &Step::ms));
    print(kChoices[i].name, "peak bytes", "bytes", median_of(chosen[i], &Step::peak_bytes),
          median_of(plain, &Step::peak_bytes));
  }
}
