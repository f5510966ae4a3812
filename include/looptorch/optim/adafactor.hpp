// SPDX-License-Identifier: MIT
// Adafactor (Shazeer and Stern 2018, arXiv:1804.04235), with the results of transformers.Adafactor. Keeps
// only the row means and column means of a matrix's second moment. Use it where even 8-bit moments do not
// fit. 16-bit weights are rounded stochastically. A step reads the gradients three times. On NVIDIA's GPUs
// five kernels update hundreds of parameters. Their workspace is limited to 1/128 of the weights' bytes or to
// 1 MiB, whichever is more; a parameter that needs more by itself gets it. Elsewhere the workspace takes some
// 12 MB.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/fused/fused_call.hpp>
#include <looptorch/optim/fused/fused_optimizer.hpp>
#include <looptorch/optim/fused/rounded_weight.hpp>
#include <looptorch/optim/gradients/norms.hpp>
#include <looptorch/optim/interface/small_updates.hpp>
#include <looptorch/optim/kernels/adafactor_kernels.hpp>
#include <looptorch/optim/state/moment_fields.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace looptorch {

/// Hyper-parameters of Adafactor, with transformers' defaults.
struct AdafactorOptions {
  /// The rate; with `relative_step` an upper limit: the rate is the smaller of `lr` and 1 / root(step). At
  /// least 0.
  double lr = 1e-2;
  bool relative_step = true;
  bool scale_parameter = true;  ///< Multiply the rate by the parameter's root mean square.
  std::array<double, 2> eps = {1e-30,
                               1e-3};  ///< Added to squares; the least root mean square of a parameter.
  double clip_threshold = 1.0;  ///< The largest root mean square of an update, before the rate; above 0.
  double decay = -0.8;          ///< The second moment keeps 1 - step^decay; below 0.
  double beta1 = 0.0;           ///< Decay rate of a first moment of updates, in [0, 1); 0: none is kept.
  double weight_decay = 0.0;    ///< Decoupled: parameters shrink by the rate x weight_decay a step.
};

/// The moments of the parameters of one group, each list in their order; undefined tensors where
/// there is none, and before a parameter's first gradient.
struct AdafactorMoments {
  std::vector<at::Tensor> rows;     ///< Means of squares over the last dimension, of two or more; fp32.
  std::vector<at::Tensor> columns;  ///< Means of squares over the last dimension but one; fp32.
  std::vector<at::Tensor> squares;  ///< Like parameters of fewer than two dimensions.
  std::vector<at::Tensor> first;    ///< Like the parameters, with `beta1`.
  std::vector<at::Tensor> steps;    ///< 0-dim fp32.
};

namespace detail {

/// A tensor as [B, R, C], the last two dimensions being those that are factored.
[[nodiscard]] inline at::Tensor as_matrices(const at::Tensor& tensor) {
  return tensor.dim() < 2 ? tensor.reshape({1, 1, -1})
                          : tensor.reshape({-1, tensor.size(-2), tensor.size(-1)});
}

struct AdafactorRule {
  using Options = AdafactorOptions;
  using Moments = AdafactorMoments;
  using Field = MomentField<Moments, Options>;
  static constexpr const char* kName = "Adafactor";
  static constexpr std::tuple kOptions{RuleOption{"relative_step", &Options::relative_step},
                                       RuleOption{"scale_parameter", &Options::scale_parameter},
                                       RuleOption{"eps", &Options::eps},
                                       RuleOption{"clip_threshold", &Options::clip_threshold},
                                       RuleOption{"decay", &Options::decay},
                                       RuleOption{"beta1", &Options::beta1},
                                       RuleOption{"weight_decay", &Options::weight_decay}};

