// SPDX-License-Identifier: MIT
// Finds the calls in an exported program (.pt2) that differ between training and eval mode, such as dropout
// and batch norm. If the program was exported in training mode, ModelRunner switches these calls to eval mode
// for an evaluation.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/exported/graph/graph.hpp>
#include <looptorch/exported/graph/signature.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch::detail::exported {

/// How a node differs in eval mode from training.
struct EvalMode {
  bool is_skipped = false;   ///< true for a counter of batches
  std::size_t argument = 0;  ///< index of the argument that differs
  c10::IValue value = {};    ///< the argument in eval mode
};

/// The nodes of a program that behave differently in eval mode, and those that cannot.
struct TrainingModes {
  std::map<std::size_t, EvalMode> in_eval;  ///< by node
  std::vector<std::string> lacks;           ///< in training, such as "dropout of encoder.layers.0.dropout"
  std::vector<std::string> random_in_eval;  ///< such as "bernoulli of drop"
};

/// True for "bn.num_batches_tracked", to which BatchNorm adds 1 in training.
[[nodiscard]] inline bool counts_batches(std::string_view buffer) {
  return buffer == "num_batches_tracked" || buffer.ends_with(".num_batches_tracked");
}

/// True for a call of batch norm that uses the statistics of the batch while it trains.
[[nodiscard]] inline bool uses_batch_statistics(const GraphNode& node) {
  const auto* op = node.op();
  if (!op || op->schema().name().find("batch_norm") == std::string::npos) return false;
  const auto& declared = op->schema().arguments();
  for (std::size_t i = 0; i < declared.size(); ++i)
    if (declared[i].name() == "training" || declared[i].name() == "train")
      return node.arguments[i].constant.isBool() && node.arguments[i].constant.toBool();
  return false;
}

/// Throws UsageError for an input of batch norm with one value in each channel: the running variance would
/// become NaN. PyTorch's functional.batch_norm checks this too, but a program does not contain its check.
inline void require_several_values(const at::Tensor& input, const std::string& module) {
  if (input.dim() < 2 || input.numel() == 0 || input.numel() != input.size(1)) return;
  throw UsageError(message("batch norm", module.empty() ? "" : " of " + module,
                           " needs more than one value in each channel to train, and its input has sizes ",
                           input.sizes(),
                           ": choose a batch size that does not leave one sample for an epoch's last batch"));
}

class ModeFinder {
 public:
  ModeFinder(const Graph& graph, const Signature& signature) : graph_(graph) {
    for (const auto& tensor : signature.tensors)
      if (counts_batches(tensor.name)) counters_.insert(tensor.slot);
  }

  [[nodiscard]] TrainingModes find() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
      if (const auto* op = graph_.nodes[i].op()) look(i, op->schema());
    return std::move(modes_);
  }

 private:
  void look(std::size_t number, const c10::FunctionSchema& schema) {
    const GraphNode& node = graph_.nodes[number];
    const auto& declared = schema.arguments();
    if (schema.name() == "aten::add_" && counters_.contains(node.arguments[0].slot)) {
      modes_.in_eval[number] = {true};
      counters_.insert(node.results[0].slots[0]);  // a second call of the layer adds to this result
    }
    if (schema.overload_name() == "no_stats" || needs_own_statistics(node, declared)) return;
    bool has_mode = false;
    for (std::size_t i = 0; i < declared.size(); ++i) {
      const auto& name = declared[i].name();
      const c10::IValue& value = node.arguments[i].constant;
      const bool is_flag = name == "train" || name == "training" || name == "use_input_stats";
      has_mode = has_mode || is_flag || name == "dropout_p";
      if (is_flag && value.isBool()) {
        if (value.toBool())
          modes_.in_eval[number] = {false, i, false};
        else
          lack(node, schema.name());
      } else if (name == "dropout_p" && value.isDouble() && value.toDouble() > 0) {
        modes_.in_eval[number] = {false, i, 0.0};
      }
    }
    if (!has_mode && node.op()->hasTag(at::Tag::nondeterministic_seeded))
      modes_.random_in_eval.push_back(described(node, schema.name()));
  }

  /// True for a batch norm that tracks no statistics: it uses the batch's in every mode.
  static bool needs_own_statistics(const GraphNode& node, const std::vector<c10::Argument>& declared) {
    for (std::size_t i = 0; i < declared.size(); ++i)
      if (declared[i].name() == "running_mean")
        return node.arguments[i].slot == kNoSlot && node.arguments[i].constant.isNone();
    return false;
  }

  /// Notes an operator that was exported in eval mode, unless it does nothing in training either.
  void lack(const GraphNode& node, const std::string& name) {
    const auto& declared = node.op()->schema().arguments();
    for (std::size_t i = 0; i < declared.size(); ++i)
      if ((declared[i].name() == "p" || declared[i].name() == "dropout") &&
          node.arguments[i].constant.isDouble() && node.arguments[i].constant.toDouble() == 0)
        return;
    modes_.lacks.push_back(described(node, name));
  }

  /// Returns an operator and its module, such as "dropout of encoder.layers.0.dropout".
  [[nodiscard]] std::string described(const GraphNode& node, const std::string& name) const {
    const std::string& module = graph_.modules[node.module].path;
    return name.substr(name.find("::") + 2) + (module.empty() ? "" : " of " + module);
  }

  const Graph& graph_;
  std::set<Slot> counters_;
  TrainingModes modes_;
};

}  // namespace looptorch::detail::exported
