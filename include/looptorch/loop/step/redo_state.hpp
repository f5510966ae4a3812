// SPDX-License-Identifier: MIT
// Stores what is needed to run a window again. When a window begins, WindowStart saves random generators, the
// model's buffers and the sum of loss weights. `rewind` restores them, and drops gradients and losses. For a
// rerun that must leave no trace, `WindowStart::Aside` also restores the gradients and losses afterwards. A
// Trainer stores this only if one of its policies may retry, examine or skip windows.
#pragma once

#include <looptorch/base/device/saved_generator.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/examine_context.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/window_state.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Tensors and their saved copies.
class TensorCopies {
 public:
  TensorCopies() = default;
  explicit TensorCopies(const std::vector<at::Tensor>& tensors) { keep(tensors); }

  /// Copies these tensors; reuses earlier copies of the same tensors.
  void keep(const std::vector<at::Tensor>& tensors) {
    at::NoGradGuard no_gradients;
    kept_.resize(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      auto& [tensor, copy] = kept_[i];
      const bool same = copy.defined() && tensor.is_same(tensors[i]) && copy.sizes() == tensors[i].sizes() &&
                        copy.scalar_type() == tensors[i].scalar_type() &&
                        copy.device() == tensors[i].device();
      tensor = tensors[i];
      same ? static_cast<void>(copy.copy_(tensor)) : static_cast<void>(copy = tensor.detach().clone());
    }
  }

  /// True if no value has changed. Waits for the device.
  [[nodiscard]] bool are_as_before() const {
    for (const auto& [tensor, copy] : kept_)
      if (!tensor.detach().equal(copy)) return false;
    return true;
  }

  /// Writes the copies back; a tensor that has other sizes by now gets the former ones.
  void restore() {
    at::NoGradGuard no_gradients;
    for (auto& [tensor, copy] : kept_)
      tensor.sizes() == copy.sizes() ? static_cast<void>(tensor.copy_(copy)) : tensor.set_data(copy.clone());
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // a tensor, and its copy
};

/// The state before an update trained on a window's batches. A window has one for each update in turn.
class WindowStart {
 public:
  /// Saves the state, unless it is saved already; random generators only if the window may be rerun.
  void save(const std::vector<at::Tensor>& buffers, const UpdateWork& work, bool with_random) {
    if (is_saved_) return;
    with_random_ = with_random;
    if (with_random) generators_.capture();
    buffers_.keep(buffers);
    weight_ = work.weight;
    is_saved_ = true;
  }

  /// Restores everything, and drops the update's gradients and losses.
  void rewind(const UpdateView& view, UpdateWork& work) {
    drop_gradients(view.parameters);
    work.forget_results();
    if (!is_saved_) return;
    work.weight = weight_;
    if (with_random_) generators_.restore();
    buffers_.restore();
  }

  /// Restores the buffers and the sum of loss weights, when a policy skips the window.
  void skip(UpdateWork& work) {
    if (!is_saved_) return;
    work.weight = weight_;
    buffers_.restore();
  }

  /// Forgets the state, once the update has been applied or abandoned.
  void forget() { is_saved_ = false; }

  /// Sets the update's results aside, rewinds to the saved state, and restores the results by `restore`.
  class Aside;

 private:
  bool is_saved_ = false, with_random_ = false;
  SavedGenerators generators_;
  TensorCopies buffers_;
  WindowWeight weight_;
};

class WindowStart::Aside {
 public:
  template <class Module>
  Aside(WindowStart& window_start, const Module& model, const UpdateView& view, UpdateWork& work)
      : view_(view),
        work_(work),
        weight_(work.weight),
        losses_(std::exchange(work.losses, {})),
        at_fault_(work.fault.micro_batch),
        closure_sum_(work.closure_sum),
        list_(std::exchange(work.gradients, {})),
        buffers_(model.buffers()) {
    generators_.capture();
    for (const at::Tensor& parameter : view.parameters) gradients_.push_back(parameter.grad());
    window_start.rewind(view, work);
  }
  /// Restores unless `restore` was called. Ignores errors: the exception under way is the one to report.
  ~Aside() {
    if (!is_restored_) ignoring_errors([this] { restore(); });
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  /// Restores results, buffers and generators, once. Throws what a device throws.
  void restore() {
    is_restored_ = true;
    for (std::size_t i = 0; i < gradients_.size(); ++i) view_.parameters[i].mutable_grad() = gradients_[i];
    work_.weight = weight_;
    work_.losses = std::move(losses_);
    work_.fault.micro_batch = at_fault_;
    work_.closure_sum = closure_sum_;
    work_.gradients = std::move(list_);
    buffers_.restore();
    generators_.restore();
  }

 private:
  const UpdateView& view_;
  UpdateWork& work_;
  WindowWeight weight_;
  WindowLosses losses_;
  std::optional<std::size_t> at_fault_;
  at::Tensor closure_sum_;
  std::vector<at::Tensor> list_, gradients_;
  SavedGenerators generators_;
  TensorCopies buffers_;
  bool is_restored_ = false;
};

/// Parameters before an update; tells whether an optimizer has written to any of them.
class ParameterVersions {
 public:
  explicit ParameterVersions(const UpdateView& view) : view_(view) {
    for (const at::Tensor& parameter : view.parameters) versions_.push_back(parameter._version());
  }
  [[nodiscard]] bool are_as_before() const {
    for (std::size_t i = 0; i < versions_.size(); ++i)
      if (view_.parameters[i]._version() != versions_[i]) return false;
    return true;
  }

