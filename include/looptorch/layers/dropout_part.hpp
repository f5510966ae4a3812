// SPDX-License-Identifier: MIT
// Implements dropout as a part of a custom autograd node, such as feed_forward.hpp's. Kernels, values and
// random numbers are those of at::dropout.
#pragma once

#include <looptorch/base/device/accelerator.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_dropout_backward.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <tuple>

namespace looptorch::detail {

/// One dropout of an autograd node, which holds it as a member. Saves the mask in `forward`; `again` and
/// `gradient` apply the saved mask and draw nothing.
class DropoutPart {
 public:
  /// `rate` is at least 0 and below 1; 0 does nothing.
  explicit DropoutPart(double rate = 0) : rate_(rate) {}

  /// Returns the result, and saves what backward needs. Called once.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) {
    if (rate_ == 0) return x;
    if (computes_on_cpu(x)) {
      const at::Tensor factors = at::empty_like(x).bernoulli_(1 - rate_).div_(1 - rate_);
      kept_ = {factors, /*is_output=*/false};
      return x * factors;
    }
    auto [result, is_kept] = at::native_dropout(x, rate_, /*train=*/true);
    kept_ = {is_kept, /*is_output=*/false};
    return result;
  }
  [[nodiscard]] at::Tensor unpack() const { return kept_.unpack(); }
  /// Returns the result with the same random numbers; `kept` is the unpacked mask.
  [[nodiscard]] at::Tensor again(const at::Tensor& x, const at::Tensor& kept) const {
    if (rate_ == 0) return x;
    return kept.scalar_type() == at::kBool ? x * kept * (1 / (1 - rate_)) : x * kept;
  }
  /// Returns the gradient of x; `create_graph` if it is differentiated again.
  [[nodiscard]] at::Tensor gradient(const at::Tensor& gradient, const at::Tensor& kept,
                                    bool create_graph) const {
    if (rate_ == 0 || create_graph || kept.scalar_type() != at::kBool) return this->again(gradient, kept);
    return at::native_dropout_backward(gradient, kept, 1 / (1 - rate_));
  }
  void release() { kept_.reset_data(); }

 private:
  double rate_;
  torch::autograd::SavedVariable kept_;  ///< Factors on a CPU, as at::dropout has them; elsewhere a mask.
};

}  // namespace looptorch::detail
