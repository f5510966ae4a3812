// SPDX-License-Identifier: MIT
// Implements `keep`, which exempts a call within a block from recomputation. The call's results are held in
// the block's first run; in the second, `keep` returns them instead of calling again.
#pragma once

#include <looptorch/memory/recompute/checkpointed_call.hpp>

#include <any>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

template <class Tuple>
[[nodiscard]] std::vector<at::Tensor> tensors_in(const Tuple& arguments) {
  std::vector<at::Tensor> tensors;
  for_each_argument_tensor(arguments, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

/// Saves tensors during a call by `keep`. Records tensors of the inputs when the block is recomputed, unless
/// they are the block's own arguments or kept results, and holds all others.
class KeptCall final : public SavedTensorKeeper {
 public:
  KeptCall(Recomputation& block, const std::vector<at::Tensor>& inputs)
      : block_(block), inputs_(inputs), holders_(inputs.size()) {
    const BlockKeeper* const keeper = BlockKeeper::current();
    for (const at::Tensor& input : inputs) {
      versions_.push_back(input._version());
      block_inputs_.push_back(keeper ? keeper->index_of(input) : std::nullopt);
    }
  }

  std::unique_ptr<SavedVariableHooks> hooks() override {
    if (torch::autograd::get_current_graph_task_id() != pass_) return nullptr;  // as in FirstRun
    return std::make_unique<SourceHooks<KeptCall>>(*this, block_.shared_from_this());
  }

  Source source_of(const at::Tensor& tensor) {
    if (!is_trained_leaf(tensor) && tensor.has_storage() && !block_.keeps(tensor))
      for (std::size_t i = 0; i < inputs_.size(); ++i)
        if (is_view_of(tensor, inputs_[i])) return view_of(i, tensor);
    return HeldTensor{SavedTensor(tensor)};
  }

  /// Throws CheckpointError if the call has written to an input.
  void check_inputs() const {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i]._version() != versions_[i])
        throw CheckpointError(message("what keep calls in ", block_.name(),
                                      " writes in place to an input of shape ", inputs_[i].sizes(),
                                      ": clone it first"));
  }

  /// Adds a holder for each input, in order; null for one that was not saved.
  void add_holders() {
    for (const auto& holder : holders_) block_.add_holder(holder);
  }

 private:
  static bool is_view_of(const at::Tensor& tensor, const at::Tensor& input) {
    return input.has_storage() && !is_trained_leaf(input) && tensor.is_alias_of(input) &&
           tensor.scalar_type() == input.scalar_type() && Geometry(tensor).lies_within(Geometry(input));
  }

  Source view_of(std::size_t i, const at::Tensor& tensor) {
    const std::int64_t offset = tensor.storage_offset() - inputs_[i].storage_offset();
    if (block_inputs_[i]) return BlockInputView{*block_inputs_[i], Geometry(tensor), offset};
    if (!holders_[i]) {
      holders_[i] = std::make_shared<SavedTensorHolder>(inputs_[i]);
      holders_[i]->requested_once = false;  // each view requests it
    }
    return RecomputedView{holders_[i], Geometry(tensor), offset};
  }

  Recomputation& block_;
  Pass pass_ = torch::autograd::get_current_graph_task_id();
  const std::vector<at::Tensor>& inputs_;
  std::vector<std::int64_t> versions_;
  std::vector<std::optional<std::size_t>> block_inputs_;
  std::vector<std::shared_ptr<SavedTensorHolder>> holders_;
};

/// Moves the tensors out of a result and holds them.
template <class Result>
[[nodiscard]] KeptResult kept_of(Result result, DeviceGenerators random, std::size_t first_index) {
  KeptResult kept{{}, {}, std::move(random), first_index};
  for_each_tensor(result, [&](at::Tensor& tensor) {
    auto& saved = kept.tensors.emplace_back();
    if (tensor.defined()) saved = {SavedTensor(tensor), tensor.requires_grad()};
    tensor = at::Tensor();
  });
  kept.value = std::move(result);
  return kept;
}

/// True if all inputs are results of earlier calls of `keep`: there is nothing to recompute, so autograd may
/// save them itself.
[[nodiscard]] inline bool are_kept(const Recomputation& block, const std::vector<at::Tensor>& inputs) {
  for (const at::Tensor& input : inputs)
    if (!block.keeps(input)) return false;
  return true;
}

/// Makes the call in the first run and keeps its result.
template <class Result, class Call>
[[nodiscard]] Result call_kept(Recomputation& block, const std::vector<at::Tensor>& inputs, Call&& call) {
  const DeviceGenerators before = block.ambient().random_now();
  KeptCall keeper(block, inputs);
  Result result = [&] {
    const KeeperScope scope(are_kept(block, inputs) ? nullptr : &keeper);
    return call();
  }();
  keeper.check_inputs();
  const std::size_t first_index = block.number_of_saved();
  keeper.add_holders();
  DeviceGenerators after = block.ambient().random_now();
  after.forget_equal(before);
  block.kept.push_back(kept_of(result, std::move(after), first_index));
  return result;
}

/// Returns the kept result during recomputation, without a call.
template <class Result>
[[nodiscard]] Result kept_result(Recorder& recorder, const std::vector<at::Tensor>& inputs) {
  const Recomputation& block = recorder.block();
  const KeptResult& kept = recorder.next_kept();
  const auto* const value = std::any_cast<Result>(&kept.value);
  if (!value) recorder.throw_other_keep();
  for (const at::Tensor& input : inputs) recorder.record(input);
  kept.random.apply();
  Result result = *value;
  auto next = kept.tensors.begin();
  for_each_tensor(result, [&](at::Tensor& tensor) {
    if (const auto& of = *next++) {
      tensor = without_history(of->saved.unchanged(block.name()));
      tensor.requires_grad_(of->requires_grad);
    }
  });
  return result;
}

}  // namespace looptorch::detail
