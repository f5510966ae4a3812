// SPDX-License-Identifier: MIT
// Lets a block decide how autograd saves its tensors for backward. LibTorch asks its autograd engine for the
// hooks of each saved tensor. looptorch's engine takes them from the thread's current SavedTensorKeeper; if
// there is none, the tensor is saved as usual. This engine is installed at the first use of a checkpoint, so
// other programs keep LibTorch's.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/memory/recompute/saving_block_watch.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <utility>

namespace looptorch {

/// Thrown if a block cannot be recomputed: it behaves differently the second time, something that it reads
/// has been changed in place, or another autograd engine is installed.
struct CheckpointError : Error {
  using Error::Error;
};

namespace detail {

using torch::autograd::SavedVariableHooks;

/// The interface by which a block decides how the tensors that autograd saves are kept.
class SavedTensorKeeper {
 public:
  /// Returns the hooks for one saved tensor, whose `call_pack_hook` is called at once.
  virtual std::unique_ptr<SavedVariableHooks> hooks() = 0;

 protected:
  ~SavedTensorKeeper() = default;
};

inline thread_local SavedTensorKeeper* current_keeper = nullptr;

/// Makes a keeper current on this thread while it lives. With nullptr, LibTorch saves tensors as usual.
class KeeperScope {
 public:
  explicit KeeperScope(SavedTensorKeeper* keeper) : previous_(std::exchange(current_keeper, keeper)) {
    if (keeper) SavingBlockWatch::notify();
  }
  ~KeeperScope() { current_keeper = previous_; }
  KeeperScope(const KeeperScope&) = delete;
  KeeperScope& operator=(const KeeperScope&) = delete;

 private:
  SavedTensorKeeper* previous_;
};

class SavedTensorEngine final : public torch::autograd::Engine {
 public:
  static Engine& instance() {
    static SavedTensorEngine engine;
    return engine;
  }
  ~SavedTensorEngine() override { stop(); }
  SavedTensorEngine(const SavedTensorEngine&) = delete;
  SavedTensorEngine& operator=(const SavedTensorEngine&) = delete;

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current_keeper ? current_keeper->hooks() : nullptr;
  }

 private:
  /// Starts the engine's threads. LibTorch counts the threads of devices and of deeply nested passes once a
  /// process, for the first engine that needs them, so its own engine starts first.
  SavedTensorEngine() {
    get_base_engine().initialize_device_threads_pool();
    start_device_threads();
  }
};

/// Installs the engine. Throws CheckpointError if a third engine is installed, as within Python.
inline void install_saved_tensor_engine() {
  using torch::autograd::Engine;
  const Engine* const current = &Engine::get_default_engine();
  if (current == &SavedTensorEngine::instance()) return;
  if (current != &Engine::get_base_engine())
    throw CheckpointError(
        "another autograd engine than LibTorch's own is installed (Python's, if this is an extension module, or a "
        "second copy of looptorch in a shared library): recomputation needs to be the only one");
  torch::autograd::set_default_engine_stub(&SavedTensorEngine::instance);
}

}  // namespace detail
}  // namespace looptorch
