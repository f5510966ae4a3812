// SPDX-License-Identifier: MIT
// Records the operators that this thread calls, and whether they may use TF32.
#pragma once

#include "support/precompiled.hpp"

#include <ATen/Context.h>
#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <string>

/// Counts the operators that this thread calls while it lives; one at a time.
class OperatorsCalled {
 public:
  OperatorsCalled() : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&note))) {
    counts() = {};
  }
  ~OperatorsCalled() { at::removeCallback(handle_); }
  OperatorsCalled(const OperatorsCalled&) = delete;
  OperatorsCalled& operator=(const OperatorsCalled&) = delete;

  [[nodiscard]] int count(const std::string& name) const { return counts().of[name]; }
  [[nodiscard]] int count_with_tf32(const std::string& name) const { return counts().with_tf32[name]; }

 private:
  struct Counts {
    std::map<std::string, int> of, with_tf32;
  };
  static Counts& counts() {
    static thread_local Counts counts;
    return counts;
  }
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    ++counts().of[function.name()];
    if (!at::NoTF32Guard::should_disable_tf32()) ++counts().with_tf32[function.name()];
    return nullptr;
  }

  at::CallbackHandle handle_;
};
