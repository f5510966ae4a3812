// SPDX-License-Identifier: MIT
// Sums a window's gradients in bf16, 2 bytes per parameter, with stochastic rounding, for
// UpdateInBackward<SumsInBf16>. In the window's last backward each sum is added to its parameter's gradient
// and freed, and the parameter is updated.
#pragma once

#include <looptorch/base/random.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/kernels/rounded_sum_kernels.hpp>
#include <looptorch/optim/narrow/rounded_sum.hpp>
#include <looptorch/policies/accumulation/backward_hooks.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The sink that sums gradients in bf16, and updates each parameter in the window's last backward.
class NarrowSums : public GradientSink {
 public:
  /// Parameters of fewer than `min_size` elements have sums in their gradients' dtype.
  NarrowSums(ParameterUpdate update, std::vector<at::Tensor> parameters, std::int64_t min_size,
             std::uint64_t seed)
      : update_(std::move(update)),
        parameters_(std::move(parameters)),
        sums_(parameters_.size()),
        min_size_(min_size),
        seed_(seed) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) index_[parameters_[i].unsafeGetTensorImpl()] = i;
    prepare_rounded_sums(parameters_);
  }

  void begin(const BackwardContext& backward) {
    if (backward.number == 0) drop();
    const auto step = static_cast<std::uint64_t>(backward.run.progress().step);
    rounding_seed_ = derive_seed(derive_seed(seed_, step), static_cast<std::uint64_t>(backward.number));
    last_ = backward.last;
    if (last_) update_.begin(backward);
    if (backward.correction != 1)
      for (const at::Tensor& sum : sums_)
        if (sum.defined()) sum.mul_(backward.correction);
  }

  /// Updates parameters whose sums are left over, as after a window that turned out short.
  void finish(const BackwardContext& backward) {
    at::NoGradGuard no_gradients;
    if (backward.vetoed) return drop();
    update_.begin(backward);
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      if (!sums_[i].defined()) continue;
      parameters_[i].mutable_grad() = at::empty_like(parameters_[i]).copy_(sums_[i]);
      sums_[i] = at::Tensor();
      update_.make(parameters_[i]);
      parameters_[i].mutable_grad() = at::Tensor();
    }
  }

  /// Returns the bytes of the sums that are held now.
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t bytes = 0;
    for (const at::Tensor& sum : sums_)
      if (sum.defined()) bytes += static_cast<std::int64_t>(sum.nbytes());
    return bytes;
  }

  void drop() {
    for (at::Tensor& sum : sums_) sum = at::Tensor();
  }

 protected:
  void consume_gradient(const at::Tensor& parameter) override {
    const at::Tensor& gradient = parameter.grad();
    require_dense(gradient, "UpdateInBackward");
    const std::size_t index = index_.at(parameter.unsafeGetTensorImpl());
    at::Tensor& sum = sums_[index];
    if (!last_) return add(sum, gradient, index);
    if (sum.defined()) {
      gradient.add_(sum);
      sum = at::Tensor();
    }
    update_.make(parameter);
  }

 private:
  void add(at::Tensor& sum, const at::Tensor& gradient, std::size_t index) {
    const bool narrow = gradient.numel() >= min_size_;
    if (!sum.defined() && !narrow) {
      sum = gradient;
    } else if (!narrow) {
      sum.add_(gradient);
    } else {
      if (!sum.defined()) sum = at::empty_like(gradient, gradient.options().dtype(at::kBFloat16)).zero_();
      add_rounded(sum, gradient, derive_seed(rounding_seed_, index));
    }
  }

  ParameterUpdate update_;
  std::vector<at::Tensor> parameters_, sums_;
  std::unordered_map<const void*, std::size_t> index_;
  std::int64_t min_size_;
  std::uint64_t seed_, rounding_seed_ = 0;
  bool last_ = false;
};

}  // namespace looptorch::detail
