// SPDX-License-Identifier: MIT
// The module behind `Lora<Layer>`: the layer itself, with room for an adapter, y = W x + b + scale B A x.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/type_name.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// Options of adapters; the defaults are those of peft's LoraConfig.
struct LoraOptions {
  std::int64_t rank = 8;  ///< Columns of B and rows of A; at least 1.
  double alpha = 8.0;     ///< The adapter's output is multiplied by alpha / rank; above 0.
  double dropout = 0.0;   ///< The share of the adapter's inputs that training sets to 0, in [0, 1).
  std::vector<std::string> patterns = {"*"};  ///< Full names of layers: `*`, `?`, `[abc]`.
  bool rank_stabilized = false;  ///< Multiplies by alpha / sqrt(rank) instead (arXiv 2312.03732).
};

/// A holder of torch::nn::Linear, or of a module derived from it.
template <class Layer>
concept LinearLayer = std::derived_from<typename Layer::ContainedType, torch::nn::LinearImpl>;

namespace detail {

inline void check_lora(const LoraOptions& options) {
  if (options.rank < 1) throw UsageError(message("Lora's rank must be at least 1, got ", options.rank));
  if (!(options.alpha > 0.0 && options.alpha < HUGE_VAL))
    throw UsageError(message("Lora's alpha must be above 0, got ", options.alpha));
  if (!(options.dropout >= 0.0 && options.dropout < 1.0))
    throw UsageError(message("Lora's dropout must be in [0, 1), got ", options.dropout));
  if (options.patterns.empty()) throw UsageError("Lora needs at least one pattern of layers' names");
}

/// A layer's adapter, or room for one. Adapters are fp32, or fp64 for such a layer.
class LoraSlot {
 public:
  virtual ~LoraSlot() = default;

  [[nodiscard]] bool has_adapter() const { return static_cast<bool>(a_); }
  [[nodiscard]] bool is_merged() const { return kept_.defined(); }
  [[nodiscard]] const LoraOptions& adapter_options() const { return options_; }
  [[nodiscard]] at::Tensor& a() { return a_->weight; }  ///< [rank, inputs]
  [[nodiscard]] at::Tensor& b() { return b_->weight; }  ///< [outputs, rank]
  [[nodiscard]] virtual torch::nn::LinearImpl& layer() = 0;

  void attach(const LoraOptions& options) {
    torch::nn::LinearImpl& linear = layer();
    const at::Tensor& weight = linear.weight;
    const auto type = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto make = [&](std::int64_t inputs, std::int64_t outputs) {
      torch::nn::Linear half(torch::nn::LinearOptions(inputs, outputs).bias(false));
      half->to(weight.device(), type);
      half->train(linear.is_training());
      return half;
    };
    auto a = make(weight.size(1), options.rank), b = make(options.rank, weight.size(0));
    {
      const c10::NoGradGuard no_grad;
      b->weight.zero_();
    }
    a_ = linear.register_module("lora_A", std::move(a));
    b_ = linear.register_module("lora_B", std::move(b));
    options_ = options;
  }

  void merge() {
    if (is_merged()) return;
    const c10::NoGradGuard no_grad;
    at::Tensor& weight = layer().weight;
    at::Tensor kept = weight.clone();
    weight.copy_(weight.to(a().scalar_type()) + at::matmul(b(), a()) * scale());
    kept_ = std::move(kept);
  }

  void unmerge() {
    if (!is_merged()) return;
    const c10::NoGradGuard no_grad;
    layer().weight.copy_(kept_);
    kept_ = at::Tensor();
  }

  void fold() {
    merge();
    kept_ = at::Tensor();
    layer().unregister_module("lora_A");
    layer().unregister_module("lora_B");
    a_ = b_ = nullptr;
  }

 protected:
  /// Returns `output` plus what the adapter makes of `input`.
  at::Tensor adapt(const at::Tensor& input, const at::Tensor& output) {
    if (!has_adapter()) return output;
    const bool training = layer().is_training();
    if (is_merged()) {
      if (training && c10::GradMode::is_enabled())
        throw UsageError("a Lora layer is merged, and merged layers cannot be trained: call unmerge_lora");
      return output;
    }
    const at::Tensor dropped = at::dropout(input.to(a().scalar_type()), options_.dropout, training);
    const at::Tensor change = at::linear(at::linear(dropped, a()), b()) * scale();
    return output + change.to(output.scalar_type());
  }

 private:
  [[nodiscard]] double scale() const {
    const auto rank = static_cast<double>(options_.rank);
    return options_.alpha / (options_.rank_stabilized ? std::sqrt(rank) : rank);
  }

  LoraOptions options_;
  torch::nn::Linear a_{nullptr}, b_{nullptr};
  at::Tensor kept_;  // the weight before it was merged
};

/// The implementation: one `forward`, which AnyModule needs.
template <LinearLayer Layer>
class LoraImpl : public Layer::ContainedType, public LoraSlot {
 public:
  using Impl = typename Layer::ContainedType;
  using Impl::Impl;

  /// Maps [..., inputs] to [..., outputs].
  at::Tensor forward(const at::Tensor& input) { return adapt(input, Impl::forward(input)); }

  [[nodiscard]] torch::nn::LinearImpl& layer() override { return *this; }

  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& = std::nullopt) const override {
    throw UsageError(
        message("Lora<", type_name<Layer>(), "> cannot be cloned: make a new one and copy its parameters"));
  }
};

}  // namespace detail
}  // namespace looptorch
