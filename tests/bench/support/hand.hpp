// SPDX-License-Identifier: MIT
// Hand-written training loops of LibTorch alone, with which the Trainer's cost of a step is compared: a small
// MLP (64-64-10, batches of 32) and fused AdamW, with each feature that a policy provides.
#pragma once

#include <looptorch/memory/empty_cache.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

namespace bench {

using Net = torch::nn::Sequential;

struct Batch {
  at::Tensor features;  // [32, 64]
  at::Tensor labels;    // [32]
};

inline constexpr double kRate = 1e-3;
inline constexpr std::int64_t kWarmupSteps = 20;
inline constexpr std::int64_t kValidateEvery = 50;
inline constexpr std::int64_t kFlushEvery = 50;

inline Net make_net() {
  torch::manual_seed(0);
  return Net(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 10));
}

inline std::vector<Batch> make_batches(std::int64_t count) {
  torch::manual_seed(1);
  const auto features = torch::randn({32 * count, 64});
  const auto labels = torch::randint(0, 10, {32 * count}, torch::kLong);
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < 32 * count; i += 32)
    batches.push_back({features.slice(0, i, i + 32), labels.slice(0, i, i + 32)});
  return batches;
}

inline at::Tensor objective(Net& net, const Batch& batch) {
  return torch::nn::functional::cross_entropy(net->forward(batch.features), batch.labels);
}

/// Returns the stream to which progress lines are written.
inline std::FILE* nowhere() {
  static std::FILE* const file = std::fopen("/dev/null", "w");
  return file;
}

/// The parts of a hand-written training loop; each row combines those of its features.
class Hand {
 public:
  Hand(const std::vector<Batch>& batches, std::int64_t steps, at::Device device = at::kCPU)
      : net(make_net()),
        loss_scale(torch::full({}, 65536.0, device)),
        batches_(batches),
        total_steps_(steps),
        device_(device),
        growth_tracker_(torch::zeros({}, at::TensorOptions(torch::kInt).device(device))) {
    net->to(device);
    parameters_ = net->parameters();
    for (const auto& parameter : parameters_) {
      first_.push_back(torch::zeros_like(parameter));
      second_.push_back(torch::zeros_like(parameter));
      steps_.push_back(torch::zeros({}, at::TensorOptions(torch::kFloat).device(device)));
    }
  }

  const Batch& next() {
    const Batch& batch = batches_[position_];
    position_ = position_ + 1 == batches_.size() ? 0 : position_ + 1;
    return batch;
  }

  at::Tensor loss() { return objective(net, next()); }

  void zero_grad() {
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
  }

  void collect() {
    gradients_.clear();
    for (const auto& parameter : parameters_) gradients_.push_back(parameter.grad());
  }

  /// Makes AdamW's update. `collect` must have gathered the gradients.
  void update() {
    torch::NoGradGuard no_gradients;
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(parameters_, gradients_, first_, second_, {}, steps_, rate, 0.9, 0.999, 1e-2, 1e-8,
                      /*amsgrad=*/false, /*maximize=*/false);
    ++step;
  }

  /// Makes a whole step without features.
  void plain_step() {
    zero_grad();
    loss().backward();
    collect();
    update();
  }

  void clipped_step() {
    zero_grad();
    loss().backward();
    collect();
    clip_norm(1.0);
    update();
  }

  /// Makes a step under autocast to fp16, its loss scaled.
  void scaled_step() {
    zero_grad();
    (autocast_loss(at::kHalf) * loss_scale).backward();
    collect();
    update_scaled();
  }

  void accumulated_step() {
    accumulate();
    update();
  }

  void averaged_step() {
    plain_step();
    average(0.999);
  }

  /// Accumulates four micro-batches, each of a quarter's weight.
  void accumulate() {
    zero_grad();
    for (int i = 0; i < 4; ++i) (loss() / 4).backward();
    collect();
  }

