// SPDX-License-Identifier: MIT
// Lists in a table what a resumed fit compares with its snapshot, such as the model, the data and learning
// rates. Each row says whether a difference is refused, allowed on request (`resume_changed`) or always
// allowed. For the settings of a policy, its `resume_rule` decides (loop/resume_rule.hpp). docs/snapshots.md
// shows the table.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/state_comparison.hpp>
#include <looptorch/loop/resume_report.hpp>
#include <looptorch/loop/resume_rule.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The things that are compared, in the order of the table.
enum class ResumeField { model, optimizer, data, generators, contents, rates, options, windows, batches };

/// One row of the table: the thing compared, in words, and whether it may differ.
struct ResumeFieldRow {
  ResumeField what;
  ResumeRule may;
  std::string_view words;
};

inline constexpr ResumeFieldRow kResumeFields[] = {
    {ResumeField::model, ResumeRule::never, "names, shapes and types of the model's tensors"},
    {ResumeField::optimizer, ResumeRule::never, "optimizers, their parameter groups and moments"},
    {ResumeField::data, ResumeRule::never, "dataset, sampler, seed and `drop_last`"},
    {ResumeField::generators, ResumeRule::never, "the devices whose random numbers were drawn"},
    {ResumeField::contents, ResumeRule::never, "the parts of a snapshot"},
    {ResumeField::rates, ResumeRule::on_request, "learning rates"},
    {ResumeField::options, ResumeRule::on_request, "other options of an optimizer"},
    {ResumeField::windows, ResumeRule::on_request, "the samples in a window"},
    {ResumeField::batches, ResumeRule::always, "batch size and accumulation of the same windows"},
};

[[nodiscard]] constexpr ResumeRule resume_rule(ResumeField what) {
  return std::ranges::find(kResumeFields, what, &ResumeFieldRow::what)->may;
}

/// A difference between a snapshot and the run that resumes from it.
struct Difference {
  ResumeRule may;
  std::string sentence;  ///< names both sides: "x is 2 here, 1 in the snapshot"
  std::string change;    ///< "x: 1 -> 2", or the sentence if nothing is shorter
};

[[nodiscard]] inline Difference mismatch(ResumeRule may, std::string sentence, std::string change = {}) {
  if (change.empty()) change = sentence;
  return {may, std::move(sentence), std::move(change)};
}
[[nodiscard]] inline Difference mismatch(ResumeField what, std::string sentence, std::string change = {}) {
  return mismatch(resume_rule(what), std::move(sentence), std::move(change));
}

/// Returns the difference of a value; `of` names its owner.
[[nodiscard]] inline Difference mismatch(ResumeField what, const std::string& of,
                                         const DifferentValue& value) {
  return mismatch(what, sentence(value, of, "the snapshot"),
                  message(of, value.key, ": ", value.saved, " -> ", value.here));
}

/// The differences that a resume tolerates, besides those that are always allowed.
enum class ResumeMode {
  none,      ///< refuses all but those always allowed
  settings,  ///< also allows those on request
  all,       ///< allows all, and loads what fits
};

[[nodiscard]] inline ResumeMode resume_mode_of(bool strict, bool resume_changed) {
  if (!strict) return ResumeMode::all;
  return resume_changed ? ResumeMode::settings : ResumeMode::none;
}

/// Throws SnapshotMismatch for differences that are not tolerated. Names those that may differ on request
/// last.
inline void refuse(const std::vector<Difference>& differences, ResumeMode mode, const std::string& called) {
  if (mode == ResumeMode::all) return;
  std::vector<std::string> refused, on_request;
  for (const Difference& each : differences)
    if (each.may != ResumeRule::always)
      (each.may == ResumeRule::never ? refused : on_request).push_back(each.sentence);
  if (refused.empty() && (on_request.empty() || mode == ResumeMode::settings)) return;
  const bool settings_only = refused.empty();
  std::string text = message(called, " is not of this run: ", joined(refused, "; "));
  if (!on_request.empty())
    text += message(settings_only ? "" : "; and, of what may differ on request, ", joined(on_request, "; "));
  if (settings_only) text += ". resume_changed (a program's --resume-changed) goes on with this";
  refused.insert(refused.end(), on_request.begin(), on_request.end());
  throw SnapshotMismatch(text, std::move(refused), settings_only);
}

/// Adds the tolerated differences to the report.
inline void report_differences(ResumeReport& report, const std::vector<Difference>& differences,
                               ResumeMode mode) {
  for (const Difference& each : differences)
    if (mode == ResumeMode::all && each.may != ResumeRule::always)
      report.differences.push_back(each.sentence);
    else
      report.changed.push_back(each.change);
}

}  // namespace looptorch::detail
