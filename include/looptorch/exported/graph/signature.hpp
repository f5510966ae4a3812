// SPDX-License-Identifier: MIT
// Reads from a .pt2 which inputs and outputs the program has. For torch.export, weights, buffers and
// constants are inputs too, and updated buffers are outputs; the signature says which are the user's.
#pragma once

#include <looptorch/base/json/json.hpp>
#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/exported/archive/schema_values.hpp>
#include <looptorch/exported/graph/graph.hpp>
#include <looptorch/exported/graph/read_arguments.hpp>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail::exported {

/// Returns the keys of a dictionary in torch.export's tree of inputs or outputs. Empty for a tuple.
[[nodiscard]] inline std::vector<std::string> keys_of(const Json& context, std::size_t children) {
  if (!context.is_string()) return {};
  Json held;
  try {
    held = Json::parse(context.as_string());
  } catch (const JsonError&) {
    return {};
  }
  // A dictionary's context is the list of its keys; a registered class may hold this list within its context.
  if (held.is_array() && !held.as_array().empty() && held.at(0).is_array()) held = Json(held.at(0));
  if (!held.is_array() || held.as_array().size() != children) return {};
  std::vector<std::string> keys;
  for (const Json& key : held.as_array()) {
    if (!key.is_string()) return {};
    keys.push_back(key.as_string());
  }
  return keys;
}

inline void add_leaves(const Json& tree, const std::string& path, std::vector<std::string>& names) {
  const auto& children = tree.at("children_spec").as_array();
  if (tree.at("type").is_null()) return names.push_back(path.empty() ? "output" : path);
  const auto keys = keys_of(tree.at("context"), children.size());
  for (std::size_t i = 0; i < children.size(); ++i)
    add_leaves(children[i], (path.empty() ? "" : path + ".") + (keys.empty() ? std::to_string(i) : keys[i]),
               names);
}

