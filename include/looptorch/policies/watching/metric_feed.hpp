// SPDX-License-Identifier: MIT
// Collects the numbers of each step for LogMetrics, on the training thread. Hands over rows, several at a
// time, to the thread that writes the files (report/metric_log.hpp).
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/example.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/update.hpp>
#include <looptorch/objective/metric_sink.hpp>
#include <looptorch/policies/watching/feed_target.hpp>
#include <looptorch/policies/watching/flop_meter.hpp>
#include <looptorch/policies/watching/machine_numbers.hpp>
#include <looptorch/policies/watching/metric_rows.hpp>
#include <looptorch/policies/watching/step_clock.hpp>
#include <looptorch/policies/watching/tracked_means.hpp>
#include <looptorch/report/example_forms.hpp>
#include <looptorch/report/known_metrics.hpp>
#include <looptorch/report/metric_log.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch::detail {

/// LogMetrics' state: a fit's growing row of numbers, the clock, and the log to hand rows to. Only `end` may
/// wait: the training thread writes no file, and leaves unread numbers on their device.
class MetricFeed final : public MetricSink {
 public:
  /// Ends the files of a loop of `step` that did not end. Counts earlier publications, which get no row.
  void prepare(Run& run) {
    end(FitStatus::interrupted);
    published_.clear();
    for (const auto& [name, value] : run.metrics().values())
      published_[name] = run.metrics().publications(name);
  }
  /// Begins a fit's rows, after the step that the run has reached.
  void begin(Run& run, FeedTarget target, FlopMeter meter) {
    run_ = &run, target_ = std::move(target), meter_ = std::move(meter);
    machine_.begin(run.device());
    rows_ = MetricRows{};
    clock_ = StepClock{};
    begin_ = handed_over_ = clock_.now();
    means_.clear();  // ids of the former rows
    restart_means();
    seen_ = now_of(run);
    in_window_ = row_.is_due = false;
    place_row(0);
    RunAccess::collect_offers(run, this);
  }

  /// True between `begin` and `end`.
  [[nodiscard]] bool is_open() const { return target_.log != nullptr; }
  [[nodiscard]] report::MetricLog* log() const { return target_.log.get(); }
  /// Returns the files that the last fit has closed.
  [[nodiscard]] RunFiles take_closed() { return std::exchange(closed_, {}); }
  /// Returns the last fit's FLOPs a second over its written rows; empty until it has counted two windows.
  [[nodiscard]] std::optional<FlopMeter::Rates> flops() const { return meter_.of_run(); }

  void record(std::size_t update, std::string_view name, const Quantity& value) override {
    if (is_open()) rows_.add(id(update, name), value);
  }

  void record_examples(std::string name, std::vector<Example> examples) override {
    if (!is_open()) return;
    const std::int64_t step = run_->progress().step;
    target_.log->add([page = target_.files.page, sounds = target_.files.sounds, step, name = std::move(name),
                      examples = std::move(examples)](report::MetricFiles& files) {
      for (std::size_t i = 0; i < examples.size(); ++i) {
        const std::string tag = examples.size() == 1 ? name : name + "/" + tag_end(examples[i], i);
        if (!sounds->is_known(tag, examples[i]))
          files.add_events(report::example_event({report::unix_seconds(), step}, tag, examples[i]));
      }
      if (page) page->set_examples(name, step, examples);
    });
  }

  /// Ends the phase under way, begins `phase`, and returns the former. A forward pass begins a window if none
  /// is open, and so does a backward one: a replayed graph has no other.
  RunPhase enter(RunPhase phase) {
    const RunPhase before = clock_.enter(phase);
    const bool learns = phase == RunPhase::forward || phase == RunPhase::backward;
    if (learns && is_open() && !in_window_) begin_window();
    meter_.enter(phase);
    return before;
  }

