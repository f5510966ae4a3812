// SPDX-License-Identifier: MIT
// Skips windows whose loss is NaN, infinite or far above the others, and reports their samples, so that one
// damaged sample does not end a long run. Costs a copy of the model's buffers per window, and on a device a
// wait for each update's loss.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/datasets/exclude_samples.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/policies/declared.hpp>
#include <looptorch/policies/metrics/loss_statistics.hpp>
#include <looptorch/resume/window_bundle.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

struct RetryOnOom;
struct ShowProgress;

/// More windows were bad than `SkipBadWindows::max_skipped`. The last one is skipped and counted too.
struct TooManyBadWindows : Error {
  TooManyBadWindows(const std::string& what, std::vector<WindowPlace> skipped)
      : Error(what), windows(std::move(skipped)) {}
  std::vector<WindowPlace> windows;  ///< All that the run skipped, in order.
};

namespace detail {

/// SkipBadWindows' judgement of one update's window, until the window ends.
struct JudgedLoss {
  std::int64_t step = 0;
  double loss = 0;
  std::optional<WindowPlace> skipped = {};
};

/// SkipBadWindows' record of the run.
struct BadWindows {
  std::vector<WindowPlace> windows = {};               ///< The skipped ones, in order, each once.
  std::vector<LossStatistics> losses;                  ///< By update: of the windows that were kept.
  std::vector<std::optional<JudgedLoss>> judged = {};  ///< By update: the window under way; not saved.
};

}  // namespace detail

/// Skips windows by their losses. Under `Autocast<fp16>` a loss that is NaN or infinite is an overflow, which
/// the loss scale skips: only spikes are bad then.
struct SkipBadWindows {
  using State = detail::BadWindows;
  static constexpr ResumeRule resume_rule = ResumeRule::on_request;
  using runs_after = After<LogMetrics, ShowProgress, RetryOnOom>;  // on_window_end may end the fit

  std::int64_t max_skipped = 10;  ///< Windows of a run that may be skipped; one more ends it.
  double spikes = 0;  ///< Standard deviations above the running mean from which a loss is bad; 0: never.
  std::int64_t warm_up = 20;        ///< Windows of an update before spikes are judged; at least 2.
  std::int64_t history = 200;       ///< Windows that the running mean and deviation reach back; at least 2.
  std::filesystem::path list = {};  ///< A file that gets the samples, for ExcludeSamples; empty: none.
  std::function<void(const std::string&)> report = {};  ///< Takes a sentence an update; empty: stderr.
  std::filesystem::path folder = {};  ///< A folder for skipped windows, as bundles for replay; empty: none.

