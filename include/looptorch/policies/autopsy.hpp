// SPDX-License-Identifier: MIT
// NaN trace: if a window's loss or gradients are NaN or infinite, reruns the window with every operator
// traced. Reports which operator made the first such number, on which parameter and sample. Each window costs
// a pass over the gradients, and on a device a wait for the gradients and the loss. Keeps the window's
// batches in memory, with a copy of the model's buffers and of random generators' states.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/optim/gradients/finite_gradients.hpp>
#include <looptorch/policies/metrics/loss_statistics.hpp>
#include <looptorch/resume/window_bundle.hpp>

#include <ATen/ops/scalar_tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

namespace detail {

/// Running statistics of one update.
struct WatchedUpdate {
  LossStatistics losses = {}, norms = {};  ///< Statistics of windows without a NaN or infinity.
  std::int64_t overflows = 0;              ///< In a row.
  double norm = 0;                         ///< Norm of the current gradients; not saved.
};

struct AutopsyState {
  std::vector<WatchedUpdate> updates = {};
  std::int64_t spikes = 0;  ///< Examined so far.
};

}  // namespace detail

/// Ends the fit with NonFiniteLoss or NonFiniteGradient, which hold a `finding` and quote it. If
/// SkipBadWindows skips the window, reports it and continues. Gradients of `Autocast<fp16>` may overflow,
/// since the scale then falls. A loss that is not finite does not depend on the scale, and is examined.
struct Autopsy {
  using State = detail::AutopsyState;
  static constexpr Phase phase = Phase::check;  // before anything clips the gradients
  static constexpr bool changes_gradients = false;
  static constexpr ResumeRule resume_rule = ResumeRule::always;
  static constexpr bool veto_is_rank_invariant = true;  // it sees the sums of all ranks
  static constexpr bool shard_aware = true;

  std::filesystem::path folder = {};  ///< A folder for the window as a bundle, for `replay`; empty: none.
  double spikes = 0;             ///< Standard deviations above the running mean from which the loss or the
                                 ///< norm of the gradients is examined and reported; 0: never.
  std::int64_t warm_up = 20;     ///< Windows of an update before spikes are judged; at least 2.
  std::int64_t history = 200;    ///< Windows that the running mean and deviation reach back; at least 2.
  std::int64_t max_traces = 10;  ///< Spikes of a run that are examined.
  std::int64_t overflows = 16;   ///< Windows in a row whose fp16 gradients overflow before one of them is
                                 ///< rerun with a scale of 1, and examined if it overflows again.
  std::function<void(const std::string&)> report = {};  ///< Takes what does not end the fit; empty: stderr.

