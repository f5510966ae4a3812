// SPDX-License-Identifier: MIT
// Lists every reason why CaptureGraphs runs a micro-batch, or the end of a window, eagerly. docs/errors.md
// says what to do about each reason; tests/docs/graph_reasons.sh compares this list with the page's.
#pragma once

namespace looptorch::detail::graph_reasons {

using Reason = const char*;

// ---- The fit ----

inline constexpr Reason kNoGraphs = "this device has no graphs";
inline constexpr Reason kSeveralRanks = "gradients are summed over several ranks";
inline constexpr Reason kClosure = "the optimizer evaluates the loss again";
inline constexpr Reason kInBackward = "parameters are updated during backward";
inline constexpr Reason kSeveralDevices = "the model lies on several devices";
inline constexpr Reason kMaxGraphs = "there are as many graphs as max_graphs allows";

// ---- The batch ----

inline constexpr Reason kSparseBatch = "the batch holds a sparse tensor";
inline constexpr Reason kBatchGradient = "a tensor of the batch requires a gradient";
inline constexpr Reason kOpaqueBatch = "the batch's type has each_tensor, and its objective no weight(batch)";
inline constexpr Reason kPieces = "memory ran out, and micro-batches come in pieces";

// ---- The loss and its gradients ----

inline constexpr Reason kWeightsOnDevice = "the losses' weights lie on the device";
inline constexpr Reason kOtherWeight = "the objective's weight(batch) is another weight than its loss has";
inline constexpr Reason kNoWeight = "the batch weighs nothing";
inline constexpr Reason kHostRandom = "the objective or the model draws random numbers on the host";
inline constexpr Reason kSparseGradients = "gradients are sparse";
inline constexpr Reason kOtherParameters = "backward reached other parameters than before";

/// Followed by the first line of the error.
inline constexpr Reason kFailedCapture = "it cannot be captured: ";

// ---- The end of a window ----

inline constexpr Reason kOtherOptimizer = "the optimizer is none of looptorch's, or evaluates the loss again";
inline constexpr Reason kVetoed = "the update is vetoed";
inline constexpr Reason kLossesOnHost = "losses lie on the host";
inline constexpr Reason kNoMoments = "the optimizer has no moments yet";
inline constexpr Reason kEndsDiffer = "the windows' gradients differ";

/// Between "before_update of ", the policy, and the end of the sentence.
inline constexpr Reason kReadsGradients = " may read gradients";
/// Followed by the first line of the error.
inline constexpr Reason kFailedEndCapture = "they cannot be captured: ";

}  // namespace looptorch::detail::graph_reasons