  static bool is_factored(const Options&, const at::Tensor& parameter) { return parameter.dim() >= 2; }
  static bool is_whole(const Options&, const at::Tensor& parameter) { return parameter.dim() < 2; }
  static bool has_first(const Options& options, const at::Tensor&) { return options.beta1 > 0; }
  static at::ScalarType wide(const Options&, const at::Tensor& parameter) {
    return parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }
  static std::vector<std::int64_t> row_sizes(const at::Tensor& parameter) {
    return parameter.sizes()
        .slice(0, static_cast<std::size_t>(std::max<std::int64_t>(parameter.dim() - 1, 0)))
        .vec();
  }
  static std::vector<std::int64_t> column_sizes(const at::Tensor& parameter) {
    std::vector<std::int64_t> sizes = parameter.sizes().vec();
    if (sizes.size() >= 2) sizes.erase(sizes.end() - 2);
    return sizes;
  }

  static constexpr std::array<Field, 5> kFields{{
      {.key = "exp_avg_sq_row",
       .list = &Moments::rows,
       .kept = is_factored,
       .sizes = row_sizes,
       .type = wide},
      {.key = "exp_avg_sq_col",
       .list = &Moments::columns,
       .kept = is_factored,
       .sizes = column_sizes,
       .type = wide},
      {.key = "exp_avg_sq", .list = &Moments::squares, .kept = is_whole, .type = wide},
      {.key = "exp_avg", .list = &Moments::first, .kept = has_first, .type = wide},
      {.key = "step", .list = &Moments::steps, .counter = true},
  }};

  static void check(const Options& options) {
    const bool valid = options.lr >= 0 && options.eps[0] >= 0 && options.eps[1] >= 0 &&
                       options.clip_threshold > 0 && options.decay < 0 && options.beta1 >= 0 &&
                       options.beta1 < 1 && options.weight_decay >= 0;
    if (!valid)
      throw UsageError(
          message("Adafactor needs lr, eps and weight_decay of at least 0, clip_threshold above 0, decay "
                  "below 0 and beta1 in [0, 1); got lr ",
                  options.lr, ", eps ", options.eps[0], " and ", options.eps[1], ", weight_decay ",
                  options.weight_decay, ", clip_threshold ", options.clip_threshold, ", decay ",
                  options.decay, ", beta1 ", options.beta1));
  }

  static constexpr const KernelSource& kKernels = kAdafactorSource;

  static void apply(const Options& options, const FusedCall<Moments>& call) {
    if (const ReadyKernels ready = kernels_for(kKernels, call.parameters.front()))
      return update_by_kernels(options, call, ready);
    if (call.parameters.front().is_cpu() && call.factors.overflowed_on_host()) return;
    for (std::size_t i = 0; i < call.parameters.size(); ++i)
      if (call.parameters[i].numel() > 0) update(options, call, i);
  }

 private:
  /// Elements of the parts that an update works on.
  static constexpr std::int64_t kPart = std::int64_t{1} << 20;

  static void update_by_kernels(const Options& options, const FusedCall<Moments>& call,
                                const ReadyKernels& ready) {
    const at::Tensor& one = call.parameters.front();
    std::int64_t weight_bytes = 0;
    for (const at::Tensor& parameter : call.parameters)
      weight_bytes += static_cast<std::int64_t>(parameter.nbytes());
    AdafactorLauncher launcher(one.device(), one.scalar_type(), ready, adafactor_header(options, call),
                               weight_bytes);
    std::vector<AdafactorTensors> reordered(call.parameters.size());  // copies of what has another format
    for (std::size_t i = 0; i < call.parameters.size(); ++i) {
      reordered[i] = in_order(options, call, i);
      launcher.add(reordered[i], kPart);
    }
    launcher.flush();
    for (std::size_t i = 0; i < call.parameters.size(); ++i) {
      if (call.parameters[i].is_contiguous()) continue;
      call.parameters[i].copy_(reordered[i].weights);
      if (has(call.moments.first, i)) call.moments.first[i].copy_(reordered[i].first);
    }
  }

  static AdafactorTensors in_order(const Options& options, const FusedCall<Moments>& call, std::size_t i) {
    const Moments& moments = call.moments;
    const bool factored = is_factored(options, call.parameters[i]);
    return {.weights = call.parameters[i].contiguous(),
            .gradients = call.gradients[i].contiguous(),
            .rows = factored ? moments.rows[i] : at::Tensor(),
            .columns = factored ? moments.columns[i] : moments.squares[i],
            .first = has(moments.first, i) ? moments.first[i].contiguous() : at::Tensor(),
            .step = moments.steps[i]};
  }

