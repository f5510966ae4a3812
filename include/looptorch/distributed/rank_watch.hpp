// SPDX-License-Identifier: MIT
// Watches the other ranks of a run, so that none waits for one that has failed, stopped or exited. A thread
// writes a heartbeat to the store five times a second, and reads those of the next few ranks; if one is
// silent, it tells all. So the store's work grows linearly with the ranks. A step costs nothing.
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
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// How long a rank may be silent before it counts as lost.
inline constexpr std::chrono::seconds kSilence{6};
/// How long it may be silent once a connection has broken.
inline constexpr std::chrono::seconds kSilenceOfLost{3};
/// How many ranks each one reads.
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
    shared_->ends = true;
    thread_.detach();
  }
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// Begins to watch while a program prepares its first fit, which continues the watch.
  void prepare() {
    begin_fit();
    at("what comes before the first fit");
    shared_->prepares = true;
  }
  /// Begins to watch, as a fit begins; forgets failures of the last fit.
  void begin_fit() {
    if (shared_->prepares.exchange(false)) return;
    std::unique_lock lock(shared_->mutex);
    const std::int64_t fit = ++shared_->fit;
    shared_->failure.clear();
    shared_->mine.clear();
    shared_->cause.clear();
    shared_->told = false;
    shared_->lives.assign(shared_->lives.size(), "");
    shared_->looked = Clock::now();
    lock.unlock();
    shared_->set(Shared::key("life", fit, shared_->rank), "- the beginning of a fit");
    shared_->watches = true;
  }
  /// Stops watching; waits until the store is no longer in use, unless it does not answer.
  void end_fit() {
    shared_->watches = false;
    const auto until = Clock::now() + std::chrono::seconds(2);
    while (shared_->looks && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// Sets what this rank is about to do, for the others' messages.
  void at(const std::string& moment) {
    const std::lock_guard lock(shared_->mutex);
    shared_->moment = moment;
  }

  /// Tells the others that this rank has failed, and waits until they could read it. Does nothing unless it
  /// watches.
  void fail(std::string what) {
    if (!shared_->watches) return;
    {
      const std::lock_guard lock(shared_->mutex);
      if (!shared_->failure.empty()) return;  // this rank ends because of it
      shared_->mine = shared_->cause.empty() ? std::move(what) : shared_->cause;
    }
    const auto until = Clock::now() + std::chrono::seconds(4);
    while (!shared_->told && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  /// Throws RanksDiffer if a rank has failed or is silent, while this one waits at `moment`.
  void check(const std::string& moment, std::chrono::seconds silence = kSilence) const {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->failure.empty()) throw RanksDiffer(shared_->failure);
    if (const auto silent = shared_->silent(silence)) {
      shared_->cause =
          message(shared_->silence_of(*silent, silence), "; rank ", shared_->rank, " waits at ", moment);
      throw RanksDiffer(shared_->cause);
    }
  }

  /// Throws RanksDiffer for ranks that have not reached `moment` in time.
  [[noreturn]] void give_up(const std::string& moment, std::chrono::seconds patience) const {
    const std::lock_guard lock(shared_->mutex);
    std::string late;
    for (const std::int64_t other : shared_->watched)
      if (const std::string place = shared_->place_of(other); place != moment)
        late += message("; rank ", other, " is at ", place);
    throw RanksDiffer(message("rank ", shared_->rank, " has waited ", patience.count(),
                              " s for the others at ", moment, late,
                              ". Give DataParallel more `patience` if that is no fault"));
  }

  /// Throws the error of a broken connection: first waits a moment for the other ranks' reports.
  [[noreturn]] void explain(const std::string& moment, const std::string& error) const {
    const auto until = Clock::now() + std::chrono::seconds(7);
    while (Clock::now() < until) {
      check(moment, kSilenceOfLost);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    throw RanksDiffer(message("the connection to another rank broke while rank ", shared_->rank, " was at ",
                              moment, ": ", error));
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
    std::vector<std::int64_t> watched;  // ranks that this one reads
    std::atomic<bool> ends{false}, watches{false}, looks{false}, told{false}, prepares{false};
    mutable std::mutex mutex;
    std::int64_t fit = 0;
    std::string moment = "the beginning", mine, failure;
    std::string cause;                       // the silence that ends this rank, reported as it is
    std::vector<std::string> lives, places;  // by rank, as last read; empty for those that are not
    std::vector<Clock::time_point> changed;
    Clock::time_point looked = Clock::now();

    void run() noexcept {
      for (std::uint64_t beat = 0; !ends; ++beat) {
        looks = true;
        try {
          if (watches) look(beat);
        } catch (...) {  // the store is gone: its rank is silent from now on, and no other can be told
          told = true;
        }
        looks = false;
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

    void look(std::uint64_t beat) {
      std::unique_lock lock(mutex);
      const std::string place = moment, own = mine;
      const std::int64_t number = fit;
      lock.unlock();
      set(key("life", number, rank), message(beat, ' ', place));
      std::string text = get(key("failure", number));
      if (!own.empty() && text.empty()) set(key("failure", number), text = own);
      if (!text.empty()) set(key("heard", number, rank), "yes");
      std::vector<std::int64_t> unaware;
      for (std::int64_t other = 0; other < size && !own.empty(); ++other)
        if (get(key("heard", number, other)).empty()) unaware.push_back(other);
      std::vector<std::string> now;
      for (const std::int64_t other : watched) now.push_back(get(key("life", number, other)));
      lock.lock();
      if (number != fit) return;
      take(now);
      bool is_news = false;
      if (const auto gone = text.empty() && size - 1 > kWatchedRanks ? silent(kSilence) : std::nullopt)
        text = silence_of(*gone, kSilence), is_news = true;
      if (own.empty()) failure = text;
      told = !own.empty() && std::ranges::all_of(unaware, [&](auto other) { return is_lost(other); });
      lock.unlock();
      if (is_news) set(key("failure", number), text);
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
      return message("rank ", other, " shows no sign of life for ", silence.count(),
                     " s: its process was stopped or killed, or its machine is gone. It was last at ",
                     place_of(other));
    }
  };

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace looptorch::detail
