// SPDX-License-Identifier: MIT
// Lets a program finish its current work when SIGTERM, Ctrl-C or a closed terminal asks it to stop. Training
// programs do not need it: SnapshotEvery handles signals itself.
#pragma once

#include <looptorch/app/run_main.hpp>
#include <looptorch/base/process/signals.hpp>

#include <string>

namespace looptorch::app {

/// While it lives, SIGTERM, SIGINT and SIGHUP are recorded instead of ending the process. A second SIGTERM or
/// SIGINT ends it, unless it repeats the first within a second.
class StopSignals {
 public:
  /// True once a signal was received.
  [[nodiscard]] static bool received() { return looptorch::detail::SignalWatch::received() != 0; }

  /// Throws Interrupted if a signal was received; `done` describes the work until then.
  static void throw_if_received(const std::string& done) {
    if (const int signal = looptorch::detail::SignalWatch::received(); signal != 0)
      throw Interrupted(looptorch::detail::signal_name(signal) + " was received", signal, done);
  }

 private:
  looptorch::detail::SignalWatch watch_;
};

}  // namespace looptorch::app
