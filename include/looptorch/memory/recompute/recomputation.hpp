// SPDX-License-Identifier: MIT
// Represents one call of a checkpointed block. An empty holder replaces each tensor that autograd would save.
// Before backward computes the block's first gradient, the block runs again (recorder.hpp) and fills all
// holders still in use. Backward goes through the graph of the first run (first_run.hpp), so no autograd node
// of our own wraps the block.
//
// Ownership; -> is a strong reference, ..> a weak one:
//
//   node of the first run's graph -> its hooks (SourceHooks) -> Recomputation -> the block's inputs
//   the same node                 -> its other hooks -> SavedTensorHolder <.. Recomputation
//
// So a node that is released releases its holder, and the last node releases the Recomputation.
//
// Read in this order: checkpointed_call.hpp, first_run.hpp, this header, recorder.hpp, kept_call.hpp.
#pragma once

#include <looptorch/memory/recompute/ambient_state.hpp>
#include <looptorch/memory/recompute/saved_tensor_holder.hpp>
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

/// The result of one call of `keep`.
struct KeptResult {
  struct Tensor {
    SavedTensor saved;
    bool requires_grad;
  };
  std::any value;                              ///< The result, without its tensors.
  std::vector<std::optional<Tensor>> tensors;  ///< In the order of the result; empty for undefined ones.
  DeviceGenerators random;                     ///< The generators that the call used, after it.
  std::size_t first_index = 0;                 ///< The index among the saved tensors of its first input.
};

/// True on a thread that saves a block's inputs.
inline thread_local bool saving_block_inputs = false;

/// Marks the tensors that are saved during its lifetime as inputs of a block. An input is unpacked several
/// times: by each node that saved it, and for the block's second run. So a block around it that recomputes
/// the input keeps it until the pass of backward ends. Any other tensor is unpacked once a pass, and dropped.
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

/// Holds an input without its history, which autograd adds on unpacking. After `x += block(x)` the history of
/// x leads to the block's nodes, so a block that held x with its history would never be released:
///
///   Recomputation -> x -> history of x -> nodes of the first run -> Recomputation
class InputWithoutHistory final : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { saved_ = without_history(tensor); }
  at::Tensor call_unpack_hook() override { return saved_; }

 private:
  at::Tensor saved_;
};

/// Drops a block's recorded tensors when a pass of backward ends, normally or by an exception.
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

