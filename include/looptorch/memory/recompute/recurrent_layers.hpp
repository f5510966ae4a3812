// SPDX-License-Identifier: MIT
// Lets blocks with recurrent layers be checkpointed on a GPU, where cuDNN computes these layers. Refuses to
// recompute a layer with dropout, since cuDNN draws its masks from a state that cannot be restored. LibTorch
// creates the tensor of this state only in a block's first run, so the tensor is kept in memory, and is no
// part of the comparison of the two runs. Overrides lstm, gru, rnn_tanh and rnn_relu at the dispatcher's key
// AutogradCUDA. Outside of a block, calls go directly to LibTorch's code.
#pragma once

#include <looptorch/memory/recompute/recorder.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cudnn_is_acceptable.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <torch/library.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

namespace looptorch::detail {

/// Passes saved tensors to the enclosing keeper, except cuDNN's dropout state (one tensor a device), which it
/// keeps itself.
class BesideDropoutState final : public SavedTensorKeeper {
 public:
  explicit BesideDropoutState(SavedTensorKeeper& around) : around_(around) {}

  std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(*this); }

 private:
  class Hooks final : public SavedVariableHooks {
   public:
    explicit Hooks(BesideDropoutState& keeper) : keeper_(&keeper) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      BesideDropoutState& keeper = *std::exchange(keeper_, nullptr);
      if (!keeper.is_state(tensor)) around_ = keeper.around_.hooks();
      around_ ? around_->call_pack_hook(tensor) : void(held_ = tensor.detach());
    }
    at::Tensor call_unpack_hook() override { return around_ ? around_->call_unpack_hook() : held_; }

   private:
    BesideDropoutState* keeper_;
    std::unique_ptr<SavedVariableHooks> around_;
    at::Tensor held_;
  };

  /// True if the next saved tensor is the state: a layer saves it first, or after the cells. Its only other
  /// byte tensor, read by backward, comes after its inputs.
  [[nodiscard]] bool is_state(const at::Tensor& tensor) {
    return saved_++ < 2 && tensor.scalar_type() == at::kByte && tensor.dim() == 1;
  }

  SavedTensorKeeper& around_;
  int saved_ = 0;
};

/// A call of a recurrent layer by cuDNN, while it lives.
class RecurrentCall {
 public:
  /// Throws CheckpointError for a layer with dropout in a recomputed block.
  explicit RecurrentCall(bool has_dropout) {
    if (!current_keeper) return;
    BlockKeeper* const block = BlockKeeper::current();
    if (has_dropout && block && block->recorder())
      throw CheckpointError(message(
          block->block().name(),
          " runs a recurrent layer with dropout, whose masks cuDNN draws from a state of its own that "
          "cannot be put back: call it by keep(layer, x), or apply dropout outside of it"));
    beside_state_.emplace(*current_keeper);
    scope_.emplace(&*beside_state_);
  }
  RecurrentCall(const RecurrentCall&) = delete;
  RecurrentCall& operator=(const RecurrentCall&) = delete;

 private:
  std::optional<BesideDropoutState> beside_state_;
  std::optional<KeeperScope> scope_;
};

/// The signatures of recurrent layers: of padded sequences, and of packed ones. H: the hidden state.
template <class Result, class H>
using PaddedLayer = Result(const at::Tensor& input, H, at::TensorList parameters, bool has_biases,
                           std::int64_t layers, double dropout, bool train, bool bidirectional,
                           bool batch_first);
template <class Result, class H>
using PackedLayer = Result(const at::Tensor& data, const at::Tensor& sizes, H, at::TensorList parameters,
                           bool has_biases, std::int64_t layers, double dropout, bool train,
                           bool bidirectional);

/// Calls LibTorch's own code, as a RecurrentCall if that uses cuDNN.
template <class Result, class H, PaddedLayer<Result, H>* libtorch>
Result call_padded(const at::Tensor& input, H hidden, at::TensorList parameters, bool has_biases,
                   std::int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  std::optional<RecurrentCall> call;
  if (at::cudnn_is_acceptable(input)) call.emplace(train && dropout > 0);
  return libtorch(input, hidden, parameters, has_biases, layers, dropout, train, bidirectional, batch_first);
}
template <class Result, class H, PackedLayer<Result, H>* libtorch>
Result call_packed(const at::Tensor& data, const at::Tensor& sizes, H hidden, at::TensorList parameters,
                   bool has_biases, std::int64_t layers, double dropout, bool train, bool bidirectional) {
  std::optional<RecurrentCall> call;
  if (at::cudnn_is_acceptable(data)) call.emplace(train && dropout > 0);
  return libtorch(data, sizes, hidden, parameters, has_biases, layers, dropout, train, bidirectional);
}

/// Overrides recurrent layers at a dispatch key while the returned library lives.
[[nodiscard]] inline torch::Library override_recurrent_layers(c10::DispatchKey key) {
  using Two = std::tuple<at::Tensor, at::Tensor>;
  using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  using One = const at::Tensor&;
  using List = at::TensorList;
  torch::Library library(torch::Library::IMPL, "aten", key, __FILE__, static_cast<std::uint32_t>(__LINE__));
  library.impl("lstm.input", call_padded<Three, List, at::native::lstm>);
  library.impl("lstm.data", call_packed<Three, List, at::native::lstm>);
  library.impl("gru.input", call_padded<Two, One, at::native::gru>);
  library.impl("gru.data", call_packed<Two, One, at::native::gru>);
  library.impl("rnn_tanh.input", call_padded<Two, One, at::native::rnn_tanh>);
  library.impl("rnn_tanh.data", call_packed<Two, One, at::native::rnn_tanh>);
  library.impl("rnn_relu.input", call_padded<Two, One, at::native::rnn_relu>);
  library.impl("rnn_relu.data", call_packed<Two, One, at::native::rnn_relu>);
  return library;
}

/// Overrides recurrent layers on CUDA from the first call to the process's end.
inline void override_recurrent_layers() {
  static const auto* const library =
      new torch::Library(override_recurrent_layers(c10::DispatchKey::AutogradCUDA));
  static_cast<void>(library);
}

}  // namespace looptorch::detail
