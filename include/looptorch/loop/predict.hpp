// SPDX-License-Identifier: MIT
// Runs a trained model over batches and returns its outputs on the host. Needs no Trainer, so it also suits a
// model loaded from a file. Costs a forward pass per batch, and on an accelerator a wait for each output.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/loop/evaluation.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <ranges>
#include <type_traits>
#include <vector>

namespace looptorch {
namespace detail {

/// Checks what `predict` is given.
template <class Model, class Batches, class Forward>
struct CheckPredict {
  static constexpr bool is_called = std::is_invocable_v<Forward&, Model&, const range_batch_t<Batches>&>;
  static_assert(
      is_called,
      "looptorch: predict calls its callable as (Model&, const Batch&), where Model is the holder and "
      "Batch what the range yields. See docs/errors.md#predict");
};

/// Returns an output with its tensors on the host. Clones tensors that share memory with the batch, which
/// the range may refill.
template <BatchLike Output, BatchLike Batch>
[[nodiscard]] Output on_host(Output output, const Batch& batch) {
  for_each_tensor(output, [&](at::Tensor& tensor) {
    if (!tensor.defined()) return;
    tensor = tensor.detach().cpu();
    bool is_of_batch = false;
    for_each_tensor(batch, [&](const at::Tensor& given) {
      is_of_batch |=
          given.defined() && given.has_storage() && tensor.has_storage() && given.is_alias_of(tensor);
    });
    if (is_of_batch) tensor = tensor.clone();
  });
  return output;
}

}  // namespace detail

/// Returns what `forward(model, batch)` returns for each batch, in order: tensors, or an aggregate of them,
/// on the host. Runs without gradients and in eval mode; restores each module's own mode, even after an
/// exception. Batches are moved to the device of the model's first parameter. A loader begins with its first
/// epoch's order: without a shuffling sampler, that is the order of the samples.
///
///   const auto scores = torch::cat(predict(net, clips, [](Net& net, const Batch& b) { return net(b.mel);
///   }));
///
/// LibTorch's errors name the batch.
template <class Model, std::ranges::input_range Batches, class Forward>
[[nodiscard]] auto predict(Model& model, Batches&& batches, Forward&& forward) {
  using Range = std::remove_reference_t<Batches>;
  if constexpr (detail::CheckPredict<Model, Range, std::remove_reference_t<Forward>>::is_called) {
    using Batch = detail::range_batch_t<Range>;
    using Output = std::remove_cvref_t<std::invoke_result_t<Forward&, Model&, const Batch&>>;
    const at::NoGradGuard no_gradients;
    const EvalScope eval(*model);
    const auto parameters = model->parameters();
    std::vector<Output> outputs;
    const auto add = [&](const Batch& batch) {
      outputs.push_back(detail::on_host<Output>(forward(model, batch), batch));
    };
    const detail::FirstEpochScope<Range> first(batches);
    for (auto&& batch : batches)
      detail::with_context(
          [&] {
            if (parameters.empty()) return add(batch);
            detail::with_batch_on(parameters.front().device(), detail::kPinnedSource<Range>, batch, add);
          },
          [&] { return message("in batch ", outputs.size(), " of a prediction"); });
    return outputs;
  } else {
    return std::vector<at::Tensor>();
  }
}

}  // namespace looptorch
