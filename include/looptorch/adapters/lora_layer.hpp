// SPDX-License-Identifier: MIT
// Implements `Lora<Layer>`, a linear layer with an optional adapter: y = W x + b + scale B A x. Declares the
// options of adapters, too. Include lora.hpp instead.
#pragma once

#include <looptorch/adapters/int8_weight.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/text/type_name.hpp>

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
  double dropout = 0.0;   ///< Fraction of the adapter's inputs set to 0 in training, in [0, 1).
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

/// The scale of each row of an 8-bit weight, as a removable module.
struct Int8ScaleImpl : torch::nn::Module {
  explicit Int8ScaleImpl(at::Tensor scale_N) : scale(register_buffer("scale", std::move(scale_N))) {}
  at::Tensor scale;  ///< [outputs], fp32
};
TORCH_MODULE_IMPL(Int8Scale, Int8ScaleImpl);

/// A layer's optional adapter. Adapters are fp32, or fp64 for an fp64 layer.
class LoraSlot {
 public:
  virtual ~LoraSlot() = default;

  [[nodiscard]] bool has_adapter() const { return static_cast<bool>(a_); }
  [[nodiscard]] bool is_merged() const { return kept_.defined(); }
  [[nodiscard]] const LoraOptions& adapter_options() const { return options_; }
  [[nodiscard]] at::Tensor& a() { return a_->weight; }  ///< [rank, inputs]
  [[nodiscard]] at::Tensor& b() { return b_->weight; }  ///< [outputs, rank]
  [[nodiscard]] virtual torch::nn::LinearImpl& layer() = 0;

  /// Adds an adapter: submodules lora_A, random, and lora_B, zero, so that the layer's result does not
  /// change.
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

  /// True if the layer multiplies by 8-bit rows. A merged layer multiplies by the whole weight.
  [[nodiscard]] bool is_int8() const { return int8_ && !is_merged(); }

  /// Quantises the frozen weight to 8 bits, given its largest_of_rows.
  void hold_in_int8(const at::Tensor& largest_N) {
    const c10::NoGradGuard no_grad;
    at::Tensor& weight = layer().weight;
    type_ = weight.scalar_type();
    Int8Weight held = to_int8(weight, largest_N);
    int8_ = layer().register_module("int8", Int8Scale(std::move(held.scale_N)));
    weight.set_data(held.rows_NK);
  }

  /// Adds the adapter to the layer's weight until `unmerge`. Keeps the former weight.
  void merge() {
    if (is_merged()) return;
    const c10::NoGradGuard no_grad;
    at::Tensor& weight = layer().weight;
    if (is_int8()) {
      at::Tensor kept = weight.detach();
      weight.set_data(with_adapter(widened(held(), a().scalar_type())).to(type_));
      kept_ = std::move(kept);
    } else {
      at::Tensor kept = weight.clone();
      weight.copy_(with_adapter(weight.to(a().scalar_type())));
      kept_ = std::move(kept);
    }
  }

  /// Restores the weight from before `merge`.
  void unmerge() {
    if (!is_merged()) return;
    const c10::NoGradGuard no_grad;
    int8_ ? layer().weight.set_data(kept_.to(layer().weight.device())) : void(layer().weight.copy_(kept_));
    kept_ = at::Tensor();
  }

  /// Dequantises a layer without an adapter to its former type.
  void widen() {
    const c10::NoGradGuard no_grad;
    layer().weight.set_data(widened(held(), type_));
    drop_scale();
  }

  /// Merges and removes the adapter.
  void fold() {
    merge();
    kept_ = at::Tensor();
    if (int8_) drop_scale();
    layer().unregister_module("lora_A");
    layer().unregister_module("lora_B");
    a_ = b_ = nullptr;
  }

 protected:
  /// Returns the layer's output, by its 8-bit weight.
  at::Tensor int8_product(const at::Tensor& input) { return int8_linear(input, held(), layer().bias); }

  /// Returns `output` plus the adapter's output for `input`.
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
  void drop_scale() {
    layer().unregister_module("int8");
    int8_ = nullptr;
  }
  [[nodiscard]] Int8Weight held() {
    const at::Tensor& weight = layer().weight;
    if (weight.scalar_type() != at::kChar)
      throw UsageError(message("the 8-bit weight of a Lora layer was converted to ", weight.scalar_type(),
                               ": call to(dtype) before hold_base_in_int8"));
    return {weight, int8_->scale};
  }
  [[nodiscard]] at::Tensor with_adapter(const at::Tensor& weight) {
    return weight + at::matmul(b(), a()) * scale();
  }
  [[nodiscard]] double scale() const {
    const auto rank = static_cast<double>(options_.rank);
    return options_.alpha / (options_.rank_stabilized ? std::sqrt(rank) : rank);
  }

  LoraOptions options_;
  torch::nn::Linear a_{nullptr}, b_{nullptr};
  at::Tensor kept_;                   // the weight before it was merged
  Int8Scale int8_{nullptr};           // scale of an 8-bit weight
  at::ScalarType type_ = at::kFloat;  // that weight's former type
};

/// The implementation: one `forward`, which AnyModule needs.
template <LinearLayer Layer>
class LoraImpl : public Layer::ContainedType, public LoraSlot {
 public:
  using Impl = typename Layer::ContainedType;
  using Impl::Impl;

  /// Maps [..., inputs] to [..., outputs].
  at::Tensor forward(const at::Tensor& input) {
    return adapt(input, is_int8() ? int8_product(input) : Impl::forward(input));
  }

  [[nodiscard]] torch::nn::LinearImpl& layer() override { return *this; }

  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& = std::nullopt) const override {
    throw UsageError(
        message("Lora<", type_name<Layer>(), "> cannot be cloned: make a new one and copy its parameters"));
  }
};

}  // namespace detail
}  // namespace looptorch
