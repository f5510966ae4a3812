// SPDX-License-Identifier: MIT
// A tensor of a device that waits in host memory, pinned, until backward asks for it. Copies have a stream of
// their own beside the computation: the last few tensors that were copied are still on the device, so that
// the computation seldom waits for a copy, and the next few that will be asked for are on their way back.
#pragma once

#include <looptorch/memory/ambient/streams.hpp>
#include <looptorch/memory/recompute/host_elements.hpp>
#include <looptorch/memory/recompute/saved_slot.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace looptorch::detail {

class HostCopy {
  struct Key {};

  /// Calls `f` with the stream for copies as the current one, after what the computation has been given.
  template <class F>
  auto on_copies(F&& f) const {
    order(used_on_, copies_);
    const c10::OptionalStreamGuard guard(copies_);
    return f();
  }

 public:
  /// So many of those that were copied last are still on their devices, and so many are fetched ahead.
  static constexpr std::size_t kNear = 4;

  [[nodiscard]] static std::shared_ptr<HostCopy> make(const at::Tensor& tensor) {
    Traffic& traffic = HostCopy::traffic();
    const std::lock_guard lock(traffic.mutex);
    auto copy = std::make_shared<HostCopy>(Key(), tensor);
    copy->previous_ = std::exchange(traffic.last, copy);
    traffic.leaving.push(copy);
    return copy;
  }
  HostCopy(Key, const at::Tensor& tensor)
      : saved_(tensor),
        here_(tensor.detach()),
        used_on_(current_stream(tensor.device())),
        copies_(copy_stream(tensor.device())),
        elements_(on_copies([&] { return HostElements(here_); })),
        copied_(copies_) {}
  ~HostCopy() { leave(); }
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  /// The tensor on its device, for the stream that computes there. Throws CheckpointError if it was changed
  /// in place since it was saved: its copy may have been under way.
  [[nodiscard]] at::Tensor back(std::string_view block) {
    Traffic& traffic = HostCopy::traffic();
    const std::lock_guard lock(traffic.mutex);
    check_unchanged(saved_, elements_.sizes(), block);
    fetch_now(traffic);
    at::Tensor tensor = is_copy_ ? hand_over() : here_;
    asked_in_ = torch::autograd::get_current_graph_task_id();
    fetch_ahead(traffic);
    return tensor;
  }

 private:
  /// The last few of a kind; those before them are sent away.
  class Few {
   public:
    /// Sends all of them away; false if there were none.
    bool clear() {
      bool any = false;
      for (const auto& each : copies_)
        if (const auto copy = each.lock(); copy && copy->here_.defined()) copy->leave(), any = true;
      copies_.clear();
      return any;
    }
    void push(const std::shared_ptr<HostCopy>& copy) {
      copies_.push_back(copy);
      if (copies_.size() <= kNear) return;
      if (const auto first = copies_.front().lock()) first->leave();
      copies_.pop_front();
    }

   private:
    std::deque<std::weak_ptr<HostCopy>> copies_;
  };
  struct Traffic {
    std::mutex mutex;
    Few leaving, arriving;
    std::weak_ptr<HostCopy> last;
  };
  static Traffic& traffic() {
    static Traffic traffic;
    return traffic;
  }

  /// Its memory may be used again once the copy is over. After a device's failure there is nothing to wait
  /// for: that must not throw out of a destructor, and the next operation reports it.
  void leave() noexcept {
    if (!here_.defined()) return;
    try {
      copied_.delay(used_on_);
    } catch (...) {
    }
    here_ = at::Tensor();
  }

  /// Gives up what was fetched ahead, or has not left yet, where the memory does not suffice.
  void fetch_now(Traffic& traffic) try { fetch(); } catch (const c10::OutOfMemoryError&) {
    const bool arrived = traffic.arriving.clear(), left = traffic.leaving.clear();
    if (!arrived && !left) throw;
    fetch();
  }

  void fetch() {
    if (here_.defined()) return;
    used_on_ = current_stream(elements_.device());
    const at::Tensor room = elements_.room();
    on_copies([&] { elements_.copy_to(room); });
    copied_ = StreamMark(copies_);
    here_ = elements_.in(room);
    is_copy_ = true;
  }

  /// To the stream that computes now, which waits until it is there.
  [[nodiscard]] at::Tensor hand_over() {
    const MaybeStream now = current_stream(elements_.device());
    copied_.delay(now);
    if (now != used_on_) here_.record_stream(*now);
    return std::exchange(here_, at::Tensor());
  }

  /// Backward asks for what was saved before, as a rule. Where the memory does not suffice for it yet, it is
  /// fetched when it is asked for.
  void fetch_ahead(Traffic& traffic) const try {
    auto next = previous_.lock();
    for (std::size_t i = 0; next && i < kNear; ++i, next = next->previous_.lock()) {
      if (next->here_.defined() || next->asked_in_ == asked_in_) continue;
      next->fetch();
      traffic.arriving.push(next);
    }
  } catch (const c10::OutOfMemoryError&) {
  }

  SavedVersion saved_;
  at::Tensor here_;  ///< Undefined where only the host has it.
  MaybeStream used_on_, copies_;
  HostElements elements_;
  StreamMark copied_;  ///< To the host or back.
  bool is_copy_ = false;
  std::optional<int> asked_in_;  ///< The pass of backward that did last.
  std::weak_ptr<HostCopy> previous_;
};

}  // namespace looptorch::detail
