// SPDX-License-Identifier: MIT
// AdamW with moments of 8 bits (narrow/block_codes.hpp), for weights in fp32, bf16 or fp16: 2 bytes per
// parameter where FusedAdamW keeps 8. In runs of up to 480 steps the final loss was FusedAdamW's, within
// noise (docs/optimizers.md). On a CPU with AVX-512 a step takes 1.1 to 1.2 times as long as FusedAdamW's. On
// NVIDIA's GPUs one kernel updates hundreds of parameters; other accelerators, and fp64 weights, take some
// fifty tensor operations per parameter. Dividing by the window's weight (for fp16 weights also by the loss
// scale), clipping and skipping an overflowed step need no pass of their own.
#pragma once

#include <looptorch/optim/fused/adam_rule.hpp>
#include <looptorch/optim/fused/fused_optimizer.hpp>
#include <looptorch/optim/fused/rounded_weight.hpp>
#include <looptorch/optim/interface/small_updates.hpp>
#include <looptorch/optim/kernels/adamw_8bit_kernels.hpp>
#include <looptorch/optim/kernels/adamw_table.hpp>
#include <looptorch/optim/narrow/coded_tensor.hpp>
#include <looptorch/optim/narrow/eight_bit_loop.hpp>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

namespace looptorch {

/// Hyper-parameters of AdamW8bit: AdamW's, and which parameters have coded moments.
struct AdamW8bitOptions {
  double lr = 1e-3;                            ///< At least 0.
  std::array<double, 2> betas = {0.9, 0.999};  ///< Decay rates of the first and second moment, in [0, 1).
  double eps = 1e-8;                           ///< Added to the root of the second moment; at least 0.
  double weight_decay = 1e-2;                  ///< Decoupled: parameters shrink by lr x weight_decay a step.
  std::int64_t min_size = 4096;                ///< Smaller parameters have moments like FusedAdamW's.
  bool corrected = false;  ///< Keep 8 more bits of each bf16 weight: 1 byte more. Not for fp16.
  bool coded = true;  ///< False: moments like FusedAdamW's, as embeddings may need in a group of their own.
};

/// The moments that AdamW8bit keeps for the parameters of one group, each list in their order: codes and
/// scales for coded parameters, `first` and `second` for others, undefined tensors where there is none.
struct AdamW8bitMoments {
  std::vector<at::Tensor> first_codes, first_scales;  ///< uint8 like the parameter; fp32 [blocks].
  std::vector<at::Tensor> root_codes, root_scales;    ///< Those of the second moment's root.
  std::vector<at::Tensor> first, second;              ///< Like the parameters; fp32 for 16 bits.
  std::vector<at::Tensor> lost;   ///< int8, of bf16 parameters with `corrected`: fp32 bits less the weight's.
  std::vector<at::Tensor> steps;  ///< 0-dim fp32.
};

namespace detail {

struct AdamW8bitRule {
  using Options = AdamW8bitOptions;
  using Moments = AdamW8bitMoments;
  using Field = MomentField<Moments, Options>;
  static constexpr const char* kName = "AdamW8bit";
  static constexpr std::tuple kOptions{RuleOption{"betas", &Options::betas},
                                       RuleOption{"eps", &Options::eps},
                                       RuleOption{"weight_decay", &Options::weight_decay},
                                       RuleOption{"min_size", &Options::min_size},
                                       RuleOption{"corrected", &Options::corrected},
                                       RuleOption{"coded", &Options::coded}};

  /// Blocks are cut in memory order, which a snapshot does not record: other formats are not coded.
  static bool is_coded(const Options& options, const at::Tensor& parameter) {
    return options.coded && parameter.numel() >= options.min_size && parameter.is_contiguous();
  }
  static bool is_plain(const Options& options, const at::Tensor& parameter) {
    return !is_coded(options, parameter);
  }
  /// Moments that are not coded are in fp32 for 16-bit weights.
  static at::ScalarType plain(const Options&, const at::Tensor& parameter) {
    return is_narrow(parameter) ? at::kFloat : parameter.scalar_type();
  }
  static bool is_corrected(const Options& options, const at::Tensor& parameter) {
    return options.corrected && parameter.scalar_type() == at::kBFloat16;
  }
  static at::ScalarType int8(const Options&, const at::Tensor&) { return at::kChar; }
  static at::ScalarType byte(const Options&, const at::Tensor&) { return at::kByte; }
  static at::ScalarType single(const Options&, const at::Tensor&) { return at::kFloat; }

