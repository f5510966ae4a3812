// SPDX-License-Identifier: MIT
// Defines UpdateContext, the argument of the hooks `before_update` and `after_update`. It holds a window's
// gradients, the factor by which they must still be multiplied, and the decision whether the update is made.
// Policies include loop/context.hpp instead.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/objective/running_mean.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logical_or.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

namespace detail {

struct UpdateAccess;

/// True for a flag on the device that is not zero; waits for it. An undefined one is not set.
[[nodiscard]] inline bool is_set(const at::Tensor& flag) {
  return flag.defined() && flag.item<double>() != 0;
}

/// Losses or gradients that are NaN or infinite, or may be: only the device knows. The tensor is read only if
/// the window's update was skipped.
struct NonFiniteFlag {
  bool known = false;
  at::Tensor non_finite = {};     ///< 0-dim, not zero if some are; undefined: none
  at::Tensor vetoed_before = {};  ///< 0-dim, not zero if the update was vetoed for another reason before

  [[nodiscard]] bool is_possible() const { return known || non_finite.defined(); }
  /// Waits for the device.
  [[nodiscard]] bool read() const { return known || (is_set(non_finite) && !is_set(vetoed_before)); }
};

/// The decisions of before_update hooks on the device. A graph that replays the hooks repeats them.
struct UpdateDecision {
  GradientScale pending = {};
  at::Tensor found_inf = {};
  NonFiniteFlag refusal = {};
};

}  // namespace detail

/// One update of one window.
class UpdateContext {
 public:
  UpdateContext(Run& of, std::size_t index, GradientScale scale, std::vector<at::Tensor>& scratch)
      : run(of), index_(index), scale_(std::move(scale)), gradients_(scratch) {
    gradients_.clear();
  }
  /// Returns the context of an applied update, without gradients.
  static UpdateContext of_applied(Run& of, std::size_t index, std::vector<at::Tensor>& scratch) {
    return {of, index, scratch};
  }
  UpdateContext(const UpdateContext&) = delete;  // a copy's veto would have no effect
  UpdateContext& operator=(const UpdateContext&) = delete;

  Run& run;

  /// Returns the update's index in the Trainer's list.
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] const UpdateView& view() const { return run.updates()[index_]; }
  [[nodiscard]] torch::optim::Optimizer& optimizer() const { return *view().optimizer; }

  /// Returns means of this window alone; they join `UpdateView::metrics` if the update is applied.
  [[nodiscard]] RunningMeans& window_metrics() {
    return window_metrics_ ? *window_metrics_ : run.updates()[index_].metrics;
  }

  /// Returns the window's complete gradients. First applies the pending factor, in one pass over them.
  [[nodiscard]] std::vector<at::Tensor>& gradients() {
    require_reader();
    collect();
    scale_.flush(gradients_);
    return gradients_;
  }
  /// Returns the gradients as stored; multiplied by `pending()` they are the window's.
  [[nodiscard]] const std::vector<at::Tensor>& raw_gradients() {
    require_reader();
    collect();
    return gradients_;
  }
  [[nodiscard]] const GradientScale& pending() const { return scale_; }
  /// Returns the pending factor and resets it. The caller must multiply `raw_gradients()` by it, in a pass of
  /// its own.
  [[nodiscard]] GradientScale take_pending() { return std::exchange(scale_, GradientScale{}); }

  /// Multiplies the gradients; needs no pass over them if the optimizer can fold the factor in.
  void scale_gradients(double factor) { scale_.multiply(factor); }
  void scale_gradients(const at::Tensor& factor) { scale_.multiply(factor); }
  void scale_gradients(const GradientScale& factor) { scale_.multiply(factor); }

  /// True if these are only the gradients of this rank's shard (ShardOptimizer). A policy that reads
  /// gradients then declares `shard_aware`, and reduces over the ranks by the two calls below. All ranks make
  /// them, even without a gradient.
  [[nodiscard]] bool sees_shard() const { return ranks_ != nullptr; }
  /// Returns the p-norm of the gradients of all ranks; `norm` is that of this rank's.
  [[nodiscard]] at::Tensor norm_of_all(const at::Tensor& norm, double p) const;
  /// Returns a 0-dim tensor that is not zero if `found` is not zero on some rank.
  [[nodiscard]] at::Tensor found_by_any(const at::Tensor& found) const;

  /// Skips this update: parameters, moments and counts stay as they are.
  void veto(bool skip = true) { skip_ |= skip; }
  /// Skips this update if the 0-dim tensor `found` is not zero. Optimizers that take `found_inf` decide on
  /// the device. Any other optimizer waits for the value here, once a window.
  void veto(const at::Tensor& found) {
    if (computes_on_cpu(found)) return veto(detail::cpu_number(found) != 0);
    const at::Tensor& flag = found.dim() == 0 ? found : found.reshape({});
    found_ = found_.defined() ? at::logical_or(found_, detail::on_device_of(found_, flag)) : flag;
  }

  /// Vetoes this update, and ends the fit with NonFiniteGradient. An update already vetoed does not end the
  /// fit, since an overflow of `Autocast<fp16>` is no error.
  void refuse(bool non_finite) {
    refusal_.known |= non_finite && !skip_;
    veto(non_finite);
  }
  /// Refuses this update if the 0-dim `non_finite`, on a device, is not zero. Do not write to it afterwards.
  void refuse(const at::Tensor& non_finite) {
    if (computes_on_cpu(non_finite)) return refuse(detail::cpu_number(non_finite) != 0);
    if (skip_) return;
    at::Tensor& refused = refusal_.non_finite;
    if (!refused.defined()) refusal_.vetoed_before = found_;
    refused =
        refused.defined() ? at::logical_or(refused, detail::on_device_of(refused, non_finite)) : non_finite;
    veto(non_finite);
  }

  /// True if the update is vetoed, as far as is known without waiting.
  [[nodiscard]] bool vetoed() const { return skip_; }
  /// Returns a 0-dim tensor on the device, not zero for a veto; undefined while no policy vetoes with a
  /// tensor on a device.
  [[nodiscard]] const at::Tensor& found_inf() const { return found_; }
  /// Returns whether a policy refused the gradients.
  [[nodiscard]] const detail::NonFiniteFlag& refusal() const { return refusal_; }

 private:
  friend detail::UpdateAccess;

  UpdateContext(Run& of, std::size_t index, std::vector<at::Tensor>& scratch)
      : run(of), index_(index), gradients_(scratch), made_(true) {
    gradients_.clear();
  }

  void collect() {
    if (gradients_.empty() && !made_)
      detail::collect_gradients(shards_ ? *shards_ : view().parameters, gradients_);
  }
  void require_reader() const {
    if (ranks_ && !reader_.empty())
      throw UsageError(
          message(reader_,
                  " reads gradients, and under ShardOptimizer each rank has those of its part of the "
                  "parameters: declare `shard_aware` if the policy takes that into account, or give "
                  "DataParallel{.reproducible = true}, which leaves all gradients on each rank"));
  }

  std::size_t index_;
  GradientScale scale_;
  std::vector<at::Tensor>& gradients_;
  bool made_ = false;
  bool skip_ = false;
  at::Tensor found_;
  detail::NonFiniteFlag refusal_;
  RunningMeans* window_metrics_ = nullptr;
  Ranks* ranks_ = nullptr;
  const std::vector<at::Tensor>* shards_ = nullptr;
  std::string reader_;
};

