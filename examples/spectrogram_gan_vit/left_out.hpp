// SPDX-License-Identifier: MIT
// What a run over thousands of songs does about the few that cannot be used: it stops at the first, or leaves
// them out and lists them.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/loader/loader_error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace spectrogram_gan {

/// Why a song was left out.
enum class Fault {
  row,           ///< its line in the table is wrong
  missing_file,  ///< there is no audio of its id
  audio,         ///< its audio is damaged, cut off or silent
};

/// Songs that were left out, each listed once however often it was tried. Safe to use from several threads.
class LeftOut {
 public:
  /// Adds a song; `what` names its line or file, and says what is wrong.
  void add(Fault fault, std::string what) {
    const std::lock_guard lock(mutex_);
    of(fault).insert(std::move(what));
  }
  /// Adds the samples that a loader left out.
  void add(const looptorch::SkippedSamples& skipped) {
    for (const auto& sample : skipped.first) add(Fault::audio, sample.path + ": " + sample.message);
  }

  [[nodiscard]] std::size_t count(Fault fault) const {
    const std::lock_guard lock(mutex_);
    return faults_[static_cast<std::size_t>(fault)].size();
  }
  [[nodiscard]] std::size_t count() const {
    return count(Fault::row) + count(Fault::missing_file) + count(Fault::audio);
  }

  /// A line with the counts, then a line for each of the first `at_most` songs of a kind; empty if there are
  /// none.
  [[nodiscard]] std::string describe(std::size_t at_most = 20) const {
    if (count() == 0) return {};
    auto text = looptorch::message(
        count(), count() == 1 ? " song is" : " songs are",
        " left out (--on_bad_audio stop ends the run instead): ", count(Fault::row), " by a wrong line, ",
        count(Fault::missing_file), " without audio, ", count(Fault::audio), " whose audio cannot be used");
    const std::lock_guard lock(mutex_);
    for (const auto& songs : faults_) {
      std::size_t listed = 0;
      for (const auto& song : songs) {
        if (listed++ == at_most) {
          text += looptorch::message("\n  ... and ", songs.size() - at_most, " more");
          break;
        }
        text += "\n  " + song;
      }
    }
    return text;
  }

 private:
  std::set<std::string>& of(Fault fault) { return faults_[static_cast<std::size_t>(fault)]; }

  mutable std::mutex mutex_;
  std::array<std::set<std::string>, 3> faults_;
};

/// Prints what a list describes on stderr when a program's work ends, with or without an error.
template <class List>
struct TellAtEnd {
  std::shared_ptr<List> list;

  explicit TellAtEnd(std::shared_ptr<List> noted) : list(std::move(noted)) {}
  TellAtEnd(const TellAtEnd&) = delete;
  TellAtEnd& operator=(const TellAtEnd&) = delete;
  ~TellAtEnd() {
    if (const auto text = list->describe(); !text.empty()) std::cerr << text << std::endl;
  }
};

/// The flag `--on_bad_audio`: "skip" leaves out songs that cannot be used, "stop" ends the run at the first.
/// Throws UsageError for another value.
[[nodiscard]] inline looptorch::OnError on_bad_audio(const std::string& value) {
  if (value == "skip") return looptorch::OnError::skip;
  if (value == "stop") return looptorch::OnError::fail;
  throw looptorch::UsageError("--on_bad_audio: \"" + value + "\" is neither skip nor stop");
}

}  // namespace spectrogram_gan
