// SPDX-License-Identifier: MIT
// Describes where the first NaN or infinity of a window came from. OperatorWatch makes a Finding after a
// rerun with every operator traced.
#pragma once

#include <looptorch/autopsy/tensor_facts.hpp>
#include <looptorch/base/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace looptorch {

/// The cause of a loss or a gradient that is not finite.
struct Finding {
  enum class Cause {
    none,       ///< All was finite in the rerun.
    operation,  ///< An operator made NaN or infinity from finite numbers.
    parameter,  ///< A parameter or a buffer holds it, by an earlier update or by loaded weights.
    batch,      ///< A tensor of the batch holds it.
    outside,    ///< Code that calls no operators of LibTorch wrote it.
    elsewhere,  ///< Another rank's part of the window holds it; `sentence` is that rank's finding.
    unknown,    ///< The window could not be rerun.
  };
  Cause cause = Cause::none;

  // ---- The operator that made the value, or the first that read what another cause made ----
  std::string op = {};          ///< "aten::log"; the first that read the value if none made it.
  std::string within = {};      ///< The outermost operator that called it; empty if none did.
  bool backward = false;        ///< True if it ran in backward.
  std::string node = {};        ///< Backward: the node of the graph, "LogBackward0".
  std::string forward_op = {};  ///< Backward: the operator whose backward that node is; empty if unknown.
  std::string parameter = {};   ///< Path of the parameter that it read, or that holds the NaN.

  // ---- Where in the model it is, if it read no parameter ----
  std::string after_parameter = {};   ///< Path of the last parameter on the way to its inputs.
  std::string before_parameter = {};  ///< Path of the first parameter that is used with its result.
  bool before_loss = false;           ///< True if no parameter is used with its result before the loss.
  /// The type whose forward called it, "torch::nn::SoftmaxImpl"; Python's class for an exported program.
  /// Empty if not known.
  std::string module_type = {};
  /// Paths of the model's modules of that type that fit the place; if the type is not known, of modules
  /// without parameters that may fit.
  std::vector<std::string> modules = {};

  // ---- Where in the window ----
  std::int64_t micro_batch = 0;            ///< Number of the micro-batch in the window, from 0.
  std::vector<std::int64_t> rows = {};     ///< Samples in the micro-batch; empty if not known, or all.
  std::vector<std::int64_t> samples = {};  ///< Indices of these samples in the dataset, if known.

  // ---- Evidence ----
  std::vector<TensorFacts> inputs = {};     ///< Inputs of the operator.
  TensorFacts output = {};                  ///< Output of the operator, or the tensor that holds the NaN.
  std::int64_t batch_tensor = -1;           ///< Cause::batch: its number among the batch's tensors.
  std::vector<std::string> gradients = {};  ///< Parameters whose gradients are not finite.

  // ---- The rerun ----
  std::vector<double> losses = {};  ///< Losses of the rerun micro-batches.
  std::uint64_t gradient_bits = 0;  ///< A hash of all gradients after the last micro-batch.
  std::string why_unknown = {};     ///< Cause::unknown: the error of the rerun.
  std::int64_t ranks = 1;           ///< Number of ranks that reran their parts of the window.
  std::int64_t rank = -1;           ///< The rank at fault; -1 if there is none, and on one process.
  std::string sentence = {};        ///< Cause::elsewhere: another rank's finding as text, with its number.

  [[nodiscard]] bool is_found() const { return cause != Cause::none && cause != Cause::unknown; }

  /// Returns the finding as sentences.
  [[nodiscard]] std::string text() const {
    switch (cause) {
      case Cause::none:
        return message(
            "Rerun, all operators of the window gave finite numbers",
            ranks > 1 ? message(" on all ", ranks, " ranks") : "",
            ": look for gradients too large to be summed or squared, for a kernel that is not deterministic, for "
            "state that the objective keeps, and for hooks that change gradients.");
      case Cause::elsewhere:
        return sentence;
      case Cause::unknown:
        return "The window could not be rerun: " + why_unknown;
      case Cause::parameter:
        return message("'", parameter, "' itself holds it (", output.text(),
                       "): an earlier update or what loaded the weights did it, not this micro-batch.");
      case Cause::batch:
        return message("Tensor ", batch_tensor, " of ", place(), " holds it (", output.text(), "). ",
                       first_op());
      case Cause::outside:
        return message("Code outside of LibTorch's operators wrote it", node.empty() ? "" : " in " + node,
                       ", in ", direction(), " of ", place(), "; the first operator to read it was ", op, ".",
                       inputs_text());
      case Cause::operation:
        break;
    }
    return message(op, called(), " gave ", output.text(), " in ", direction(), " of ", place(), worked_on(),
                   ".", inputs_text(), gradient_text());
  }

 private:
  [[nodiscard]] std::string direction() const { return backward ? "backward" : "forward"; }
  [[nodiscard]] std::string called() const {
    if (!node.empty()) return message(" (", node, forward_op.empty() ? "" : ", of " + forward_op, ")");
    return within.empty() ? "" : message(" (called by ", within, ")");
  }
  [[nodiscard]] std::string first_op() const {
    return op.empty() ? "" : message("The first operator to read it was ", op, ".");
  }
  [[nodiscard]] std::string place() const {
    std::string text = message("micro-batch ", micro_batch);
    if (!rows.empty()) text += ", sample " + listed(rows);
    if (!samples.empty()) text += " (" + listed(samples) + " in the dataset)";
    return text;
  }
  [[nodiscard]] std::string worked_on() const {
    if (!parameter.empty()) return message(", on '", parameter, "'");
    return neighbours() + module_text();
  }
  /// Returns ", between 'a.weight' and 'b.weight'", as far as the neighbours are known.
  [[nodiscard]] std::string neighbours() const {
    std::string next;
    if (!before_parameter.empty())
      next = message("'", before_parameter, "'");
    else if (before_loss)
      next = "the loss";
    if (after_parameter.empty()) return next.empty() ? "" : ", before " + next;
    if (next.empty()) return message(", after '", after_parameter, "'");
    return message(", between '", after_parameter, "' and ", next);
  }
  [[nodiscard]] std::string module_text() const {
    std::string paths;
    for (std::size_t i = 0; i < std::min<std::size_t>(modules.size(), 4); ++i)
      paths += message(i ? ", '" : "'", modules[i], "'");
    if (modules.size() > 4) paths += ", ...";
    if (module_type.empty())
      return paths.empty() ? "" : message(", perhaps in ", modules.size() > 1 ? "one of " : "", paths);
    if (modules.size() == 1) return message(", in ", paths, " (", module_type, ")");
    return message(", in ", module_type, paths.empty() ? "" : message(", one of ", paths));
  }
  [[nodiscard]] std::string inputs_text() const {
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(inputs.size(), 4); ++i)
      text += (i ? "; " : " Its inputs: ") + inputs[i].text();
    return text.empty() ? text : text + ".";
  }
  [[nodiscard]] std::string gradient_text() const {
    if (gradients.empty()) return {};
    return message(" Not finite: the gradient", gradients.size() > 1 ? "s" : "", " of '", gradients.front(),
                   "'", gradients.size() > 1 ? message(" and ", gradients.size() - 1, " more") : "", ".");
  }
  static std::string listed(const std::vector<std::int64_t>& numbers) {
    constexpr std::size_t kShown = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(numbers.size(), kShown); ++i)
      text += (i ? ", " : "") + std::to_string(numbers[i]);
    return numbers.size() > kShown ? text + ", ..." : text;
  }
};

}  // namespace looptorch
