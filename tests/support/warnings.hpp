// SPDX-License-Identifier: MIT
// Records LibTorch's warnings until the end of a scope.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace looptorch::testing {

struct Warnings : c10::WarningHandler {
  Warnings() = default;
  Warnings(const Warnings&) = delete;  // the guard refers to it
  Warnings& operator=(const Warnings&) = delete;
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }

  std::vector<std::string> texts;
  c10::WarningUtils::WarningHandlerGuard guard{this};
};

}  // namespace looptorch::testing
