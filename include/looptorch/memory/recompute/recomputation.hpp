// SPDX-License-Identifier: MIT
// One run of a checkpointed block. Instead of the tensors that autograd saved, their places are kept; the
// first that backward asks for runs the block again (recorder.hpp) and records them all, up to the last that
// is still needed. The graph of the first run (first_run.hpp) is the one that is differentiated, so that
// whatever the block returns needs no wrapping.
#pragma once

#include <looptorch/memory/recompute/ambient_state.hpp>
#include <looptorch/memory/recompute/saved_slot.hpp>
#include <looptorch/memory/recompute/saved_tensors.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <any>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

class Recomputation;
class Recorder;

/// What `keep` holds on to of one call.
struct KeptResult {
  struct Tensor {
    SavedAs saved;
    bool requires_grad;
  };
  std::any value;                              ///< The result, without its tensors.
  std::vector<std::optional<Tensor>> tensors;  ///< In its order; none for undefined ones.
  RandomState random;                          ///< Of the generators that the call used, after it.
  std::size_t place = 0;                       ///< Of its first input.
};

inline thread_local bool saving_block_inputs = false;

/// While it lives tensors are saved for a block, which asks for them more than once a pass.
class BlockInputsScope {
 public:
  BlockInputsScope() : previous_(std::exchange(saving_block_inputs, true)) {}
  ~BlockInputsScope() { saving_block_inputs = previous_; }
  BlockInputsScope(const BlockInputsScope&) = delete;
  BlockInputsScope& operator=(const BlockInputsScope&) = delete;

 private:
  bool previous_;
};

[[nodiscard]] inline bool is_trained_leaf(const at::Tensor& tensor) {
  return tensor.is_leaf() && tensor.requires_grad();
}

/// Holds what a block is given without its history, which autograd adds. Held as it is, a tensor that is
/// changed in place later, by what the block returned, would hold the block that holds it.
class InputHooks final : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { saved_ = tensor.detach(); }
  at::Tensor call_unpack_hook() override { return saved_; }

 private:
  at::Tensor saved_;
};

/// Lives as long as a pass of backward, whether it ends well or not, in which a block has run again.
class PassEnd {
 public:
  PassEnd(std::weak_ptr<Recomputation> block, Pass pass) : block_(std::move(block)), pass_(pass) {}
  ~PassEnd();
  PassEnd(const PassEnd&) = delete;
  PassEnd& operator=(const PassEnd&) = delete;

 private:
  std::weak_ptr<Recomputation> block_;
  Pass pass_;
};

class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  using Tensors = std::vector<at::Tensor>;

  Recomputation(BlockName name, bool early_stop, AmbientState ambient)
      : name_(std::move(name)), early_stop_(early_stop), ambient_(std::move(ambient)) {}
  virtual ~Recomputation() = default;
  Recomputation(const Recomputation&) = delete;
  Recomputation& operator=(const Recomputation&) = delete;

  [[nodiscard]] std::string_view name() const { return name_.view(); }
  [[nodiscard]] AmbientState& ambient() { return ambient_; }

  /// Call when the first run is over. Throws CheckpointError if it has written to a parameter.
  void settle() {
    ambient_.settle(name());
    has_run_ = true;
  }

  /// The tensors that the block is given. They are saved as any other: within another block its keeper may
  /// drop and recompute them.
  void save_inputs(const Tensors& inputs) {
    const BlockInputsScope asked_often;
    inputs_.reserve(inputs.size());
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input);
  }
  /// Throws CheckpointError if it was changed in place since.
  [[nodiscard]] at::Tensor input(std::size_t index) const {
    const Input& input = inputs_[index];
    if (!input.version.is_current())
      throw CheckpointError(message("an argument of ", name(), " that backward needs", input.version.text()));
    return input.saved.unpack();
  }

  /// The next place of the first run; null where nothing is recomputed.
  void add_place(const std::shared_ptr<SavedSlot>& slot) { places_.emplace_back(slot); }

  [[nodiscard]] std::size_t number_of_places() const { return places_.size(); }

  /// The tensor of a place, recorded by running the block again if it is the first of this pass. Throws
  /// CheckpointError, and what the block throws.
  [[nodiscard]] at::Tensor recorded(SavedSlot& slot) {
    const Pass pass = torch::autograd::get_current_graph_task_id();
    const std::lock_guard lock(mutex_);
    if (!slot.find(pass)) run_again(pass);
    at::Tensor tensor = slot.find(pass)->unchanged(name());
    if (slot.asked_once) slot.forget(pass);  // its node lives until its gradients have been checked
    return tensor;
  }

  std::vector<KeptResult> kept;

 protected:
  /// Calls the block on `inputs` and drops what it returns.
  virtual void call_again(Tensors inputs) = 0;

 private:
  friend class Recorder;
  friend class PassEnd;

  struct Input {
    explicit Input(const at::Tensor& tensor) : saved(tensor, /*is_output=*/false), version(tensor) {
      if (!saved.has_hooks() && !is_trained_leaf(tensor))
        saved.register_hooks(std::make_unique<InputHooks>());
    }
    torch::autograd::SavedVariable saved;
    SavedVersion version;
  };

  void run_again(Pass pass);

  void forget(Pass pass) {
    const std::lock_guard lock(mutex_);
    for (const auto& place : places_)
      if (const auto slot = place.lock()) slot->forget(pass);
  }

  /// Places that no node of the pass asked for, as when only a part of the graph is differentiated or the
  /// pass fails: then its callbacks are not called, but destroyed.
  void forget_at_end_of(Pass pass) {
    if (pass < 0) return;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [end = std::make_shared<PassEnd>(weak_from_this(), pass)]() mutable { end.reset(); });
  }

  BlockName name_;
  bool early_stop_;
  bool has_run_ = false;
  AmbientState ambient_;
  std::vector<Input> inputs_;
  std::vector<std::weak_ptr<SavedSlot>> places_;  // in the order of saving
  std::recursive_mutex mutex_;
};

inline PassEnd::~PassEnd() {
  if (const auto block = block_.lock()) block->forget(pass_);
}

/// A keeper that `keep` can ask for.
class BlockKeeper : public SavedTensorKeeper {
 public:
  [[nodiscard]] virtual Recomputation& block() = 0;
  /// The recorder of a block that runs again; null in its first run.
  [[nodiscard]] virtual Recorder* recorder() { return nullptr; }

  /// The keeper of the innermost block that runs on this thread; null outside of all.
  [[nodiscard]] static BlockKeeper* current() { return dynamic_cast<BlockKeeper*>(current_keeper); }

 protected:
  ~BlockKeeper() = default;
};

}  // namespace looptorch::detail
