// SPDX-License-Identifier: MIT
// Converts a program's nodes and tensors to torch.export's JSON. Does not decompose operators: composite and
// in-place operators are written as the model called them, in torch.export's "TRAINING" dialect. Readers
// decompose them.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/export/files/pt2_schema.hpp>
#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail::pt2 {

template <class List, class ToJson>
[[nodiscard]] Json list(const char* key, const List& values, const ToJson& to_json) {
  Json all = Json::array();
  for (const auto& value : values) all.push_back(to_json(value));
  return one(key, std::move(all));
}

/// Returns a constant by its own type. Throws ExportError.
[[nodiscard]] inline Json plain(const c10::IValue& value, const c10::Argument& declared,
                                const std::string& op) {
  const auto same = [](auto each) { return Json(each); };
  if (value.isBool()) return one("as_bool", value.toBool());
  if (value.isInt()) return one("as_int", value.toInt());
  if (value.isDouble()) return one("as_float", number(value.toDouble()));
  if (value.isString()) return one("as_string", value.toStringRef());
  if (value.isDevice()) return one("as_device", device_of(value.toDevice()));
  if (value.isIntList()) return list("as_ints", value.toIntVector(), same);
  if (value.isDoubleList()) return list("as_floats", value.toDoubleVector(), number);
  if (value.isBoolList()) {
    Json flags = Json::array();
    for (const bool flag : value.toBoolList()) flags.push_back(flag);
    return one("as_bools", std::move(flags));
  }
  throw ExportError(op, declared.name(),
                    "is of the type " + value.tagKind() + ", which has no place in a .pt2");
}

/// Returns a constant by the type that the operator declares. Throws ExportError.
[[nodiscard]] inline Json constant(const c10::IValue& value, const c10::Argument& declared,
                                   const std::string& op) {
  if (value.isNone()) return one("as_none", true);
  auto type = declared.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType:
      return one("as_scalar_type", dtype_number(value.toScalarType()));
    case c10::TypeKind::LayoutType:
      if (value.toLayout() == at::kStrided) return one("as_layout", kStrided);
      throw ExportError(op, declared.name(), "is a layout that is not strided");
    case c10::TypeKind::MemoryFormatType:
      return one("as_memory_format", memory_format_number(value.toMemoryFormat()));
    case c10::TypeKind::FloatType:
      return one("as_float", number(value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble()));
    default:
      return plain(value, declared, op);
  }
}

/// Writes a program's nodes in order, with nodes for sizes before the first that needs them.
class GraphWriter {
 public:
  explicit GraphWriter(const ExportedProgram& program) : program_(program), names_(program.values.size()) {
    for (const auto& weight : program.weights)
      give(weight.value, fresh((weight.is_parameter ? "p_" : "b_") + identifier(weight.name)));
    for (std::size_t i = 0; i < program.constants.size(); ++i)
      give(program.constants[i].value, fresh("c_" + constant_name(i)));
    for (const auto& input : program.inputs) give(input.value, fresh(input.name));
    for (const auto& node : program.nodes) add(node);
  }

  [[nodiscard]] const std::string& name(ValueId value) const { return names_[value]; }

  /// Returns the graph; `inputs` and `outputs` are its arguments in order.
  [[nodiscard]] Json graph(Json inputs, Json outputs) && {
    return object({{"inputs", std::move(inputs)},
                   {"outputs", std::move(outputs)},
                   {"nodes", std::move(nodes_)},
                   {"tensor_values", std::move(tensors_)},
                   {"sym_int_values", std::move(sizes_)},
                   {"sym_bool_values", Json::object()},
                   {"is_single_tensor_return", false},
                   {"custom_obj_values", Json::object()},
                   {"sym_float_values", Json::object()}});
  }

 private:
  static std::string identifier(std::string text) {
    for (char& c : text)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return text;
  }

  /// Returns a name that no other tensor or size has.
  std::string fresh(const std::string& wish) {
    std::string name = wish;
    while (!used_.insert(name).second) name = message(wish, '_', ++counts_[wish]);
    return name;
  }

  void give(ValueId value, const std::string& name) {
    names_[value] = name;
    tensors_.set(name, tensor_meta(program_.values[value], program_.example_dims));
  }

  static Json argument(const std::string& name, Json value, bool by_keyword) {
    return object({{"name", name}, {"arg", std::move(value)}, {"kind", by_keyword ? 2 : 1}});
  }

  void push(const std::string& target, Json inputs, Json outputs, const std::string& name) {
    nodes_.push_back(object({{"target", target},
                             {"inputs", std::move(inputs)},
                             {"outputs", std::move(outputs)},
                             {"metadata", Json::object()},
                             {"is_hop_single_tensor_return", nullptr},
                             {"name", name}}));
  }

  // ---- Operators ----