  /// Notes the rates of an update that is about to be made.
  void add_rates(const UpdateContext& update) {
    const auto& groups = update.optimizer().param_groups();
    const double first = rate_of(groups.front());
    const bool same = std::all_of(groups.begin(), groups.end(), [&](const auto& group) {
      const double rate = rate_of(group);
      return rate == first || std::isnan(rate);
    });
    if (same) return add_rate(update.index(), "lr", first);
    for (std::size_t i = 0; i < std::min(groups.size(), kGroupRates.size()); ++i)
      add_rate(update.index(), kGroupRates[i], rate_of(groups[i]));
  }

  /// Adds the numbers of a window that has ended. The row may still grow by what an epoch's end publishes.
  void end_window(bool due) {
    in_window_ = false;
    meter_.end_window(run_->progress().samples);
    place_row(0);
    const auto& views = run_->updates();
    for (std::size_t i = 0; i < views.size(); ++i) {
      add_mean(i, kLoss, views[i].loss, due);
      for (const auto& [name, mean] : views[i].metrics) add_mean(i, name, mean, due);
    }
    if (due) {
      row_.is_due = true;
      add_speed();
    }
    add_published();  // in a row of their step, whatever is due
  }

  /// Restarts the sums of losses for the next epoch.
  void restart_means() {
    means_.restart();
    for (std::size_t i = 0; run_ && i < run_->updates().size(); ++i) {
      const UpdateView& view = run_->updates()[i];
      tracked(i, kLoss).windows = view.loss.windows();
      for (const auto& [name, mean] : view.metrics) tracked(i, name).windows = mean.windows();
    }
  }

  /// Adds what policies have published since the last call, such as a validation's loss.
  void add_published() {
    for (const auto& [name, value] : run_->metrics().values()) {
      std::int64_t& seen = published_[name];
      if (const std::int64_t now = run_->metrics().publications(name); now != std::exchange(seen, now))
        record(kWholeRun, name, value), row_.is_due = true;
    }
  }

  /// Hands over all rows, the growing one too.
  void hand_over_all() {
    if (!is_open()) return;
    add_published();
    if (row_.is_due || !rows_.row_is_empty()) end_row(/*now=*/true);
    hand_over();
  }
  /// Blocks until the files have everything. Writes no row for the time since a snapshot alone: a resumed run
  /// would keep it as a second row of its step.
  void end(FitStatus status) {
    meter_.drop_window();
    if (!is_open()) return;
    clock_.enter(RunPhase::other);
    if (in_window_ && !rows_.row_is_empty())  // a window that threw, maybe when it was already counted
      place_row(window_begin_ + 1 - run_->progress().step);
    hand_over_all();
    const FitStatus ended = status == FitStatus::nothing_left ? FitStatus::completed : status;
    if (target_.files.page)
      target_.log->add([page = target_.files.page, word = std::string(to_string(ended))](
                           report::MetricFiles&) { page->set_status(word); });
    target_.log.reset();
    closed_ = std::exchange(target_, {}).files;
    RunAccess::collect_offers(*run_, nullptr);
  }

 private:
  static constexpr std::string_view kLoss = "loss";
  static constexpr std::array<std::string_view, 8> kGroupRates = {"lr.0", "lr.1", "lr.2", "lr.3",
                                                                  "lr.4", "lr.5", "lr.6", "lr.7"};
  static constexpr std::size_t kUnreadAtMost = 128;

  /// The growing row: where it stands in the run, and whether it has a window to be written.
  struct Row {
    std::int64_t step = 0, epoch = 0;
    StepClock::Clock::time_point time;
    bool is_due = false;
  };
  /// Counters at the last row.
  struct Seen {
    StepClock::Clock::time_point time;
    std::int64_t step = 0, samples = 0;
    double wait = 0;
  };

  /// Returns the tag's ending for the i-th of several examples.
  static std::string tag_end(const Example& example, std::size_t i) {
    const auto* numbers = std::get_if<DistributionExample>(&example);
    return numbers && !numbers->title.empty() ? numbers->title : std::to_string(i);
  }

