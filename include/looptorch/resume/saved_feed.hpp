// SPDX-License-Identifier: MIT
// Describes in a snapshot the batches of a fit and the position among them, and finds the position again when
// a fit resumes. A position counts batches of the size with which the run began. If a resumed fit has another
// batch size, data/loader/regrouping.hpp (with an example) converts the position, so that each window still
// holds the same samples. The position is also converted if a `reproducible` run has another number of ranks.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/state_comparison.hpp>
#include <looptorch/data/loader/data_fingerprint.hpp>
#include <looptorch/data/loader/feed.hpp>
#include <looptorch/data/loader/loader_log.hpp>
#include <looptorch/data/loader/regrouping.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/resume/differences.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the number of batches in an epoch; empty if unknown.
[[nodiscard]] inline std::optional<std::int64_t> batches_of(const StateDict& identity) {
  return identity.contains("batches") ? std::optional(identity.get<std::int64_t>("batches")) : std::nullopt;
}

/// A range as a run's snapshots describe it.
struct SavedFeed {
  StateDict identity = {};                    ///< the batches with which the run began; empty for no range
  std::int64_t batch_size = 0;                ///< the samples in one of these; 0: not known
  std::optional<Regrouping> regrouping = {};  ///< converts these to the batches that are read
  std::shared_ptr<const LoaderLog> log = {};  ///< the loader's position; null if a stream's is not saved

  /// Writes the range, the length of a window, and the position, counted in the batches with which the run
  /// began. The saved state of a stream is at most a batch before that position.
  void save(std::int64_t window_length, const Progress& progress, StateDict& out) const {
    const std::int64_t batch = progress.batch;
    out.set("loader", identity);
    if (log && log->stream && !regrouping && log->position.epoch == progress.epoch &&
        log->position.batch <= batch) {
      out.set("stream.epoch", log->position.epoch);
      out.set("stream.batch", log->position.batch);
      out.set("stream.state", *log->stream);
    }
    out.set("micro_batches", regrouping ? regrouping->planned.micro_batches : window_length);
    if (batch_size > 0) out.set("batch_size", batch_size);
    if (regrouping) out.set("run.progress.batch", regrouping->to_planned(batch, batches_of(identity)));
  }
};

/// Returns how snapshots describe a fit's range.
[[nodiscard]] inline SavedFeed describe_feed(const Feed& feed) {
  if (!feed.source) return {.identity = feed.identity()};
  const auto& how = feed.source->regrouping();
  return {.identity = feed.source->planned_identity(),
          .batch_size = how ? how->planned.batch_size : feed.source->batch_size(),
          .regrouping = how,
          .log = feed.log};
}

/// Makes the loader of a later fit read the run's original windows, if it has the same data.
inline void restore_windows(const SavedFeed& began, Regroupable& batches) {
  const auto& how = began.regrouping;
  const auto same = how && batches.batch_size() == how->read.batch_size
                        ? batches.identity_with(how->planned.batch_size)
                        : std::nullopt;
  batches.regroup(same && differing_values(*same, began.identity).empty() ? how : std::nullopt);
}

/// Returns the identity of a fit's range as it is read in this run.
[[nodiscard]] inline StateDict own_identity(const Feed& feed) {
  return feed.source ? feed.source->identity_with(feed.source->batch_size()).value() : feed.identity();
}

/// A snapshot's position in the epoch, located in the range of the fit that resumes.
class StagedFeed {
 public:
  /// Compares `state`, whose run has done `batch` batches of its epoch, with a fit's range and windows of
  /// this length. Without a range `feed` has an empty identity. With `own_count` the number of batches is not
  /// compared: a rank that does not lead may have fewer than the leading one, which wrote the state.
  StagedFeed(const StateDict& state, std::int64_t batch, const Feed& feed, std::int64_t window_length,
             bool own_count = false)
      : source_(feed.source),
        own_count_(own_count),
        here_{window_length, source_ ? source_->batch_size() : 0},
        saved_window_(state.get<std::int64_t>("micro_batches")),
        saved_batch_(batch) {
    if (saved_window_ < 1)
      throw StateError(
          message("a run's windows have at least 1 micro-batch, the state's have ", saved_window_));
    StateDict saved = state.under("loader");
    StateDict own = own_identity(feed);
    const bool has_fingerprint = own.contains(kFingerprint);
    if (!saved.empty() && !own.empty() && drop_lone_fingerprint(own, saved))
      differences_.push_back(
          mismatch(ResumeRule::always,
                   message(has_fingerprint ? "the snapshot" : "the dataset",
                           " has no fingerprint, so whether its data are the same was not compared")));
    batch_ = locate(state, saved, own);
  }

