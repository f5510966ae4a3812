// SPDX-License-Identifier: MIT
// Muon (Jordan 2024; Liu et al. 2025, arXiv:2502.16982), with torch.optim.Muon's numbers. It orthogonalises a
// matrix's momentum by Newton-Schulz steps in bf16, so that the update has the same size in all directions.
// Use it for matrices and convolutions of hidden layers; embeddings, heads, biases and norms belong in a
// group with `adamw`. Keeps 4 bytes per parameter, half of AdamW's moments. Each Newton-Schulz step takes
// three matmuls.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/fused/adam_rule.hpp>
#include <looptorch/optim/fused/fused_optimizer.hpp>
#include <looptorch/optim/fused/rounded_weight.hpp>
#include <looptorch/optim/interface/small_updates.hpp>

#include <ATen/ops/addmm.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace looptorch {

/// How the rate follows from a matrix's shape.
enum class MuonRate {
  original,   ///< the rate times root(max(1, rows / columns)), as Jordan's
  like_adamw  ///< the rate times 0.2 root(max(rows, columns)), as Liu's: AdamW's rates and weight decay serve
};

/// Hyper-parameters of Muon, with PyTorch's defaults, and of AdamW for groups that are not orthogonalised.
struct MuonOptions {
  double lr = 1e-3;           ///< At least 0.
  double weight_decay = 0.1;  ///< Decoupled: parameters shrink by lr x weight_decay a step.
  double momentum = 0.95;     ///< Share of the momentum that is kept each step, in [0, 1).
  bool nesterov = true;       ///< Look ahead by one step.
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};  ///< Of a Newton-Schulz step.
  double eps = 1e-7;  ///< Lower bound of the norm that divides the momentum; with `adamw`, AdamW's eps.
  int steps = 5;      ///< Newton-Schulz steps, 1 to 99.
  MuonRate rate = MuonRate::original;
  bool adamw = false;  ///< True: this group's parameters are updated by AdamW, of any shape.
  std::array<double, 2> betas = {0.9, 0.999};  ///< AdamW's, with `adamw`.
};

/// Muon's state for the parameters of one group, each list in their order: `momentum`, or with `adamw`
/// AdamW's moments.
struct MuonMoments {
  std::vector<at::Tensor> momentum;       ///< Like the parameters; fp32 for narrower ones.
  std::vector<at::Tensor> first, second;  ///< AdamW's, of the same types.
  std::vector<at::Tensor> steps;          ///< 0-dim fp32.
};

namespace detail {

/// Returns a matrix with the same singular vectors and singular values near 1, in bf16 (the quintic iteration
/// of Jordan's Muon).
[[nodiscard]] inline at::Tensor orthogonalised(const at::Tensor& matrix, const MuonOptions& options) {
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor result = matrix.to(at::kBFloat16);
  if (is_tall) result = result.t();
  result = result / result.norm().clamp_min(options.eps);
  const auto [a, b, c] = options.coefficients;
  for (int i = 0; i < options.steps; ++i) {
    const at::Tensor gram = at::matmul(result, result.t());
    result = at::addmm(result, at::addmm(gram, gram, gram, b, c), result, a);
  }
  return is_tall ? result.t() : result;
}

/// Muon as an OptimizerRule, with AdamW for the groups that ask for it.
struct MuonRule {
  using Options = MuonOptions;
  using Moments = MuonMoments;
  using Field = MomentField<Moments, Options>;
  static constexpr const char* kName = "Muon";

  static bool is_muon(const Options& options, const at::Tensor&) { return !options.adamw; }
  static bool is_adamw(const Options& options, const at::Tensor&) { return options.adamw; }
  static at::ScalarType wide(const Options&, const at::Tensor& parameter) {
    return parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }

  static constexpr std::array<Field, 4> kFields{{
      {.key = "momentum_buffer", .list = &Moments::momentum, .kept = is_muon, .type = wide},
      {.key = "exp_avg", .list = &Moments::first, .kept = is_adamw, .type = wide},
      {.key = "exp_avg_sq", .list = &Moments::second, .kept = is_adamw, .type = wide},
      {.key = "step", .list = &Moments::steps, .counter = true},
  }};