/// Returns a name for each of `count` values that `spec` packs: "logits" for a dictionary or a ModelOutput,
/// "hidden_states.0" for a tuple within one; "0", "1", ... if `spec` packs another number. Throws JsonError.
[[nodiscard]] inline std::vector<std::string> leaf_names(const std::string& spec, std::size_t count) {
  std::vector<std::string> names;
  add_leaves(Json::parse(spec).at(1), "", names);
  if (names.size() == count) return names;
  names.clear();
  for (std::size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace looptorch::detail::exported

namespace looptorch {

/// A dimension of an input: a number, or a size that is open.
struct ExportedDim {
  std::optional<std::int64_t> size = {};  ///< empty: open
  std::string symbol = {};  ///< of an open size; equal symbols: equal sizes. Empty if it is computed
  std::int64_t min = 0;
  std::optional<std::int64_t> max = {};
};

/// An input of an exported model: a tensor.
struct ExportedInput {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<ExportedDim> dims = {};
};

namespace detail::exported {

enum class TensorKind : std::uint8_t { parameter, buffer, constant };

struct Signature {
  struct Tensor {
    std::string name;  ///< "encoder.layers.0.weight"
    Slot slot;
    TensorKind kind;
  };
  struct Update {
    std::string buffer;
    Slot slot;
  };
  std::vector<Tensor> tensors;
  std::vector<ExportedInput> inputs;
  std::vector<Slot> input_slots;
  NamedArguments names;  ///< all of these by their names in the graph
  std::size_t slots = 0;
  std::optional<at::Device> device;  ///< of the first input
  std::vector<std::string> output_names;
  std::vector<Slot> outputs;
  std::vector<Update> updates;
};

/// Reads the inputs of a program.
class SignatureReader {
 public:
  explicit SignatureReader(const Json& program)
      : graph_(program.at("graph_module").at("graph")), ranges_(program.at("range_constraints")) {}

  /// Throws ExportedModelError for inputs that are no tensors, and JsonError.
  [[nodiscard]] Signature read(const Json& specs) {
    for (const Json& spec : specs.as_array()) {
      const auto& [kind, value] = only_member(spec);
      if (kind == "parameter")
        add(value, {value.at("parameter_name").as_string(), 0, TensorKind::parameter});
      else if (kind == "buffer")
        add(value, {value.at("buffer_name").as_string(), 0, TensorKind::buffer});
      else if (kind == "tensor_constant")
        add(value, {value.at("tensor_constant_name").as_string(), 0, TensorKind::constant});
      else if (kind == "user_input")
        add_input(value.at("arg"));
      else if (kind == "custom_obj")
        throw ExportedModelError("holds the object \"" + value.at("custom_obj_name").as_string() +
                                 "\" of the class " + value.at("arg").at("class_fqn").as_string() +
                                 ": custom classes are not supported");
      else if (kind != "constant_input")  // None or a number, which the graph holds as a constant
        throw ExportedModelError("has an input of the kind " + kind + ", which is not supported");
    }
    return std::move(made_);
  }

 private:
  Slot new_slot(const std::string& name) {
    const auto slot = static_cast<Slot>(made_.slots++);
    if (!made_.names.emplace(name, GraphArgument::of_slot(slot)).second)
      throw ExportedModelError("two inputs of the program are called \"" + name + '"');
    return slot;
  }

  void add(const Json& spec, Signature::Tensor tensor) {
    tensor.slot = new_slot(spec.at("arg").at("name").as_string());
    made_.tensors.push_back(std::move(tensor));
  }

  void add_input(const Json& argument) {
    const auto& [kind, value] = only_member(argument);
    if (kind == "as_none") return;
    if (kind != "as_tensor") {
      std::string name;
      if (value.is_object() && value.contains("as_name"))
        name = " \"" + value.at("as_name").as_string() + '"';
      throw ExportedModelError("takes the input" + name +
                               ", which is no tensor: only tensors can be inputs. Export the model with the "
                               "number as a constant, or as a tensor");
    }
    const std::string& name = value.at("name").as_string();
    const Json& meta = graph_.at("tensor_values").at(name);
    (void)layout_of(meta.at("layout"));
    if (!made_.device) made_.device = device_of(meta.at("device"));
    ExportedInput input{name, dtype_of(meta.at("dtype"))};
    for (const Json& size : meta.at("sizes").as_array()) input.dims.push_back(dim(size));
    made_.input_slots.push_back(new_slot(name));
    made_.inputs.push_back(std::move(input));
  }

  [[nodiscard]] ExportedDim dim(const Json& size) const {
    const auto& [kind, value] = only_member(size);
    if (kind == "as_int") return {value.as_int()};
    ExportedDim dim;
    dim.symbol = symbol_of(value.at("expr_str").as_string());
    const Json* const range = dim.symbol.empty() ? nullptr : ranges_.as_object().find(dim.symbol);
    if (!range) return dim;
    constexpr std::int64_t kSpecial = 2;  // export asks for sizes of 2 or more, and takes smaller ones
    if (range->at("min_val").is_int() && range->at("min_val").as_int() > kSpecial)
      dim.min = range->at("min_val").as_int();
    if (range->at("max_val").is_int()) dim.max = range->at("max_val").as_int();
    return dim;
  }

  /// Returns "s0" of "Symbol('s0', positive=True, integer=True)", nothing for an expression.
  static std::string symbol_of(std::string_view text) {
    constexpr std::string_view kBegin = "Symbol('";
    if (!text.starts_with(kBegin)) return {};
    text.remove_prefix(kBegin.size());
    return std::string(text.substr(0, text.find('\'')));
  }

  const Json& graph_;
  const Json& ranges_;
  Signature made_;
};

/// Adds the outputs of a program, looked up by `argument_of`. Throws ExportedModelError and JsonError.
template <class ArgumentOf>
void read_outputs(const Json& module, const ArgumentOf& argument_of, Signature& into) {
  std::vector<std::optional<Slot>> outputs;
  for (const Json& spec : module.at("signature").at("output_specs").as_array()) {
    const auto& [kind, value] = only_member(spec);
    const Json& argument = value.at("arg");
    if (kind == "user_output" || kind == "loss_output") {
      const GraphArgument read =
          argument_of(kind == "loss_output" ? Json::object().set("as_tensor", argument) : argument);
      const bool is_tensor =
          read.kind == ArgumentKind::slot && (kind == "loss_output" || argument.contains("as_tensor"));
      outputs.push_back(is_tensor ? std::optional(read.slot) : std::nullopt);
    } else if (kind == "buffer_mutation") {
      into.updates.push_back(
          {value.at("buffer_name").as_string(), argument_of(Json::object().set("as_tensor", argument)).slot});
    } else if (kind == "user_input_mutation") {
      throw ExportedModelError("the program writes to its input \"" +
                               value.at("user_input_name").as_string() +
                               "\": export a model that writes to a copy");
    } else {
      throw ExportedModelError("the program has an output of the kind " + kind + ", which is not supported");
    }
  }
  const Json& entries = module.at("module_call_graph");
  const auto names =
      leaf_names(entries.at(std::size_t{0}).at("signature").at("out_spec").as_string(), outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) continue;  // None and numbers
    into.outputs.push_back(*outputs[i]);
    into.output_names.push_back(names[i]);
  }
}

}  // namespace detail::exported
}  // namespace looptorch
