// SPDX-License-Identifier: MIT
// Watches the other ranks of a run, so that no rank waits for one that has failed, stopped or exited. A
// thread writes this rank's heartbeat to the rendezvous store five times a second, and reads the heartbeats
// of up to eight other ranks. If one of these ranks is silent, all ranks learn of it. The store's work grows
// linearly with the number of ranks. With two ranks the thread takes 0.6 % of a core (docs/distributed.md).
//
// The store holds these keys, for fit F and rank R:
//   looptorch life F R     R's heartbeat: a count, and what R is doing. R writes it; its watchers read it.
//   looptorch failure F 0  The fit's failure. A rank that fails or sees a silent one writes it; all read it.
//   looptorch heard F R    Exists once R has read the failure. R writes it; the rank that failed reads it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/rank_reduction.hpp>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// How long a rank may be silent before it counts as lost.
inline constexpr std::chrono::seconds kSilence{6};
/// How long a rank may be silent once a connection has broken.
inline constexpr std::chrono::seconds kSilenceOfLost{3};
/// How long this rank waits for its watch to leave the store, for the others to read its failure, and for
/// their reports once a connection broke.
inline constexpr std::chrono::seconds kPatienceForStore{2}, kPatienceForReaders{4}, kPatienceForReports{7};
/// How many other ranks' heartbeats each rank reads.
inline constexpr std::int64_t kWatchedRanks = 8;

