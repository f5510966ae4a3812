// SPDX-License-Identifier: MIT
// Defines the argument of the hook `examine`, which runs before each update. It holds what is known of the
// window's loss and gradients. If these are bad, a policy can rerun the update's part of the window with its
// operators traced, and end the fit.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/window_place.hpp>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace looptorch {

/// One update's part of the window under way, with its batches and initial state. A rerun leaves gradients,
/// losses, random generators and buffers unchanged. On several ranks each reruns its own part and the
/// findings are reduced: all make the same calls.
class WindowRerun {
 public:
  /// Reruns the part with every operator traced; a second call returns the same finding.
  virtual const Finding& examine() = 0;
  /// Reruns the part without the loss scale, to see whether the unscaled gradients are finite.
  virtual Finding examine_unscaled() = 0;
  /// Writes the part as a bundle into `folder`: its batches and the state it began in. Returns the bundle's
  /// path. Only ranks whose parts hold the fault write, or all if none does, each into its own folder; the
  /// others return an empty path. Throws what write_snapshot throws.
  virtual std::filesystem::path keep_in(const std::filesystem::path& folder) = 0;
  /// Returns the sentence about a finding: `sentence`, or that of the first rank whose part holds the fault,
  /// with the rank's number.
  [[nodiscard]] virtual std::string agreed(const Finding& finding, std::string sentence) = 0;

 protected:
  ~WindowRerun() = default;
};

/// An update that is about to be made, or was vetoed: its part of the window can be rerun now.
class ExamineContext {
 public:
  ExamineContext(Run& of, std::size_t update, WindowPlace where, WindowRerun& rerun)
      : run(of), index(update), place(std::move(where)), rerun_(rerun) {}
  ExamineContext(const ExamineContext&) = delete;  // a copy's explanation would have no effect
  ExamineContext& operator=(const ExamineContext&) = delete;

  Run& run;
  std::size_t index;             ///< number of the update in the Trainer's list
  WindowPlace place;             ///< where the micro-batches came from
  double loss = 0;               ///< the window's mean, without a micro-batch known to be at fault
  bool loss_non_finite = false;  ///< true if a loss is NaN or infinite, also under a loss scale
  bool refused = false;          ///< true if a policy refused the gradients
  bool overflowed = false;       ///< true if gradients overflowed under a loss scale
  bool skipped = false;          ///< true if a policy skipped the window

  [[nodiscard]] const Finding& examine() { return rerun_.examine(); }
  [[nodiscard]] Finding examine_unscaled() { return rerun_.examine_unscaled(); }
  std::filesystem::path keep_in(const std::filesystem::path& folder) { return rerun_.keep_in(folder); }
  [[nodiscard]] std::string agreed(const Finding& finding, std::string sentence) {
    return rerun_.agreed(finding, std::move(sentence));
  }

  /// Ends the fit after this window with NonFiniteLoss or NonFiniteGradient, which holds and quotes the
  /// finding, followed by `more`.
  void end_with(const Finding& finding, std::string more = {}) {
    finding_ = std::make_shared<const Finding>(finding);
    more_ = std::move(more);
  }
  [[nodiscard]] const std::shared_ptr<const Finding>& finding() const { return finding_; }
  [[nodiscard]] std::string explanation() const {
    return finding_ ? finding_->text() + more_ : std::string();
  }

 private:
  WindowRerun& rerun_;
  std::shared_ptr<const Finding> finding_;
  std::string more_;
};

}  // namespace looptorch
