// SPDX-License-Identifier: MIT
// The seam to what autograd saves. LibTorch asks its engine how a tensor is to be saved for backward; ours
// asks the keeper that is current on this thread, and where there is none answers as LibTorch's does.
// Installed by the first use, so that programs without checkpoints keep LibTorch's engine.
#pragma once

#include <looptorch/base/error.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <utility>

namespace looptorch {

/// A block cannot be recomputed: it behaves differently when it runs again, what it reads has been changed in
/// place, or another autograd engine is at work.
struct CheckpointError : Error {
  using Error::Error;
};

namespace detail {

using torch::autograd::SavedVariableHooks;

/// Decides how tensors that autograd saves are kept.
class SavedTensorKeeper {
 public:
  /// For one saved tensor: its `call_pack_hook` is called at once.
  virtual std::unique_ptr<SavedVariableHooks> hooks() = 0;

 protected:
  ~SavedTensorKeeper() = default;
};

inline thread_local SavedTensorKeeper* current_keeper = nullptr;

/// Makes a keeper the current one of this thread; with nullptr tensors are saved as LibTorch does.
class KeeperScope {
 public:
  explicit KeeperScope(SavedTensorKeeper* keeper) : previous_(std::exchange(current_keeper, keeper)) {}
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
  /// LibTorch starts the threads of devices and of deeply nested passes once a process, for the first engine
  /// that needs them. So that pass is given to LibTorch's own engine, and ours starts its own.
  SavedTensorEngine() {
    get_base_engine().initialize_device_threads_pool();
    start_device_threads();
  }
};

/// Throws CheckpointError where a third engine is installed, as within Python.
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
