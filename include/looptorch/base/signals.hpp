// SPDX-License-Identifier: MIT
// SIGTERM and SIGINT as a wish that can be asked about: who is stopped by a scheduler or by Ctrl-C can finish
// what is under way. A second signal acts at once, as it would have without this. Costs a read of an atomic
// where it is asked about.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <string>

namespace looptorch::detail {

/// Shared by all fits of a process, in whichever threads; what a handler touches is lock-free.
class SignalState {
 public:
  static constexpr std::array kSignals{SIGTERM, SIGINT};

  static SignalState& instance() {
    static SignalState state;
    return state;
  }

  /// The first watch puts the handlers in place. A signal that is ignored, as under nohup, stays so.
  void open() {
    const std::lock_guard lock(mutex_);
    if (watches_++ > 0) return;
    struct sigaction action {};
    action.sa_handler = [](int signal) { instance().receive(signal); };
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], nullptr, &previous_[i]);
      if (previous_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
  }

  /// The last one puts back those that were there. Returns what was received by then; 0 for nothing.
  int close() {
    const std::lock_guard lock(mutex_);
    if (--watches_ > 0) return received_.load();
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
    return received_.exchange(0);
  }

  [[nodiscard]] int received() const { return received_.load(std::memory_order_relaxed); }

 private:
  static_assert(std::atomic<int>::is_always_lock_free);

  /// Async-signal-safe. What the second signal would have done without a watch follows when the handler
  /// returns; `previous_` does not change while handlers are in place.
  void receive(int signal) {
    const int error = errno;
    if (int none = 0; !received_.compare_exchange_strong(none, signal)) {
      for (std::size_t i = 0; i < kSignals.size(); ++i)
        if (kSignals[i] == signal) ::sigaction(signal, &previous_[i], nullptr);
      ::raise(signal);
    }
    errno = error;
  }

  std::mutex mutex_;
  int watches_ = 0;
  std::array<struct sigaction, kSignals.size()> previous_{};
  std::atomic<int> received_{0};
};

/// Takes note of the signals while it lives.
class SignalWatch {
 public:
  SignalWatch() { SignalState::instance().open(); }
  ~SignalWatch() { close(); }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The first signal that came since the process's first watch was opened; 0 for none.
  [[nodiscard]] static int received() { return SignalState::instance().received(); }

  /// Ends the watch before its time. The same answer, and nothing is missed: what comes later acts as it
  /// would have without a watch.
  int close() {
    if (closed_) return 0;
    closed_ = true;
    return SignalState::instance().close();
  }

 private:
  bool closed_ = false;
};

inline std::string signal_name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "signal " + std::to_string(signal);
}

}  // namespace looptorch::detail
