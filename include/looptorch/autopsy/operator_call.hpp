// SPDX-License-Identifier: MIT
// The record in a trace of one operator, or of one node of autograd's graph.
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
  std::int64_t index = -1;  // of a batch's tensor
  TensorFacts facts = {};   // before the micro-batch
};

constexpr std::int64_t kNoCall = -1;

/// A tensor that an operator read.
struct ReadTensor {
  TensorFacts facts;
  const KnownTensor* known = nullptr;
  std::vector<std::int64_t> writers = {};  // calls that wrote to its storage, the latest last
  bool is_target = false;                  // the operator writes to it
};

struct OperatorCall {
  std::string name;
  bool is_node = false;                // of the graph, in backward
  bool has_infinite_argument = false;  // as a mask's
  bool is_uninitialised = false;       // its output is memory not yet written
  std::int64_t parent = kNoCall;       // the call that it ran within
  std::int64_t node = kNoCall;         // the node that it ran within
  std::int64_t sequence = -1;          // number of the node that it makes, or is
  std::int64_t micro_batch = 0;
  std::vector<ReadTensor> inputs = {};
  std::vector<TensorFacts> outputs = {};
  CallStack stack = {};                      // of outermost operators
  std::optional<RunningModule> module = {};  // of these, if a program gives it

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
