// SPDX-License-Identifier: MIT
// Layers with spectral normalisation (Miyato et al., 2018) for the discriminator: each weight is divided by
// its largest singular value, which limits how much a small change of a spectrogram can change the judgement.
// In training each forward pass refines the singular value by one round of power iteration, which multiplies
// the weight by a vector twice.
//
// Shapes: O outputs, I inputs; the weight as a matrix is [O, I x everything else].
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace spectrogram_gan {

/// Options of `SpectralNorm`. The order of the fields is API.
struct SpectralNormOptions {
  std::int64_t power_iterations = 1;  ///< rounds in each forward pass in training
  std::int64_t dim = 0;               ///< dimension of the outputs: 0, or 1 in a transposed convolution
  double eps = 1e-12;                 ///< smallest norm by which a vector is divided
};

/// `forward(weight)` returns the weight scaled to a spectral norm of approximately 1, with the numbers of
/// `torch.nn.utils.parametrizations.spectral_norm`. Buffers `u` and `v` are the current singular vectors;
/// they change only in training mode. Several passes may be differentiated together. Runs in the weight's own
/// type, also under autocast.
class SpectralNormImpl : public torch::nn::Module {
 public:
  /// Begins with random vectors and 15 rounds. Throws UsageError for fewer than 1 iteration and a dimension
  /// that the weight lacks. A weight of one dimension is divided by its norm, and has no buffers.
  explicit SpectralNormImpl(const at::Tensor& weight, SpectralNormOptions options = {}) : options_(options) {
    if (options.power_iterations < 1)
      throw looptorch::UsageError(looptorch::message("SpectralNorm: ", options.power_iterations,
                                                     " power iterations; needed is at least 1"));
    if (options.dim < 0 || options.dim >= weight.dim())
      throw looptorch::UsageError(looptorch::message("SpectralNorm: dimension ", options.dim,
                                                     " of a weight of shape ", weight.sizes()));
    if (weight.dim() == 1) return;
    const torch::NoGradGuard no_grad;
    const auto matrix = as_matrix(weight);
    u = register_buffer("u", unit(at::empty({matrix.size(0)}, matrix.options()).normal_()));
    v = register_buffer("v", unit(at::empty({matrix.size(1)}, matrix.options()).normal_()));
    iterate(matrix, kFirstIterations);
  }

  [[nodiscard]] at::Tensor forward(const at::Tensor& weight) {
    const c10::impl::ExcludeDispatchKeyGuard full_precision(c10::autocast_dispatch_keyset);
    if (weight.dim() == 1) return unit(weight);
    const auto matrix = as_matrix(weight);
    if (is_training()) iterate(matrix.detach(), options_.power_iterations);
    // Copies, since the next pass changes the buffers before this one is differentiated.
    return weight / at::dot(u.clone(), at::mv(matrix, v.clone()));
  }

  at::Tensor u, v;

 private:
  static constexpr std::int64_t kFirstIterations = 15;

  [[nodiscard]] at::Tensor norm_of(const at::Tensor& vector) const {
    return at::linalg_vector_norm(vector).clamp_min(options_.eps);
  }

  [[nodiscard]] at::Tensor unit(const at::Tensor& vector) const { return vector / norm_of(vector); }

  [[nodiscard]] at::Tensor as_matrix(const at::Tensor& weight) const {
    return (options_.dim == 0 ? weight : weight.movedim(options_.dim, 0)).flatten(1);
  }

  void iterate(const at::Tensor& matrix, std::int64_t rounds) {
    const torch::NoGradGuard no_grad;
    for (std::int64_t i = 0; i < rounds; ++i) {
      write_unit(at::mv(matrix, v), u);
      write_unit(at::mv(matrix.t(), u), v);
    }
  }

  void write_unit(const at::Tensor& vector, at::Tensor& out) const {
    at::div_out(out, vector, norm_of(vector));
  }

  SpectralNormOptions options_;
};
TORCH_MODULE(SpectralNorm);

/// A convolution whose weight has spectral norm 1.
class SpectralConv2dImpl : public torch::nn::Conv2dImpl {
 public:
  explicit SpectralConv2dImpl(const torch::nn::Conv2dOptions& options)
      : Conv2dImpl(options), norm(register_module("norm", SpectralNorm(weight))) {}

  at::Tensor forward(const at::Tensor& x) {
    return at::conv2d(x, norm(weight), bias, options.stride(),
                      std::get<torch::ExpandingArray<2>>(options.padding()), options.dilation(),
                      options.groups());
  }

  SpectralNorm norm;
};
TORCH_MODULE(SpectralConv2d);

/// A linear layer whose weight has spectral norm 1.
class SpectralLinearImpl : public torch::nn::LinearImpl {
 public:
  SpectralLinearImpl(std::int64_t inputs, std::int64_t outputs)
      : LinearImpl(inputs, outputs), norm(register_module("norm", SpectralNorm(weight))) {}

  at::Tensor forward(const at::Tensor& x) { return at::linear(x, norm(weight), bias); }

  SpectralNorm norm;
};
TORCH_MODULE(SpectralLinear);

}  // namespace spectrogram_gan
