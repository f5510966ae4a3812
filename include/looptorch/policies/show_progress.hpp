// SPDX-License-Identifier: MIT
// Shows epoch, step, loss, learning rates, samples per second, the time left and, with a loader, the share of
// time spent waiting for data. On a terminal it rewrites one line. It writes plain lines to a pipe or a file,
// in a shell's background, and if TERM is "dumb". Each epoch adds a line with the published metrics. Reads
// the loss, and so waits for the device, only when it writes.
#pragma once

#include <looptorch/base/process/terminal.hpp>
#include <looptorch/data/loader/data_bound.hpp>
#include <looptorch/data/loader/loader_stats.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/update.hpp>
#include <looptorch/policies/watching/progress_line.hpp>
#include <looptorch/policies/watching/time_left.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

struct RetryOnOom;

/// Writes to `out` at most every `live_seconds` on a terminal, every `line_seconds` elsewhere. Warns once a
/// fit, with remedies, when waiting for data has taken more than the share `starving` of the time; in yellow
/// on a terminal, unless NO_COLOR is set.
struct ShowProgress {
  std::FILE* out = stderr;
  double live_seconds = 0.2;
  double line_seconds = 10.0;
  double starving = 0.2;

  static constexpr bool leader_only = true;
  using runs_after = After<RetryOnOom>;

  struct State {
    using Clock = std::chrono::steady_clock;
    bool terminal = false;
    bool live_line_open = false;
    std::string live_line;  ///< The last line written: another policy's line may have replaced it.
    Clock::time_point begin;
    Clock::time_point shown;
    std::int64_t begin_step = 0;
    std::int64_t begin_samples = 0;
    detail::TimeLeft left = {};
    /// A copy of the loader's counters, and when it was made.
    struct Loading {
      LoaderStats stats;
      Clock::time_point time;
    };
    LoaderStats loading_at_begin;
    Loading at_epoch, at_line;  ///< When the epoch began, and when a line was last written.
    bool warned_data_bound = false;
    std::vector<WeightedSum> before;  ///< Each update's loss totals when a line was last written.
  };

  void on_fit_begin(FitContext& fit, State& state) const {
    state.before.clear();  // a fit that continues within an epoch shows only what it adds
    for (const UpdateView& view : fit.run.updates()) state.before.push_back(view.loss.totals());
    state.terminal = detail::is_terminal(out);
    state.begin = state.shown = State::Clock::now();
    state.begin_step = fit.run.progress().step;
    state.begin_samples = fit.run.progress().samples;
    state.left = {};
    state.warned_data_bound = false;
    state.loading_at_begin = fit.run.feed().stats ? *fit.run.feed().stats : LoaderStats{};
    if (fit.run.feed().stats) fit.run.feed().stats->warned_data_bound = true;  // this policy warns instead
    state.at_epoch = state.at_line = {state.loading_at_begin, state.begin};
  }

  void on_epoch_begin(EpochContext& epoch, State& state) const {
    state.before.assign(epoch.run.updates().size(), {});
    if (const auto& loading = epoch.run.feed().stats) state.at_epoch = {*loading, State::Clock::now()};
  }

  void on_window_end(WindowContext& window, State& state) const {
    const auto now = State::Clock::now();
    const double since = std::chrono::duration<double>(now - state.shown).count();
    const std::int64_t step = window.run.progress().step;
    state.left.note(std::chrono::duration<double>(now - state.begin).count(), step);
    const bool first = step == state.begin_step + 1;
    if (!first && since < (state.terminal ? live_seconds : line_seconds)) return;
    const bool rewrites = state.terminal && detail::can_rewrite_line(out);
    if (!first && !rewrites && since < line_seconds) return;
    state.shown = now;
    write(state, line(window.run, state), rewrites);
    warn_if_starving(window.run, state);
  }

  void on_epoch_end(EpochContext& epoch, State& state) const {
    close_live_line(state);
    std::fprintf(out, "%s\n", epoch_line(epoch.run, state).c_str());
    std::fflush(out);
    warn_if_starving(epoch.run, state);
  }

  void on_fit_end(FitContext& fit, State& state) const {
    if (fit.run.feed().stats)
      fit.run.feed().stats->warned_data_bound =
          state.warned_data_bound || state.loading_at_begin.warned_data_bound;
    leave_live_line(state);
    if (fit.status == FitStatus::stopped)
      std::fprintf(out, "stopped: %s\n", fit.run.stop_reason().value_or("no reason was given").c_str());
    std::fflush(out);
  }

 private:
  void write(State& state, const detail::ProgressLine& line, bool rewrites) const {
    if (rewrites) {
      state.live_line = line.text(detail::terminal_columns(out) - 1);
      state.live_line_open = true;
      detail::write_live_line(out, state.live_line);
    } else {
      leave_live_line(state);
      std::fprintf(out, "%s\n", line.text().c_str());
      std::fflush(out);
    }
  }

  /// Ends the live line, which stays visible.
  void leave_live_line(State& state) const {
    if (!std::exchange(state.live_line_open, false)) return;
    if (detail::can_rewrite_line(out)) detail::write_live_line(out, state.live_line);
    std::fputc('\n', out);
  }

  void close_live_line(State& state) const {
    if (state.live_line_open) std::fprintf(out, "\r\033[K");
    state.live_line_open = false;
  }

  void warn_if_starving(const Run& run, State& state) const {
    if (!run.feed().stats || state.warned_data_bound) return;
    const LoaderStats loading = run.feed().stats->since(state.loading_at_begin);
    if (!detail::is_data_bound(loading, starving)) return;
    state.warned_data_bound = true;
    close_live_line(state);
    std::fprintf(out, "%s\n", detail::warning_text(out, detail::data_bound_text(loading)).c_str());
    std::fflush(out);
  }

