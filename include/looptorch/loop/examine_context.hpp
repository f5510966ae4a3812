// SPDX-License-Identifier: MIT
// Defines ExamineContext, the argument of the hook `examine`, which the loop calls between before_update and
// the optimizer's step. The context says whether the window's loss or gradients are NaN or infinite. Through
// it a policy such as Autopsy reruns the window with every operator traced, and ends the fit with what the
// rerun found.
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

/// Reruns the window under way for one update, from its kept batches and its initial state. A rerun leaves
/// gradients, losses, random generators and buffers unchanged. On several ranks each reruns its own
/// micro-batches, and the ranks then agree on one finding, so all must make the same calls.
class WindowRerun {
 public:
  /// Reruns the window with every operator traced; a second call returns the same finding.
  virtual const Finding& examine() = 0;
  /// Reruns the window without the loss scale, to see whether the unscaled gradients are finite.
  virtual Finding examine_unscaled() = 0;
  /// Writes this rank's batches of the window, and the state in which it began, as a bundle into `folder`.
  /// Returns the bundle's path. Only ranks that made the fault write, or all if none did, each into its own
  /// folder; the others return an empty path. Throws what write_snapshot throws.
  virtual std::filesystem::path keep_in(const std::filesystem::path& folder) = 0;
  /// Returns the sentence about a finding: `sentence`, or on several ranks the sentence of the first rank
  /// that made the fault, with the rank's number.
  [[nodiscard]] virtual std::string agreed(const Finding& finding, std::string sentence) = 0;

 protected:
  ~WindowRerun() = default;
};

/// An update that is about to be made, or was vetoed: the window can be rerun for it now.
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