  static constexpr std::array<Field, 8> kFields{{
      {.key = "exp_avg_code",
       .list = &Moments::first_codes,
       .kept = is_coded,
       .type = byte,
       .in_order = true},
      {.key = "exp_avg_scale",
       .list = &Moments::first_scales,
       .kept = is_coded,
       .sizes = block_count,
       .type = single},
      {.key = "exp_avg_sq_root_code", .list = &Moments::root_codes, .kept = is_coded, .type = byte},
      {.key = "exp_avg_sq_root_scale",
       .list = &Moments::root_scales,
       .kept = is_coded,
       .sizes = block_count,
       .type = single},
      {.key = "exp_avg", .list = &Moments::first, .kept = is_plain, .type = plain},
      {.key = "exp_avg_sq", .list = &Moments::second, .kept = is_plain, .type = plain},
      {.key = "lost_bits", .list = &Moments::lost, .kept = is_corrected, .type = int8},
      {.key = "step", .list = &Moments::steps, .counter = true},
  }};

  static void check(const Options& options) {
    check_adam_options(kName, options);
    if (options.min_size < 1)
      throw UsageError(message("AdamW8bit's min_size is at least 1, and is ", options.min_size));
  }

  static void check_parameter(const Options& options, const at::Tensor& parameter) {
    if (options.corrected) require_no_fp16(parameter, kName, "corrected");
  }

  static constexpr const KernelSource& kKernels = kAdamW8bitSource;

  static void apply(const Options& options, const FusedCall<Moments>& call) {
    if (const ReadyKernels ready = kernels_for(kKernels, call.parameters.front()))
      return update_by_kernel(options, call, ready);
    AdamMoments plain;
    std::vector<at::Tensor> parameters, gradients;
    for (std::size_t i = 0; i < call.parameters.size(); ++i) {
      if (has(call.moments.first_codes, i)) {
        update_coded(options, call, i);
        continue;
      }
      const bool narrow = is_narrow(call.parameters[i]);  // then all weights of the call are
      parameters.push_back(narrow ? wide_weight(call, i) : call.parameters[i]);
      gradients.push_back(narrow ? call.gradients[i].to(at::kFloat) : call.gradients[i]);
      plain.first.push_back(call.moments.first[i]), plain.second.push_back(call.moments.second[i]);
      plain.steps.push_back(call.moments.steps[i]);
    }
    if (parameters.empty()) return;
    with_fused_rate(call, options.lr, [&](const auto& rate) {
      at::_fused_adamw_(parameters, gradients, plain.first, plain.second, {}, plain.steps, rate,
                        options.betas[0], options.betas[1], options.weight_decay, options.eps,
                        /*amsgrad=*/false, /*maximize=*/false, call.factors.divisor, call.factors.found_inf);
    });
    for (std::size_t i = 0, j = 0; i < call.parameters.size(); ++i)
      if (!has(call.moments.first_codes, i)) round_back(call, i, parameters[j++]);
  }

 private:
  static void update_by_kernel(const Options& options, const FusedCall<Moments>& call,
                               const ReadyKernels& ready) {
    const at::Tensor &one = call.parameters.front(), none;
    const Moments& moments = call.moments;
    AdamWLauncher launcher(kKernels, "adamw_8bit", one, ready, adamw_header(options, call));
    for (std::size_t i = 0; i < call.parameters.size(); ++i) {
      const bool coded = has(moments.first_codes, i);
      launcher.add({.weights = call.parameters[i],
                    .gradients = call.gradients[i],
                    .first = (coded ? moments.first_codes : moments.first)[i],
                    .second = (coded ? moments.root_codes : moments.second)[i],
                    .first_scales = coded ? moments.first_scales[i] : none,
                    .second_scales = coded ? moments.root_scales[i] : none,
                    .lost = keeps_lost(call, i) ? moments.lost[i] : none,
                    .step = moments.steps[i]});
    }
    launcher.flush();
  }

  static bool keeps_lost(const FusedCall<Moments>& call, std::size_t i) {
    return has(call.moments.lost, i) && call.parameters[i].scalar_type() == at::kBFloat16;
  }

  /// Returns an fp32 copy of a weight, with the bits that a bf16 weight lacks where they are kept.
  static at::Tensor wide_weight(const FusedCall<Moments>& call, std::size_t i) {
    const at::Tensor wide = call.parameters[i].to(at::kFloat);
    return keeps_lost(call, i) ? corrected_weight(wide, call.moments.lost[i]) : wide;
  }

  /// Rounds an updated fp32 copy of a 16-bit weight.
  static void round_back(const FusedCall<Moments>& call, std::size_t i, const at::Tensor& wide) {
    const at::Tensor& parameter = call.parameters[i];
    if (parameter.is_same(wide)) return;
    if (keeps_lost(call, i))
      return split_corrected(parameter, call.moments.lost[i], wide, call.factors,
                             call.moments.steps[i].to(at::kDouble));
    subtract_rounded(parameter, parameter.to(at::kFloat) - wide, call.factors,
                     call.moments.steps[i].to(at::kDouble), 0);
  }

