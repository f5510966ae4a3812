// SPDX-License-Identifier: MIT
// Ledger, the simulated accelerator's record of what happened: counts, waits, violations, operators.
#pragma once

#include "support/accelerator/accelerator.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace looptorch_test::accelerator {

enum class Wait { item, blocking_copy, pageable_download, dynamic_result, stream, device, event };

struct Ledger {
  Counts counts;
  std::vector<std::string> violations;
  std::vector<std::string> waits;
  std::map<std::string, std::int64_t> operators;
  const std::string* running = nullptr;  // the operator at hand
  int waits_refused = 0;
  int event_waits_refused = 0;

  void violation(std::string sentence);
  /// Counts a wait; throws under NoWaits.
  void wait(Wait kind, const std::string& what);
  /// Counts an operator and returns its name, which stays valid.
  const std::string* ran(const std::string& name);
};

}  // namespace looptorch_test::accelerator