  /// One parameter's tensors in row-major order as [B, R, C], cut into parts along B, or along R where B
  /// is 1.
  struct Parts {
    at::Tensor weights, gradients, first;
    std::int64_t dimension, length, count;

    [[nodiscard]] std::int64_t size_at(std::int64_t begin) const { return std::min(length, count - begin); }
    [[nodiscard]] at::Tensor of(const at::Tensor& all, std::int64_t begin) const {
      return all.narrow(dimension, begin, size_at(begin));
    }
  };

  static Parts parts_of(const at::Tensor& weights, const FusedCall<Moments>& call, std::size_t i) {
    const at::Tensor all = as_matrices(weights);
    const std::int64_t dimension = all.size(0) > 1 ? 0 : weights.dim() >= 2 ? 1 : 2;
    const std::int64_t count = all.size(dimension);
    const at::Tensor first =
        has(call.moments.first, i) ? as_matrices(call.moments.first[i].contiguous()) : at::Tensor();
    return {all,
            as_matrices(call.gradients[i].contiguous()),
            first,
            dimension,
            std::max<std::int64_t>(1, kPart * count / all.numel()),
            count};
  }

  static void update(const Options& options, const FusedCall<Moments>& call, std::size_t i) {
    const at::Tensor& parameter = call.parameters[i];
    const bool in_order = parameter.is_contiguous();
    const at::Tensor weights = in_order ? parameter : parameter.contiguous();
    const Parts parts = parts_of(weights, call, i);
    const at::Tensor step = call.moments.steps[i].to(at::kDouble);
    const at::Tensor kept = at::rsub(at::pow(step, options.decay), 1);  // 1 - step^decay
    // The factors whose product with the gradient is the update: [B, R, 1] and [B, 1, C], or one like the
    // weights.
    std::vector<at::Tensor> inverse = is_factored(options, parameter)
                                          ? factored(options, call, i, parts, kept)
                                          : whole(options, call, i, parts, kept);
    const at::Tensor rate =
        call.with_rate(options.lr, [&](const auto& lr) { return rate_of(options, lr, weights, step); });
    const at::Tensor excess = (root_mean_square(call, parts, inverse) / options.clip_threshold).clamp_min(1);
    for (std::int64_t begin = 0; begin < parts.count; begin += parts.length)
      move(options, call, parts, begin, update_at(call, parts, inverse, begin) * (rate / excess), rate, step);
    if (in_order) return;
    parameter.copy_(weights);
    if (parts.first.defined()) call.moments.first[i].copy_(parts.first.view(parameter.sizes()));
  }

  static at::Tensor gradient_at(const FusedCall<Moments>& call, const Parts& parts, std::int64_t begin) {
    const at::Tensor part = parts.of(parts.gradients, begin);
    return call.factors.applied_to(part.scalar_type() == at::kDouble ? part : part.to(at::kFloat));
  }

  /// Returns a factor's part; the whole factor if it has one element along the cut.
  static at::Tensor factor_at(const at::Tensor& factor, const Parts& parts, std::int64_t begin) {
    return factor.size(parts.dimension) == 1 ? factor : parts.of(factor, begin);
  }

  static at::Tensor update_at(const FusedCall<Moments>& call, const Parts& parts,
                              const std::vector<at::Tensor>& inverse, std::int64_t begin) {
    at::Tensor result = gradient_at(call, parts, begin);
    for (const at::Tensor& factor : inverse) result = result * factor_at(factor, parts, begin);
    return result;
  }

