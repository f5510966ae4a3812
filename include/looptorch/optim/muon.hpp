// SPDX-License-Identifier: MIT
// Muon (Jordan 2024; Liu et al. 2025, arXiv:2502.16982), an optimizer for the matrices and convolutions of
// hidden layers, with the results of torch.optim.Muon. Muon orthogonalises a matrix's momentum by
// Newton-Schulz steps in bf16, of three matmuls each, so that the update has the same size in all directions.
// Embeddings, heads, biases and norms belong in a parameter group with `adamw`. Keeps 4 bytes per parameter,
// half of AdamW's moments. On a device, matrices of one shape are updated together, so that the host issues
// few kernels.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/fused/adam_rule.hpp>
#include <looptorch/optim/fused/fused_optimizer.hpp>
#include <looptorch/optim/fused/rounded_weight.hpp>
#include <looptorch/optim/interface/small_updates.hpp>

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
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

/// Returns a matrix, or several, with the same singular vectors and singular values near 1, in bf16 (the
/// quintic iteration of Jordan's Muon).
[[nodiscard]] inline at::Tensor orthogonalised(const at::Tensor& matrix, const MuonOptions& options) {
  const auto plus = [&](const at::Tensor& m, const at::Tensor& x, const at::Tensor& y, double beta,
                        double alpha) {
    return m.dim() == 2 ? at::addmm(m, x, y, beta, alpha) : at::baddbmm(m, x, y, beta, alpha);
  };
  const bool is_tall = matrix.size(-2) > matrix.size(-1);
  at::Tensor result = matrix.to(at::kBFloat16);
  if (is_tall) result = result.mT();
  result =
      result /
      at::linalg_vector_norm(result, 2, at::IntArrayRef{-2, -1}, /*keepdim=*/true).clamp_min(options.eps);
  const auto [a, b, c] = options.coefficients;
  for (int i = 0; i < options.steps; ++i) {
    const at::Tensor gram = at::matmul(result, result.mT());
    result = plus(result, plus(gram, gram, gram, b, c), result, a, 1);
  }
  return is_tall ? result.mT() : result;
}

