// SPDX-License-Identifier: MIT
// Represents a program of torch.export as a list of nodes that runs fast. A node calls an operator of
// LibTorch, computes a size, or switches gradients or autocast. Nodes read and write values in numbered
// slots. read_graph.hpp makes a Graph from the file's JSON once, and resolves its operators; run_graph.hpp
// runs the Graph.
#pragma once

#include <looptorch/base/running_module.hpp>
#include <looptorch/exported/graph/size_operations.hpp>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace looptorch::detail::exported {

/// The place of a tensor or a number while the program runs.
using Slot = std::uint32_t;
inline constexpr Slot kNoSlot = static_cast<Slot>(-1);

/// How an argument is made from the values in slots.
enum class ArgumentKind : std::uint8_t {
  constant,
  slot,
  wrapped,  ///< a number in a slot, for an operator that takes a tensor
  ints,     ///< lists: each item is a constant or a slot
  floats,
  bools,
  tensors,
  optional_tensors,
};

/// One argument of a node.
struct GraphArgument {
  ArgumentKind kind = ArgumentKind::constant;
  c10::IValue constant = {};
  Slot slot = kNoSlot;
  bool is_last = false;  ///< no later node reads the slot
  std::vector<GraphArgument> items = {};

  [[nodiscard]] static GraphArgument of(c10::IValue value) {
    return {ArgumentKind::constant, std::move(value)};
  }
  [[nodiscard]] static GraphArgument of_slot(Slot slot) { return {ArgumentKind::slot, {}, slot}; }
};

/// One return of an operator: a value, or a list that is unpacked. kNoSlot for a value that nothing reads.
struct GraphResult {
  std::vector<Slot> slots;
  bool is_list = false;
};

/// Switches gradients or autocast until the matching EndScope.
struct BeginScope {
  std::optional<bool> gradients = {};
  std::optional<bool> autocast = {};
  at::ScalarType autocast_type = at::kFloat;
};
struct EndScope {};

/// One line of the program.
struct GraphNode {
  std::string name;        ///< its name in Python
  std::string target;      ///< such as "torch.ops.aten.linear.default"
  std::size_t module = 0;  ///< index in Graph::modules of the module that it comes from
  std::variant<c10::OperatorHandle, SizeOperation, BeginScope, EndScope> action;
  std::vector<GraphArgument> arguments = {};
  std::vector<GraphResult> results = {};

  [[nodiscard]] const c10::OperatorHandle* op() const { return std::get_if<c10::OperatorHandle>(&action); }
};

struct Graph {
  std::vector<RunningModule> modules{{""}};  ///< modules that nodes come from; the first is the model
  std::vector<GraphNode> nodes;
  std::size_t slots = 0;  ///< their number
};

/// Calls `visit(argument)` for each argument that is a slot, those within lists too.
template <class Arguments, class Visit>
void for_each_slot(Arguments& arguments, const Visit& visit) {
  for (auto& argument : arguments) {
    if (argument.slot != kNoSlot) visit(argument);
    for_each_slot(argument.items, visit);
  }
}

}  // namespace looptorch::detail::exported
