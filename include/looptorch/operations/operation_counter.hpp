// SPDX-License-Identifier: MIT
// Counts floating-point operations as they are called, by LibTorch's RecordFunction. Costs about 1 us an
// operator call while a counter lives, and nothing when none does.
#pragma once

#include <looptorch/autopsy/recorded_inputs.hpp>
#include <looptorch/base/device/older_libtorch.hpp>
#include <looptorch/operations/formulas.hpp>
#include <looptorch/operations/operations.hpp>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace looptorch {

/// Counts the matrix products, convolutions and attention that this thread calls while it lives, and those of
/// its backward on other threads, as PyTorch's FlopCounterMode does (operations/formulas.hpp has the
/// differences). What is computed again, as by Checkpointed, counts again.
///
/// A counter within the life of another takes its place, and the outer one does not see what the inner one
/// counts. While one lives, those of other threads count nothing.
class OperationCounter {
 public:
  OperationCounter() : OperationCounter(/*alone=*/false) {}
  /// With `alone`, counters that are made while it lives count nothing, as while a graph is captured, whose
  /// calls are not carried out yet.
  explicit OperationCounter(bool alone) : alone_(alone) {
    Live& now = live();
    const std::lock_guard lock(now.mutex);
    const OperationCounter* const outer = now.innermost;
    if (outer && (outer->alone_ || now.owner != std::this_thread::get_id())) return;
    if (!outer) {
      now.owner = std::this_thread::get_id();
      now.handle = at::addThreadLocalCallback(
          at::RecordFunctionCallback(&start, &end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    }
    now.counters.push_back(this);
    now.innermost = this;
    is_active_ = true;
  }
  ~OperationCounter() {
    if (!is_active_) return;
    Live& now = live();
    const std::lock_guard lock(now.mutex);
    std::erase(now.counters, this);
    now.innermost = now.counters.empty() ? nullptr : now.counters.back();
    if (now.counters.empty()) at::removeCallback(now.handle);
  }
  OperationCounter(const OperationCounter&) = delete;
  OperationCounter& operator=(const OperationCounter&) = delete;

  /// True if it counts: no counter of another thread, and none that counts alone, lived as it was made.
  [[nodiscard]] bool is_active() const { return is_active_; }

  /// Returns the operations so far.
  [[nodiscard]] Operations count() const {
    Operations count;
    for (std::size_t i = 0; i < kArithmetics; ++i) count.of[i] = sums_[i].load(std::memory_order_relaxed);
    return count;
  }

  /// Adds operations that a device does without an operator being called, as those of a graph, to this
  /// thread's counter, if there is one.
  static void add(const Operations& operations) {
    OperationCounter* const counter = live().innermost;
    if (!counter || live().owner != std::this_thread::get_id()) return;
    for (std::size_t i = 0; i < kArithmetics; ++i) counter->add(i, operations.of[i]);
  }

 private:
  struct Live {
    std::mutex mutex;
    std::vector<OperationCounter*> counters;  // that count, the innermost last
    std::atomic<OperationCounter*> innermost{nullptr};
    std::atomic<std::thread::id> owner{};
    at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
  };
  static Live& live() {
    static Live live;
    return live;
  }

  /// The call that counts, of this thread, while operators that it calls itself do not.
  struct Open {
    int depth = 0;
    std::int64_t operations = 0;
    Arithmetic arithmetic = Arithmetic::other;
  };
  static Open& open() {
    static thread_local Open open;
    return open;
  }
  struct Counts : at::ObserverContext {};

  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    const detail::OperationFormula formula = detail::operation_formula(function.name());
    OperationCounter* const counter = live().innermost;
    if (!formula || !counter) return nullptr;
    const auto inputs = detail::recorded_inputs(function);
    Open& now = open();
    if (now.depth++ == 0) now.operations = formula(inputs);
    // The innermost call's: autocast casts between a call and the call within.
    now.arithmetic = counter->arithmetic_of(inputs, formula);
    return std::make_unique<Counts>();
  }
  static void end(const at::RecordFunction&, at::ObserverContext* context) {
    if (!context) return;
    Open& now = open();
    if (--now.depth > 0) return;
    if (OperationCounter* const counter = live().innermost)
      counter->add(static_cast<std::size_t>(now.arithmetic), now.operations);
  }

  [[nodiscard]] Arithmetic arithmetic_of(detail::OperatorInputs inputs,
                                         detail::OperationFormula formula) const {
    for (const c10::IValue& input : inputs) {
      if (!input.isTensor() || !input.toTensor().defined()) continue;
      const at::Tensor& tensor = input.toTensor();
      const auto type = tensor.scalar_type();
      if (type == at::kDouble) return Arithmetic::fp64;
      if (type == at::kHalf) return Arithmetic::fp16;
      if (type == at::kBFloat16) return Arithmetic::bf16;
      if (type != at::kFloat) return Arithmetic::other;
      const bool is_convolution =
          formula == &detail::convolution_operations || formula == &detail::convolution_backward_operations;
      const bool allowed = is_convolution ? switches_.convolutions() : switches_.products();
      return tensor.is_cuda() && allowed && !at::NoTF32Guard::should_disable_tf32() ? Arithmetic::tf32
                                                                                    : Arithmetic::fp32;
    }
    return Arithmetic::other;
  }

  void add(std::size_t arithmetic, std::int64_t operations) {
    sums_[arithmetic].fetch_add(operations, std::memory_order_relaxed);
  }

  bool alone_ = false, is_active_ = false;
  detail::Float32Switches switches_;
  std::array<std::atomic<std::int64_t>, kArithmetics> sums_{};
};

}  // namespace looptorch
