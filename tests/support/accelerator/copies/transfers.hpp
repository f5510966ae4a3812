// SPDX-License-Identifier: MIT
// Copies asynchronously between pinned memory and a device, as late as a correct program allows. A copy from
// pinned memory reads that memory only when a kernel or a wait needs the result. A copy to pinned memory
// arrives at a wait that covers it; until then the memory holds NaN, and its whole pages are protected.
#pragma once

#include "support/accelerator/memory/pinned_pool.hpp"
#include "support/accelerator/order/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

namespace looptorch_test::accelerator {

class Driver;

class Transfers {
 public:
  explicit Transfers(Driver& driver) : driver_(driver) {}

  /// Issues a copy of `bytes` from pinned memory to a device.
  void upload(int stream, Time time, const char* from, char* to, std::size_t bytes);
  /// Issues a copy of `bytes` from a device to a block of pinned memory.
  void download(int stream, Time time, const char* from, char* to, std::size_t bytes, HostBlock& block);

  /// The host has waited for `clock`: what it covers is there, and what was read is free to be written.
  void arrive(const Clock& clock);
  /// A block of pinned memory is freed: copies to it are lost, and those from it keep it.
  void lose(HostBlock& block);

 private:
  struct Download {
    int stream;
    Time time;
    char* to;
    std::size_t bytes;
    std::vector<char> issued, late;  // contents by the two copies of the device's memory
    int trap = -1;
    bool overlaps = false;  // another one, so that the memory does not hold NaN

    [[nodiscard]] const std::vector<char>& contents(bool is_late) const { return is_late ? late : issued; }
  };
  struct Upload {
    int stream;
    Time time;
    const char* from;
    char* to;
    std::size_t bytes;
    std::vector<std::shared_ptr<Download>> sources;  // copies to the same memory that have not arrived
    std::optional<std::vector<char>>
        snapshot;  // of the rest, where the memory is written before this has run
    HostBlock* keeps = nullptr;
  };
  /// Memory that the host must leave alone while a copy from it may be running.
  struct Watch {
    int stream;
    Time time;
    const char* from;
    std::size_t bytes;
    std::uint64_t sum;
  };

  /// Gathers what an upload copies.
  static std::vector<char> gather(const Upload& upload, bool is_late);
  static void take_snapshot(Upload& upload);
  void run(Upload& upload, bool is_late);
  void finish(const std::shared_ptr<Upload>& upload);
  void deliver(const Download& download);
  void check(const Watch& watch);
  void report_unordered(int stream, const char* what, int other, const char* with);
  template <class Lost>
  void drop_watches(const char* begin, std::size_t bytes, const Lost& lost);

  Driver& driver_;
  std::list<std::shared_ptr<Upload>> uploads_;
  std::list<std::shared_ptr<Download>> downloads_;
  std::list<Watch> watches_;
};

}  // namespace looptorch_test::accelerator
