// SPDX-License-Identifier: MIT
// Runs a checkpointed block in the forward pass. Autograd builds the block's graph as usual. Instead of a
// saved tensor, a node stores where backward will find that tensor: among the block's arguments, in memory if
// it is not recomputed, or among the results of the second run.
#pragma once

#include <looptorch/base/tensors/visit_held.hpp>
#include <looptorch/memory/recompute/recomputation.hpp>

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch::detail {

/// The sources from which backward gets a saved tensor.
struct BlockInput {  // an argument of the block
  std::size_t index = 0;
};
struct BlockInputView {  // a view into an argument, from element `offset` on
  std::size_t index;
  Geometry view;
  std::int64_t offset;
};
struct HeldTensor {  // held as it is
  SavedTensor saved;
};
struct RecomputedTensor {  // recorded when the block runs again
  std::shared_ptr<SavedTensorHolder> holder;
};
struct RecomputedView {  // a view into a recorded tensor, from element `offset` on
  std::shared_ptr<SavedTensorHolder> holder;
  Geometry view;
  std::int64_t offset;
};
using Source = std::variant<BlockInput, BlockInputView, HeldTensor, RecomputedTensor, RecomputedView>;

/// Gives a node of the first graph its saved tensor.
template <class Keeper>
class SourceHooks final : public SavedVariableHooks {
 public:
  SourceHooks(Keeper& keeper, std::shared_ptr<Recomputation> block)
      : keeper_(&keeper), block_(std::move(block)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    source_ = std::exchange(keeper_, nullptr)->source_of(tensor);
  }
  at::Tensor call_unpack_hook() override {
    block_->rerun_before_gradients();
    return visit_held([this](const auto& source) { return this->get(source); }, source_);
  }

 private:
  at::Tensor get(const HeldTensor& held) const { return held.saved.unchanged(block_->name()); }
  at::Tensor get(const BlockInput& input) const { return block_->input(input.index); }
  at::Tensor get(const RecomputedTensor& of) const { return block_->recomputed(*of.holder); }
  at::Tensor get(const BlockInputView& of) const { return view_of(block_->input(of.index), of); }
  at::Tensor get(const RecomputedView& of) const { return view_of(block_->recomputed(*of.holder), of); }
  template <class View>
  static at::Tensor view_of(const at::Tensor& base, const View& of) {
    return base.as_strided(of.view.sizes, of.view.strides, base.storage_offset() + of.offset);
  }

  Keeper* keeper_;
  std::shared_ptr<Recomputation> block_;
  Source source_;
};

/// Runs the block again before a node that made one of its results computes a gradient. That node may have
/// saved nothing, as the node of an added bias.
class RerunHook final : public torch::autograd::FunctionPreHook {
 public:
  using Tensors = torch::autograd::variable_list;

  explicit RerunHook(Recomputation& block) : block_(block.weak_from_this()) {}
  Tensors operator()(const Tensors& gradients) override {
    if (const auto block = block_.lock()) block->rerun_before_gradients();
    return gradients;
  }

 private:
  std::weak_ptr<Recomputation> block_;
};

/// The keeper of a block's first run, made by `call_recomputed`. Exists only while the block runs: what
/// backward needs later lies in the Recomputation and in the nodes' hooks.
class FirstRun final : public BlockKeeper {
 public:
  /// Holds `inputs` while the block runs, so that each is identified by its address.
  FirstRun(Recomputation& block, const std::vector<at::Tensor>& inputs) : block_(block) {
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input, input._version());
  }

  /// Returns null in a pass of backward that the block itself runs: LibTorch then saves tensors as usual. On
  /// a GPU that pass belongs to another thread.
  std::unique_ptr<SavedVariableHooks> hooks() override {
    if (torch::autograd::get_current_graph_task_id() != pass_) return nullptr;
    return std::make_unique<SourceHooks<FirstRun>>(*this, block_.shared_from_this());
  }
  Recomputation& block() override { return block_; }
  std::optional<std::size_t> index_of(const at::Tensor& tensor) const override {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].first.is_same(tensor)) return i;
    return std::nullopt;
  }

  Source source_of(const at::Tensor& tensor) {
    if (const auto input = index_of(tensor); input || is_trained_leaf(tensor) || block_.keeps(tensor)) {
      block_.add_holder({});
      return input ? Source(BlockInput{*input}) : Source(HeldTensor{SavedTensor(tensor)});
    }
    auto holder = std::make_shared<SavedTensorHolder>(tensor, block_.ambient().random().positions_now());
    holder->requested_once = !saving_block_inputs;
    block_.add_holder(holder);
    return RecomputedTensor{std::move(holder)};
  }

  /// Lets the node that made one of the block's results run the block again before its gradients.
  void rerun_before(const at::Tensor& result) const {
    const auto node = result.grad_fn();
    if (node && node->sequence_nr() >= first_node_) node->add_pre_hook(std::make_unique<RerunHook>(block_));
  }

  /// Throws CheckpointError if the block has written to an argument.
  void check_inputs() const {
    for (const auto& [input, version] : inputs_)
      if (input._version() != version)
        throw CheckpointError(message(block_.name(), " writes in place to an argument of shape ",
                                      input.sizes(),
                                      ", so that it cannot be recomputed from it: clone the argument first"));
  }

 private:
  Recomputation& block_;
  Pass pass_ = torch::autograd::get_current_graph_task_id();
  std::uint64_t first_node_ = at::sequence_number::peek();  ///< Its number, in this thread.
  std::vector<std::pair<at::Tensor, std::int64_t>> inputs_;
};

}  // namespace looptorch::detail
