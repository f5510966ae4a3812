// SPDX-License-Identifier: MIT
// Defines OperatorCall, a trace's record of one call of an operator or of a node of autograd's graph: what
// the call read and returned, and from where it was made. OperatorLog stores these records.
#pragma once

#include <looptorch/autopsy/call_stack.hpp>
#include <looptorch/autopsy/tensor_facts.hpp>
#include <looptorch/base/running_module.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace looptorch::detail {

/// A tensor that the run knows by name: a parameter, a buffer, or a tensor of the batch.
struct KnownTensor {
  enum class Kind { parameter, buffer, batch } kind = Kind::parameter;
  std::string name = {};
  std::int64_t index = -1;  // the number among the batch's tensors; -1 for others
  TensorFacts facts = {};   // the contents before the micro-batch
};

inline constexpr std::int64_t kNoCall = -1;  // in place of a call's number

/// A tensor that an operator read.
struct ReadTensor {
  TensorFacts facts;
  const KnownTensor* known = nullptr;      // its name; null if it has none
  std::vector<std::int64_t> writers = {};  // calls that wrote to its storage, the latest last
  bool is_target = false;                  // the operator writes to it
};

/// A call of an operator, or of a node of autograd's graph, as the log has it. Its number is its place there.
struct OperatorCall {
  std::string name;
  bool is_node = false;                // a node of autograd's graph, not an operator
  bool has_infinite_argument = false;  // a number that it takes is infinite, as in masked_fill
  bool is_uninitialised = false;       // its output is memory not yet written
  std::int64_t parent = kNoCall;       // the call that it ran within
  std::int64_t node = kNoCall;         // the node that it ran within
  std::int64_t sequence = -1;          // autograd's number of the node that the call makes or is
  std::int64_t micro_batch = 0;
  std::vector<ReadTensor> inputs = {};
  std::vector<TensorFacts> outputs = {};
  CallStack stack = {};                      // the program's; empty for a call within another
  std::optional<RunningModule> module = {};  // the module of an exported program that called it

  /// Returns the first output with NaN, else the first with infinity; null if all are finite.
  [[nodiscard]] const TensorFacts* bad_output() const {
    for (const bool wants_nan : {true, false})
      for (const TensorFacts& output : outputs)
        if (wants_nan ? output.nans > 0 : !output.is_finite()) return &output;
    return nullptr;
  }
  [[nodiscard]] bool gave_nan() const {
    const TensorFacts* bad = bad_output();
    return bad && bad->nans > 0;
  }
};

}  // namespace looptorch::detail