  static void check(const Options& options) {
    check_adam_options(kName, options);
    if (!(options.momentum >= 0 && options.momentum < 1 && options.steps >= 1 && options.steps < 100))
      throw UsageError(message("Muon needs a momentum in [0, 1) and 1 to 99 steps; got momentum ",
                               options.momentum, ", steps ", options.steps));
  }

  static void check_parameter(const Options& options, const at::Tensor& parameter) {
    if (!options.adamw && parameter.dim() < 2)
      throw UsageError(message("Muon updates matrices and convolutions; put a parameter of shape ",
                               parameter.sizes(), " in a group with .adamw = true"));
  }

  static void apply(const Options& options, const FusedCall<Moments>& call) {
    if (call.parameters.front().is_cpu() && call.factors.overflowed_on_host()) return;
    for (std::size_t i = 0; i < call.parameters.size(); ++i)
      if (call.parameters[i].numel() > 0)
        options.adamw ? update_by_adamw(options, call, i) : update_matrix(options, call, i);
  }

 private:
  static void update_matrix(const Options& options, const FusedCall<Moments>& call, std::size_t i) {
    const at::Tensor& parameter = call.parameters[i];
    const at::Tensor& momentum = call.moments.momentum[i];
    const at::Tensor gradient = call.factors.applied_to(call.gradients[i].to(momentum.scalar_type()));
    const at::Tensor now = momentum.lerp(gradient, 1 - options.momentum);
    const at::Tensor matrix =
        (options.nesterov ? gradient.lerp(now, options.momentum) : now).reshape({parameter.size(0), -1});
    const double factor = shape_factor(options.rate, matrix);
    const at::Tensor update = orthogonalised(matrix, options).reshape(parameter.sizes());
    call.factors.replace(momentum, now);
    move(options, call, i, [&](const at::Tensor& weight, const auto& rate) {
      return weight * (1 - rate * options.weight_decay) - update.to(weight.scalar_type()) * (rate * factor);
    });
  }

  static void update_by_adamw(const Options& options, const FusedCall<Moments>& call, std::size_t i) {
    const at::Tensor &first = call.moments.first[i], &second = call.moments.second[i];
    const auto [beta1, beta2] = options.betas;
    const at::Tensor gradient = call.factors.applied_to(call.gradients[i].to(first.scalar_type()));
    const at::Tensor mean = first.lerp(gradient, 1 - beta1);
    const at::Tensor square = (second * beta2).addcmul_(gradient, gradient, 1 - beta2);
    call.factors.replace(first, mean), call.factors.replace(second, square);
    move(options, call, i, [&](const at::Tensor& weight, const auto& rate) {
      return adamw_weight(options, rate, weight, mean, square.sqrt(), call.moments.steps[i].to(at::kDouble));
    });
  }

  /// Replaces a weight by `moved(weight, rate)`, computed in fp32 for narrower ones.
  template <class Moved>
  static void move(const Options& options, const FusedCall<Moments>& call, std::size_t i, Moved&& moved) {
    const at::Tensor& parameter = call.parameters[i];
    const at::Tensor weight = parameter.to(wide(options, parameter));
    const at::Tensor now = call.with_rate(options.lr, [&](const auto& rate) { return moved(weight, rate); });
    if (!is_narrow(parameter)) return call.factors.replace(parameter, now);
    subtract_rounded(parameter, weight - now, call.factors, call.moments.steps[i].to(at::kDouble), 0);
  }

  static double shape_factor(MuonRate rate, const at::Tensor& matrix) {
    const auto rows = static_cast<double>(matrix.size(0)), columns = static_cast<double>(matrix.size(1));
    return rate == MuonRate::original ? std::sqrt(std::max(1.0, rows / columns))
                                      : 0.2 * std::sqrt(std::max(rows, columns));
  }
};

}  // namespace detail

/// Muon. optim/fused/fused_optimizer.hpp has its members. A convolution is a matrix of its output channels.
/// 16-bit weights are rounded stochastically. The constructor throws UsageError for a parameter of fewer than
/// two dimensions in a group without `adamw`.
class Muon : public detail::FusedOptimizer<detail::MuonRule>, public KeepsSmallUpdates {
 public:
  using FusedOptimizer::FusedOptimizer;
};

}  // namespace looptorch
