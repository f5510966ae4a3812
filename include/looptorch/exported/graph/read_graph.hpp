// SPDX-License-Identifier: MIT
// Converts the nodes of a .pt2 from torch.export's JSON to a Graph (graph.hpp). Subgraphs that only switch
// gradients or autocast are inlined. Any other higher-order operator is refused by an error that names it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/running_module.hpp>
#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/exported/graph/graph.hpp>
#include <looptorch/exported/graph/read_arguments.hpp>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail::exported {

/// Returns path and type of a node's innermost module, from its metadata "key,path,type;key,path,type".
[[nodiscard]] inline RunningModule module_of(const Json& node) {
  const Json metadata = node.get("metadata", Json::object());
  const Json stack = metadata.get("nn_module_stack", "");
  std::string_view text = stack.as_string();
  text = text.substr(text.rfind(';') + 1);  // npos + 1 is 0
  const auto begin = text.find(','), end = text.rfind(',');
  if (begin == text.npos || begin == end) return {""};
  const std::string type(text.substr(end + 1));
  text = text.substr(begin + 1, end - begin - 1);
  for (const std::string_view root : {"L['self']", "L__self__"})
    if (text.starts_with(root)) text.remove_prefix(std::min(root.size() + 1, text.size()));
  return {std::string(text.substr(0, text.find('@'))), type};  // a second call of the module is "path@1"
}

/// Collects the nodes of a file's graphs.
class GraphReader {
 public:
  /// `names` has the inputs and weights, which take the first `slots` slots.
  GraphReader(NamedArguments names, std::size_t slots) : names_(std::move(names)) { graph_.slots = slots; }

  /// Reads the nodes of a graph. Throws ExportedModelError that names the node, and JsonError.
  void read(const Json& graph) {
    for (const Json& node : graph.at("nodes").as_array()) read_node(node);
  }

  /// Returns an output of the graph as an argument.
  [[nodiscard]] GraphArgument argument(const Json& json) const { return ArgumentReader(names_).read(json); }

  [[nodiscard]] Graph take() && {
    mark_last_uses();
    return std::move(graph_);
  }

  /// Keeps a slot's value until the end.
  void keep(Slot slot) { kept_.insert(slot); }

 private:
  void read_node(const Json& json) {
    const std::string& target = json.at("target").as_string();
    const std::string name =
        json.contains("name") && json.at("name").is_string() ? json.at("name").as_string() : std::string();
    try {
      add_node(json, target, name);
    } catch (const ExportedModelError& error) {
      if (!error.operator_name.empty()) throw;
      throw ExportedModelError("node \"" + name + "\", " + target + ": " + error.what(), target);
    } catch (const JsonError& error) {
      throw ExportedModelError("node \"" + name + "\", " + target + ": " + error.what(), target);
    } catch (const c10::Error& error) {
      throw ExportedModelError("node \"" + name + "\", " + target + ": " + error.what_without_backtrace(),
                               target);
    }
  }

  void add_node(const Json& json, const std::string& target, const std::string& name) {
    constexpr std::string_view kOperator = "torch.ops.", kHigherOrder = "torch.ops.higher_order.";
    if (target.starts_with(kHigherOrder)) return add_scoped(json, target.substr(kHigherOrder.size()), name);
    if (is_check_of_export(target)) return;
    if (const auto* function = size_function(target)) return add_size(json, *function, target, name);
    if (!target.starts_with(kOperator)) throw ExportedModelError("is not supported");
    add_call(json, find_operator(std::string_view(target).substr(kOperator.size())), target, name);
  }

  /// True for checks of facts of the export, which need not hold under autocast or at other sizes.
  static bool is_check_of_export(std::string_view target) {
    return target == "torch.ops.aten._assert_tensor_metadata.default" ||
           target.starts_with("torch.ops.aten.sym_constrain_range");
  }

  /// Finds an operator by its name in the file, such as "aten.add.Tensor".
  static c10::OperatorHandle find_operator(std::string_view name) {
    const auto space = name.find('.'), overload = name.rfind('.');
    if (space == name.npos || space == overload) throw ExportedModelError("is no name of an operator");
    const std::string op =
        std::string(name.substr(0, space)) + "::" + std::string(name.substr(space + 1, overload - space - 1));
    const std::string of = std::string(name.substr(overload + 1));
    if (op == "aten::from_file") throw ExportedModelError("opens a file, and is refused");
    const auto found = c10::Dispatcher::singleton().findSchema({op, of == "default" ? std::string() : of});
    if (!found)
      throw ExportedModelError(
          "this LibTorch has no such operator. If a library of yours registers it, link "
          "or load that before the model is read");
    return *found;
  }

  // ---- Nodes ----

