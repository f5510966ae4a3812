// SPDX-License-Identifier: MIT
// One run of a checkpointed block. Instead of the tensors that autograd saved, their places are kept; the
// first that backward asks for runs the block again (recorder.hpp) and records them all, up to the last that
// is still needed. The graph of the first run (first_run.hpp) is the one that is differentiated, so that
// whatever the block returns needs no wrapping.
#pragma once

#include <looptorch/memory/detail/ambient_state.hpp>
#include <looptorch/memory/detail/saved_slot.hpp>
#include <looptorch/memory/detail/saved_tensors.hpp>

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

/// The block as errors name it: by the name that it was given, or its type's, which outlives it.
struct BlockName {
  std::string given;
  std::string_view type;
  [[nodiscard]] std::string_view view() const { return given.empty() ? type : std::string_view(given); }
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
  [[nodiscard]] at::Tensor input(std::size_t index) {
    Input& input = inputs_[index];
    if (input.version.current_version() != input.saved_version)
      throw CheckpointError(message("an argument of ", name(),
                                    " that backward needs has been modified by an inplace operation: it is "
                                    "at version ",
                                    input.version.current_version(), ", and was given at version ",
                                    input.saved_version));
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

  /// Without hooks a SavedVariable checks the version itself; within another block it has hooks.
  struct Input {
    explicit Input(const at::Tensor& tensor)
        : saved(tensor, /*is_output=*/false),
          version(torch::autograd::impl::version_counter(tensor)),
          saved_version(version.current_version()) {}
    torch::autograd::SavedVariable saved;
    c10::VariableVersion version;
    std::int64_t saved_version;
  };

  void run_again(Pass pass);

  void forget(Pass pass) {
    const std::lock_guard lock(mutex_);
    for (const auto& place : places_)
      if (const auto slot = place.lock()) slot->forget(pass);
  }

  /// Places that no node of the pass asked for, as when only a part of the graph is differentiated.
  void forget_at_end_of(Pass pass) {
    if (pass < 0) return;
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), pass] {
      if (const auto self = weak.lock()) self->forget(pass);
    });
  }

  BlockName name_;
  bool early_stop_;
  bool has_run_ = false;
  AmbientState ambient_;
  std::vector<Input> inputs_;
  std::vector<std::weak_ptr<SavedSlot>> places_;  // in the order of saving
  std::recursive_mutex mutex_;
};

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
