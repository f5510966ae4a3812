// SPDX-License-Identifier: MIT
// Saves one expensive result within a checkpointed block, such as attention's, so that the block's
// recomputation skips it (selective recomputation). Costs the memory of the result and of what its backward
// needs, except for its inputs, which are recomputed. Outside of a checkpointed block `keep` is a plain call.
//
//   const auto attend = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
//     return at::scaled_dot_product_attention(q, k, v);
//   };
//   at::Tensor attended = lt::keep(attend, q, k, v);
#pragma once

#include <looptorch/data/batch/batch.hpp>
#include <looptorch/memory/recompute/kept_call.hpp>

#include <functional>
#include <type_traits>
#include <utility>

namespace looptorch {

/// Returns `f(inputs...)`, a tensor or any type that contains tensors. When the block is recomputed, returns
/// the earlier result without a call. Of the tensors that backward needs, the inputs are recomputed; all
/// others that `f` reads or makes stay in memory. Neither inputs nor result may be written to in place
/// afterwards: backward throws CheckpointError or, if all inputs are kept results themselves, LibTorch's
/// c10::Error.
template <class F, class... Inputs>
std::decay_t<std::invoke_result_t<F, Inputs...>> keep(F&& f, Inputs&&... inputs) {
  using Result = std::decay_t<std::invoke_result_t<F, Inputs...>>;
  static_assert(
      BatchLike<Result>,
      "looptorch: keep(f, inputs...) holds on to what f returns: a tensor, or a type that tensors can be "
      "found in. See docs/errors.md#keep");
  const auto call = [&]() -> Result {
    return std::invoke(std::forward<F>(f), std::forward<Inputs>(inputs)...);
  };
  detail::BlockKeeper* const block = detail::BlockKeeper::current();
  if (!block) return call();
  const auto given = detail::tensors_in(std::forward_as_tuple(inputs...));
  if (detail::Recorder* const recorder = block->recorder())
    return recorder->is_ahead() ? call() : detail::kept_result<Result>(*recorder, given);
  return detail::call_kept<Result>(block->block(), given, call);
}

/// Equals `keep` in a block of CheckpointMode::light, and a plain call elsewhere. Use it for matmuls and
/// convolutions: results of the operations between them take as much memory, but little time to recompute.
template <class F, class... Inputs>
std::decay_t<std::invoke_result_t<F, Inputs...>> keep_product(F&& f, Inputs&&... inputs) {
  detail::BlockKeeper* const block = detail::BlockKeeper::current();
  if (block && block->block().keeps_products())
    return keep(std::forward<F>(f), std::forward<Inputs>(inputs)...);
  return std::invoke(std::forward<F>(f), std::forward<Inputs>(inputs)...);
}

}  // namespace looptorch