  GraphNode& push(const std::string& name, const std::string& target, std::size_t module,
                  decltype(GraphNode::action) action) {
    graph_.nodes.push_back({name, target, module, std::move(action)});
    return graph_.nodes.back();
  }

  void add_call(const Json& json, const c10::OperatorHandle& op, const std::string& target,
                const std::string& name) {
    GraphNode node{name, target, module_number(json), op};
    const auto& declared = op.schema().arguments();
    node.arguments.resize(declared.size());
    std::vector<bool> given(declared.size(), false);
    std::size_t position = 0;
    for (const Json& input : json.at("inputs").as_array()) {
      const std::size_t i = position_of(input, declared, position++);
      if (given[i]) throw ExportedModelError("has the argument \"" + declared[i].name() + "\" twice");
      given[i] = true;
      try {
        node.arguments[i] = ArgumentReader(names_).read(input.at("arg"), declared[i]);
      } catch (const ExportedModelError& error) {
        throw ExportedModelError("argument \"" + declared[i].name() + "\" " + error.what());
      }
    }
    for (std::size_t i = 0; i < declared.size(); ++i) {
      if (given[i]) continue;
      if (!declared[i].default_value())
        throw ExportedModelError("lacks the argument \"" + declared[i].name() + '"');
      node.arguments[i] = GraphArgument::of(*declared[i].default_value());
    }
    const auto& returns = op.schema().returns();
    add_results(json, returns.size(), node);
    for (std::size_t i = 0; i < returns.size(); ++i) {
      const GraphResult& result = node.results[i];
      const bool is_unused = !result.is_list && result.slots[0] == kNoSlot;
      const bool is_list = returns[i].type()->kind() == c10::TypeKind::ListType;
      if (!is_unused && result.is_list != is_list)
        throw ExportedModelError(is_list ? "returns a list here, and one value in the file"
                                         : "returns one value here, and a list in the file");
    }
    graph_.nodes.push_back(std::move(node));
  }

  static std::size_t position_of(const Json& input, const std::vector<c10::Argument>& declared,
                                 std::size_t position) {
    const std::string& name = input.at("name").as_string();
    for (std::size_t i = 0; i < declared.size(); ++i)
      if (declared[i].name() == name) return i;
    throw ExportedModelError(message("has an argument \"", name, "\" (its number ", position,
                                     ") that this LibTorch's operator does not take"));
  }

  void add_results(const Json& json, std::size_t returns, GraphNode& node) {
    const auto& outputs = json.at("outputs").as_array();
    if (outputs.size() != returns)
      throw ExportedModelError(
          message("returns ", returns, " values here, and ", outputs.size(), " in the file"));
    for (const Json& output : outputs) node.results.push_back(result(output));
  }

  GraphResult result(const Json& json) {
    const auto& [kind, value] = only_member(json);
    if (kind == "as_none") return {{kNoSlot}};
    if (kind == "as_tensor") return {{new_slot(value.at("name"))}};
    if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool")
      return {{new_slot(value.at("as_name"))}};
    if (kind != "as_tensors") throw ExportedModelError("returns a value of the kind " + kind);
    GraphResult made{{}, true};
    for (const Json& item : value.as_array()) made.slots.push_back(new_slot(item.at("name")));
    return made;
  }

  Slot new_slot(const Json& name) {
    const auto slot = static_cast<Slot>(graph_.slots++);
    if (!names_.emplace(name.as_string(), GraphArgument::of_slot(slot)).second)
      throw ExportedModelError("makes \"" + name.as_string() + "\", which is there already");
    return slot;
  }

  void add_size(const Json& json, const SizeFunction& function, const std::string& target,
                const std::string& name) {
    GraphNode node{name, target, module_number(json), function.call};
    for (const Json& input : json.at("inputs").as_array()) {
      node.arguments.push_back(ArgumentReader(names_).read(input.at("arg")));
      const auto& argument = node.arguments.back();
      if (argument.kind == ArgumentKind::constant ? !argument.constant.isScalar()
                                                  : argument.kind != ArgumentKind::slot)
        throw ExportedModelError("takes what is no number");
    }
    if (node.arguments.size() != function.arguments)
      throw ExportedModelError(
          message("takes ", function.arguments, " numbers, not ", node.arguments.size()));
    add_results(json, 1, node);
    if (node.results[0].is_list) throw ExportedModelError("returns one value here, and a list in the file");
    graph_.nodes.push_back(std::move(node));
  }

  // ---- Subgraphs ----

