// SPDX-License-Identifier: MIT
// Checkpoints any callable, here called a block: saves only its inputs, and runs it again when backward needs
// its activations. Costs one more forward of the block: 9 to 36 % of a step if all layers recompute
// (docs/memory.md). Gradients, outputs and random numbers equal the plain run's, bit for bit. For a model's
// layers use policies/checkpointed.hpp. To store expensive results within a block, use `keep` (keep.hpp).
#pragma once

#include <looptorch/memory/recompute/checkpointed_call.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace looptorch {

/// Calls `f(arguments...)` and saves only the arguments; backward calls `f` again. `f`, a callable or a
/// module holder, is copied: what it captures by reference must live until backward. `f` must do the same
/// both times, and not write to its arguments or parameters. The default random generators and autocast are
/// restored automatically; for a module holder also its modes, its buffers and which parameters are trained.
/// Buffers that a function writes to, as a BatchNorm's that it calls, must be listed in the options.
///
/// A default generator is shared by all threads. If another thread draws from it while a block runs, backward
/// throws, since the numbers cannot be told apart. Use a separate generator in that thread. For a block that
/// draws nothing, set `random_state = false`. Threads may share a module without buffers; on a CPU also one
/// that only reads its buffers.
///
/// Throws CheckpointError if `f` writes to an argument or parameter. Backward throws it if `f` behaves
/// differently when recomputed, or if something that `f` reads has changed since. To end the second run
/// early, an exception that is no std::exception is thrown through `f`, unless `f` is noexcept. If `f` only
/// calls noexcept functions, set `early_stop = false`. Without gradients this is a plain call.
template <class F, class... Arguments>
requires(!std::same_as<std::remove_cvref_t<F>, CheckpointOptions>) decltype(auto)
    checkpoint(F&& f, Arguments&&... arguments) {
  return detail::call_checkpointed(CheckpointOptions{}, detail::callee_of(f), std::forward<F>(f),
                                   std::forward<Arguments>(arguments)...);
}
template <class F, class... Arguments>
decltype(auto) checkpoint(const CheckpointOptions& options, F&& f, Arguments&&... arguments) {
  return detail::call_checkpointed(options, detail::callee_of(f), std::forward<F>(f),
                                   std::forward<Arguments>(arguments)...);
}

/// Passes `x` through `layers`, a range of module holders, and recomputes the first of every K. K = 1
/// recomputes all; K = 2 saves half as much memory for half of the cost.
template <std::size_t K, class Layers, class X>
X checkpoint_every(Layers&& layers, X x, const CheckpointOptions& options = {}) {
  static_assert(K > 0,
                "looptorch: checkpoint_every<K> recomputes one layer of every K: K must be at least 1");
  std::size_t number = 0;
  for (auto&& layer : layers)
    x = number++ % K == 0 ? checkpoint(options, layer, std::move(x)) : layer(std::move(x));
  return x;
}

}  // namespace looptorch
