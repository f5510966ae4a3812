// SPDX-License-Identifier: MIT
// A layer whose forward is not virtual can be called past its wrapper. That costs the memory that the wrapper
// was to save, and nobody would notice. So a fit looks, in the first graph that trains the layer, which
// operations on its parameters were made outside of its calls (bypass_watch.hpp).
#pragma once

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace looptorch::detail {

/// A module that remembers, while it is watched, which nodes of the graph were made by its calls.
class Bypassable {
 public:
  /// Whether a call past it makes a difference.
  [[nodiscard]] virtual bool saves_memory() const = 0;

  void watch(bool watched) {
    const std::lock_guard lock(mutex_);
    watched_ = watched;
    calls_.clear();
  }
  [[nodiscard]] bool is_watched() const {
    const std::lock_guard lock(mutex_);
    return watched_;
  }
  void forget_calls() {
    const std::lock_guard lock(mutex_);
    calls_.clear();
  }
  /// Whether the node was made by a call since.
  [[nodiscard]] bool has_made(const torch::autograd::Node& node) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(calls_.begin(), calls_.end(), [&](const Nodes& nodes) {
      return nodes.thread == node.thread_id() && nodes.first <= node.sequence_nr() &&
             node.sequence_nr() < nodes.end;
    });
  }

  /// A call of the module while it lives.
  class Call {
   public:
    explicit Call(Bypassable& module)
        : module_(at::GradMode::is_enabled() && module.is_watched() ? &module : nullptr),
          first_(at::sequence_number::peek()) {}
    ~Call() {
      if (module_)
        module_->remember({at::RecordFunction::currentThreadId(), first_, at::sequence_number::peek()});
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Bypassable* module_;
    std::uint64_t first_;
  };

 protected:
  Bypassable() = default;
  ~Bypassable() = default;

 private:
  /// Nodes are numbered by the thread that makes them.
  struct Nodes {
    std::uint64_t thread, first, end;
  };

  /// Whoever calls so often without a fit is not watched.
  void remember(const Nodes& nodes) {
    constexpr std::size_t kMost = 4096;
    const std::lock_guard lock(mutex_);
    calls_.push_back(nodes);
    if (calls_.size() > kMost) watched_ = false, calls_.clear();
  }

  mutable std::mutex mutex_;
  bool watched_ = false;
  std::vector<Nodes> calls_;
};

}  // namespace looptorch::detail
