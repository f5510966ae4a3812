// SPDX-License-Identifier: MIT
// Implements SGD with momentum, with one kernel per parameter group (at::_fused_sgd_). Results are those of
// torch.optim.SGD. The kernel also divides gradients by the window's loss weight, applies the clipping
// factor, and skips an overflowed step. Memory: one buffer per parameter with momentum, none without.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/fused/fused_call.hpp>
#include <looptorch/optim/fused/fused_optimizer.hpp>
#include <looptorch/optim/state/moment_fields.hpp>

#include <ATen/ops/_fused_sgd.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <vector>

namespace looptorch {

/// Hyper-parameters of SGD, with PyTorch's defaults.
struct FusedSGDOptions {
  double lr = 1e-3;           ///< At least 0.
  double momentum = 0.0;      ///< Share of the momentum buffer that is kept each step; at least 0.
  double dampening = 0.0;     ///< Share of each gradient but the first that is left out of the buffer.
  double weight_decay = 0.0;  ///< L2: weight_decay x parameter is added to the gradient.
  bool nesterov = false;      ///< Look ahead by one step; needs momentum, and no dampening.
};

/// The momentum that SGD keeps for the parameters of one group, in their order; undefined before a
/// parameter's first gradient.
struct SGDMoments {
  std::vector<at::Tensor> momentum;  ///< Like the parameters with momentum, else empty.
};

namespace detail {

struct SGDRule {
  using Options = FusedSGDOptions;
  using Moments = SGDMoments;
  static constexpr const char* kName = "FusedSGD";
  static constexpr bool by_element = true;
  static constexpr std::tuple kOptions{
      RuleOption{"momentum", &Options::momentum}, RuleOption{"dampening", &Options::dampening},
      RuleOption{"weight_decay", &Options::weight_decay}, RuleOption{"nesterov", &Options::nesterov}};
  static constexpr std::array<MomentField<Moments, Options>, 1> kFields{{
      {.key = "momentum_buffer",
       .list = &Moments::momentum,
       .kept = [](const Options& options, const at::Tensor&) { return options.momentum != 0; }},
  }};

  static void check(const Options& options) {
    if (!(options.lr >= 0 && options.momentum >= 0 && options.weight_decay >= 0 &&
          std::isfinite(options.dampening)))
      throw UsageError(message("FusedSGD needs lr, momentum and weight_decay of at least 0; got lr ",
                               options.lr, ", momentum ", options.momentum, ", weight_decay ",
                               options.weight_decay, ", dampening ", options.dampening));
    if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
      throw UsageError(message("FusedSGD's nesterov needs momentum above 0 and no dampening; got momentum ",
                               options.momentum, ", dampening ", options.dampening));
  }

  /// True with dampening: the first gradient goes into the buffer undamped. Without dampening a buffer of
  /// zeros gives the same result.
  static bool first_differs(const Options& options) {
    return options.momentum != 0 && options.dampening != 0;
  }

  static void apply(const Options& options, const FusedCall<Moments>& call) {
    const at::Tensor& parameter = call.parameters.front();
    const bool narrow = parameter.scalar_type() == at::kHalf || parameter.scalar_type() == at::kBFloat16;
    const auto momentum = options.momentum != 0 ? at::TensorList(call.moments.momentum) : at::TensorList();
    if (narrow && parameter.is_cpu())
      run_widened(options, call, momentum);
    else
      run(options, call, call.parameters, call.gradients, momentum);
  }

 private:
  static void run(const Options& options, const FusedCall<Moments>& call, at::TensorList parameters,
                  at::TensorList gradients, at::TensorList momentum) {
    with_fused_rate(call, options.lr, [&](const auto& rate) {
      at::_fused_sgd_(parameters, gradients, momentum, options.weight_decay, options.momentum, rate,
                      options.dampening, options.nesterov, /*maximize=*/false, call.first,
                      call.factors.divisor, call.factors.found_inf);
    });
  }

  /// Updates fp16 and bf16 parameters through fp32 copies, since LibTorch's CPU kernel does not change them
  /// (2.11).
  static void run_widened(const Options& options, const FusedCall<Moments>& call, at::TensorList momentum) {
    const auto parameters = widened(call.parameters), buffers = widened(momentum);
    run(options, call, parameters, widened(call.gradients), buffers);
    for (std::size_t i = 0; i < parameters.size(); ++i) call.parameters[i].copy_(parameters[i]);
    for (std::size_t i = 0; i < buffers.size(); ++i) momentum[i].copy_(buffers[i]);
  }

  static std::vector<at::Tensor> widened(at::TensorList tensors) {
    std::vector<at::Tensor> result;
    for (const at::Tensor& tensor : tensors) result.push_back(tensor.to(at::kFloat));
    return result;
  }
};

}  // namespace detail

/// SGD. optim/fused/fused_optimizer.hpp has its members. Only with dampening, `step` reads `found_inf` in
/// steps in which some parameter has its first gradient.
class FusedSGD : public detail::FusedOptimizer<detail::SGDRule> {
 public:
  using FusedOptimizer::FusedOptimizer;
};

}  // namespace looptorch