  report::MetricId id(std::size_t update, std::string_view name) {
    return rows_.id(update, name, [&] {
      const bool of_one = update == kWholeRun || run_->updates().size() == 1;
      return of_one ? std::string(name) : run_->updates()[update].name + "/" + std::string(name);
    });
  }
  TrackedMean& tracked(std::size_t update, std::string_view name) {
    return means_.of(update, name, [&] { return id(update, name); });
  }

  void add_mean(std::size_t update, std::string_view name, const RunningMean& mean, bool due) {
    TrackedMean& known = tracked(update, name);
    const bool grew = known.grew(mean);
    if (due && grew && mean.holds_last_window())
      rows_.add_difference(known.id, mean.unread(), mean.before_last_window());
  }
  void add_rate(std::size_t update, std::string_view name, double rate) {
    if (!std::isnan(rate)) record(update, name, rate);
  }

  static Seen now_of(const Run& run) {
    Seen seen{StepClock::Clock::now(), run.progress().step, run.progress().samples};
    if (run.feed().stats) seen.wait = run.feed().stats->wait_seconds;
    return seen;
  }
  void add_speed() {
    const Seen now = now_of(*run_), before = std::exchange(seen_, now);
    const double seconds = std::chrono::duration<double>(now.time - before.time).count();
    const auto steps = static_cast<double>(std::max<std::int64_t>(now.step - before.step, 1));
    record(kWholeRun, report::kStepSeconds, seconds / steps);
    if (seconds > 0)
      record(kWholeRun, "samples_per_second", static_cast<double>(now.samples - before.samples) / seconds);
    add_flops(meter_.rates(now.samples - before.samples, seconds));
    if (run_->feed().stats && seconds > 0)
      record(kWholeRun, "data_wait", std::min((now.wait - before.wait) / seconds, 1.0));
    record(kWholeRun, report::kSkipped, static_cast<double>(run_->progress().skipped));
  }

  void add_flops(const std::optional<FlopMeter::Rates>& rates) {
    if (!rates) return;
    record(kWholeRun, "flops_per_second", rates->flops_per_second);
    if (rates->utilization) record(kWholeRun, "mfu", *rates->utilization);
  }

  void begin_window() {
    in_window_ = true, window_begin_ = run_->progress().step;
    if (row_.is_due) end_row();
    meter_.begin_window(clock_.now(), run_->progress().samples);
  }

  /// Sets the growing row's step to `ahead` after the finished windows.
  void place_row(std::int64_t ahead) {
    row_.step = run_->progress().step + ahead, row_.epoch = run_->progress().epoch;
    row_.time = StepClock::Clock::now();
  }
  void end_row(bool now = false) {
    const double since = std::chrono::duration<double>(row_.time - handed_over_).count();
    const bool late = now || since >= target_.flush_seconds;
    row_.is_due = false;
    if (late) {
      add_phases();
      machine_.add([&](std::string_view name, double value) { record(kWholeRun, name, value); },
                   *target_.log);
    }
    rows_.end_row(
        row_.step, row_.epoch,
        target_.log->seconds_at_begin() + std::chrono::duration<double>(row_.time - begin_).count());
    if (!now && (late || rows_.unread() >= kUnreadAtMost)) hand_over();
  }
  void add_phases() {
    const auto seconds = clock_.take();
    for (std::size_t i = 0; i < seconds.size(); ++i)
      if (seconds[i] > 0) record(kWholeRun, message(report::kTimePrefix, kRunPhases[i]), seconds[i]);
  }
  void hand_over() {
    handed_over_ = StepClock::Clock::now();
    if (rows_.size() > 0) target_.log->add(rows_.take());
  }

  Run* run_ = nullptr;
  FeedTarget target_;
  RunFiles closed_;  // between fits
  MetricRows rows_;
  StepClock clock_;
  FlopMeter meter_;
  MachineNumbers machine_;
  StepClock::Clock::time_point begin_, handed_over_;
  TrackedMeans means_;
  std::map<std::string, std::int64_t> published_;
  Seen seen_;
  Row row_;
  std::int64_t window_begin_ = 0;  // the step as the last window began
  bool in_window_ = false;         // between a window's first forward pass and its end
};

}  // namespace looptorch::detail