/// Writes this rank's heartbeat to the store, and reads those of some others, in a thread of its own.
class RankWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// Opens a connection of its own to the store.
  RankWatch(c10::intrusive_ptr<c10d::Store> store, std::int64_t rank, std::int64_t size)
      : shared_(std::make_shared<Shared>(std::move(store), rank, size)) {
    for (std::int64_t i = 1; i <= std::min(kWatchedRanks, size - 1); ++i)
      shared_->watched.push_back((rank + i) % size);
    thread_ = std::thread([shared = shared_] { shared->run(); });
  }
  /// Detaches the thread: it may wait for a store that no longer answers.
  ~RankWatch() {
    shared_->is_ending = true;
    thread_.detach();
  }
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// Begins to watch while a program prepares its first fit, which continues the watch.
  void prepare() {
    begin_fit();
    at("what comes before the first fit");
    shared_->is_preparing = true;
  }
  /// Begins to watch, as a fit begins; forgets failures of the last fit.
  void begin_fit() {
    if (shared_->is_preparing.exchange(false)) return;
    std::unique_lock lock(shared_->mutex);
    const std::int64_t fit = ++shared_->fit;
    shared_->reported_failure.clear();
    shared_->own_failure.clear();
    shared_->seen_silence.clear();
    shared_->others_know = false;
    shared_->lives.assign(shared_->lives.size(), "");
    shared_->looked = Clock::now();
    lock.unlock();
    shared_->set(Shared::key("life", fit, shared_->rank), "- the beginning of a fit");
    shared_->is_watching = true;
  }
  /// Stops watching; waits until the store is no longer in use, unless it does not answer.
  void end_fit() {
    shared_->is_watching = false;
    const auto until = Clock::now() + kPatienceForStore;
    while (shared_->is_in_store && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// Sets what this rank is about to do, for the others' messages.
  void at(const std::string& point) {
    const std::lock_guard lock(shared_->mutex);
    shared_->point = point;
  }

  /// Tells the other ranks that this one has failed, and waits until they have read it or 4 s are over. If
  /// another rank's failure ends this one, returns at once, except on rank 0, with which the store may end.
  /// Does nothing outside of a watch.
  void fail(std::string what) {
    if (!shared_->is_watching) return;
    {
      const std::lock_guard lock(shared_->mutex);
      const std::string& of_other = shared_->reported_failure;
      if (!of_other.empty() && shared_->rank != 0) return;
      const std::string& silence = shared_->seen_silence;
      shared_->own_failure = !of_other.empty() ? of_other : !silence.empty() ? silence : std::move(what);
    }
    const auto until = Clock::now() + kPatienceForReaders;
    while (!shared_->others_know && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  /// Throws RanksDiffer if a rank has failed or is silent, while this one waits at `point`.
  void check(const std::string& point, std::chrono::seconds silence = kSilence) const {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->reported_failure.empty()) throw RanksDiffer(shared_->reported_failure);
    if (const auto silent = shared_->silent(silence)) {
      shared_->seen_silence =
          message(shared_->silence_of(*silent, silence), "; rank ", shared_->rank, " waits at ", point);
      throw RanksDiffer(shared_->seen_silence);
    }
  }

  /// Throws RanksDiffer for ranks that have not reached `point` in time.
  [[noreturn]] void give_up(const std::string& point, std::chrono::seconds timeout) const {
    const std::lock_guard lock(shared_->mutex);
    std::string late;
    for (const std::int64_t other : shared_->watched)
      if (const std::string place = shared_->place_of(other); place != point)
        late += message("; rank ", other, " is at ", place);
    throw RanksDiffer(message("rank ", shared_->rank, " has waited ", timeout.count(),
                              " s for the others at ", point, late,
                              ". Give DataParallel a longer `timeout` if that is no fault"));
  }

  /// Throws RanksDiffer for a broken connection: another rank's report, if one comes within 7 s, or `error`.
  [[noreturn]] void explain(const std::string& point, const std::string& error) const {
    const auto until = Clock::now() + kPatienceForReports;
    while (Clock::now() < until) {
      check(point, kSilenceOfLost);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    throw RanksDiffer(message("the connection to another rank broke while rank ", shared_->rank, " was at ",
                              point, ": ", error));
  }

 private:
  struct Shared {
    Shared(c10::intrusive_ptr<c10d::Store> in, std::int64_t of_rank, std::int64_t of_size)
        : store(std::move(in)),
          rank(of_rank),
          size(of_size),
          lives(static_cast<std::size_t>(of_size)),
          places(static_cast<std::size_t>(of_size)),
          changed(static_cast<std::size_t>(of_size), Clock::now()) {}

    c10::intrusive_ptr<c10d::Store> store;
    const std::int64_t rank, size;
    std::vector<std::int64_t> watched;  // ranks that this one reads; never changes

    // Flags need no lock. "training" or "watching" is the thread that writes: the one that trains, or
    // `run`'s. begin_fit resets what the watching thread has written.
    std::atomic<bool> is_ending{false};     // training: `run` shall return
    std::atomic<bool> is_watching{false};   // training: true within a fit, and while the first is prepared
    std::atomic<bool> is_preparing{false};  // training: the first fit goes on with this watch
    std::atomic<bool> is_in_store{false};   // watching: true while it may use the store
    std::atomic<bool> others_know{false};   // watching: the others have read own_failure, or never can

    // The rest is read and written under the lock.
    mutable std::mutex mutex;
    std::int64_t fit = 0;                     // training: its number
    std::string point = "the beginning";      // training: what this rank is about to do
    std::string own_failure;                  // training: what ends this rank, for the others
    std::string seen_silence;                 // training: a silent rank that ends this one
    std::string reported_failure;             // watching: what ended another rank
    std::vector<std::string> lives, places;   // watching: by rank, as last read; empty if never read
    std::vector<Clock::time_point> changed;   // watching: by rank, when its heartbeat last changed
    Clock::time_point looked = Clock::now();  // watching: when the store last answered

    void run() noexcept {
      for (std::uint64_t beat = 0; !is_ending; ++beat) {
        is_in_store = true;
        try {
          if (is_watching) look(beat);
        } catch (...) {  // the store is gone: its rank is silent from now on, and no other can be told
          others_know = true;
        }
        is_in_store = false;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
    }

    [[nodiscard]] static std::string key(const char* what, std::int64_t fit, std::int64_t rank = 0) {
      return message("looptorch ", what, ' ', fit, ' ', rank);
    }
    void set(const std::string& to, const std::string& text) { store->set(to, text); }
    std::string get(const std::string& from) {
      if (!store->check({from})) return {};
      const auto bytes = store->get(from);
      return {bytes.begin(), bytes.end()};
    }

    /// This rank's report, and what the store held when it was published.
    struct Look {
      std::int64_t fit = 0;
      std::string point, own_failure;     // of this rank
      std::string failure;                // of the fit; empty: none
      std::vector<std::int64_t> unaware;  // ranks that have not read own_failure
      std::vector<std::string> lives;     // of the watched ranks
    };

    /// Holds the lock only before and after it uses the store, which may block.
    void look(std::uint64_t beat) {
      Look now;
      {
        const std::lock_guard lock(mutex);
        now.fit = fit, now.point = point, now.own_failure = own_failure;
      }
      publish(now, beat);
      read(now);
      if (const std::string found = judge(now); !found.empty()) set(key("failure", now.fit), found);
    }

    /// Writes the heartbeat, this rank's failure unless the fit has one, and that the failure has been read.
    void publish(Look& now, std::uint64_t beat) {
      set(key("life", now.fit, rank), message(beat, ' ', now.point));
      now.failure = get(key("failure", now.fit));
      if (!now.own_failure.empty() && now.failure.empty())
        set(key("failure", now.fit), now.failure = now.own_failure);
      if (now.failure.empty()) return;
      learn(now);  // before the others know: the rank with the store may then end, and the store with it
      set(key("heard", now.fit, rank), "yes");
    }

    void learn(const Look& now) {
      const std::lock_guard lock(mutex);
      if (now.fit == fit && now.own_failure.empty()) reported_failure = now.failure;
    }

    void read(Look& now) {
      for (std::int64_t other = 0; other < size && !now.own_failure.empty(); ++other)
        if (get(key("heard", now.fit, other)).empty()) now.unaware.push_back(other);
      for (const std::int64_t other : watched) now.lives.push_back(get(key("life", now.fit, other)));
    }

    /// Updates the watching thread's states from what was read. Returns a failure to report to the others: a
    /// silent rank that not all of them watch. Does nothing if the next fit has begun.
    [[nodiscard]] std::string judge(const Look& now) {
      const std::lock_guard lock(mutex);
      if (now.fit != fit) return {};
      take(now.lives);
      std::string found;
      if (now.failure.empty() && size - 1 > kWatchedRanks)
        if (const auto gone = silent(kSilence)) found = silence_of(*gone, kSilence);
      if (now.own_failure.empty()) reported_failure = found.empty() ? now.failure : found;
      others_know = !now.own_failure.empty() &&
                    std::ranges::all_of(now.unaware, [&](auto other) { return is_lost(other); });
      return found;
    }

    void take(const std::vector<std::string>& now) {
      looked = Clock::now();
      for (std::size_t i = 0; i < now.size(); ++i) {
        const auto other = static_cast<std::size_t>(watched[i]);
        if (now[i] == lives[other]) continue;
        lives[other] = now[i];
        changed[other] = looked;
        places[other] = now[i].substr(std::min(now[i].size(), now[i].find(' ') + 1));
      }
    }

    /// Returns a silent rank: rank 0 if the store does not answer. The caller holds the lock.
    [[nodiscard]] std::optional<std::int64_t> silent(std::chrono::seconds silence) const {
      const auto now = Clock::now();
      if (now - looked > silence) return 0;
      for (const std::int64_t other : watched)
        if (!lives[static_cast<std::size_t>(other)].empty() &&  // it has begun this fit
            looked - changed[static_cast<std::size_t>(other)] > silence)
          return other;
      return std::nullopt;
    }
    /// True for a rank that will receive nothing any more.
    [[nodiscard]] bool is_lost(std::int64_t other) const {
      const auto i = static_cast<std::size_t>(other);
      return !lives[i].empty() && looked - changed[i] > kSilenceOfLost;
    }
    [[nodiscard]] std::string place_of(std::int64_t other) const {
      const std::string& place = places[static_cast<std::size_t>(other)];
      return place.empty() ? "the beginning" : place;
    }
    [[nodiscard]] std::string silence_of(std::int64_t other, std::chrono::seconds silence) const {
      return message(
          "rank ", other, " shows no sign of life for ", silence.count(),
          " s: its process was stopped or killed, or its machine cannot be reached. It was last at ",
          place_of(other));
    }
  };

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace looptorch::detail
