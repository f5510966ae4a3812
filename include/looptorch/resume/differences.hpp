// SPDX-License-Identifier: MIT
// The table of what a resumed fit compares with its snapshot, and what of it may differ. Policies declare
// theirs themselves (loop/may_differ.hpp). docs/snapshots.md shows the table.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_comparison.hpp>
#include <looptorch/loop/may_differ.hpp>
#include <looptorch/loop/resume_report.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The things that are compared, in the order of the table.
enum class Compared { model, optimizer, data, generators, contents, rates, options, windows, batches };

/// One row of the table: what is compared, in words, and whether it may differ.
struct ComparedRow {
  Compared what;
  MayDiffer may;
  std::string_view words;
};

inline constexpr ComparedRow kCompared[] = {
    {Compared::model, MayDiffer::never, "names, shapes and types of the model's tensors"},
    {Compared::optimizer, MayDiffer::never, "optimizers, their parameter groups and moments"},
    {Compared::data, MayDiffer::never, "dataset, sampler, seed and `drop_last`"},
    {Compared::generators, MayDiffer::never, "the devices whose random numbers were drawn"},
    {Compared::contents, MayDiffer::never, "the parts of a snapshot"},
    {Compared::rates, MayDiffer::on_request, "learning rates"},
    {Compared::options, MayDiffer::on_request, "other options of an optimizer"},
    {Compared::windows, MayDiffer::on_request, "the samples in a window"},
    {Compared::batches, MayDiffer::always, "batch size and accumulation of the same windows"},
};

[[nodiscard]] constexpr MayDiffer may_differ(Compared what) {
  return std::ranges::find(kCompared, what, &ComparedRow::what)->may;
}

/// A difference between a snapshot and the run that is to take it over.
struct Difference {
  MayDiffer may;
  std::string sentence;  ///< names both sides: "x is 2 here, 1 in the snapshot"
  std::string change;    ///< "x: 1 -> 2", or the sentence where there is nothing shorter
};

[[nodiscard]] inline Difference differs(MayDiffer may, std::string sentence, std::string change = {}) {
  if (change.empty()) change = sentence;
  return {may, std::move(sentence), std::move(change)};
}
[[nodiscard]] inline Difference differs(Compared what, std::string sentence, std::string change = {}) {
  return differs(may_differ(what), std::move(sentence), std::move(change));
}

/// Returns the difference of a value, `of` naming whose it is.
[[nodiscard]] inline Difference differs(Compared what, const std::string& of, const DifferentValue& value) {
  return differs(what, sentence(value, of, "the snapshot"),
                 message(of, value.key, ": ", value.saved, " -> ", value.here));
}

/// The differences in spite of which a run is resumed, beside those that may always be.
enum class Tolerance {
  none,
  settings,  ///< those on request
  all,       ///< takes over what fits
};

[[nodiscard]] inline Tolerance tolerance_of(bool strict, bool resume_changed) {
  if (!strict) return Tolerance::all;
  return resume_changed ? Tolerance::settings : Tolerance::none;
}

/// Throws SnapshotMismatch for differences that are not tolerated. Names those that may differ on request
/// last.
inline void refuse(const std::vector<Difference>& differences, Tolerance tolerance,
                   const std::string& called) {
  if (tolerance == Tolerance::all) return;
  std::vector<std::string> refused, on_request;
  for (const Difference& each : differences)
    if (each.may != MayDiffer::always)
      (each.may == MayDiffer::never ? refused : on_request).push_back(each.sentence);
  if (refused.empty() && (on_request.empty() || tolerance == Tolerance::settings)) return;
  const bool settings_only = refused.empty();
  std::string text = message(called, " is not of this run: ", joined(refused, "; "));
  if (!on_request.empty())
    text += message(settings_only ? "" : "; and, of what may differ on request, ", joined(on_request, "; "));
  if (settings_only) text += ". resume_changed (a program's --resume-changed) goes on with this";
  refused.insert(refused.end(), on_request.begin(), on_request.end());
  throw SnapshotMismatch(text, std::move(refused), settings_only);
}

/// Notes the differences in spite of which a run is resumed.
inline void add_to(ResumeReport& report, const std::vector<Difference>& differences, Tolerance tolerance) {
  for (const Difference& each : differences)
    if (tolerance == Tolerance::all && each.may != MayDiffer::always)
      report.differences.push_back(each.sentence);
    else
      report.changed.push_back(each.change);
}

}  // namespace looptorch::detail
