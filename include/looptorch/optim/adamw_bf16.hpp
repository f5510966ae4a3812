// SPDX-License-Identifier: MIT
// AdamW for weights in bf16 or fp16, with moments in bf16: 6 bytes per parameter in all, where plain AdamW
// takes 12 (fp32 weights and moments). Most updates are smaller than half the spacing of bf16 numbers (0.2 to
// 0.4 % of the weight), so rounding to the nearest would lose them. This optimizer rounds stochastically.
// With `exact` it instead stores what rounding to bf16 loses, in 2 bytes more. Dividing by the window's
// weight (for fp16 weights also by the loss scale), clipping and skipping an overflowed step need no kernel
// of their own.
#pragma once

#include <looptorch/optim/fused/adam_rule.hpp>
#include <looptorch/optim/fused/fused_optimizer.hpp>
#include <looptorch/optim/interface/small_updates.hpp>
#include <looptorch/optim/kernels/adamw_bf16_kernels.hpp>
#include <looptorch/optim/kernels/adamw_table.hpp>
#include <looptorch/optim/narrow/bf16_loop.hpp>
#include <looptorch/optim/narrow/rounded_sum.hpp>
#include <looptorch/optim/state/moment_accumulator.hpp>

#include <ATen/Parallel.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

namespace looptorch {

/// Hyper-parameters of AdamWBf16: AdamW's, and how bf16 weights are kept.
struct AdamWBf16Options {
  double lr = 1e-3;                            ///< At least 0.
  std::array<double, 2> betas = {0.9, 0.999};  ///< Decay rates of the first and second moment, in [0, 1).
  double eps = 1e-8;                           ///< Added to the root of the second moment; at least 0.
  double weight_decay = 1e-2;                  ///< Decoupled: parameters shrink by lr x weight_decay a step.
  bool exact = false;  ///< Keep the other 16 bits of fp32 for each bf16 weight: 2 bytes more. Not for fp16.
};

/// AdamWBf16's state for the parameters of one group, each list in their order; undefined before a
/// parameter's first gradient.
struct AdamWBf16Moments {
  std::vector<at::Tensor> first, second;  ///< bf16, in the parameters' shapes.
  std::vector<at::Tensor> lost;   ///< int16, of bf16 parameters with `exact`: fp32 bits less the weight's.
  std::vector<at::Tensor> steps;  ///< 0-dim fp32.
};

namespace detail {

struct AdamWBf16Rule {
  using Options = AdamWBf16Options;
  using Moments = AdamWBf16Moments;
  using Field = MomentField<Moments, Options>;
  static constexpr const char* kName = "AdamWBf16";
  static constexpr std::tuple kOptions{RuleOption{"betas", &Options::betas}, RuleOption{"eps", &Options::eps},
                                       RuleOption{"weight_decay", &Options::weight_decay},
                                       RuleOption{"exact", &Options::exact}};

  static at::ScalarType bf16(const Options&, const at::Tensor&) { return at::kBFloat16; }
  static at::ScalarType int16(const Options&, const at::Tensor&) { return at::kShort; }
  static bool keeps_lost(const Options& options, const at::Tensor& parameter) {
    return options.exact && parameter.scalar_type() == at::kBFloat16;
  }
  static constexpr std::array<Field, 4> kFields{{
      {.key = "exp_avg", .list = &Moments::first, .type = bf16},
      {.key = "exp_avg_sq", .list = &Moments::second, .type = bf16},
      {.key = "lost_bits", .list = &Moments::lost, .kept = keeps_lost, .type = int16},
      {.key = "step", .list = &Moments::steps, .counter = true},
  }};

  static void check(const Options& options) { check_adam_options(kName, options); }

  static void check_parameter(const Options& options, const at::Tensor& parameter) {
    if (options.exact) require_no_fp16(parameter, kName, "exact");
  }

  static constexpr const KernelSource& kKernels = kAdamWBf16Source;

  static void apply(const Options& options, const FusedCall<Moments>& call) {
    if (const ReadyKernels ready = kernels_for(kKernels, call.parameters.front()))
      return update_by_kernel(options, call, ready);
    const bool on_host = call.parameters.front().is_cpu();
    if (on_host && call.factors.overflowed_on_host()) return;
    for (std::size_t i = 0; i < call.parameters.size(); ++i)
      on_host ? update_on_host(options, call, i) : update_by_operations(options, call, i);
  }

 private:
  static bool is_split(const FusedCall<Moments>& call, std::size_t i) {
    return has(call.moments.lost, i) && call.parameters[i].scalar_type() == at::kBFloat16;
  }

  static void update_by_kernel(const Options& options, const FusedCall<Moments>& call,
                               const ReadyKernels& ready) {
    const at::Tensor &one = call.parameters.front(), none;
    AdamWLauncher launcher(kKernels, "adamw_bf16", one, ready, adamw_header(options, call));
    for (std::size_t i = 0; i < call.parameters.size(); ++i)
      launcher.add({.weights = call.parameters[i],
                    .gradients = call.gradients[i],
                    .first = call.moments.first[i],
                    .second = call.moments.second[i],
                    .first_scales = none,
                    .second_scales = none,
                    .lost = is_split(call, i) ? call.moments.lost[i] : none,
                    .step = call.moments.steps[i]});
    launcher.flush();
  }

