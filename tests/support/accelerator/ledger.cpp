// SPDX-License-Identifier: MIT
// Implements Ledger: counts waits by kind, refuses those that a NoWaits forbids, and collects violations and
// operators.
#include "support/accelerator/ledger.hpp"

#include <c10/util/Backtrace.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

struct NamedCount {
  const char* name;
  std::int64_t Counts::*count;
};
constexpr NamedCount kCounts[] = {
    {"kernels", &Counts::kernels},
    {"fallbacks", &Counts::fallbacks},
    {"launches", &Counts::launches},
    {"cuda_launches", &Counts::cuda_launches},
    {"allocations", &Counts::allocations},
    {"pinnings", &Counts::pinnings},
    {"contexts", &Counts::contexts},
    {"copies", &Counts::copies},
    {"uploads", &Counts::uploads},
    {"pageable_uploads", &Counts::pageable_uploads},
    {"downloads", &Counts::downloads},
    {"peer_copies", &Counts::peer_copies},
    {"copies_beside", &Counts::copies_beside},
    {"copies_passed", &Counts::copies_passed},
    {"host_waits", &Counts::host_waits},
    {"items", &Counts::items},
    {"blocking_copies", &Counts::blocking_copies},
    {"pageable_downloads", &Counts::pageable_downloads},
    {"dynamic_results", &Counts::dynamic_results},
    {"stream_waits", &Counts::stream_waits},
    {"device_waits", &Counts::device_waits},
    {"event_waits", &Counts::event_waits},
    {"stall_waits", &Counts::stall_waits},
    {"event_queries", &Counts::event_queries},
};

std::int64_t Counts::*count_of(Wait kind) {
  switch (kind) {
    case Wait::item:
      return &Counts::items;
    case Wait::blocking_copy:
      return &Counts::blocking_copies;
    case Wait::pageable_download:
      return &Counts::pageable_downloads;
    case Wait::dynamic_result:
      return &Counts::dynamic_results;
    case Wait::stream:
      return &Counts::stream_waits;
    case Wait::device:
      return &Counts::device_waits;
    case Wait::event:
      return &Counts::event_waits;
  }
  return nullptr;
}

}  // namespace

Counts Counts::since(const Counts& earlier) const {
  Counts difference = *this;
  for (const NamedCount& each : kCounts) difference.*each.count -= earlier.*each.count;
  return difference;
}

std::string Counts::text() const {
  std::string text;
  for (const NamedCount& each : kCounts)
    if (const std::int64_t value = this->*each.count)
      text += (text.empty() ? "" : ", ") + std::string(each.name) + " " + std::to_string(value);
  return text;
}

void Ledger::violation(std::string sentence) {
  constexpr std::size_t kMost = 100;
  if (violations.size() < kMost) violations.push_back(std::move(sentence));
}

void Ledger::wait(Wait kind, const std::string& what) {
  const bool for_event = kind == Wait::event;
  ++(counts.*count_of(kind));
  if (!for_event) ++counts.host_waits;
  static const bool traces = std::getenv("LOOPTORCH_TRACE_WAITS");
  std::string sentence = what + (running ? " in " + *running : "");
  waits.push_back(traces ? sentence + "\n" + c10::get_backtrace(1, 40) : sentence);
  TORCH_CHECK(!(for_event ? event_waits_refused : waits_refused),
              "sim: the host waits for a device: ", sentence);
}

const std::string* Ledger::ran(const std::string& name) {
  const auto entry = operators.try_emplace(name).first;
  ++entry->second;
  return &entry->first;
}

}  // namespace looptorch_test::accelerator
