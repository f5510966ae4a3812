// SPDX-License-Identifier: MIT
// Counts the floating-point operations of the operators that run, by LibTorch's RecordFunction. Costs some
// 0.4 us an operator call while a counter exists, and nothing otherwise.
#pragma once

#include <looptorch/base/device/older_libtorch.hpp>
#include <looptorch/base/recorded_inputs.hpp>
#include <looptorch/flops/flops.hpp>
#include <looptorch/flops/formulas.hpp>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace looptorch {

/// Counts the matmuls, convolutions and attention that this thread calls while it lives, and those of
/// its backward on other threads, as PyTorch's FlopCounterMode does (flops/formulas.hpp has the
/// differences). Recomputation, as by Checkpointed, counts again.
///
/// Counters may nest. While one lives, those of other threads count nothing.
class FlopCounter {
 public:
  FlopCounter() : FlopCounter(/*alone=*/false) {}
  /// With `alone`, no other counter counts while it lives, as during a graph capture, whose calls are not
  /// executed yet.
  explicit FlopCounter(bool alone) : alone_(alone) {
    Live& now = live();
    const std::lock_guard lock(now.mutex);
    if (now.counters.empty()) {
      now.owner = std::this_thread::get_id();
      now.switches = detail::Float32Switches();
      now.handle = at::addThreadLocalCallback(
          at::RecordFunctionCallback(&start, &end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    } else if (now.counters.back()->alone_ || now.owner != std::this_thread::get_id()) {
      return;
    }
    now.counters.push_back(this);
    is_active_ = true;
  }
  ~FlopCounter() {
    if (!is_active_) return;
    Live& now = live();
    const std::lock_guard lock(now.mutex);
    std::erase(now.counters, this);
    if (now.counters.empty()) at::removeCallback(now.handle);
  }
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  /// True if this counter counts. It does not if another thread's counter, or one that counts alone, existed
  /// when it was made.
  [[nodiscard]] bool is_active() const { return is_active_; }

  /// Returns the FLOPs so far.
  [[nodiscard]] Flops count() const {
    const std::lock_guard lock(live().mutex);
    return sum_;
  }

  /// Adds the FLOPs of what runs without a call of an operator, as a graph's, to this thread's counters, if
  /// any.
  static void add(const Flops& flops) {
    Live& now = live();
    const std::lock_guard lock(now.mutex);
    if (now.owner == std::this_thread::get_id()) now.add(flops);
  }

 private:
  struct Live {
    std::mutex mutex;
    std::vector<FlopCounter*> counters;  // that count, the newest last
    std::thread::id owner;
    detail::Float32Switches switches;  // at the first counter's construction
    at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

    void add(const Flops& flops) {
      if (!counters.empty() && counters.back()->alone_) return void(counters.back()->sum_ += flops);
      for (FlopCounter* const counter : counters) counter->sum_ += flops;
    }
  };
  static Live& live() {
    static Live live;
    return live;
  }

  /// This thread's call that counts, while operators within it do not.
  struct Open {
    int depth = 0;
    std::int64_t flops = 0;
    Arithmetic arithmetic = Arithmetic::other;
  };
  static Open& open() {
    static thread_local Open open;
    return open;
  }
  struct Counts : at::ObserverContext {};

  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    const detail::FlopFormula formula = detail::flop_formula(function.name());
    if (!formula) return nullptr;
    const auto inputs = detail::recorded_inputs(function);
    auto counts = std::make_unique<Counts>();
    Open& now = open();
    if (now.depth == 0) now.flops = formula(inputs);
    // The innermost call's: autocast casts between the outer call and the inner one.
    now.arithmetic = arithmetic_of(inputs, formula);
    ++now.depth;
    return counts;
  }
  static void end(const at::RecordFunction&, at::ObserverContext* context) {
    if (!context) return;
    Open& now = open();
    if (--now.depth > 0) return;
    Flops flops;
    flops[now.arithmetic] = now.flops;
    const std::lock_guard lock(live().mutex);
    live().add(flops);
  }

  static Arithmetic arithmetic_of(detail::OperatorInputs inputs, detail::FlopFormula formula) {
    for (const c10::IValue& input : inputs)
      if (input.isTensor() && input.toTensor().defined()) return arithmetic_of(input.toTensor(), formula);
    return Arithmetic::other;
  }
  static Arithmetic arithmetic_of(const at::Tensor& tensor, detail::FlopFormula formula) {
    switch (tensor.scalar_type()) {
      case at::kDouble:
        return Arithmetic::fp64;
      case at::kHalf:
        return Arithmetic::fp16;
      case at::kBFloat16:
        return Arithmetic::bf16;
      case at::kFloat:
        return may_use_tf32(tensor, formula) ? Arithmetic::tf32 : Arithmetic::fp32;
      default:
        return Arithmetic::other;
    }
  }
  static bool may_use_tf32(const at::Tensor& tensor, detail::FlopFormula formula) {
    if (!tensor.is_cuda() || at::NoTF32Guard::should_disable_tf32()) return false;
    const bool is_convolution =
        formula == &detail::convolution_flops || formula == &detail::convolution_backward_flops;
    return is_convolution ? live().switches.convolutions() : live().switches.matmuls();
  }

  bool alone_ = false, is_active_ = false;
  Flops sum_;
};

}  // namespace looptorch
