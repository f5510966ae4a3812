// SPDX-License-Identifier: MIT
// Returns LibTorch's version, the processor and its number of threads, for a run's report.
#pragma once

#include <looptorch/report/tensorboard/events.hpp>

#include <torch/version.h>

#include <fstream>
#include <string>
#include <thread>

namespace looptorch::report {

/// Returns the processor's name as Linux knows it; empty where it does not.
[[nodiscard]] inline std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return {};
}

/// Returns LibTorch's version, the processor and its threads.
[[nodiscard]] inline Facts machine_facts() {
  Facts facts{{"LibTorch", TORCH_VERSION}};
  if (const std::string name = processor_name(); !name.empty()) facts.emplace_back("processor", name);
  facts.emplace_back("threads of the machine", std::to_string(std::thread::hardware_concurrency()));
  return facts;
}

}  // namespace looptorch::report