  /// Throws UsageError for options out of range.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (!(spikes >= 0))
      throw UsageError(
          message("Autopsy's spikes must be a number of deviations or 0 for never, got ", spikes));
    if (warm_up < 2 || history < 2)
      throw UsageError(
          message("Autopsy's warm_up and history must be at least 2, got ", warm_up, " and ", history));
    if (max_traces < 0 || overflows < 1)
      throw UsageError(message("Autopsy's max_traces must be at least 0 and overflows at least 1, got ",
                               max_traces, " and ", overflows));
    state.updates.resize(fit.run.updates().size());
  }

  bool may_rerun(State&) const { return true; }

  /// Refuses gradients that are not finite.
  void before_update(UpdateContext& update, State& state) const {
    const bool vetoed = update.vetoed() || detail::is_set(update.found_inf());
    if (vetoed && !update.sees_shard()) return;
    const auto& gradients = update.raw_gradients();
    if (gradients.empty() && !update.sees_shard()) return;
    const bool bad = is_any(detail::any_non_finite(gradients), update);
    if (!vetoed) update.refuse(bad);
    if (spikes > 0) state.updates[update.index()].norm = norm_of(gradients, update);
  }

  void examine(ExamineContext& window, State& state) const {
    detail::WatchedUpdate& update = state.updates[window.index];
    update.overflows = window.overflowed ? update.overflows + 1 : 0;
    if (window.loss_non_finite || window.refused) return explain(window, window.examine());
    if (update.overflows >= overflows) return explain_overflow(window, update);
    if (window.overflowed || window.skipped || spikes == 0) return;
    const std::string spike = spike_of(window, update);
    if (!spike.empty() && state.spikes++ < max_traces) {
      const Finding& finding = window.examine();
      tell(window, finding, spike + ". " + finding.text() + kept(window));
    }
    if (spike.empty()) {
      update.losses.add(window.loss, history);
      update.norms.add(update.norm, history);
    }
  }

  void state_dict(StateDict& out, State& state) const {
    out.set("updates", state.updates.size());
    out.set("spikes", state.spikes);
    for (std::size_t i = 0; i < state.updates.size(); ++i) {
      StateDict losses, norms;
      state.updates[i].losses.save(losses);
      state.updates[i].norms.save(norms);
      out.set(message("losses.", i), losses);
      out.set(message("norms.", i), norms);
      out.set(message("overflows.", i), state.updates[i].overflows);
    }
  }
  void load_state_dict(const StateDict& in, State& state) const {
    state.updates.clear();
    state.spikes = in.get<std::int64_t>("spikes");
    for (std::int64_t i = 0; i < in.get<std::int64_t>("updates"); ++i)
      state.updates.push_back({detail::LossStatistics::loaded(in.under(message("losses.", i))),
                               detail::LossStatistics::loaded(in.under(message("norms.", i))),
                               in.get<std::int64_t>(message("overflows.", i))});
  }

 private:
  /// Returns whether gradients are bad, on any rank if they are sharded.
  static bool is_any(bool bad, const UpdateContext& update) {
    return update.sees_shard() ? update.found_by_any(number(bad ? 1.0 : 0.0)).item<double>() != 0 : bad;
  }
  static double norm_of(const std::vector<at::Tensor>& gradients, const UpdateContext& update) {
    const at::Tensor norm = update.norm_of_all(number(detail::norm_of(gradients)), 2);
    return update.pending().apply(norm).item<double>();
  }
  static at::Tensor number(double value) { return at::scalar_tensor(value, at::kDouble); }

  /// Explains an overflow that no loss scale can fix.
  void explain_overflow(ExamineContext& window, detail::WatchedUpdate& update) const {
    update.overflows = 0;
    if (const Finding finding = window.examine_unscaled(); finding.is_found()) explain(window, finding);
  }

  void explain(ExamineContext& window, const Finding& finding) const {
    std::string more = kept(window);
    if (window.skipped) return tell(window, finding, finding.text() + more);
    window.end_with(finding, std::move(more));
  }

  /// Returns what is unusual about a window; empty if nothing is.
  [[nodiscard]] std::string spike_of(const ExamineContext& window,
                                     const detail::WatchedUpdate& update) const {
    const auto judge = [&](const char* what, double value, const detail::LossStatistics& usual) {
      const double deviations = usual.deviations(value);
      return usual.count < warm_up || !(deviations > spikes)
                 ? std::string()
                 : message(what, " of ", value, " is ", deviations,
                           " standard deviations above the running mean of ", usual.mean);
    };
    const std::string loss = judge("a loss", window.loss, update.losses);
    return loss.empty() ? judge("a norm of the gradients", update.norm, update.norms) : loss;
  }

  /// Saves the window if asked to; returns a sentence, or nothing if another rank saves it.
  [[nodiscard]] std::string kept(ExamineContext& window) const {
    if (folder.empty()) return {};
    try {
      const std::filesystem::path bundle = window.keep_in(folder);
      return bundle.empty() ? "" : message(" The window is kept in ", bundle.string(), ".");
    } catch (const std::exception& error) {
      return message(" The window could not be kept: ", detail::first_line(error.what()));
    }
  }

  void tell(ExamineContext& window, const Finding& finding, const std::string& sentences) const {
    const std::string text =
        window.agreed(finding, message("autopsy of ", window.place.text(), ": ", sentences));
    report ? report(text) : void(std::cerr << detail::own_line(stderr, text));
  }
};

}  // namespace looptorch
