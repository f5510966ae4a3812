// SPDX-License-Identifier: MIT
// Gives the library's free functions, such as preflight and replay, access to a Trainer's private members.
#pragma once

#include <looptorch/base/process/call_in_progress.hpp>

namespace looptorch::detail {

/// Reaches what a Trainer is made of, for functions that are part of the library.
struct TrainerAccess {
  template <class Trainer>
  static auto& engine(Trainer& trainer) {
    return trainer.engine_;
  }
  template <class Trainer>
  static CallInProgress& call(Trainer& trainer) {
    return trainer.call_;
  }
  /// Lets policies begin anew with the next `step`.
  template <class Trainer>
  static void restart(Trainer& trainer) {
    trainer.own_loop_.restart();
  }
};

}  // namespace looptorch::detail
