// SPDX-License-Identifier: MIT
// Lists all hooks and capabilities of policies in tables. A hook is a member function that the loop calls; a
// capability is a `static constexpr bool`, such as `takes_snapshots`. Read this header first: macros generate
// from its rows the code that finds hooks (hooks.hpp), the checks, and the compile-time errors (checks.hpp).
//
// Hooks for authors of policies are documented in docs/writing_a_policy.md. Hooks for the library's own
// policies, and any hook that only one policy needs, are in docs/architecture/policy_protocol.md.
// To add a hook, add its row, call it in the loop, and document it.
#pragma once

/// Calls ROW(name, argument, result) for each hook for authors, in the order in which they run.
///
/// A hook is an optional, public, const member function of exactly this signature. A policy with a nested
/// type `State` takes `State&` as a further last parameter in each of its hooks. The argument `void` means
/// none. The result `Guard` means an object of any type, which lives as long as the scope.
#define LOOPTORCH_DETAIL_AUTHOR_HOOKS(ROW)                                                    \
  /* As a fit begins. */                                                                      \
  ROW(on_fit_begin, FitContext&, void)                                                        \
  /* When all policies have begun, before the first window: Run can evaluate from here on. */ \
  ROW(on_fit_ready, FitContext&, void)                                                        \
  /* As an epoch begins. */                                                                   \
  ROW(on_epoch_begin, EpochContext&, void)                                                    \
  /* Around a phase of a step, for policies that measure time. */                             \
  ROW(phase_scope, const PhaseContext&, Guard)                                                \
  /* Around the forward pass and the loss of one micro-batch. */                              \
  ROW(forward_scope, const ForwardContext&, Guard)                                            \
  /* When a window's gradients are complete, before the optimizer. */                         \
  ROW(before_update, UpdateContext&, void)                                                    \
  /* When the optimizer has moved the parameters. */                                          \
  ROW(after_update, UpdateContext&, void)                                                     \
  /* When a window's updates are done. */                                                     \
  ROW(on_window_end, WindowContext&, void)                                                    \
  /* When an epoch's last window is done. */                                                  \
  ROW(on_epoch_end, EpochContext&, void)                                                      \
  /* As a fit ends, even after an exception. */                                               \
  ROW(on_fit_end, FitContext&, void)                                                          \
  /* Around an evaluation. */                                                                 \
  ROW(evaluation_scope, const EvaluationContext&, Guard)                                      \
  /* Saves and loads the policy's state; always both. */                                      \
  ROW(state_dict, StateDict&, void)                                                           \
  ROW(load_state_dict, const StateDict&, void)                                                \
  /* Adds memory that the policy will hold, in a forecast before the first step. */           \
  ROW(forecast_memory, MemoryForecast&, void)

/// Calls ROW(name, argument, result) for each hook of the protocol.
#define LOOPTORCH_DETAIL_PROTOCOL_HOOKS(ROW)                                                    \
  /* How many micro-batches make a window. */                                                   \
  ROW(micro_batches, void, std::int64_t)                                                        \
  /* The pieces of each micro-batch, if windows can be retried. */                              \
  ROW(pieces, void, std::int64_t)                                                               \
  /* When memory ran out in a window, which then has no gradients, or in an evaluation. */      \
  ROW(on_out_of_memory, OutOfMemoryContext&, void)                                              \
  /* Whether to keep a window's batches and initial state until its updates are made. */        \
  ROW(may_rerun, void, bool)                                                                    \
  /* The loss scale; null if the fit has none. */                                               \
  ROW(loss_scale, const Run&, LossScale*)                                                       \
  /* The graphs that micro-batches run as; null if they run eagerly. */                         \
  ROW(graphs, const Run&, MicroBatchGraphs*)                                                    \
  /* The ranks of a fit, before anything else. */                                               \
  ROW(ranks, const Run&, Ranks*)                                                                \
  /* When these ranks have met. */                                                              \
  ROW(on_ranks, Ranks&, void)                                                                   \
  /* Before a fit loads a snapshot. */                                                          \
  ROW(before_resume, const ResumeContext&, void)                                                \
  /* Instead of on_fit_begin, for a policy that When has switched off. */                       \
  ROW(on_switched_off, FitContext&, void)                                                       \
  /* Around each hook call of a policy without this hook. */                                    \
  ROW(hook_scope, const HookContext&, Guard)                                                    \
  /* Before a backward, if a policy makes the update during backward. */                        \
  ROW(before_backward, BackwardContext&, void)                                                  \
  /* At the end of a window of such an update, before the optimizer's step. */                  \
  ROW(finish_backward, BackwardContext&, void)                                                  \
  /* Instead of before_update, where a graph has replayed what that does on the device. */      \
  ROW(replayed_update, UpdateContext&, void)                                                    \
  /* When all ranks reduce a window, before its updates; only if a policy gives ranks. */       \
  ROW(all_reduce, RankReduction&, void)                                                         \
  /* When a window's losses are complete, before its update. */                                 \
  ROW(on_window_loss, WindowLossContext&, void)                                                 \
  /* Between before_update and the optimizer, if the window is kept. */                         \
  ROW(examine, ExamineContext&, void)                                                           \
  /* Adds the averages that evaluation uses in place of the model's weights, by weight name. */ \
  ROW(averaged_weights, TensorMap&, void)

#define LOOPTORCH_DETAIL_HOOKS(ROW)  \
  LOOPTORCH_DETAIL_AUTHOR_HOOKS(ROW) \
  LOOPTORCH_DETAIL_PROTOCOL_HOOKS(ROW)

/// Calls ROW(name, meaning) for each capability for authors: an optional `static constexpr bool`, false by
/// default.
#define LOOPTORCH_DETAIL_AUTHOR_CAPABILITIES(ROW)                                             \
  ROW(repeatable, "may be listed several times")                                              \
  ROW(async_after_update, "its after_update may run as late as right before the next update") \
  ROW(changes_gradients, "scales or clips gradients, which an optimizer's closure undoes")    \
  ROW(takes_snapshots, "may call Run::snapshot(), and makes FitOptions::resume possible")     \
  ROW(leader_only, "writes or measures: on rank 0 only, and not in the dry steps of a preflight")

/// Calls ROW(name, meaning) for each capability of the protocol, and for those that only matter on several
/// ranks.
#define LOOPTORCH_DETAIL_PROTOCOL_CAPABILITIES(ROW)                                            \
  ROW(updates_in_backward, "updates each parameter during backward, and frees its gradient")   \
  ROW(veto_is_rank_invariant, "vetoes an update on all ranks or on none, without an exchange") \
  ROW(ignores_gradients, "has a before_update that neither reads nor changes gradients")       \
  ROW(shard_aware, "knows that gradients may be those of a rank's part of the parameters")     \
  ROW(reads_memory, "may call Run::held_memory()")                                             \
  ROW(makes_loader, "has make(dataset), by which fit makes its range of batches of a dataset")

#define LOOPTORCH_DETAIL_CAPABILITIES(ROW)  \
  LOOPTORCH_DETAIL_AUTHOR_CAPABILITIES(ROW) \
  LOOPTORCH_DETAIL_PROTOCOL_CAPABILITIES(ROW)
