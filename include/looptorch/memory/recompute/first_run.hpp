// SPDX-License-Identifier: MIT
// The block runs first: autograd builds its graph, whose nodes hold, for each tensor that they would have
// saved, where backward is to get it from.
#pragma once

#include <looptorch/memory/recompute/recomputation.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch::detail {

/// Where backward gets a saved tensor from.
struct OfInput {  // it is what the block was given
  std::size_t index = 0;
};
struct Held {  // it was kept
  SavedAs saved;
};
struct OfSlot {  // it is recorded when the block runs again
  std::shared_ptr<SavedSlot> slot;
};
struct ViewOfSlot {  // it is a view of what is recorded, `offset` elements into it
  std::shared_ptr<SavedSlot> slot;
  Geometry view;
  std::int64_t offset;
};
using Source = std::variant<OfInput, Held, OfSlot, ViewOfSlot>;

/// What a node of the first graph holds of one saved tensor.
template <class Keeper>
class SourceHooks final : public SavedVariableHooks {
 public:
  SourceHooks(Keeper& keeper, std::shared_ptr<Recomputation> block)
      : keeper_(&keeper), block_(std::move(block)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    source_ = std::exchange(keeper_, nullptr)->source_of(tensor);
  }
  at::Tensor call_unpack_hook() override {
    return std::visit([this](const auto& source) { return this->get(source); }, source_);
  }

 private:
  at::Tensor get(const Held& held) const { return held.saved.unchanged(block_->name()); }
  at::Tensor get(const OfInput& input) const { return block_->input(input.index); }
  at::Tensor get(const OfSlot& of) const { return block_->recorded(*of.slot); }
  at::Tensor get(const ViewOfSlot& view) const {
    const at::Tensor base = block_->recorded(*view.slot);
    return base.as_strided(view.view.sizes, view.view.strides, base.storage_offset() + view.offset);
  }

  Keeper* keeper_;
  std::shared_ptr<Recomputation> block_;
  Source source_;
};

class FirstRun final : public BlockKeeper {
 public:
  /// Holds on to `inputs` while the block runs, so that each is known by its address.
  FirstRun(Recomputation& block, const std::vector<at::Tensor>& inputs) : block_(block) {
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input, input._version());
  }

  /// Where the block itself runs backward, that pass saves as LibTorch does: on a GPU it is another thread's.
  std::unique_ptr<SavedVariableHooks> hooks() override {
    if (torch::autograd::get_current_graph_task_id() != pass_) return nullptr;
    return std::make_unique<SourceHooks<FirstRun>>(*this, block_.shared_from_this());
  }
  Recomputation& block() override { return block_; }

  Source source_of(const at::Tensor& tensor) {
    if (const auto input = index_of(tensor); input || is_trained_leaf(tensor)) {
      block_.add_place({});
      return input ? Source(OfInput{*input}) : Source(Held{SavedAs(tensor)});
    }
    auto slot = std::make_shared<SavedSlot>(tensor, block_.ambient().random().positions_now());
    slot->asked_once = !saving_block_inputs;
    block_.add_place(slot);
    return OfSlot{std::move(slot)};
  }

  /// Throws CheckpointError if the block has written to what it was given.
  void check_inputs() const {
    for (const auto& [input, version] : inputs_)
      if (input._version() != version)
        throw CheckpointError(message(block_.name(), " writes in place to an argument of shape ",
                                      input.sizes(),
                                      ", so that it cannot be recomputed from it: clone the argument first"));
  }

 private:
  [[nodiscard]] std::optional<std::size_t> index_of(const at::Tensor& tensor) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].first.is_same(tensor)) return i;
    return std::nullopt;
  }

  Recomputation& block_;
  Pass pass_ = torch::autograd::get_current_graph_task_id();
  std::vector<std::pair<at::Tensor, std::int64_t>> inputs_;
};

}  // namespace looptorch::detail