/// One call of a block: its inputs, the holders of its saved tensors, and how it runs again.
class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  using Tensors = std::vector<at::Tensor>;

  Recomputation(BlockName name, bool early_stop, bool keeps_products, AmbientState ambient)
      : name_(std::move(name)),
        early_stop_(early_stop),
        keeps_products_(keeps_products),
        ambient_(std::move(ambient)) {}
  virtual ~Recomputation() = default;
  Recomputation(const Recomputation&) = delete;
  Recomputation& operator=(const Recomputation&) = delete;

  [[nodiscard]] std::string_view name() const { return name_.view(); }
  [[nodiscard]] AmbientState& ambient() { return ambient_; }
  /// True if `keep_product` holds on to its results.
  [[nodiscard]] bool keeps_products() const { return keeps_products_; }

  /// Ends the first run. Throws CheckpointError if the block has written to a parameter.
  void finish_first_run() {
    ambient_.finish_first_run(name());
    has_run_ = true;
  }

  /// Saves the block's input tensors as autograd saves any other. If this block runs within another one, the
  /// outer block's keeper thereby sees them, and may drop and recompute them.
  void save_inputs(const Tensors& inputs) {
    const BlockInputsScope requested_often;
    inputs_.reserve(inputs.size());
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input);
  }
  /// Returns an input. Throws CheckpointError if it was changed in place since.
  [[nodiscard]] at::Tensor input(std::size_t index) const {
    const Input& input = inputs_[index];
    if (!input.version.is_current())
      throw CheckpointError(message("an argument of ", name(), " that backward needs", input.version.text()));
    return input.saved.unpack();
  }

  /// Adds the holder of the next tensor that the first run saves; null if that one is not recomputed.
  void add_holder(const std::shared_ptr<SavedTensorHolder>& holder) {
    holders_.emplace_back(holder);
    recomputes_ |= holder != nullptr;
  }

  /// True if a result of `keep` holds the tensor's memory, so that recomputing it would save nothing.
  [[nodiscard]] bool keeps(const at::Tensor& tensor) const {
    for (const KeptResult& result : kept)
      for (const auto& each : result.tensors)
        if (each && each->saved.has_memory_of(tensor)) return true;
    return false;
  }

  [[nodiscard]] std::size_t number_of_saved() const { return holders_.size(); }

  /// Returns the tensor of a holder. Reruns the block if this pass has not recorded it. Throws
  /// CheckpointError, and what the block throws.
  [[nodiscard]] at::Tensor recomputed(SavedTensorHolder& holder) {
    const Pass pass = torch::autograd::get_current_graph_task_id();
    const std::lock_guard lock(mutex_);
    if (!holder.find(pass)) run_again(pass);
    at::Tensor tensor = holder.find(pass)->unchanged(name());
    if (holder.requested_once) holder.forget(pass);  // its node lives until its gradients have been checked
    return tensor;
  }

  /// Reruns the block if backward is going to need what it recomputes, and this pass has not run it. The
  /// nodes of the block's results, and those that saved tensors, call this before they compute a gradient:
  /// UpdateInBackward then updates a parameter, and a later rerun would find the new value.
  void rerun_before_gradients() {
    const Pass pass = torch::autograd::get_current_graph_task_id();
    if (!recomputes_ || !has_run_ || pass < 0) return;
    const std::lock_guard lock(mutex_);
    if (reran_in_ == pass) return;
    for (const auto& holder : holders_)
      if (!holder.expired()) return run_again(pass);
  }

  std::vector<KeptResult> kept;

 protected:
  /// Calls the block on `inputs` and drops the result.
  virtual void call_again(Tensors inputs) = 0;

 private:
  friend class Recorder;
  friend class PassEnd;

  struct Input {
    explicit Input(const at::Tensor& tensor) : saved(tensor, /*is_output=*/false), version(tensor) {
      if (!saved.has_hooks() && !is_trained_leaf(tensor))
        saved.register_hooks(std::make_unique<InputWithoutHistory>());
    }
    torch::autograd::SavedVariable saved;
    SavedVersion version;
  };

  void run_again(Pass pass);

  void forget(Pass pass) {
    const std::lock_guard lock(mutex_);
    if (reran_in_ == pass) reran_in_.reset();
    for (const auto& weak : holders_)
      if (const auto holder = weak.lock()) holder->forget(pass);
  }

  /// Drops recorded tensors at the end of the pass if no node requested them, as when only a part of the
  /// graph is differentiated. If the pass fails, its callbacks are destroyed without a call, so the
  /// destructor does it.
  void forget_at_end_of(Pass pass) {
    if (pass < 0) return;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [end = std::make_shared<PassEnd>(weak_from_this(), pass)]() mutable { end.reset(); });
  }

  BlockName name_;
  bool early_stop_, keeps_products_;
  bool has_run_ = false, recomputes_ = false;
  std::optional<Pass> reran_in_;
  AmbientState ambient_;
  std::vector<Input> inputs_;
  std::vector<std::weak_ptr<SavedTensorHolder>> holders_;  // in the order in which tensors were saved
  std::recursive_mutex mutex_;
};

inline PassEnd::~PassEnd() {
  if (const auto block = block_.lock()) block->forget(pass_);
}

/// A keeper that belongs to a block, which `keep` finds.
class BlockKeeper : public SavedTensorKeeper {
 public:
  [[nodiscard]] virtual Recomputation& block() = 0;
  /// Returns the recorder of a block that runs again; null in its first run.
  [[nodiscard]] virtual Recorder* recorder() { return nullptr; }
  /// Returns the index of an argument of the block in its first run.
  [[nodiscard]] virtual std::optional<std::size_t> index_of(const at::Tensor&) const { return std::nullopt; }

  /// Returns the keeper of the innermost block that runs on this thread; null outside of all.
  [[nodiscard]] static BlockKeeper* current() { return dynamic_cast<BlockKeeper*>(current_keeper); }

 protected:
  ~BlockKeeper() = default;
};

/// True in a block of CheckpointMode::light, in its second run too.
[[nodiscard]] inline bool in_light_block() {
  BlockKeeper* const keeper = BlockKeeper::current();
  return keeper && keeper->block().keeps_products();
}

}  // namespace looptorch::detail