  static void update_coded(const Options& options, const FusedCall<Moments>& call, std::size_t i) {
    const at::Tensor& parameter = call.parameters[i];
    if (!parameter.is_cpu()) return update_by_operations(options, call, i);
    if (call.factors.overflowed_on_host()) return;
    if (parameter.scalar_type() == at::kFloat)
      return update_on_host<SingleWeight>(options, call, i, parameter, call.gradients[i]);
    if (keeps_lost(call, i))
      return update_on_host<CorrectedWeight>(options, call, i, parameter, call.gradients[i]);
    if (parameter.scalar_type() == at::kBFloat16)
      return update_on_host<Bf16Weight>(options, call, i, parameter, call.gradients[i]);
    if (parameter.scalar_type() == at::kHalf)
      return update_on_host<Fp16Weight>(options, call, i, parameter, call.gradients[i]);
    const at::Tensor wide = parameter.to(at::kFloat);
    update_on_host<SingleWeight>(options, call, i, wide, call.gradients[i].to(at::kFloat));
    parameter.copy_(wide);
  }

  template <class Weight>
  static void update_on_host(const Options& options, const FusedCall<Moments>& call, std::size_t i,
                             const at::Tensor& parameter, const at::Tensor& gradient) {
    const Moments& moments = call.moments;
    const double step = *moments.steps[i].const_data_ptr<float>();
    using Stored = typename Weight::Stored;
    typename Weight::Lost* lost = nullptr;
    if constexpr (std::is_same_v<Weight, CorrectedWeight>)
      lost = moments.lost[i].mutable_data_ptr<std::int8_t>();
    const EightBitLoop<Weight> loop{
        .weights = static_cast<Stored*>(parameter.mutable_data_ptr()),
        .lost = lost,
        .gradients = static_cast<const Stored*>(gradient.const_data_ptr()),
        .first_codes = moments.first_codes[i].mutable_data_ptr<std::uint8_t>(),
        .root_codes = moments.root_codes[i].mutable_data_ptr<std::uint8_t>(),
        .first_scales = moments.first_scales[i].mutable_data_ptr<float>(),
        .root_scales = moments.root_scales[i].mutable_data_ptr<float>(),
        .size = parameter.numel(),
        .update = static_cast<std::uint64_t>(step),
        .numbers = AdamNumbers::of(options, step, call.factors.divisor_on_host())};
    constexpr std::int64_t kBlocksATask = 64;
    at::parallel_for(0, moments.first_scales[i].numel(), kBlocksATask,
                     [&loop](std::int64_t begin, std::int64_t end) { run_widest(loop, begin, end); });
  }

  static void update_by_operations(const Options& options, const FusedCall<Moments>& call, std::size_t i) {
    const CodedTensor first{call.moments.first_codes[i], call.moments.first_scales[i]};
    const CodedTensor root{call.moments.root_codes[i], call.moments.root_scales[i]};
    const at::Tensor gradient = call.factors.applied_to(call.gradients[i].to(at::kFloat));
    const at::Tensor mean = decode_tensor<SignedCode>(first).lerp_(gradient, 1 - options.betas[0]);
    const at::Tensor scale = decode_tensor<RootCode>(root)
                                 .square_()
                                 .mul_(options.betas[1])
                                 .addcmul_(gradient, gradient, 1 - options.betas[1])
                                 .sqrt_();
    const at::Tensor weight = call.with_rate(options.lr, [&](const auto& rate) {
      return adamw_weight(options, rate, wide_weight(call, i), mean, scale, call.moments.steps[i]);
    });
    const CodedTensor new_first = encode_tensor<SignedCode>(mean), new_root = encode_tensor<RootCode>(scale);
    if (is_narrow(call.parameters[i]))
      round_back(call, i, weight);
    else
      call.factors.replace(call.parameters[i], weight);
    call.factors.replace(first.codes, new_first.codes), call.factors.replace(first.scales, new_first.scales);
    call.factors.replace(root.codes, new_root.codes), call.factors.replace(root.scales, new_root.scales);
  }
};

}  // namespace detail

/// AdamW with 8-bit moments. optim/fused/fused_optimizer.hpp has its members. 16-bit weights are rounded
/// stochastically. Rounding has the same bits on a CPU and in the kernel; tensor operations draw from the
/// device's generator. A coded parameter must stay contiguous.
class AdamW8bit : public detail::FusedOptimizer<detail::AdamW8bitRule>, public KeepsSmallUpdates {
 public:
  using FusedOptimizer::FusedOptimizer;
};

}  // namespace looptorch