  /// Returns the loss under autocast.
  at::Tensor autocast_loss(at::ScalarType type) {
    at::autocast::set_autocast_enabled(device_.type(), true);
    at::autocast::set_autocast_dtype(device_.type(), type);
    at::autocast::increment_nesting();
    at::Tensor value = loss();
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_.type(), false);
    return value;
  }

  /// Updates with gradients of the loss times `loss_scale`, like torch.amp.GradScaler.
  void update_scaled() {
    torch::NoGradGuard no_gradients;
    at::Tensor found = torch::zeros({}, device_);
    at::_amp_foreach_non_finite_check_and_unscale_(
        gradients_, found, loss_scale.to(torch::kDouble).reciprocal().to(torch::kFloat));
    if (found.item<float>() == 0) update();
    at::_amp_update_scale_(loss_scale, growth_tracker_, found, 2.0, 0.5, 2000);
  }

  /// Returns the factor of torch::nn::utils::clip_grad_norm_, in foreach form, which is faster.
  at::Tensor clip_factor(double max_norm) const {
    torch::NoGradGuard no_gradients;
    const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients_, 2)), 2);
    return (max_norm / (norm + 1e-6)).clamp_max(1.0);
  }

  void clip_norm(double max_norm) { at::_foreach_mul_(gradients_, clip_factor(max_norm)); }

  void clip_value(double value) {
    torch::NoGradGuard no_gradients;
    at::_foreach_clamp_min_(gradients_, -value);
    at::_foreach_clamp_max_(gradients_, value);
  }

  /// Updates an exponential moving average of the weights.
  void average(double decay) {
    torch::NoGradGuard no_gradients;
    if (averages_.empty())
      for (const auto& parameter : parameters_) averages_.push_back(parameter.clone());
    else
      at::_foreach_lerp_(averages_, parameters_, 1 - decay);
  }

  /// Freezes the first layer: no gradient, and not in the optimizer.
  void freeze_first_layer() {
    for (auto* list : {&parameters_, &first_, &second_, &steps_}) {
      if (list == &parameters_)
        for (std::size_t i = 0; i < 2; ++i) (*list)[i].set_requires_grad(false);
      list->erase(list->begin(), list->begin() + 2);
    }
  }

  /// Sets the rate of the next update: a linear warm-up, then a linear decay.
  void schedule() {
    const auto at = static_cast<double>(step);
    const auto decay_steps = static_cast<double>(total_steps_ - kWarmupSteps);
    rate = kRate *
           (step < kWarmupSteps ? at / kWarmupSteps : std::max(0.0, 1 - (at - kWarmupSteps) / decay_steps));
  }

  /// Computes the mean loss over `held_out` at intervals of steps.
  void validate(const std::vector<Batch>& held_out) {
    if (step % kValidateEvery != 0) return;
    torch::NoGradGuard no_gradients;
    net->eval();
    double sum = 0;
    for (const Batch& batch : held_out) sum += objective(net, batch).item<double>();
    validation = sum / static_cast<double>(held_out.size());
    net->train();
  }

  /// True once the last `patience` validations were no better than the best before.
  bool lost_patience(int patience) {
    if (step % kValidateEvery != 0) return false;
    waited_ = validation < best_ ? 0 : waited_ + 1;
    best_ = std::min(best_, validation);
    return waited_ >= patience;
  }

  /// Keeps the total that a progress line shows; on a CPU there is no device to wait for.
  void track(const at::Tensor& value) { total += value.item<double>(); }

  /// Prints a progress line at most every ten seconds.
  void show_progress() {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < std::chrono::seconds(10)) return;
    shown_ = now;
    std::fprintf(nowhere(), "step %lld loss %.4g\n", static_cast<long long>(step), total);
    std::fflush(nowhere());
  }

  void flush_cache() {
    if (step % kFlushEvery != 0) return;
    looptorch::empty_cache(parameters_.front().device());
  }

  Net net;
  double rate = kRate;
  std::int64_t step = 0;
  double validation = 0;
  double total = 0;
  at::Tensor loss_scale;

 private:
  const std::vector<Batch>& batches_;
  std::size_t position_ = 0;
  std::int64_t total_steps_;
  at::Device device_;
  std::vector<at::Tensor> parameters_, gradients_, first_, second_, steps_, averages_;
  at::Tensor growth_tracker_;
  double best_ = std::numeric_limits<double>::infinity();
  int waited_ = 0;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

}  // namespace bench