inline at::Tensor UpdateContext::norm_of_all(const at::Tensor& norm, double p) const {
  if (!sees_shard()) return norm;
  const double own = norm.item<double>();
  double all = std::isinf(p) ? own : std::pow(own, p);
  bool bad = !std::isfinite(own);
  RankReduction reduction;
  std::isinf(p) ? reduction.max("norm", all) : reduction.sum("norm", all);
  reduction.any("bad", bad);
  ranks_->all_reduce(reduction, message("the norm of step ", run.progress().step));
  if (bad) return at::full_like(norm, std::numeric_limits<double>::quiet_NaN());
  return at::full_like(norm, std::isinf(p) ? all : std::pow(all, 1.0 / p));
}

inline at::Tensor UpdateContext::found_by_any(const at::Tensor& found) const {
  if (!sees_shard()) return found;
  bool any = found.item<double>() != 0;
  RankReduction reduction;
  reduction.any("found", any);
  ranks_->all_reduce(reduction, message("the overflow of step ", run.progress().step));
  return at::full_like(found, any ? 1.0 : 0.0);
}

namespace detail {

/// The calls of an UpdateContext that only the loop makes. Policies cannot reach them.
struct UpdateAccess {
  /// Gives hooks the gradients of these shards.
  static void show_shards(UpdateContext& context, Ranks& ranks, const std::vector<at::Tensor>& shards) {
    context.ranks_ = &ranks;
    context.shards_ = &shards;
  }
  static void collect_metrics(UpdateContext& context, RunningMeans& metrics) {
    context.window_metrics_ = &metrics;
  }
  /// Names a policy without `shard_aware`, before its hook; empty for others.
  static void set_reader(UpdateContext& context, std::string name) { context.reader_ = std::move(name); }
  /// Takes the vetoes and refusals of all ranks.
  static void take_agreed(UpdateContext& context, bool vetoed, bool refused) {
    context.refusal_ = {.known = refused};
    context.veto(vetoed || refused);
  }
  /// Returns what hooks have decided on the device.
  static UpdateDecision decision(const UpdateContext& context) {
    return {context.scale_, context.found_, context.refusal_};
  }
  /// Repeats such decisions, as a graph replays them.
  static void decide_as(UpdateContext& context, const UpdateDecision& decision) {
    context.scale_ = decision.pending;
    context.found_ = decision.found_inf;
    context.refusal_ = decision.refusal;
  }
};

}  // namespace detail
}  // namespace looptorch
