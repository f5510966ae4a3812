// SPDX-License-Identifier: MIT
// Activation checkpointing: layers save only their inputs for backward, which runs them a second time. Saves
// most of a deep model's activation memory for one more forward of these layers: 9 to 36 % of a step. Write
// `Checkpointed<Layer>` for `Layer` in the model; parameter names, and so saved weights, stay the same. List
// `Checkpointed<Layer>{}` in the Trainer to set options, or within `When` to switch it on and off.
//
//   struct EncoderImpl : torch::nn::Module {
//     std::vector<lt::Checkpointed<EncoderLayer>> layers;
//   };
//   lt::Trainer trainer(net, optimizer, objective, lt::When{save_memory, lt::Checkpointed<EncoderLayer>{}});
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/memory/checkpoint.hpp>
#include <looptorch/memory/keep.hpp>
#include <looptorch/memory/recompute/checkpointed_impl.hpp>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

/// A module holder with `Layer`'s constructors, whose forward is recomputed in backward by `checkpoint`.
/// `Layer` is a module holder too, as TORCH_MODULE makes them. Without arguments, or with options alone, it
/// is empty: that is the policy. Works in Sequential where `Layer` does.
///
/// The policy sets its options on all such layers of the model, also after the fit. Layers that no policy
/// names recompute. Throws UsageError if the model has none, or if none was called in the first window of
/// each update.
template <class Layer>
class Checkpointed : public torch::nn::ModuleHolder<detail::CheckpointedImpl<Layer>> {
  using Base = torch::nn::ModuleHolder<detail::CheckpointedImpl<Layer>>;
  using Face = detail::CheckpointedFace<Layer>;

 public:
  using Impl = detail::CheckpointedImpl<Layer>;

  Checkpointed() : Base(nullptr) {}
  Checkpointed(std::nullptr_t) : Base(nullptr) {}
  /// Constructs the policy that sets these options.
  explicit Checkpointed(CheckpointOptions options) : Base(nullptr), options_(std::move(options)) {}
  Checkpointed(std::shared_ptr<Impl> layer) : Base(std::move(layer)) {}
  /// Constructs a layer from the arguments that `Layer` takes.
  template <class Head, class... Tail>
  requires(
      std::constructible_from<Face, Head, Tail...> &&
      !(sizeof...(Tail) == 0 &&
        (std::derived_from<std::remove_cvref_t<Head>, Checkpointed> ||
         std::same_as<std::remove_cvref_t<Head>, CheckpointOptions>))) explicit Checkpointed(Head&& head,
                                                                                             Tail&&... tail)
      : Base(std::shared_ptr<Impl>(
            std::make_shared<Face>(std::forward<Head>(head), std::forward<Tail>(tail)...))) {}

  /// Returns a layer that takes no arguments.
  [[nodiscard]] static Checkpointed make() {
    return Checkpointed(std::shared_ptr<Impl>(std::make_shared<Face>()));
  }

  template <class... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    return face().forward(std::forward<Arguments>(arguments)...);
  }
  Face* operator->() { return &face(); }
  const Face* operator->() const { return &face(); }

  // ---- The policy ----

  static constexpr ResumeRule resume_rule = ResumeRule::always;
  static constexpr bool ignores_gradients = true;
  static constexpr bool veto_is_rank_invariant = true;  // it never vetoes

  struct State {
    std::vector<Impl*> layers;
    std::set<std::size_t> awaited;  ///< Updates not made yet, which may be the ones that enter a layer.
    bool is_checked = false;        ///< A layer was entered, or need not be.
    bool on_ranks = false;
    bool entered_on_ranks = false;  ///< A layer was entered on any rank before they met last.
  };

  void on_fit_begin(FitContext& fit, State& state) const {
    set_options(fit, options_, state);
    state.awaited.clear();
    for (std::size_t i = 0; i < fit.run.updates().size(); ++i) state.awaited.insert(i);
    state.is_checked = options_.mode == CheckpointMode::off;
    state.on_ranks = state.entered_on_ranks = false;
    for (Impl* layer : state.layers) layer->entered = false;
  }

  void on_switched_off(FitContext& fit, State& state) const {
    set_options(fit, CheckpointOptions{.mode = CheckpointMode::off}, state);
  }

  /// Asks all ranks whether a layer was entered: this rank may have no batch in the first windows.
  void all_reduce(RankReduction& reduction, State& state) const {
    state.on_ranks = true;
    state.entered_on_ranks = has_entered(state);
    reduction.any(message("Checkpointed<", detail::type_name<Layer>(), ">"), state.entered_on_ranks);
  }

  void before_update(UpdateContext& update, State& state) const {
    if (state.is_checked) return;
    const bool were_made = state.awaited.empty();  // before the ranks met last
    state.awaited.erase(update.index());
    if (!state.awaited.empty()) return;
    state.is_checked = has_entered(state) || state.entered_on_ranks;
    if (!state.is_checked && (were_made || !state.on_ranks)) refuse(state);
  }

 private:
  Face& face() { return const_cast<Face&>(std::as_const(*this).face()); }
  const Face& face() const {
    if (this->is_empty())
      throw UsageError(
          message("an empty Checkpointed<", detail::type_name<Layer>(),
                  "> was called: without arguments it is the policy, and make() makes the layer"));
    return *static_cast<const Face*>(this->get());
  }

  void set_options(FitContext& fit, const CheckpointOptions& options, State& state) const {
    if (!this->is_empty())
      throw UsageError(message("a layer was listed as a policy: list an empty Checkpointed<",
                               detail::type_name<Layer>(), ">{} instead"));
    state.layers.clear();
    for (const auto& module : fit.run.model().modules())
      if (auto* layer = dynamic_cast<Impl*>(module.get())) state.layers.push_back(layer);
    if (state.layers.empty())
      throw UsageError(message("Checkpointed<", detail::type_name<Layer>(),
                               "> is listed, but the model has no such layer: make its ",
                               detail::type_name<Layer>(), " layers Checkpointed ones"));
    for (Impl* layer : state.layers) layer->checkpoint = options;
  }

  static bool has_entered(const State& state) {
    return std::ranges::any_of(state.layers, [](const Impl* layer) { return layer->entered.load(); });
  }

  [[noreturn]] static void refuse(const State& state) {
    throw UsageError(message("none of the model's ", state.layers.size(), " layers Checkpointed<",
                             detail::type_name<Layer>(),
                             "> was entered in the first window: call them through their holder, or "
                             "as<Checkpointed<Layer>>()->forward(...) instead of as<Layer>()->forward(...)"));
  }

  CheckpointOptions options_;
};

}  // namespace looptorch
