// SPDX-License-Identifier: MIT
// Selective recomputation: within a checkpointed block `keep` holds on to one expensive result, such as
// attention's, and the block runs again without it. Costs the result's memory (not that of what went into it)
// and saves its time. Outside of a block it is a plain call.
//
//   const auto attend = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
//     return at::scaled_dot_product_attention(q, k, v);
//   };
//   at::Tensor attended = lt::keep(attend, q, k, v);
#pragma once

#include <looptorch/data/batch.hpp>
#include <looptorch/memory/recompute/kept_call.hpp>

#include <functional>
#include <type_traits>
#include <utility>

namespace looptorch {

/// Returns `f(inputs...)`, a tensor or any type in which tensors can be found. When the block runs again,
/// returns the earlier result without a call. Tensors of the inputs that backward needs are recomputed;
/// anything else that `f` reads or makes is held. Neither inputs nor result may be written to in place
/// afterwards: backward throws CheckpointError.
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
  if (detail::Recorder* const recorder = block->recorder()) return detail::replay<Result>(*recorder, given);
  return detail::call_kept<Result>(block->block(), given, call);
}

/// Does what `keep` does in a block of CheckpointMode::light, and calls `f` in any other. For products of
/// matrices and convolutions: what lies between them costs little time to compute again, and as much memory
/// as they.
template <class F, class... Inputs>
std::decay_t<std::invoke_result_t<F, Inputs...>> keep_product(F&& f, Inputs&&... inputs) {
  detail::BlockKeeper* const block = detail::BlockKeeper::current();
  if (block && block->block().keeps_products())
    return keep(std::forward<F>(f), std::forward<Inputs>(inputs)...);
  return std::invoke(std::forward<F>(f), std::forward<Inputs>(inputs)...);
}

}  // namespace looptorch
