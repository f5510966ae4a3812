// SPDX-License-Identifier: MIT
// Records SIGTERM, SIGINT and SIGHUP in a flag, so that a run can finish its current work and end in order.
// SnapshotEvery polls the flag and writes a snapshot; a poll reads one atomic. A second SIGTERM or SIGINT
// acts at once, as if looptorch did not handle it, unless it repeats the first signal within a second. Such
// repeats are common: a scheduler signals all processes of a job, and the job's script or torchrun passes the
// signal on. A second SIGHUP is ignored, since a closed terminal and its shell each send one.
#pragma once

#include <signal.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace looptorch::detail {

/// The received signal, shared by all fits of a process. Any thread may call it; the handler takes no lock.
class SignalState {
 public:
  static constexpr std::array kSignals{SIGTERM, SIGINT, SIGHUP};

  static SignalState& instance() {
    static SignalState state;
    return state;
  }

  /// Installs the handlers if this is the first watch. A signal that is ignored, as under nohup, stays
  /// ignored.
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

  /// Restores the previous handlers if this is the last watch. Returns the signal received until then, or 0.
  int close() {
    const std::lock_guard lock(mutex_);
    if (--watches_ > 0) return received_.load();
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
    received_at_ = 0;
    return received_.exchange(0);
  }

  [[nodiscard]] int received() const { return received_.load(std::memory_order_relaxed); }

 private:
  static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

  static std::int64_t now_ms() {
    struct timespec now {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  }

  /// Records a signal; async-signal-safe. A second one, unless it is SIGHUP or repeats the first within a
  /// second, is raised again under the previous handler and takes effect when this one returns. `previous_`
  /// does not change while handlers are installed.
  void receive(int signal) {
    const int error = errno;
    const std::int64_t now = now_ms();
    std::int64_t never = 0;
    received_at_.compare_exchange_strong(never, now);  // before the signal, for the handlers of other threads
    int first = 0;
    if (!received_.compare_exchange_strong(first, signal) && signal != SIGHUP &&
        (first != signal || now - received_at_ > 1000)) {
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
  std::atomic<std::int64_t> received_at_{0};  // of the first signal, by now_ms
};

/// Records the signals while it lives.
class SignalWatch {
 public:
  SignalWatch() { SignalState::instance().open(); }
  ~SignalWatch() { close(); }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Returns the first signal received since the process's first watch was opened, or 0.
  [[nodiscard]] static int received() { return SignalState::instance().received(); }

  /// Ends the watch early and returns what `received` would. No signal is lost: a later one has its usual
  /// effect.
  int close() {
    if (closed_) return 0;
    closed_ = true;
    return SignalState::instance().close();
  }

 private:
  bool closed_ = false;
};

inline std::string signal_name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "signal " + std::to_string(signal);
  }
}

}  // namespace looptorch::detail