  static void update_on_host(const Options& options, const FusedCall<Moments>& call, std::size_t i) {
    const at::Tensor& parameter = call.parameters[i];
    if (is_split(call, i)) return run<SplitWeight>(options, call, i, parameter, call.gradients[i]);
    if (parameter.scalar_type() == at::kBFloat16)
      return run<Bf16Weight>(options, call, i, parameter, call.gradients[i]);
    if (parameter.scalar_type() == at::kHalf)
      return run<Fp16Weight>(options, call, i, parameter, call.gradients[i]);
    if (parameter.scalar_type() == at::kFloat)
      return run<SingleWeight>(options, call, i, parameter, call.gradients[i]);
    const at::Tensor wide = parameter.to(at::kFloat);
    run<SingleWeight>(options, call, i, wide, call.gradients[i].to(at::kFloat));
    parameter.copy_(wide);
  }

  template <class Weight>
  static void run(const Options& options, const FusedCall<Moments>& call, std::size_t i,
                  const at::Tensor& parameter, const at::Tensor& gradient) {
    using Stored = typename Weight::Stored;
    const auto memory_of = [](const at::Tensor& tensor) { return tensor.mutable_data_ptr(); };
    const Moments& moments = call.moments;
    const double step = *moments.steps[i].const_data_ptr<float>();
    std::int16_t* lost = nullptr;
    if constexpr (std::is_same_v<Weight, SplitWeight>)
      lost = static_cast<std::int16_t*>(memory_of(moments.lost[i]));
    const Bf16Loop<Weight> loop{.weights = static_cast<Stored*>(memory_of(parameter)),
                                .lost = lost,
                                .gradients = static_cast<const Stored*>(gradient.const_data_ptr()),
                                .first = static_cast<std::uint16_t*>(memory_of(moments.first[i])),
                                .second = static_cast<std::uint16_t*>(memory_of(moments.second[i])),
                                .size = parameter.numel(),
                                .update = static_cast<std::uint64_t>(step),
                                .numbers = AdamNumbers::of(options, step, call.factors.divisor_on_host())};
    constexpr auto kCount = static_cast<std::int64_t>(kBlockElements);
    constexpr std::int64_t kBlocksATask = 64;
    at::parallel_for(0, (parameter.numel() + kCount - 1) / kCount, kBlocksATask,
                     [&loop](std::int64_t begin, std::int64_t end) { run_widest(loop, begin, end); });
  }

  // ---- On an accelerator without a kernel ----

  static void update_by_operations(const Options& options, const FusedCall<Moments>& call, std::size_t i) {
    const at::Tensor &parameter = call.parameters[i], &first = call.moments.first[i];
    const at::Tensor& second = call.moments.second[i];
    const bool split = is_split(call, i);
    const at::Tensor gradient = call.factors.applied_to(call.gradients[i].to(at::kFloat));
    const at::Tensor mean = first.to(at::kFloat).lerp_(gradient, 1 - options.betas[0]);
    const at::Tensor square =
        second.to(at::kFloat).mul_(options.betas[1]).addcmul_(gradient, gradient, 1 - options.betas[1]);
    const at::Tensor before = split ? joined(parameter, call.moments.lost[i]) : parameter.to(at::kFloat);
    const at::Tensor weight = call.with_rate(options.lr, [&](const auto& rate) {
      return adamw_weight(options, rate, before, mean, square.sqrt(), call.moments.steps[i]);
    });
    call.factors.replace(first, rounded(mean, first)), call.factors.replace(second, rounded(square, second));
    if (split) {
      const at::Tensor exact = with_one_nan(weight), narrow = cut(bits(exact) + 0x8000);
      call.factors.replace(call.moments.lost[i], bits(exact) - bits(narrow));
      call.factors.replace(parameter, narrow);
    } else {
      call.factors.replace(parameter, is_narrow(parameter) ? rounded(weight, parameter) : weight);
    }
  }

  static at::Tensor bits(const at::Tensor& numbers) { return numbers.view(at::kInt); }
  static at::Tensor joined(const at::Tensor& weight, const at::Tensor& lost) {
    return (bits(weight.to(at::kFloat)) + lost.to(at::kInt)).view(at::kFloat);
  }
  /// Rounds stochastically to a tensor's dtype.
  static at::Tensor rounded(const at::Tensor& numbers, const at::Tensor& target) {
    return rounded_tensor(numbers, target.scalar_type(), rounding_noise(numbers));
  }
  /// Returns fp32 numbers of these bits without the low 16, which bf16 does not have.
  static at::Tensor cut(const at::Tensor& bits) { return bits.bitwise_and(~0xFFFF).view(at::kFloat); }
};

}  // namespace detail

/// AdamW with bf16 moments, for weights in bf16 or fp16; fp32 weights among them stay exact.
/// optim/fused/fused_optimizer.hpp has its members. Rounding has the same bits on a CPU and in the kernel for
/// NVIDIA's GPUs; tensor operations, which other accelerators and dtypes take, draw from the device's
/// generator.
class AdamWBf16 : public detail::AccumulatesMoments<detail::FusedOptimizer<detail::AdamWBf16Rule>>,
                  public KeepsSmallUpdates {
 public:
  using AccumulatesMoments::AccumulatesMoments;
};

}  // namespace looptorch