 private:
  const UpdateView& view_;
  std::vector<std::int64_t> versions_;
};

/// True if a listed policy may retry, examine or skip a window.
template <class Stack>
inline constexpr bool kMayRedo =
    Stack::template has<pieces_hook>() || Stack::template has<may_rerun_hook>() ||
    Stack::template has<loss_scale_hook>() || Stack::template has<on_window_loss_hook>();

/// Why an engine's listed policies may rewind a window.
template <class Engine>
struct RedoReasons {
  using Stack = typename Engine::PolicyStack;
  static constexpr bool kSplits = Stack::template has<pieces_hook>();          ///< memory may run out
  static constexpr bool kExamines = Stack::template has<may_rerun_hook>();     ///< a NaN may be traced
  static constexpr bool kSeeksScale = Stack::template has<loss_scale_hook>();  ///< a loss scale may be sought
  static constexpr bool kSkips = Stack::template has<on_window_loss_hook>();   ///< its loss may be bad
};

/// True if a policy that is on judges losses. Without one, judging needs no wait for a loss and no copies of
/// buffers.
template <class Engine>
[[nodiscard]] bool judges_losses(Engine& engine) {
  return engine.stack().any_enabled([]<class P>() { return on_window_loss_hook::template valid<P>(); });
}

/// The engine's state for windows that may be rerun.
class RedoState {
 public:
  /// Asks the policies that are switched on whether they may rerun windows, as a fit begins.
  template <class Stack>
  void prepare(Stack& stack) {
    may_rerun_ = false;
    stack.template each_with<may_rerun_hook>(
        [&](auto& slot) { may_rerun_ |= may_rerun_hook::call(slot.policy, slot.state); });
  }
  [[nodiscard]] bool may_rerun() const { return may_rerun_; }

  /// Returns the model's buffers. In the first windows of a fit, whose forward may register some, lists them
  /// anew: each listing walks through all modules.
  template <class Module>
  [[nodiscard]] const std::vector<at::Tensor>& buffers_of(const Module& model) {
    constexpr int kListings = 16;
    if (listings_ < kListings) buffers_ = model.buffers(), ++listings_;
    return buffers_;
  }
  void forget_window() { window_start.forget(), batch_was_written = false; }
  void list_buffers_anew() { listings_ = 0; }

  WindowStart window_start;        ///< the state before the update under way
  bool batch_was_written = false;  ///< an objective has changed a kept batch of the window in place
  WindowRerun* rerun = nullptr;    ///< the rerun that policies may examine; null if windows are not kept

 private:
  bool may_rerun_ = false;
  std::vector<at::Tensor> buffers_;
  int listings_ = 0;
};

/// True if a policy that is switched on splits micro-batches if memory runs out.
template <class Engine>
[[nodiscard]] bool may_split(Engine& engine) {
  return engine.stack().any_enabled([]<class P>() { return pieces_hook::template valid<P>(); });
}

/// True if a policy that is switched on may rerun the window under way, whose batches are therefore kept.
template <class Engine>
[[nodiscard]] bool may_rerun(Engine& engine) {
  return RedoReasons<Engine>::kExamines && engine.redo().may_rerun() && engine.window().may_redo;
}

/// True until update I is first applied, if losses are scaled: overflowing windows are retried.
template <std::size_t I, class Engine>
[[nodiscard]] bool may_seek_scale(Engine& engine) {
  if constexpr (RedoReasons<Engine>::kSeeksScale && !Engine::template kByClosure<I>)
    return engine.loss_scale() && engine.window().may_redo && engine.run().updates()[I].applied == 0;
  else
    return false;
}

}  // namespace looptorch::detail
