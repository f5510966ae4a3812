// SPDX-License-Identifier: MIT
// Saves a random generator's state in memory and restores it later, for rollbacks, recomputation and graph
// captures. On CUDA it exchanges the generator's state object, since `set_state` would wait for the device
// and make cuDNN reseed the dropout of recurrent layers. While a graph is captured, it saves the offset of
// the graph's random numbers instead.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/capture_scope.hpp>
#include <looptorch/base/device/generator_state.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Captures a generator's state on construction.
class SavedGenerator {
 public:
  explicit SavedGenerator(at::Generator generator) : generator_(std::move(generator)) { capture(); }

  /// Replaces the captured state by the current one.
  void capture() {
    offset_ = offset_in_graph(generator_);
    if (is_cpu(generator_) && then_.defined())
      copy_cpu(generator_, then_);
    else if (!offset_)
      then_ = copy_of(generator_);
  }

  /// Restores the state. Later random numbers do not change the captured copy. A state within a graph can be
  /// restored only while that graph is being captured.
  void restore() const {
    if (offset_) return set_offset_in_graph(generator_, *offset_);
    if (is_cpu(generator_)) return copy_cpu(then_, generator_);
    if (can_exchange(generator_)) return exchange(generator_, copy_of(then_));
    set_state(generator_, state_of(then_));
  }

  [[nodiscard]] bool same(const SavedGenerator& other) const {
    if (offset_ || other.offset_) return offset_ == other.offset_;
    const at::Tensor a = state_of(then_), b = state_of(other.then_);
    return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  }

  /// On destruction restores the state that the generator had on construction.
  class Scope;

 private:
  /// Returns the offset of the graph that is captured on the generator's device; empty if none is.
  static std::optional<std::uint64_t> offset_in_graph(const at::Generator& generator) {
    const DeviceGraph* const graph = CaptureScope::graph_on(generator.device());
    return graph ? std::optional(graph->random_offset()) : std::nullopt;
  }
  static void set_offset_in_graph(const at::Generator& generator, std::uint64_t offset) {
    if (DeviceGraph* const graph = CaptureScope::graph_on(generator.device()))
      graph->set_random_offset(offset);
  }

  /// True for LibTorch's own CPU generator. Copying its parts takes a tenth of the time of copying its state
  /// as a tensor.
  static bool is_cpu(const at::Generator& generator) { return generator.device().is_cpu(); }

  /// Copies the state of one CPU's generator to another.
  static void copy_cpu(at::Generator from, at::Generator to) {
    auto& source = *from.get<at::CPUGeneratorImpl>();
    auto& target = *to.get<at::CPUGeneratorImpl>();
    const std::scoped_lock lock(source.mutex_, target.mutex_);
    target.set_engine(source.engine());
    target.set_next_float_normal_sample(source.next_float_normal_sample());
    target.set_next_double_normal_sample(source.next_double_normal_sample());
  }

  /// True on accelerators with generators that can exchange their states. LibTorch answers no only by
  /// throwing, so each type of device is asked once.
  static bool can_exchange(const at::Generator& generator) {
    enum Answer : signed char { unknown, yes, no };
    static std::array<std::atomic<Answer>, at::COMPILE_TIME_MAX_DEVICE_TYPES> answers{};
    if (generator.device().is_cpu()) return false;
    auto& answer = answers[static_cast<std::size_t>(generator.device().type())];
    if (answer == unknown) answer = gives_its_state(generator) ? yes : no;
    return answer == yes;
  }

  static bool gives_its_state(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    try {
      return generator.graphsafe_get_state().defined();
    } catch (const c10::Error&) {
      return false;
    }
  }

  /// Makes `generator` draw from, and advance, the state of `source`.
  static void exchange(at::Generator generator, const at::Generator& source) {
    const std::lock_guard lock(generator.mutex());
    generator.graphsafe_set_state(source);
  }

  at::Generator generator_;
  at::Generator then_;
  std::optional<std::uint64_t> offset_;  // within a graph, instead of `then_`
};

class SavedGenerator::Scope {
 public:
  explicit Scope(const at::Generator& generator)
      : generator_(generator), offset_(offset_in_graph(generator)) {
    if (!offset_) previous_ = current_state(generator);
  }
  Scope(Scope&& other) noexcept
      : generator_(std::exchange(other.generator_, {})),
        previous_(std::exchange(other.previous_, {})),
        offset_(other.offset_) {}
  Scope& operator=(Scope&&) = delete;
  ~Scope() {
    if (!generator_.defined()) return;
    try {
      if (offset_)
        set_offset_in_graph(generator_, *offset_);
      else if (is_cpu(generator_))
        copy_cpu(previous_, generator_);
      else if (can_exchange(generator_))
        exchange(generator_, previous_);
      else
        set_state(generator_, state_of(previous_));
    } catch (...) {  // no memory for a state: later draws differ
    }
  }

 private:
  static at::Generator current_state(at::Generator generator) {
    if (!can_exchange(generator)) return copy_of(generator);
    const std::lock_guard lock(generator.mutex());
    return generator.graphsafe_get_state();
  }

  at::Generator generator_;
  at::Generator previous_;
  std::optional<std::uint64_t> offset_;
};

/// The states of the process's default generators, of the CPU and of accelerators in use, for rollbacks.
/// Snapshots use RandomStates, which holds the states as tensors.
class SavedGenerators {
 public:
  /// Captures the states as they are now.
  void capture() {
    cpu_ ? cpu_->capture() : static_cast<void>(cpu_.emplace(default_generator(at::kCPU)));
    if (!is_alone_) is_alone_ = !accelerator_here();
    others_.clear();
    if (*is_alone_) return;
    for (const at::Device device : accelerators_in_use()) others_.emplace_back(default_generator(device));
  }

  /// Restores the captured states. Can be called again.
  void restore() const {
    if (cpu_) cpu_->restore();
    for (const SavedGenerator& other : others_) other.restore();
  }

 private:
  std::optional<bool> is_alone_;  // the CPU: no accelerator can come into use
  std::optional<SavedGenerator> cpu_;
  std::vector<SavedGenerator> others_;
};

}  // namespace looptorch::detail
