// SPDX-License-Identifier: MIT
// A random generator put back to where it stood. With CUDA by exchanging the state that it draws from, as
// graphs do: `set_state` would make cuDNN seed the dropout of recurrent layers anew, with a wait.
#pragma once

#include <looptorch/base/device/generator_state.hpp>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstring>
#include <mutex>
#include <utility>

namespace looptorch::detail {

/// Where a generator stood when this was made.
class GeneratorPlace {
 public:
  explicit GeneratorPlace(at::Generator generator)
      : generator_(std::move(generator)), then_(copy_of(generator_)) {}

  /// Puts the generator there. What is drawn then leaves this as it is.
  void restore() const {
    if (can_exchange(generator_)) return exchange(generator_, copy_of(then_));
    set_state(generator_, state_of(then_));
  }

  /// True if the generator stood at the same place in both.
  [[nodiscard]] bool same(const GeneratorPlace& other) const {
    const at::Tensor a = state_of(then_), b = state_of(other.then_);
    return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  }

  /// Puts the generator back, when it ends, to where it stood when it began.
  class Scope;

 private:
  static bool can_exchange(const at::Generator& generator) { return generator.device().is_cuda(); }

  /// `generator` draws from the state of `source` from now on, and moves it.
  static void exchange(at::Generator generator, const at::Generator& source) {
    const std::lock_guard lock(generator.mutex());
    generator.graphsafe_set_state(source);
  }

  at::Generator generator_;
  at::Generator then_;
};

class GeneratorPlace::Scope {
 public:
  explicit Scope(const at::Generator& generator) : generator_(generator), met_(state_met(generator)) {}
  Scope(Scope&& other) noexcept
      : generator_(std::exchange(other.generator_, {})), met_(std::exchange(other.met_, {})) {}
  Scope& operator=(Scope&&) = delete;
  ~Scope() {
    if (!generator_.defined()) return;
    try {
      if (can_exchange(generator_))
        exchange(generator_, met_);
      else
        set_state(generator_, state_of(met_));
    } catch (...) {  // without memory for a state: the numbers to come are others
    }
  }

 private:
  static at::Generator state_met(at::Generator generator) {
    if (!can_exchange(generator)) return copy_of(generator);
    const std::lock_guard lock(generator.mutex());
    return generator.graphsafe_get_state();
  }

  at::Generator generator_;
  at::Generator met_;
};

}  // namespace looptorch::detail