  [[nodiscard]] const std::vector<Difference>& differences() const { return differences_; }
  /// Returns the finished batches of the epoch here; 0 if it begins anew.
  [[nodiscard]] std::int64_t batch() const { return batch_; }

  /// Makes the loader read the windows of the snapshot's run. With `streams` a stream continues from its
  /// state in the snapshot; otherwise it is read from the epoch's beginning.
  void apply(bool streams) const {
    if (!source_) return;
    source_->regroup(regrouping_);
    source_->continue_from(streams ? stream_ : std::nullopt);
  }

 private:
  static constexpr std::int64_t kEpochBegin = 0;

  /// Returns what differs between the identities of two ranges.
  [[nodiscard]] auto differing(StateDict here, StateDict saved) const {
    if (own_count_)
      for (StateDict* const identity : {&here, &saved}) identity->erase("batches");
    return differing_values(here, saved);
  }

  /// Compares the ranges. Returns how many batches of the epoch are done here: the snapshot's number if the
  /// batches are the same, the number with the same samples if their size differs, `kEpochBegin` if the data
  /// differ.
  [[nodiscard]] std::int64_t locate(const StateDict& state, const StateDict& saved, const StateDict& own) {
    if (saved.empty() || own.empty()) return compare_lengths() ? saved_batch_ : kEpochBegin;
    if (differing(own, saved).empty()) {
      compare_lengths();  // another length moves no batch
      if (state.contains("stream.epoch"))
        stream_ = {{state.get<std::int64_t>("stream.epoch"), state.get<std::int64_t>("stream.batch")},
                   std::make_shared<const StateDict>(state.under("stream.state"))};
      return saved_batch_;
    }
    if (const auto batch_size = batch_size_of(state, saved))
      return compare_batches({saved_window_, *batch_size},
                             batches_of(own_count_ ? *source_->identity_with(*batch_size) : saved),
                             batches_of(own));
    return compare_data(own, saved) ? saved_batch_ : kEpochBegin;
  }

  /// True if windows have as many micro-batches as the snapshot's; otherwise records the difference.
  bool compare_lengths() {
    if (saved_window_ == here_.micro_batches) return true;
    differences_.push_back(mismatch(
        ResumeField::windows,
        message(here_.micro_batches, " micro-batches a window here, ", saved_window_, " in the snapshot"),
        message("micro-batches a window: ", saved_window_, " -> ", here_.micro_batches)));
    return false;
  }

  /// True if nothing is known to differ; otherwise records the differences.
  bool compare_data(const StateDict& own, const StateDict& saved) {
    const std::size_t differences_before = differences_.size();
    compare_lengths();
    const bool same_size = own.contains("dataset") && saved.contains("dataset") &&
                           same_value(own.values().at("dataset"), saved.values().at("dataset"));
    for (const DifferentValue& value : differing(own, saved))
      if (value.key != kFingerprint)
        differences_.push_back(mismatch(ResumeField::data, "the loader's ", value));
      else if (same_size && source_)
        differences_.push_back(
            mismatch(ResumeField::data,
                     source_->different_data(saved.get<std::string>(kFingerprint), "the snapshot")));
    return differences_.size() == differences_before;
  }

  /// Returns the batch size that would give the loader here the saved identity; empty if more differs. Tries
  /// the one whose windows have the saved number of samples, then the two that snapshots of later versions
  /// name.
  [[nodiscard]] std::optional<std::int64_t> batch_size_of(const StateDict& state,
                                                          const StateDict& saved) const {
    if (!source_ || here_.batch_size < 1) return std::nullopt;
    std::vector<std::int64_t> candidates{saturating_product(here_.batch_size, here_.micro_batches) /
                                         saved_window_};
    if (state.contains("batch_size")) candidates.push_back(state.get<std::int64_t>("batch_size"));
    if (saved.contains("batch_size")) candidates.push_back(saved.get<std::int64_t>("batch_size"));
    for (const std::int64_t candidate : candidates) {
      auto identity = candidate > 0 ? source_->identity_with(candidate) : std::nullopt;
      if (identity && !saved.contains(kFingerprint)) identity->erase(kFingerprint);
      if (identity && differing(*identity, saved).empty()) return candidate;
    }
    return std::nullopt;
  }