  void add(const ProgramNode& node) {
    const auto& schema = node.op.schema();
    const std::string op = node.name(), base = schema.name().substr(schema.name().find("::") + 2);
    std::vector<Json> inputs;
    std::size_t needed = 0;  // positional arguments after the last that is not its default are left out
    for (std::size_t i = 0; i < node.arguments.size(); ++i) {
      const auto& declared = schema.arguments()[i];
      const auto* constant = node.arguments[i].constant();
      const bool is_default = constant && declared.default_value() && *constant == *declared.default_value();
      if (declared.kwarg_only() && is_default) continue;
      inputs.push_back(
          argument(declared.name(), value(node.arguments[i], declared, op), declared.kwarg_only()));
      if (!is_default) needed = inputs.size();
    }
    inputs.resize(needed);
    const std::string name = fresh(base);
    Json outputs = Json::array();
    for (const auto& result : node.results) outputs.push_back(output(result, name, node.results.size() == 1));
    push("torch.ops.aten." + base + "." +
             (schema.overload_name().empty() ? "default" : schema.overload_name()),
         Json::array(inputs), std::move(outputs), name);
  }

  Json output(const ProgramResult& result, const std::string& node, bool is_only) {
    if (!result.is_list) {
      give(result.values.at(0), is_only ? node : fresh(node + "_out"));
      return as_tensor(name(result.values[0]));
    }
    return list("as_tensors", result.values, [&](ValueId item) {
      give(item, fresh("getitem"));
      return named(name(item));
    });
  }

  Json value(const ProgramArgument& argument, const c10::Argument& declared, const std::string& op) {
    if (argument.constant()) return constant(*argument.constant(), declared, op);
    if (argument.value()) return as_tensor(name(*argument.value()));
    if (argument.size()) return one("as_sym_int", one("as_name", size_name(*argument.size())));
    const auto& items = *argument.list();
    const bool is_sizes =
        std::any_of(items.begin(), items.end(), [](const auto& item) { return item.size(); });
    if (is_sizes)
      return list("as_sym_ints", items, [&](const ProgramArgument& item) {
        return item.size() ? one("as_name", size_name(*item.size()))
                           : one("as_int", item.constant()->toInt());
      });
    auto type = declared.type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::OptionalType)
      return list("as_optional_tensors", items, [&](const ProgramArgument& item) {
        return item.value() ? as_tensor(name(*item.value())) : one("as_none", true);
      });
    return list("as_tensors", items, [&](const ProgramArgument& item) { return named(name(*item.value())); });
  }

  // ---- Sizes ----

  /// Returns the name of a computed size, for which nodes are written once.
  std::string size_name(const Polynomial& polynomial) {
    if (const auto made = computed_.find(polynomial); made != computed_.end()) return made->second;
    std::string sum;
    Polynomial so_far;
    for (const auto& [monomial, factor] : polynomial.terms()) {
      if (monomial.empty()) continue;  // the constant comes last
      const auto product = term(monomial, factor);
      so_far.add(monomial, factor);
      sum = sum.empty() ? product : compute("add", as_name(sum), as_name(product), so_far);
    }
    if (const auto constant = polynomial.constant(); constant != 0)
      sum = compute("add", as_name(sum), one("as_int", constant), polynomial);
    return computed_[polynomial] = sum;
  }

  std::string term(const Polynomial::Monomial& monomial, std::int64_t factor) {
    std::string product;
    Polynomial so_far = 1;
    for (const std::size_t dim : monomial) {
      so_far = so_far * Polynomial::of_dim(dim);
      product =
          product.empty() ? dim_name(dim) : compute("mul", as_name(product), as_name(dim_name(dim)), so_far);
    }
    if (factor == 1) return product;
    return compute("mul", as_name(product), one("as_int", factor), so_far * Polynomial(factor));
  }

  std::string dim_name(std::size_t dim) {
    const auto symbol = Polynomial::of_dim(dim);
    if (const auto made = computed_.find(symbol); made != computed_.end()) return made->second;
    const DimPlace& place = program_.dims[dim].places.at(0);
    const auto& input = program_.inputs[place.input];
    Json inputs = Json::array({argument("self", as_tensor(name(input.value)), false),
                               argument("dim", one("as_int", place.dim), false)});
    std::string made = size_node("torch.ops.aten.sym_size.int", "sym_size_int", std::move(inputs),
                                 symbol * Polynomial(place.multiple));
    if (place.multiple != 1) made = compute("floordiv", as_name(made), one("as_int", place.multiple), symbol);
    return computed_[symbol] = made;
  }

  static Json as_name(const std::string& name) { return one("as_sym_int", one("as_name", name)); }

  std::string compute(const std::string& operation, Json a, Json b, const Polynomial& result) {
    return size_node("_operator." + operation, operation,
                     Json::array({argument("a", std::move(a), false), argument("b", std::move(b), false)}),
                     result);
  }

  std::string size_node(const std::string& target, const std::string& wish, Json inputs,
                        const Polynomial& result) {
    const std::string name = fresh(wish);
    sizes_.set(name, size(result, program_.example_dims));
    push(target, std::move(inputs), Json::array({as_name(name)}), name);
    return name;
  }

  const ExportedProgram& program_;
  std::vector<std::string> names_;
  std::set<std::string> used_;
  std::map<std::string, int> counts_;
  std::map<Polynomial, std::string> computed_;
  Json nodes_ = Json::array(), tensors_ = Json::object(), sizes_ = Json::object();
};

}  // namespace looptorch::detail::pt2
