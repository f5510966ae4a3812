// SPDX-License-Identifier: MIT
// Makes every BatchNorm module take its statistics over all ranks, as PyTorch's SyncBatchNorm does; LibTorch
// has no such module. The model does not change. While a SyncBatchNormScope exists, looptorch's function
// replaces LibTorch's batch_norm at the dispatcher's autograd keys. Outside of a micro-batch on several
// ranks, this function calls LibTorch's.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/distributed/batch_statistics.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/instance_norm_native.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

namespace looptorch::detail {

/// Returns the dimensions that statistics of [N, C, ...] are taken over.
inline std::vector<std::int64_t> dimensions_beside_channels(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}
/// Returns a tensor of [C] that broadcasts over `input`.
inline at::Tensor by_channel(const at::Tensor& of, const at::Tensor& input) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(input.dim()), 1);
  sizes[1] = of.numel();
  return of.view(sizes);
}
/// Returns the type that sums are taken in.
inline at::ScalarType sum_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// Statistics over all ranks that have a batch.
struct JoinedStatistics {
  double count = 0;
  at::Tensor mean, squares;  ///< [C] fp64; squares: the sum of squared distances from the mean

  /// Joins each rank's count, means and squares (Chan, Golub and LeVeque, 1983).
  static JoinedStatistics of(const std::vector<at::Tensor>& ranks, std::int64_t channels) {
    JoinedStatistics all;
    for (const at::Tensor& each : ranks) {
      const double count = each[0].item<double>();
      if (count == 0) continue;
      const at::Tensor mean = each.narrow(0, 1, channels), squares = each.narrow(0, 1 + channels, channels);
      if (all.count == 0) {
        all = {count, mean.clone(), squares.clone()};
        continue;
      }
      const at::Tensor apart = mean - all.mean;
      const double together = all.count + count;
      all.squares += squares + apart * apart * (all.count * count / together);
      all.mean += apart * (count / together);
      all.count = together;
    }
    return all;
  }
};

