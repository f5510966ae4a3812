// SPDX-License-Identifier: MIT
// Lists unusable songs with the reason. `--on-bad-audio` decides whether a run skips unusable songs or ends
// at the first one.
#pragma once

#include <looptorch/app/run/skipped_items.hpp>
#include <looptorch/data/loader/loader_error.hpp>

#include <cstddef>
#include <string>

namespace spectrogram_gan {

/// Why a song was skipped.
enum class Fault : std::size_t {
  row,           ///< its line in the table is wrong
  missing_file,  ///< no audio has its id
  audio,         ///< its audio is damaged, cut off or silent
};

/// Skipped songs, each listed once however often it was tried.
class SkippedItems {
 public:
  /// Adds a song. `what` names its line or file, and the fault.
  void add(Fault fault, const std::string& what) { songs_.add(what, static_cast<std::size_t>(fault)); }
  /// Adds the samples that a loader skipped.
  void add(const looptorch::SkippedSamples& skipped) {
    songs_.add(skipped, static_cast<std::size_t>(Fault::audio));
  }

  [[nodiscard]] std::size_t count(Fault fault) const { return songs_.count(static_cast<std::size_t>(fault)); }
  [[nodiscard]] std::size_t count() const { return songs_.count(); }
  [[nodiscard]] std::string describe(looptorch::app::SkippedListing listing = {}) const {
    return songs_.describe(listing);
  }

 private:
  looptorch::app::SkippedItems songs_{
      {.one = "song",
       .many = "songs",
       .kinds = {"by a wrong line", "without audio", "whose audio cannot be used"}}};
};

}  // namespace spectrogram_gan