  /// Returns the line's parts. The least important are dropped first if there is no room.
  static detail::ProgressLine line(const Run& run, State& state) {
    enum Rank { always, loss, time_left, throughput, wait, rates, others };
    static_assert(always == detail::LinePart::kAlways && loss == detail::LinePart::kLoss);
    const Progress& progress = run.progress();
    detail::ProgressLine line;
    line.add("epoch", std::to_string(progress.epoch + 1), always);
    const std::string total = progress.total_steps ? "/" + std::to_string(*progress.total_steps) : "";
    line.add("step", std::to_string(progress.step) + total, always);
    for (std::size_t i = 0; i < run.updates().size(); ++i)
      line.add(loss_label(run, i), loss_since(run, i, state), loss);
    line.add("lr", learning_rates(run), rates);
    line.add("", speed(progress, state), throughput);
    if (progress.total_steps)
      if (const auto seconds = state.left.seconds_to(*progress.total_steps))
        line.add("ETA", detail::clock_text(*seconds), time_left);
    line.add("data wait", waiting(run, state.at_line), wait);
    for (const auto& [name, show] : run.shown()) line.add(name, show(), others);
    return line;
  }

  /// Returns the mean loss of update i since the last line.
  static std::string loss_since(const Run& run, std::size_t i, State& state) {
    state.before.resize(run.updates().size());
    const WeightedSum now = run.updates()[i].loss.totals();
    const WeightedSum since{now.sum - state.before[i].sum, now.weight - state.before[i].weight};
    state.before[i] = now;
    return mean_text(since);
  }

  /// Returns the mean, or "-" for an update that was not due.
  static std::string mean_text(const WeightedSum& total) {
    return total.weight > 0 ? detail::number_text(total.mean()) : "-";
  }

  static std::string loss_label(const Run& run, std::size_t i) {
    return run.updates().size() == 1 ? "loss" : run.updates()[i].name;
  }

  /// Returns the rates of each update that has any: "0.001", or "1e-05/0.001" for two groups.
  static std::string learning_rates(const Run& run) {
    std::string text;
    for (const UpdateView& view : run.updates()) {
      const std::string rates = rates_of(*view.optimizer);
      if (rates.empty()) continue;
      text += text.empty() ? "" : ", ";
      text += (run.updates().size() == 1 ? "" : view.name + " ") + rates;
    }
    return text;
  }

  /// Returns one rate if all groups share it, else all rates; of more than four, the lowest and the highest.
  static std::string rates_of(const torch::optim::Optimizer& optimizer) {
    constexpr std::size_t kShown = 4;
    std::vector<double> rates;
    for (const auto& group : optimizer.param_groups())
      if (const double rate = detail::rate_of(group); !std::isnan(rate)) rates.push_back(rate);
    if (rates.empty()) return {};
    const auto [lowest, highest] = std::minmax_element(rates.begin(), rates.end());
    if (*lowest == *highest) return detail::number_text(*lowest, 3);
    if (rates.size() > kShown)
      return detail::number_text(*lowest, 3) + " to " + detail::number_text(*highest, 3);
    std::string text;
    for (const double rate : rates) text += (text.empty() ? "" : "/") + detail::number_text(rate, 3);
    return text;
  }

  static std::string speed(const Progress& progress, const State& state) {
    const double seconds = std::chrono::duration<double>(State::Clock::now() - state.begin).count();
    const double rate = static_cast<double>(progress.samples - state.begin_samples) / seconds;
    return detail::number_text(rate, 3) + " samples/s";
  }

  /// Returns the share of time since `before` spent waiting for the loader, and sets `before` to now. Uses
  /// the clock, since LoaderStats counts the use of a batch only when the next one is requested.
  static std::string waiting(const Run& run, State::Loading& before) {
    if (!run.feed().stats) return {};
    const State::Loading now{*run.feed().stats, State::Clock::now()};
    const double seconds = std::chrono::duration<double>(now.time - before.time).count();
    const double waited = now.stats.wait_seconds - before.stats.wait_seconds;
    before = now;
    return std::to_string(std::lround(100 * std::min(waited / std::max(seconds, 1e-9), 1.0))) + " %";
  }

  static std::string skipped(const Run& run, const LoaderStats& before) {
    const std::int64_t skipped = run.feed().stats ? run.feed().stats->skipped - before.skipped : 0;
    return skipped > 0 ? "  samples skipped " + std::to_string(skipped) : std::string();
  }

  static std::string epoch_line(const Run& run, State& state) {
    std::string text = "epoch " + std::to_string(run.progress().epoch) + " done  step " +
                       std::to_string(run.progress().step);
    for (std::size_t i = 0; i < run.updates().size(); ++i) {
      text += "  " + loss_label(run, i) + " " + mean_text(run.updates()[i].loss.totals());
      for (const auto& [name, mean] : run.updates()[i].metrics)
        text += "  " + name + " " + mean_text(mean.totals());
    }
    for (const auto& [name, value] : run.metrics().values())
      text += "  " + name + " " + detail::number_text(value);
    if (run.progress().skipped > 0) text += "  skipped " + std::to_string(run.progress().skipped);
    text += skipped(run, state.at_epoch.stats);
    const std::string wait = waiting(run, state.at_epoch);
    return wait.empty() ? text : text + "  data wait " + wait;
  }
};

}  // namespace looptorch
