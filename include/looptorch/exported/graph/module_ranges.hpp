// SPDX-License-Identifier: MIT
// Tells profilers and Autopsy which of Python's modules the running nodes belong to. So a trace has a range
// for each module, and a NaN is traced to a module. Costs one comparison a node if neither is active.
#pragma once

#include <looptorch/base/running_module.hpp>
#include <looptorch/base/trace_ranges.hpp>

#include <ATen/record_function.h>

#include <cstddef>
#include <string>
#include <vector>

namespace looptorch::detail::exported {

class ModuleRanges {
 public:
  /// Keeps a reference to the modules.
  explicit ModuleRanges(const std::vector<RunningModule>& modules)
      : modules_(modules), is_recorded_(at::hasCallbacks()), before_(running_module) {}
  ~ModuleRanges() {
    if (is_recorded_) running_module = before_;
  }
  ModuleRanges(const ModuleRanges&) = delete;
  ModuleRanges& operator=(const ModuleRanges&) = delete;

  /// Goes on in a module. Ranges of those that hold it stay open: "encoder", "encoder.layers", ...
  void enter(std::size_t module) {
    if (!is_recorded_ || running_module == &modules_[module]) return;
    running_module = &modules_[module];
    const std::string& path = running_module->path;
    while (!open_.empty() && !holds(open_.back(), path)) open_.pop_back();
    ranges_.close_to(open_.size());
    for (std::size_t begin = open_.empty() ? 0 : open_.back().size() + 1; begin < path.size();) {
      const std::size_t end = path.find('.', begin);
      ranges_.open(open_.emplace_back(path.substr(0, end)));
      begin = end == path.npos ? end : end + 1;
    }
  }

 private:
  static bool holds(const std::string& parent, const std::string& path) {
    return path == parent || path.starts_with(parent + '.');
  }

  const std::vector<RunningModule>& modules_;
  bool is_recorded_;
  const RunningModule* before_;
  std::vector<std::string> open_;  // paths of the ranges
  TraceRanges ranges_;
};

}  // namespace looptorch::detail::exported