  /// Updates the moments of rows and columns by the squares' means. Returns the update's two factors.
  static std::vector<at::Tensor> factored(const Options& options, const FusedCall<Moments>& call,
                                          std::size_t i, const Parts& parts, const at::Tensor& kept) {
    const at::Tensor &rows = call.moments.rows[i], &columns = call.moments.columns[i];
    const std::int64_t height = parts.weights.size(1);
    const at::Tensor row = at::zeros({parts.weights.size(0), height}, rows.options());
    const at::Tensor column = at::zeros({parts.weights.size(0), parts.weights.size(2)}, columns.options());
    for (std::int64_t begin = 0; begin < parts.count; begin += parts.length) {
      const at::Tensor square = gradient_at(call, parts, begin).square().add_(options.eps[0]);
      factor_at(row, parts, begin).copy_(square.mean(-1));
      const at::Tensor sums = square.sum(-2) / height;
      parts.dimension == 0 ? void(parts.of(column, begin).copy_(sums)) : void(column.add_(sums));
    }
    const at::Tensor new_rows = averaged(rows, row.view(rows.sizes()), kept);
    const at::Tensor new_columns = averaged(columns, column.view(columns.sizes()), kept);
    call.factors.replace(rows, new_rows), call.factors.replace(columns, new_columns);
    return {(new_rows / new_rows.mean(-1, /*keepdim=*/true)).rsqrt_().view({-1, height, 1}),
            new_columns.rsqrt().view({parts.weights.size(0), 1, parts.weights.size(2)})};
  }

  static std::vector<at::Tensor> whole(const Options& options, const FusedCall<Moments>& call, std::size_t i,
                                       const Parts& parts, const at::Tensor& kept) {
    const at::Tensor& squares = call.moments.squares[i];
    const at::Tensor gradient = call.factors.applied_to(call.gradients[i].to(squares.scalar_type()));
    const at::Tensor now = averaged(squares, gradient.square().add_(options.eps[0]), kept);
    call.factors.replace(squares, now);
    return {now.rsqrt().view(parts.weights.sizes())};
  }

  static at::Tensor averaged(const at::Tensor& before, const at::Tensor& now, const at::Tensor& kept) {
    return before * kept + now * at::rsub(kept, 1);
  }

  /// Returns the root mean square of the update before it is clipped, 0-dim fp64.
  static at::Tensor root_mean_square(const FusedCall<Moments>& call, const Parts& parts,
                                     const std::vector<at::Tensor>& inverse) {
    at::Tensor sum = at::zeros({}, parts.weights.options().dtype(at::kDouble));
    for (std::int64_t begin = 0; begin < parts.count; begin += parts.length)
      sum += update_at(call, parts, inverse, begin).square_().sum();
    return (sum / parts.weights.numel()).sqrt_();
  }

  /// Returns the rate of this step, 0-dim fp64.
  template <class Rate>
  static at::Tensor rate_of(const Options& options, const Rate& lr, const at::Tensor& weights,
                            const at::Tensor& step) {
    const at::Tensor rate =
        options.relative_step ? step.rsqrt().clamp_max_(lr) : at::ones_like(step).mul_(lr);
    if (!options.scale_parameter) return rate;
    return rate * (long_norm(weights, 2) / std::sqrt(static_cast<double>(weights.numel())))
                      .clamp_min_(options.eps[1]);
  }

  /// Moves a part of the weights by an update that is multiplied by the rate.
  static void move(const Options& options, const FusedCall<Moments>& call, const Parts& parts,
                   std::int64_t begin, at::Tensor change, const at::Tensor& rate, const at::Tensor& step) {
    const at::Tensor weight = parts.of(parts.weights, begin);
    if (parts.first.defined()) {
      const at::Tensor first = parts.of(parts.first, begin);
      change = first * options.beta1 + change * (1 - options.beta1);
      call.factors.replace(first, change);
    }
    if (options.weight_decay != 0)
      change = change + weight.to(change.scalar_type()) * (rate * options.weight_decay);
    subtract_rounded(weight, change, call.factors, step, begin);
  }
};

}  // namespace detail

/// Adafactor. optim/fused/fused_optimizer.hpp has its members. Rounding of 16-bit weights has the same bits
/// on a CPU and in the kernels for NVIDIA's GPUs; tensor operations, which other accelerators and dtypes
/// take, draw from the device's generator.
class Adafactor : public detail::FusedOptimizer<detail::AdafactorRule>, public KeepsSmallUpdates {
 public:
  using FusedOptimizer::FusedOptimizer;
};

}  // namespace looptorch
