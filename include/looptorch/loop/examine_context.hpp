// SPDX-License-Identifier: MIT
// One update's share of a window that can be done again, and the hook's argument by which a policy looks into
// it when its loss or its gradients are not as they should be.
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

/// An update's share of the window under way, whose batches and beginning are kept. Doing it again changes
/// nothing of the run: gradients, losses, random generators and buffers are afterwards as before. On several
/// ranks each does its own share, and they agree on what was found: all make the same calls.
class WindowRerun {
 public:
  /// Does the share again with every operator watched; the second call returns the same finding.
  virtual const Finding& examine() = 0;
  /// Does the share again without the loss scale: whether its gradients are finite when the loss is not
  /// scaled.
  virtual Finding examine_unscaled() = 0;
  /// Writes the share as a bundle into `folder`: its batches and the run as the share began. Returns the
  /// bundle's path. Of several ranks those write whose shares hold what was found, or all if none's does,
  /// each into a folder of its own; the others return an empty path. Throws what write_snapshot throws.
  virtual std::filesystem::path keep_in(const std::filesystem::path& folder) = 0;
  /// Returns what is to be said about a finding: `sentence`, or that of the first rank whose share holds it,
  /// with its number.
  [[nodiscard]] virtual std::string agreed(const Finding& finding, std::string sentence) = 0;

 protected:
  ~WindowRerun() = default;
};

/// An update that is about to be made, or was vetoed; the moment at which its share can be done again.
class ExamineContext {
 public:
  ExamineContext(Run& of, std::size_t update, WindowPlace where, WindowRerun& rerun)
      : run(of), index(update), place(std::move(where)), rerun_(rerun) {}
  ExamineContext(const ExamineContext&) = delete;  // a copy's explanation would have no effect
  ExamineContext& operator=(const ExamineContext&) = delete;

  Run& run;
  std::size_t index;             ///< of the update in the Trainer's list
  WindowPlace place;             ///< where the micro-batches came from
  double loss = 0;               ///< the window's mean, without a micro-batch known as at fault
  bool loss_non_finite = false;  ///< a loss is NaN or infinite, also where a policy handles overflows
  bool refused = false;          ///< a policy refused the gradients
  bool overflowed = false;       ///< gradients overflowed, and a policy handles that
  bool skipped = false;          ///< a policy left the window out

  [[nodiscard]] const Finding& examine() { return rerun_.examine(); }
  [[nodiscard]] Finding examine_unscaled() { return rerun_.examine_unscaled(); }
  std::filesystem::path keep_in(const std::filesystem::path& folder) { return rerun_.keep_in(folder); }
  [[nodiscard]] std::string agreed(const Finding& finding, std::string sentence) {
    return rerun_.agreed(finding, std::move(sentence));
  }

  /// Ends the fit behind this window with NonFiniteLoss or NonFiniteGradient, which quotes and holds the
  /// finding; `more` stands behind it.
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