/// BatchNorm in training, by statistics over all ranks, forward and backward.
struct SynchronisedNorm : torch::autograd::Function<SynchronisedNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& scales, const std::optional<at::Tensor>& shifts,
                            const std::optional<at::Tensor>& running_mean,
                            const std::optional<at::Tensor>& running_var, double momentum, double eps) {
    const at::Tensor weight = scales.value_or(at::Tensor()), bias = shifts.value_or(at::Tensor());
    const std::int64_t channels = input.size(1);
    const at::Tensor values = input.to(sum_type(input));
    const JoinedStatistics all = gather(values, channels);
    if (all.count < 2)
      throw UsageError("batch statistics over all ranks need more than one value a channel, got one");
    follow(running_mean, all.mean, momentum);
    follow(running_var, all.squares / (all.count - 1), momentum);
    const auto options = at::TensorOptions(values.scalar_type()).device(values.device());
    const at::Tensor mean = all.mean.to(options);
    const at::Tensor scale = (all.squares / all.count + eps).rsqrt().to(options);
    context->save_for_backward({input, weight, mean, scale});
    context->saved_data["count"] = all.count;
    if (bias.defined()) context->saved_data["bias type"] = static_cast<std::int64_t>(bias.scalar_type());
    at::Tensor out = (values - by_channel(mean, input)) * by_channel(scale, input);
    if (weight.defined()) out = out * by_channel(weight, input);
    if (bias.defined()) out = out + by_channel(bias, input);
    return out.to(input.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& outputs) {
    if (at::GradMode::is_enabled())
      throw UsageError("BatchNormMode::sync has no second derivatives: leave create_graph off");
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &scale = saved[3];
    const double count = context->saved_data["count"].toDouble();
    const at::Tensor gradient = outputs[0].to(sum_type(input));
    const at::Tensor normal =
        (input.to(sum_type(input)) - by_channel(mean, input)) * by_channel(scale, input);
    const auto dimensions = dimensions_beside_channels(input);
    const at::Tensor sum = gradient.sum(dimensions), product = (gradient * normal).sum(dimensions);
    const at::Tensor all = sum_over_ranks(at::cat({sum, product}));
    const std::int64_t channels = input.size(1);
    const at::Tensor mean_of_gradient = by_channel(all.narrow(0, 0, channels) / count, input);
    const at::Tensor mean_of_product = by_channel(all.narrow(0, channels, channels) / count, input);
    at::Tensor to_input = (gradient - mean_of_gradient - normal * mean_of_product) * by_channel(scale, input);
    if (weight.defined()) to_input = to_input * by_channel(weight, input);
    const at::Tensor none;
    const auto bias_type = context->saved_data.find("bias type");
    return {to_input.to(input.scalar_type()),
            weight.defined() ? product.to(weight.scalar_type()) : none,
            bias_type == context->saved_data.end()
                ? none
                : sum.to(static_cast<at::ScalarType>(bias_type->second.toInt())),
            none,
            none,
            none,
            none};
  }

 private:
  enum class Pass { forward, backward };

  /// Returns the code of a layer's exchange: a number that is the same on all ranks that run this layer, and
  /// differs between passes, between numbers of values, and from every `Ranks::Turn`.
  static double code_of(Pass pass, std::int64_t values) {
    return 10.0 + 2.0 * static_cast<double>(values) + (pass == Pass::backward ? 1.0 : 0.0);
  }
  static BatchStatistics& exchange() {
    if (BatchStatistics* const active = BatchStatistics::active()) return *active;
    throw UsageError(
        "a layer with batch statistics was differentiated after its micro-batch, where ranks cannot agree");
  }
  static JoinedStatistics gather(const at::Tensor& values, std::int64_t channels) {
    const double count = static_cast<double>(values.numel()) / static_cast<double>(channels);
    at::Tensor mine = at::zeros({1 + 2 * channels}, at::kDouble);
    if (count > 0) {
      const auto [variance, mean] =
          at::var_mean(values, dimensions_beside_channels(values), /*correction=*/0);
      mine = at::cat({at::scalar_tensor(count, at::kDouble).view({1}), mean.cpu().to(at::kDouble),
                      variance.cpu().to(at::kDouble) * count});
    }
    return JoinedStatistics::of(exchange().gather(code_of(Pass::forward, channels), mine), channels);
  }
  static at::Tensor sum_over_ranks(const at::Tensor& own) {
    const auto given = exchange().gather(code_of(Pass::backward, own.numel()), own.cpu().to(at::kDouble));
    at::Tensor all = given.front().clone();
    for (std::size_t i = 1; i < given.size(); ++i) all += given[i];
    return all.to(own.options());
  }
  static void follow(const std::optional<at::Tensor>& running, const at::Tensor& now, double momentum) {
    if (running && running->defined()) running->mul_(1 - momentum).add_(now.to(running->options()), momentum);
  }
};

/// Overrides LibTorch's batch_norm while it lives. instance_norm, which calls it, keeps its own statistics.
class SyncBatchNormScope {
 public:
  /// The alias key for all devices would come after LibTorch's own code.
  SyncBatchNormScope() {
    for (const c10::DispatchKey key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA,
                                       c10::DispatchKey::AutogradPrivateUse1}) {
      torch::Library& library = libraries_.emplace_back(torch::Library::IMPL, "aten", key, __FILE__,
                                                        static_cast<std::uint32_t>(__LINE__));
      library.impl("batch_norm", batch_norm);
      library.impl("instance_norm", instance_norm);
    }
  }

 private:
  using Optional = std::optional<at::Tensor>;

  static at::Tensor batch_norm(const at::Tensor& input, const Optional& weight, const Optional& bias,
                               const Optional& mean, const Optional& variance, bool training, double momentum,
                               double eps, bool cudnn) {
    if (!training || within_instance_norm() || !BatchStatistics::active())
      return at::native::batch_norm(input, weight, bias, mean, variance, training, momentum, eps, cudnn);
    return SynchronisedNorm::apply(input, weight, bias, mean, variance, momentum, eps);
  }
  static at::Tensor instance_norm(const at::Tensor& input, const Optional& weight, const Optional& bias,
                                  const Optional& mean, const Optional& variance, bool of_input,
                                  double momentum, double eps, bool cudnn) {
    const struct Scope {
      Scope() { within_instance_norm() = true; }
      ~Scope() { within_instance_norm() = false; }
    } scope;
    return at::native::instance_norm(input, weight, bias, mean, variance, of_input, momentum, eps, cudnn);
  }
  static bool& within_instance_norm() {
    thread_local bool within = false;
    return within;
  }

  std::list<torch::Library> libraries_;
};

}  // namespace looptorch::detail
