// SPDX-License-Identifier: MIT
// Prevents two Trainers of a process from having open windows on the same parameters: they would add to each
// other's gradients and freeze each other's parameters. Registers each open window by its parameters. Costs a
// lock per window, about 50 ns.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace looptorch::detail {

/// The window of one Trainer.
class OpenWindow {
 public:
  /// Sets the parameters that this window, if it is open, and later ones give gradients to (`trained`), and
  /// those that they may freeze.
  void work_on(const std::vector<at::Tensor>& trained, const std::vector<at::Tensor>& frozen) {
    const std::lock_guard lock(registry().mutex);
    entry_->trained = addresses(trained);
    entry_->touched = addresses(frozen);
    entry_->touched.insert(entry_->touched.end(), entry_->trained.begin(), entry_->trained.end());
    std::sort(entry_->touched.begin(), entry_->touched.end());
  }

  /// True if another Trainer of this process trains the parameter.
  [[nodiscard]] bool another_trains(const at::Tensor& parameter) const {
    const std::lock_guard lock(registry().mutex);
    return std::any_of(registry().all.begin(), registry().all.end(), [&](const Entry* other) {
      return other != entry_.get() &&
             std::binary_search(other->trained.begin(), other->trained.end(),
                                static_cast<const void*>(parameter.unsafeGetTensorImpl()));
    });
  }

  /// False while a conflicting window of another Trainer is open.
  [[nodiscard]] bool is_alone() const {
    const std::lock_guard lock(registry().mutex);
    return !find_conflict();
  }
  /// Throws UsageError unless `is_alone`.
  void require_alone() const {
    const std::lock_guard lock(registry().mutex);
    require_alone_locked();
  }

  /// Opens the window. Throws as `require_alone`.
  void open() {
    const std::lock_guard lock(registry().mutex);
    require_alone_locked();
    entry_->thread = std::this_thread::get_id();
    registry().open.push_back(entry_.get());
    entry_->is_open = true;
  }
  void close() noexcept { entry_->close(); }
  [[nodiscard]] bool is_open() const { return entry_->is_open; }

 private:
  using Addresses = std::vector<const void*>;

  struct Entry {
    Addresses trained, touched;  // sorted
    std::thread::id thread;
    bool is_open = false;

    Entry() {
      const std::lock_guard lock(registry().mutex);
      registry().all.push_back(this);
    }
    void close() noexcept {
      if (!is_open) return;
      const std::lock_guard lock(registry().mutex);
      registry().open.erase(std::find(registry().open.begin(), registry().open.end(), this));
      is_open = false;
    }
    ~Entry() {
      const bool forgotten = is_open && std::uncaught_exceptions() == 0;
      close();
      leave();
      if (forgotten)
        TORCH_WARN(
            "looptorch: a Trainer was destroyed with an open window: nothing was learnt from the last batches "
            "given to step(). Call finish_window() or finish() after the loop. See docs/errors.md#open-window");
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    void leave() noexcept {
      const std::lock_guard lock(registry().mutex);
      registry().all.erase(std::find(registry().all.begin(), registry().all.end(), this));
    }
  };
  struct Registry {
    std::mutex mutex;
    std::vector<const Entry*> open, all;
  };
  static Registry& registry() {
    static Registry all;
    return all;
  }

  static Addresses addresses(const std::vector<at::Tensor>& tensors) {
    Addresses result;
    for (const at::Tensor& tensor : tensors) result.push_back(tensor.unsafeGetTensorImpl());
    std::sort(result.begin(), result.end());
    return result;
  }

  static bool overlap(const Addresses& a, const Addresses& b) {
    for (auto left = a.begin(), right = b.begin(); left != a.end() && right != b.end();) {
      if (*left == *right) return true;
      *left < *right ? ++left : ++right;
    }
    return false;
  }

  static bool on_this_thread(const Entry& entry) { return entry.thread == std::this_thread::get_id(); }

  /// Returns the open window that conflicts with this one; null if none. On one thread windows may alternate
  /// if they train different parameters: flags are restored after each micro-batch. The caller holds the
  /// lock.
  const Entry* find_conflict() const {
    for (const Entry* other : registry().open)
      if (other != entry_.get() && (on_this_thread(*other) ? overlap(other->trained, entry_->trained)
                                                           : overlap(other->touched, entry_->touched)))
        return other;
    return nullptr;
  }

  void require_alone_locked() const {
    if (const Entry* other = find_conflict())
      throw UsageError(message("another Trainer has a window open on the same parameters, begun on ",
                               on_this_thread(*other)
                                   ? "this thread: call its finish_window() first"
                                   : "another thread: Trainers of one model must take turns"));
  }

  std::unique_ptr<Entry> entry_ = std::make_unique<Entry>();  // stays where it is when the Trainer moves
};

}  // namespace looptorch::detail
