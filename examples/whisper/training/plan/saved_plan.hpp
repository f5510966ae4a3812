// SPDX-License-Identifier: MIT
// Saves the choice of --fit as fit.json in the run's folder, so that a resumed run uses it and repeats no dry
// steps.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/config_fields.hpp>

#include "../options.hpp"
#include "memory_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

namespace whisper {

/// The contents of fit.json.
struct SavedPlan {
  std::string saving;  ///< Saving::words
  std::int64_t batch_size = 1;
};

inline constexpr auto kSavedPlan = looptorch::config_fields<SavedPlan>(
    looptorch::ConfigField("saving", &SavedPlan::saving),
    looptorch::ConfigField("batch_size", &SavedPlan::batch_size, {.min = 1, .max = 65536}));

namespace detail {

[[nodiscard]] inline std::filesystem::path fit_file(const std::filesystem::path& run) {
  return run / "fit.json";
}

/// Returns the path of fit.json in the folder of the run that wrote `snapshot`.
[[nodiscard]] inline std::filesystem::path fit_file_of(const std::filesystem::path& snapshot) {
  return fit_file(std::filesystem::canonical(snapshot).parent_path().parent_path());
}

}  // namespace detail

/// Writes a choice into a run's folder. Throws FileError.
inline void save_plan(const std::filesystem::path& run, const PlanChoice& choice) {
  kSavedPlan.save(detail::fit_file(run), {choice.saving, choice.options.training.batch_size});
}

/// Removes the choice of an earlier run in the folder.
inline void forget_plan(const std::filesystem::path& run) { std::filesystem::remove(detail::fit_file(run)); }

/// Returns the choice of the run that wrote a snapshot, with the other flags as `given`, and writes a line to
/// `log`. Empty if that run began without --fit. Throws ConfigError for an invalid file, and
/// app::CommandLineError for flags that contradict the choice.
[[nodiscard]] inline std::optional<PlanChoice> saved_plan(const std::filesystem::path& snapshot,
                                                          const FinetuneOptions& given, std::int64_t cap,
                                                          std::ostream& log) {
  const auto file = detail::fit_file_of(snapshot);
  if (!std::filesystem::exists(file)) return std::nullopt;
  const SavedPlan kept = kSavedPlan.load(file);
  const auto saving = std::find_if(savings().begin(), savings().end(),
                                   [&](const Saving& each) { return each.words == kept.saving; });
  if (saving == savings().end())
    throw looptorch::ConfigError(looptorch::message(file.string(), ": --fit chooses no \"", kept.saving,
                                                    "\": remove the file to choose anew"));
  if (given.training.batch_size % kept.batch_size != 0)
    throw looptorch::app::CommandLineError(
        looptorch::message("--batch-size ", given.training.batch_size,
                           " is no multiple of the batches that --fit chose for this run: ", kept.batch_size,
                           ": give the one that it began with"));
  auto options = with_saving(given, *saving, kept.batch_size);
  options.check();
  auto flags = flags_between(given, options);
  log << "--fit " << looptorch::app::bytes_text(cap) << ": goes on with " << words_of(*saving, options)
      << ", as the run began" << (flags.empty() ? "" : "; the same as " + flags) << std::endl;
  return PlanChoice{.options = std::move(options), .saving = kept.saving, .flags = std::move(flags)};
}

/// Returns a sentence for a run without --fit whose snapshot is refused because the snapshot's run used
/// --fit. Empty if it did not, and without a snapshot.
[[nodiscard]] inline std::string plan_remedy(const std::filesystem::path& snapshot) {
  if (snapshot.empty()) return {};
  const auto file = detail::fit_file_of(snapshot);
  if (!std::filesystem::exists(file)) return {};
  try {
    return looptorch::message(". The run was begun by --fit, which chose: ", kSavedPlan.load(file).saving,
                              " (", file.string(), "): give --fit again");
  } catch (const looptorch::ConfigError&) {
    return {};  // the refusal itself matters more than a damaged fit.json
  }
}

}  // namespace whisper
