// SPDX-License-Identifier: MIT
// Implements CountOperatorCalls by callbacks of RecordFunction, which ignore calls within an operator that is
// a kernel on CUDA.
#include "support/accelerator/operator_calls.hpp"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <mutex>
#include <optional>

namespace looptorch_test::accelerator {

namespace {

struct CallsOfOperator {
  bool is_kernel = false;  // on CUDA: what it calls in turn here, it does not call there
  std::int64_t count = 0;
};

std::mutex calls_mutex;
std::map<std::string, CallsOfOperator> calls;
thread_local int kernels_entered = 0;

struct InKernel : at::ObserverContext {};

bool is_kernel_on_cuda(const c10::OperatorName& name) {
  if (name.name == "aten::copy_") return true;
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  return op && op->hasKernelForDispatchKey(c10::DispatchKey::CUDA);
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  const std::optional<c10::OperatorName> name = function.operator_name();
  if (!name || kernels_entered > 0) return nullptr;
  const std::lock_guard lock(calls_mutex);
  const auto [entry, is_new] = calls.try_emplace(c10::toString(*name));
  if (is_new) entry->second.is_kernel = is_kernel_on_cuda(*name);
  ++entry->second.count;
  if (!entry->second.is_kernel) return nullptr;
  ++kernels_entered;
  return std::make_unique<InKernel>();
}

void leave(const at::RecordFunction&, at::ObserverContext* context) { kernels_entered -= context != nullptr; }

}  // namespace

bool CountOperatorCalls::is_supported() { return is_kernel_on_cuda({"aten::mul", "Tensor"}); }

CountOperatorCalls::CountOperatorCalls()
    : handle_(at::addGlobalCallback(
          at::RecordFunctionCallback(&enter, &leave).scopes({at::RecordScope::FUNCTION}))) {
  const std::lock_guard lock(calls_mutex);
  for (auto& [name, operators] : calls) operators.count = 0;
}
CountOperatorCalls::~CountOperatorCalls() { at::removeCallback(handle_); }

std::int64_t CountOperatorCalls::total() const {
  std::int64_t sum = 0;
  for (const auto& [name, count] : by_name()) sum += count;
  return sum;
}

std::map<std::string, std::int64_t> CountOperatorCalls::by_name() const {
  const std::lock_guard lock(calls_mutex);
  std::map<std::string, std::int64_t> counts;
  for (const auto& [name, operators] : calls)
    if (operators.count > 0) counts[name] = operators.count;
  return counts;
}

}  // namespace looptorch_test::accelerator
