// SPDX-License-Identifier: MIT
// AnyOptimizer, the base of looptorch's fused optimizers, for programs that choose their optimizer at run
// time: a Trainer of AnyOptimizer is compiled once and takes any of them. Costs a virtual call an update.
//
//   std::unique_ptr<lt::AnyOptimizer> optimizer;
//   if (memory_is_short) optimizer = std::make_unique<lt::AdamW8bit>(net->parameters());
//   else optimizer = std::make_unique<lt::FusedAdamW>(net->parameters());
//   lt::Trainer trainer(net, *optimizer, objective);
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/interface/per_parameter_optimizer.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>

namespace looptorch {

namespace detail {
struct BegunStep;
}

/// See optim/fused/fused_optimizer.hpp for what the members do. A snapshot names the chosen optimizer, and is
/// refused by another one.
class AnyOptimizer : public torch::optim::Optimizer, public PerParameterOptimizer {
 public:
  using Group = torch::optim::OptimizerParamGroup;

  using Optimizer::step;
  virtual void step(const GradientScale& scale, const at::Tensor& found_inf) = 0;
  [[nodiscard]] virtual bool can_fold(const GradientScale& scale) const = 0;
  [[nodiscard]] virtual StateDict state_of(const at::Tensor& parameter) const = 0;
  virtual void check_state_of(const at::Tensor& parameter, const StateDict& state) const = 0;
  virtual void load_state_of(const at::Tensor& parameter, const StateDict& state) = 0;

  /// Compiles the kernels that steps need on the parameters' devices, unless they were compiled before. An
  /// optimizer does so as it is made, and a fit as it begins, since the model may have moved. A step by hand
  /// compiles what it lacks, unless a graph is being captured: then tensor operations take its place.
  virtual void prepare() {}

  /// The two halves of `step(scale, found_inf)`, for graphs: first what the device computes whatever the
  /// options, step counts included, then the kernels.
  [[nodiscard]] virtual std::shared_ptr<detail::BegunStep> begin_step(const GradientScale&,
                                                                      const at::Tensor&) {
    return nullptr;
  }
  virtual void finish_step(const detail::BegunStep&) {}
  /// True if each parameter with a gradient has moments, which `begin_step` needs. With `other`, also
  /// requires that a step would advance the counts that `other` does.
  [[nodiscard]] virtual bool can_begin(const detail::BegunStep* /*other*/) { return false; }

  /// Returns the bytes of the moments that a parameter of `group` has from its first update on, without its
  /// step count.
  [[nodiscard]] virtual std::int64_t moment_bytes(const Group& group, const at::Tensor& parameter) const = 0;
  /// Returns the options of a group without the rate, by PyTorch's names.
  [[nodiscard]] virtual StateDict options_state(const Group& group) const = 0;
  /// Returns the class's name, as "looptorch::FusedAdamW".
  [[nodiscard]] virtual std::string class_name() const = 0;

  /// Throws UsageError, since torch::save would silently omit the moments. Use `state_of`.
  void save(torch::serialize::OutputArchive&) const override { refuse_archive(); }
  /// Throws UsageError, as `save` does. Use `load_state_of`.
  void load(torch::serialize::InputArchive&) override { refuse_archive(); }

 protected:
  using Optimizer::Optimizer;

 private:
  [[noreturn]] void refuse_archive() const {
    throw UsageError(message("torch::save and torch::load do not know what ", class_name(),
                             " keeps: use its state_of and load_state_of"));
  }
};

}  // namespace looptorch
