// SPDX-License-Identifier: MIT
// Runs a checkpointed block again, in backward, and passes the tensors that autograd saves in this second run
// to the nodes of the first run's graph. An exception ends the second run early, after the last tensor that
// is needed.
#pragma once

#include <looptorch/memory/recompute/recomputation.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>

namespace looptorch::detail {

/// Thrown through the block once all needed tensors have been recorded. Not a std::exception, which a block
/// might catch.
struct RecordedAll {};

/// The keeper of a block's second run in one pass of backward, made by `Recomputation::run_again`. Throws
/// CheckpointError if the block saves other tensors than in its first run.
class Recorder final : public BlockKeeper {
 public:
  Recorder(Recomputation& block, Pass pass) : block_(block), pass_(pass) {
    for (last_ = block.holders_.size(); last_ > 0; --last_)
      if (!block.holders_[last_ - 1].expired()) break;
  }

  /// Returns null, as in the first run, in a pass of backward that the block itself runs.
  std::unique_ptr<SavedVariableHooks> hooks() override {
    if (torch::autograd::get_current_graph_task_id() != pass_) return nullptr;
    return std::make_unique<Hooks>(*this);
  }
  Recomputation& block() override { return block_; }
  Recorder* recorder() override { return this; }

  /// Records the next tensor. With `early_stop`, throws RecordedAll after the last that is needed.
  void record(const at::Tensor& tensor) {
    if (kept_ < block_.kept.size() && block_.kept[kept_].first_index <= next_) throw_other_keep();
    const std::size_t index = next_++;
    if (index >= block_.holders_.size()) return;  // `check_count` reports it
    if (const auto holder = block_.holders_[index].lock()) {
      check_same(index, *holder, tensor);
      holder->record(pass_, SavedTensor(tensor));
    }
    if (!block_.early_stop_ || next_ != last_) return;
    has_all_ = true;
    throw RecordedAll{};
  }

  /// True at a call of `keep` that the first run, which is in a pass of backward of its own, has not reached.
  [[nodiscard]] bool is_ahead() const { return !block_.has_run_ && kept_ == block_.kept.size(); }

  /// Returns the result of this call of `keep` in the first run. Throws CheckpointError if the first run made
  /// another call here.
  const KeptResult& next_kept() {
    if (kept_ == block_.kept.size() || block_.kept[kept_].first_index != next_) throw_other_keep();
    return block_.kept[kept_++];
  }
  [[noreturn]] void throw_other_keep() const {
    throw CheckpointError(message(
        block_.name(), " calls keep otherwise when it runs again: a block must do the same both times"));
  }

  /// True once the run has ended, or should have: the block's further actions do not matter.
  [[nodiscard]] bool has_all() const { return has_all_; }

  /// Throws CheckpointError if the block saved another number of tensors than in its first run.
  void check_count() const {
    const std::size_t then = block_.holders_.size();
    if (has_all_ || (!block_.early_stop_ && next_ == then)) return;
    if (!block_.has_run_ && next_ >= last_) return;  // backward within the first run, which is not over
    throw CheckpointError(message(block_.name(), " saved ", then, " tensors when it ran and ", next_,
                                  " when it ran again: a block must do the same both times"));
  }

 private:
  /// Saves tensors of the second run's graph, which is discarded unless the block itself calls backward.
  class Hooks final : public SavedVariableHooks {
   public:
    explicit Hooks(Recorder& recorder) : recorder_(&recorder) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      saved_ = without_history(tensor);
      std::exchange(recorder_, nullptr)->record(tensor);
    }
    at::Tensor call_unpack_hook() override { return saved_; }

   private:
    Recorder* recorder_;
    at::Tensor saved_;
  };

  void check_same(std::size_t index, const SavedTensorHolder& then, const at::Tensor& tensor) const {
    if (const TensorKind now(tensor); !(then.kind == now))
      throw CheckpointError(message("tensor ", index + 1, " that ", block_.name(), " saves was ",
                                    then.kind.text(), " when it ran and is ", now.text(),
                                    " when it runs again: a block must do the same both times"));
    if (then.changed_since(tensor))
      throw CheckpointError(message("tensor ", index + 1, " that ", block_.name(), " saves, of shape ",
                                    tensor.sizes(),
                                    ", has been modified by an inplace operation since the forward pass"));
    if (!block_.ambient_.random().can_be_now(then.random))
      throw CheckpointError(message(
          block_.name(), " had drawn other random numbers up to tensor ", index + 1,
          " that it saves than it has when it runs again: either it does not do the same both times, or another thread "
          "draws from the default generator meanwhile. Give that thread a generator of its own or, if the block draws "
          "nothing, set random_state = false"));
  }

  Recomputation& block_;
  Pass pass_;
  std::size_t last_ = 0;  // the number of places up to the last that is needed
  std::size_t next_ = 0;
  std::size_t kept_ = 0;
  bool has_all_ = false;
};

inline void Recomputation::run_again(Pass pass) {
  try {
    Recorder recorder(*this, pass);
    Tensors inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) inputs.push_back(input(i));
    const AmbientState::Scope as_then(ambient_, name());
    const KeeperScope keeper(&recorder);
    try {
      call_again(std::move(inputs));
    } catch (...) {  // RecordedAll, or another exception if the block catches everything
      if (!recorder.has_all()) throw;
    }
    recorder.check_count();
  } catch (const std::exception&) {
    forget(pass);
    throw;
  } catch (...) {  // LibTorch's engine forwards only std::exception
    forget(pass);
    throw CheckpointError(
        message(name(), " threw something when it ran again that is not derived from std::exception"));
  }
  reran_in_ = pass;
  forget_at_end_of(pass);
}

}  // namespace looptorch::detail