/// Muon as an OptimizerRule, with AdamW for the groups that ask for it.
struct MuonRule {
  using Options = MuonOptions;
  using Moments = MuonMoments;
  using Field = MomentField<Moments, Options>;
  static constexpr const char* kName = "Muon";
  static constexpr std::tuple kOptions{RuleOption{"weight_decay", &Options::weight_decay},
                                       RuleOption{"momentum", &Options::momentum},
                                       RuleOption{"nesterov", &Options::nesterov},
                                       RuleOption{"coefficients", &Options::coefficients},
                                       RuleOption{"eps", &Options::eps},
                                       RuleOption{"steps", &Options::steps},
                                       RuleOption{"rate", &Options::rate},
                                       RuleOption{"adamw", &Options::adamw},
                                       RuleOption{"betas", &Options::betas}};

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
    if (options.adamw) return update_by_adamw(options, call);
    std::map<std::vector<std::int64_t>, std::vector<std::size_t>> by_shape;
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < call.parameters.size(); ++i) {
      if (call.parameters[i].numel() == 0) continue;
      by_shape[call.parameters[i].sizes().vec()].push_back(i);
      elements += call.parameters[i].numel();
    }
    for (const auto& [shape, those] : by_shape) {
      const std::size_t most = most_together(call.parameters[those.front()], elements);
      for (std::size_t first = 0; first < those.size(); first += most) {
        const auto begin = those.begin() + static_cast<std::ptrdiff_t>(first);
        const auto count = static_cast<std::ptrdiff_t>(std::min(most, those.size() - first));
        update_alike(options, call, {begin, begin + count});
      }
    }
  }

 private:
  /// Returns how many matrices like this one are updated together: as many as keep temporaries small beside
  /// the weights, `elements` in all. Returns 1 on a CPU, where calling a kernel costs next to nothing.
  static std::size_t most_together(const at::Tensor& matrix, std::int64_t elements) {
    if (matrix.is_cpu()) return 1;
    constexpr std::int64_t kShare = 32, kFew = std::int64_t{1} << 20;
    return static_cast<std::size_t>(
        std::max<std::int64_t>(1, std::max(elements / kShare, kFew) / matrix.numel()));
  }

  /// Tensors of one shape that are updated together: several are stacked along a new first dimension.
  struct Stacked {
    Stacked(at::TensorList all, const std::vector<std::size_t>& those) {
      for (const std::size_t i : those) each.push_back(all[i]);
      together = each.size() == 1 ? each.front() : at::stack(each);
    }
    /// Copies the parts of a tensor like `together` to the tensors.
    void replace(const at::Tensor& now) const {
      at::_foreach_copy_(each, each.size() == 1 ? std::vector{now} : now.unbind());
    }
    std::vector<at::Tensor> each;
    at::Tensor together;
  };

  /// Updates matrices of one shape.
  static void update_alike(const Options& options, const FusedCall<Moments>& call,
                           const std::vector<std::size_t>& those) {
    const Stacked parameters(call.parameters, those), momentum(call.moments.momentum, those);
    const at::Tensor gradient =
        call.factors.applied_to(Stacked(call.gradients, those).together.to(momentum.together.scalar_type()));
    const at::Tensor now = momentum.together.lerp(gradient, 1 - options.momentum);
    const at::Tensor ahead = options.nesterov ? gradient.lerp(now, options.momentum) : now;
    const at::Tensor& first = parameters.each.front();
    const at::Tensor matrices =
        ahead.reshape(those.size() == 1 ? std::vector<std::int64_t>{first.size(0), -1}
                                        : std::vector<std::int64_t>{now.size(0), first.size(0), -1});
    const double factor = shape_factor(options.rate, matrices);
    const at::Tensor update = orthogonalised(matrices, options).reshape(now.sizes());
    momentum.replace(call.factors.chosen(momentum.together, now));
    const at::Tensor weight = parameters.together.to(wide(options, first));
    const at::Tensor moved = call.with_rate(options.lr, [&](const auto& rate) {
      return weight * (1 - rate * options.weight_decay) - update.to(weight.scalar_type()) * (rate * factor);
    });
    if (!is_narrow(first)) return parameters.replace(call.factors.chosen(weight, moved));
    subtract_rounded(parameters.together, weight - moved, call.factors,
                     call.moments.steps[those.front()].to(at::kDouble), 0);
    if (those.size() > 1) parameters.replace(parameters.together);
  }

  /// Updates the parameters of a call by LibTorch's kernel, or by tensor operations if they are in 16 bits.
  static void update_by_adamw(const Options& options, const FusedCall<Moments>& call) {
    const auto [beta1, beta2] = options.betas;
    if (!is_narrow(call.parameters.front()))
      return with_fused_rate(call, options.lr, [&, beta1 = beta1, beta2 = beta2](const auto& rate) {
        at::_fused_adamw_(call.parameters, call.gradients, call.moments.first, call.moments.second, {},
                          call.moments.steps, rate, beta1, beta2, options.weight_decay, options.eps,
                          /*amsgrad=*/false, /*maximize=*/false, call.factors.divisor,
                          call.factors.found_inf);
      });
    for (std::size_t i = 0; i < call.parameters.size(); ++i) {
      const at::Tensor& parameter = call.parameters[i];
      if (parameter.numel() == 0) continue;
      const at::Tensor &first = call.moments.first[i], &second = call.moments.second[i];
      const at::Tensor gradient = call.factors.applied_to(call.gradients[i].to(at::kFloat));
      const at::Tensor mean = first.lerp(gradient, 1 - beta1);
      const at::Tensor square = (second * beta2).addcmul_(gradient, gradient, 1 - beta2);
      call.factors.replace(first, mean), call.factors.replace(second, square);
      const at::Tensor step = call.moments.steps[i].to(at::kDouble), weight = parameter.to(at::kFloat);
      const at::Tensor moved = call.with_rate(options.lr, [&](const auto& rate) {
        return adamw_weight(options, rate, weight, mean, square.sqrt(), step);
      });
      subtract_rounded(parameter, weight - moved, call.factors, step, 0);
    }
  }

  static double shape_factor(MuonRate rate, const at::Tensor& matrix) {
    const auto rows = static_cast<double>(matrix.size(-2)), columns = static_cast<double>(matrix.size(-1));
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