  void add_scoped(const Json& json, const std::string& kind, const std::string& name) {
    const auto& inputs = json.at("inputs").as_array();
    const auto input = [&](std::size_t i) -> const Json& { return json.at("inputs").at(i).at("arg"); };
    BeginScope scope;
    std::size_t graph = 0;
    if (kind == "wrap_with_set_grad_enabled") {
      scope.gradients = input(0).at("as_bool").as_bool();
      graph = 1;
    } else if (kind == "wrap_with_autocast") {  // device, dtype, enabled, whether casts are kept
      scope.autocast = input(2).at("as_bool").as_bool();
      if (*scope.autocast && !input(1).contains("as_scalar_type"))
        throw ExportedModelError("autocasts to a type that the file does not name");
      if (*scope.autocast) scope.autocast_type = dtype_of(input(1).at("as_scalar_type"));
      graph = 4;
    } else {
      throw ExportedModelError(
          "operators of higher order are not supported but for those that switch gradients and autocast");
    }
    const std::size_t module = module_number(json);
    push(name, "begin", module, scope);
    read_inline(json, input(graph).at("as_graph").at("graph"),
                {inputs.begin() + static_cast<std::ptrdiff_t>(graph) + 1, inputs.end()});
    push(name, "end", module, EndScope{});
  }

  /// Reads a subgraph with the inputs `given`. Its outputs get the names of the node's outputs.
  void read_inline(const Json& node, const Json& graph, const JsonArray& given) {
    NamedArguments names_outside = std::exchange(names_, named_inputs(graph, given));
    read(graph);
    std::vector<GraphArgument> outputs;
    for (const Json& output : graph.at("outputs").as_array())
      outputs.push_back(ArgumentReader(names_).read(output));
    names_ = std::move(names_outside);
    name_outputs(output_names(node), outputs);
  }

  /// Returns the node's arguments for a subgraph, by their names in the subgraph.
  [[nodiscard]] NamedArguments named_inputs(const Json& graph, const JsonArray& given) {
    const auto& inputs = graph.at("inputs").as_array();
    if (inputs.size() != given.size())
      throw ExportedModelError("calls a subgraph with other inputs than it has");
    NamedArguments named;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto& [kind, value] = only_member(inputs[i]);
      const Json* const name = kind == "as_tensor"          ? &value.at("name")
                               : kind.starts_with("as_sym") ? &value.at("as_name")
                                                            : nullptr;
      if (name) named.emplace(name->as_string(), ArgumentReader(names_).read(given[i].at("arg")));
    }
    return named;
  }

  /// Returns the names of a node's outputs; empty for outputs that nothing reads.
  [[nodiscard]] static std::vector<std::string> output_names(const Json& node) {
    std::vector<std::string> names;
    for (const Json& output : node.at("outputs").as_array()) {
      const auto& [kind, value] = only_member(output);
      if (kind == "as_none")
        names.emplace_back();
      else if (kind == "as_tensors")
        for (const Json& item : value.as_array()) names.push_back(item.at("name").as_string());
      else
        names.push_back(value.at(kind == "as_tensor" ? "name" : "as_name").as_string());
    }
    return names;
  }

  void name_outputs(const std::vector<std::string>& names, const std::vector<GraphArgument>& outputs) {
    if (names.size() != outputs.size())
      throw ExportedModelError("has a subgraph of other outputs than it returns");
    for (std::size_t i = 0; i < names.size(); ++i)
      if (!names[i].empty() && !names_.emplace(names[i], outputs[i]).second)
        throw ExportedModelError("makes \"" + names[i] + "\", which is there already");
  }

  // ---- Modules and uses of slots ----

  std::size_t module_number(const Json& json) {
    RunningModule module = module_of(json);
    const auto [found, is_new] = modules_.emplace(module.path, graph_.modules.size());
    if (is_new) graph_.modules.push_back({module.path});
    auto& type = graph_.modules[found->second].type;
    if (type.empty()) type = std::move(module.type);
    return found->second;
  }

  /// Marks where slots are read for the last time. Replaces slots that nothing reads by kNoSlot.
  void mark_last_uses() {
    std::set<Slot> seen = kept_;
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      for (auto& result : node->results)
        for (Slot& slot : result.slots)
          if (slot != kNoSlot && !seen.contains(slot)) slot = kNoSlot;
      // Backwards, so that of two uses in one call the latter counts.
      std::vector<GraphArgument*> uses;
      for_each_slot(node->arguments, [&](GraphArgument& argument) { uses.push_back(&argument); });
      for (auto use = uses.rbegin(); use != uses.rend(); ++use)
        (*use)->is_last = seen.insert((*use)->slot).second;
    }
  }

  NamedArguments names_;
  Graph graph_;
  std::map<std::string, std::size_t> modules_{{"", 0}};
  std::set<Slot> kept_;
};

}  // namespace looptorch::detail::exported