  /// Throws UsageError for options out of range, FileError for a list that cannot be read or written.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (max_skipped < 0)
      throw UsageError(message("SkipBadWindows' max_skipped must be at least 0, got ", max_skipped));
    if (!(spikes >= 0))
      throw UsageError(
          message("SkipBadWindows' spikes must be a number of deviations or 0 for never, got ", spikes));
    if (warm_up < 2) throw UsageError(message("SkipBadWindows' warm_up must be at least 2, got ", warm_up));
    if (history < 2) throw UsageError(message("SkipBadWindows' history must be at least 2, got ", history));
    if (!list.empty()) add_to_sample_list(list, {});
    state.losses.resize(fit.run.updates().size());
    state.judged.assign(fit.run.updates().size(), std::nullopt);
  }

  bool may_rerun(State&) const { return !folder.empty(); }

  void on_window_loss(WindowLossContext& window, State& state) const {
    auto& judged = state.judged[window.index];
    judged = {window.place.step, window.loss};
    if (const std::string trouble = trouble_of(window, state); !trouble.empty()) {
      judged->skipped = window.place;
      window.skip_window();
      tell(window, trouble);
      if (window.rerun() && !folder.empty()) keep(*window.rerun());
    }
  }

  /// Throws TooManyBadWindows.
  void on_window_end(WindowContext& context, State& state) const {
    const auto known = std::ssize(state.windows);
    for (std::size_t i = 0; i < state.judged.size(); ++i)
      if (const auto judged = std::exchange(state.judged[i], std::nullopt);
          judged && judged->step + 1 == context.run.progress().step)
        judged->skipped ? note(*judged->skipped, state) : learn(state.losses[i], judged->loss);
    if (const auto count = std::ssize(state.windows); count > known && count > max_skipped)
      throw TooManyBadWindows(message(count, " windows were skipped because of their losses, and at most ",
                                      max_skipped, " may be; the last one was ", state.windows.back().text(),
                                      ". Look at these samples, lower the learning rate or clip gradients"),
                              state.windows);
  }

  void state_dict(StateDict& out, State& state) const {
    out.set("of", describe());
    if (!state.windows.empty()) out.set("windows", detail::packed(state.windows));
    out.set("updates", state.losses.size());
    for (std::size_t i = 0; i < state.losses.size(); ++i) {
      StateDict losses;
      state.losses[i].save(losses);
      out.set(message("losses.", i), losses);
    }
  }
  /// Throws SettingDiffers for statistics with other rules.
  void load_state_dict(const StateDict& in, State& state) const {
    detail::require_same(in, "of", "the judgement of spikes", describe());
    state.windows.clear();
    if (in.contains("windows")) state.windows = detail::unpacked(in.get<at::Tensor>("windows"));
    state.losses.clear();
    for (std::int64_t i = 0; i < in.get<std::int64_t>("updates"); ++i)
      state.losses.push_back(detail::LossStatistics::loaded(in.under(message("losses.", i))));
    state.judged.assign(state.losses.size(), std::nullopt);
  }

 private:
  /// Returns what is bad about a loss, to follow "its loss"; empty if it is good.
  [[nodiscard]] std::string trouble_of(const WindowLossContext& window, const State& state) const {
    if (window.non_finite) return "is NaN or infinite";
    const detail::LossStatistics& usual = state.losses[window.index];
    if (spikes == 0 || usual.count < warm_up || !std::isfinite(window.loss)) return {};
    const double deviations = usual.deviations(window.loss);
    if (!(deviations > spikes)) return {};
    return message("of ", window.loss, " is ", deviations, " standard deviations above its running mean of ",
                   usual.mean);
  }

  void learn(detail::LossStatistics& losses, double loss) const {
    if (std::isfinite(loss)) losses.add(loss, history);
  }

  /// Writes a window as a bundle; reports a failure, and continues.
  void keep(WindowRerun& rerun) const {
    try {
      if (const auto bundle = rerun.keep_in(folder); !bundle.empty())
        say(message("kept it in ", bundle.string()));
    } catch (const std::exception& error) {
      say(message("could not keep it in ", folder.string(), ": ", detail::first_line(error.what())));
    }
  }

  /// Records a window, once for all of its updates.
  void note(const WindowPlace& place, State& state) const {
    if (state.windows.empty() || state.windows.back().step != place.step)
      state.windows.push_back(place);
    else
      state.windows.back() = joined(state.windows.back(), place);
    state.windows.back().elsewhere.clear();
    if (list.empty()) return;
    if (place.samples.empty() && place.elsewhere.empty())
      say(message(list.string(), " gets no samples of step ", place.step,
                  ": only the batches of a loader know theirs"));
    else
      add_to_sample_list(list, place.samples);
  }

  /// Returns the place that covers both parts of one window.
  static WindowPlace joined(WindowPlace one, const WindowPlace& other) {
    one.first_batch = std::min(one.first_batch, other.first_batch);
    one.last_batch = std::max(one.last_batch, other.last_batch);
    one.samples.insert(one.samples.end(), other.samples.begin(), other.samples.end());
    one.samples = detail::sorted_once(std::move(one.samples));
    return one;
  }

  void tell(const WindowLossContext& window, const std::string& trouble) const {
    const std::string sentence =
        window.place.elsewhere.empty()
            ? message("skipped ", window.place.text(), " for ", window.run.updates()[window.index].name,
                      ": its loss ", trouble)
            : message("skipped step ", window.place.step, ": ", window.place.elsewhere);
    say(sentence);
  }
  void say(const std::string& sentence) const {
    report ? report(sentence) : void(std::cerr << detail::own_line(stderr, sentence));
  }

  [[nodiscard]] std::string describe() const {
    return message("above ", spikes, " deviations after ", warm_up, " windows, over ", history);
  }
};

}  // namespace looptorch
