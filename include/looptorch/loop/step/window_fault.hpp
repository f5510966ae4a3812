// SPDX-License-Identifier: MIT
// Records what is wrong with the window under way, for each update: which loss is NaN or infinite
// (LossFault), and what a policy such as Autopsy found out about the cause (WindowFinding). The error that
// ends the fit is made from them.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/loop/step/non_finite.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace looptorch::detail {

/// A loss that is known to be NaN or infinite.
struct LossFault {
  std::optional<std::size_t> micro_batch;  ///< this rank's first with such a loss
  std::optional<std::string> elsewhere;    ///< the error message of another rank, if the loss is there

  [[nodiscard]] bool is_known() const { return micro_batch || elsewhere; }

  /// Returns the origin of the loss within a window: a micro-batch, another rank, or all of the window if no
  /// fault is known.
  [[nodiscard]] WindowOrigin origin(const WindowOrigin& window) const {
    if (micro_batch) return window.narrowed(*micro_batch);
    return elsewhere ? window.elsewhere(*elsewhere) : window;
  }
};

/// A policy's finding about a window with NaN or infinite values. The fit ends with it.
struct WindowFinding {
  std::shared_ptr<const Finding> finding;  ///< null if nothing was found
  std::string explanation;                 ///< the finding in sentences
  std::string full_error;                  ///< the whole error, the same on all ranks; or empty
  bool in_loss = false;                    ///< true if it is about a loss, not a gradient

  /// Returns where the finding's micro-batches came from: none of this rank's if the fault is on another
  /// rank, or on none.
  [[nodiscard]] WindowOrigin origin(const LossFault& fault, const WindowOrigin& window) const {
    const bool is_here =
        finding->ranks == 1 || (finding->is_found() && finding->cause != Finding::Cause::elsewhere);
    const WindowOrigin place = fault.micro_batch ? window.narrowed(*fault.micro_batch)
                               : is_here         ? window
                                                 : window.elsewhere({});
    return place.explained(finding, explanation).reported_as(full_error);
  }
};

}  // namespace looptorch::detail
