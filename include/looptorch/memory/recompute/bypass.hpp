// SPDX-License-Identifier: MIT
// Records which autograd nodes the calls of a `Checkpointed` layer make, so that bypass_watch.hpp can find
// calls that bypass the checkpointing. `as<Layer>()->forward(...)` is such a call: forward is not virtual, so
// it runs the plain layer, which keeps all activations without a warning.
#pragma once

#include <looptorch/memory/recompute/layer_watch.hpp>

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace looptorch::detail {

/// A module that records, while it is watched, which nodes of the graph its calls make.
class Bypassable : public WatchedLayer {
 public:
  /// True if a call past the wrapper costs memory.
  [[nodiscard]] virtual bool saves_memory() const = 0;
  /// True if the module saves as little as it can.
  [[nodiscard]] virtual bool saves_most() const = 0;
  /// Returns the policy for its recomputation, as written in a Trainer's list.
  [[nodiscard]] virtual std::string policy() const = 0;
  /// Lets the module recompute as a whole.
  virtual void recompute() = 0;
  /// Returns a function that restores the module's current options.
  [[nodiscard]] virtual std::function<void()> keep_options() = 0;

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
  /// True if the node was made by a recorded call.
  [[nodiscard]] bool has_made(const torch::autograd::Node& node) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(calls_.begin(), calls_.end(), [&](const Nodes& nodes) {
      return nodes.thread == node.thread_id() && nodes.first <= node.sequence_nr() &&
             node.sequence_nr() < nodes.end;
    });
  }

  /// Records a call of the module while it lives.
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
  /// A range of nodes, which each thread numbers by itself.
  struct Nodes {
    std::uint64_t thread, first, end;
  };

  /// Records a call. Stops watching after many calls without a fit.
  void remember(const Nodes& nodes) {
    constexpr std::size_t kMost = 4096;
    const std::lock_guard lock(mutex_);
    calls_.push_back(nodes);
    if (calls_.size() > kMost) {
      watched_ = false;
      calls_.clear();
    }
  }

  mutable std::mutex mutex_;
  bool watched_ = false;
  std::vector<Nodes> calls_;
};

}  // namespace looptorch::detail