  /// Compares windows of loaders that are otherwise equal. Returns the finished batches of the epoch here.
  std::int64_t compare_batches(const WindowShape& planned, std::optional<std::int64_t> planned_size,
                               std::optional<std::int64_t> own_size) {
    const Regrouping how{planned, here_};
    const bool same_number = saturating_product(planned.micro_batches, planned.batch_size) ==
                             saturating_product(here_.micro_batches, here_.batch_size);
    std::string why;
    if (same_number) {
      why = source_->refusal(how);
      const auto place =
          why.empty() ? how.from_planned(saved_batch_, planned_size, source_->size_with(how)) : std::nullopt;
      if (place) return regroup(how, *place);
      if (why.empty()) why = "the snapshot stands in the middle of a window";
    }
    const bool in_samples = source_->cuts_an_order();
    std::string so = why.empty() ? "" : message("; the windows of samples cannot be kept: ", why);
    if (!in_samples && saved_batch_ > 0) so += "; the epoch begins anew";
    differences_.push_back(mismatch(
        ResumeField::windows,
        message("a window is ", describe(here_), " here, ", describe(planned), " in the snapshot", so),
        message("a window: ", describe(planned), " -> ", describe(here_), so)));
    return in_samples ? first_unseen_batch(planned, planned_size, own_size) : kEpochBegin;
  }

  std::int64_t regroup(const Regrouping& how, std::int64_t place) {
    regrouping_ = how;
    differences_.push_back(
        mismatch(ResumeField::batches, message("a window of ", describe(how.planned), " is read as ",
                                               describe(how.read), ", the same samples")));
    return place;
  }

  /// Returns the first batch here with an unseen sample.
  [[nodiscard]] std::int64_t first_unseen_batch(const WindowShape& planned,
                                                std::optional<std::int64_t> planned_size,
                                                std::optional<std::int64_t> own_size) const {
    if (planned_size && own_size && saved_batch_ == *planned_size) return *own_size;
    const std::int64_t batch = saturating_product(saved_batch_, planned.batch_size) / here_.batch_size;
    return own_size ? std::min(batch, *own_size) : batch;
  }

  Regroupable* source_;
  bool own_count_;
  WindowShape here_;
  std::int64_t saved_window_, saved_batch_;
  std::int64_t batch_;
  std::optional<Regrouping> regrouping_;
  std::optional<StreamPlace> stream_;
  std::vector<Difference> differences_;
};

/// Returns how many windows these batches make, a short last one included.
[[nodiscard]] inline std::int64_t windows_of(std::int64_t batches, std::int64_t length) {
  return batches / length + (batches % length != 0);
}

/// Returns the state of a reproducible run as it would be on `ranks` ranks; any other state unchanged.
/// `window` and `batches` are the lengths here; `batches` is -1 if unknown. A rank other than the first may
/// have one window fewer: it has no part of a short last window.
[[nodiscard]] inline StateDict as_for_ranks(StateDict state, std::int64_t ranks, std::int64_t window,
                                            std::int64_t batches, bool leads) {
  if (!state.contains("ranks")) return state;
  const auto saved_ranks = state.get<std::int64_t>("ranks");
  const auto saved_window = state.get<std::int64_t>("micro_batches");
  if (ranks < 1 || saved_window < 1 || saved_window * saved_ranks != window * ranks) return state;
  state.set("micro_batches", window);
  const auto batch = state.get<std::int64_t>("run.progress.batch");
  state.set("run.progress.batch", windows_of(batch, saved_window) * window);
  if (batches >= 0 && state.contains("loader.batches")) {
    const std::int64_t saved = windows_of(state.get<std::int64_t>("loader.batches"), saved_window);
    const std::int64_t here = windows_of(batches, window);
    if (here == saved || (!leads && here + 1 == saved)) state.set("loader.batches", batches);
  }
  return state;
}

}  // namespace looptorch::detail
