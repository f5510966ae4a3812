// SPDX-License-Identifier: MIT
// Agrees on a name for this start of the run. All ranks put the name into their keys in the c10d store that
// they share: a launcher may restart the ranks with the same store, and keys of an earlier start must not be
// read. TORCHELASTIC_RESTART_COUNT cannot be the name, since each machine's torchrun counts only its own
// failures.
//
// Rank 0 draws the name at random. Another rank R learns it through three keys of the store:
//
//   looptorch here R        Rank R writes NAME, a random one that it draws anew at each start.
//   looptorch told R NAME   Rank 0 answers the rank R that wrote NAME; the value is START, the start's name.
//   looptorch heard START R Rank R writes it once it has read START; rank 0 waits for it.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/base/text/hex.hpp>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the name of this start, the same on all ranks. All ranks call it. Throws RanksDiffer, which names
/// a rank that does not appear within `timeout`. Rank 0 warns once, of the first rank that does not appear
/// within `patience`.
inline std::string agree_on_run(c10d::Store& store, std::int64_t rank, std::int64_t size,
                                std::chrono::milliseconds timeout,
                                std::chrono::milliseconds patience = std::chrono::seconds(10)) {
  const auto key = [](const char* what, const auto&... of) {
    std::string name = message("looptorch ", what);
    ((name += message(' ', of)), ...);
    return name;
  };
  const auto text = [&](const std::string& of) {
    const auto bytes = store.get(of);
    return std::string(bytes.begin(), bytes.end());
  };
  const auto absent = [&](std::int64_t other) {
    return RanksDiffer(message("rank ", other, " is not there after ", timeout.count() / 1000, " s"));
  };
  std::random_device random;
  const std::string own = hex_of((std::uint64_t{random()} << 32) | random());
  if (rank != 0) {
    store.set(key("here", rank), own);
    try {
      store.wait({key("told", rank, own)}, timeout);
    } catch (const std::exception&) {
      throw absent(0);
    }
    const std::string start = text(key("told", rank, own));
    store.set(key("heard", start, rank), "yes");
    return start;
  }
  const auto begin = std::chrono::steady_clock::now();
  bool has_warned = false;
  std::vector<std::string> told(static_cast<std::size_t>(size));
  for (std::int64_t other = 1; other < size;) {
    std::string& last = told[static_cast<std::size_t>(other)];
    if (store.check({key("heard", own, other)})) {
      ++other;
      continue;
    }
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > timeout) throw absent(other);
    if (waited > patience && !std::exchange(has_warned, true))
      TORCH_WARN("looptorch: rank 0 waits for rank ", other, " of ", size, ", for ", timeout.count() / 1000,
                 " s at most. WORLD_SIZE says how many processes must be started");
    if (store.check({key("here", other)}))
      if (const std::string name = text(key("here", other)); name != last)
        store.set(key("told", other, last = name), own);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return own;
}

}  // namespace looptorch::detail
