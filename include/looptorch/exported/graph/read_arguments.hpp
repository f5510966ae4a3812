// SPDX-License-Identifier: MIT
// Reads the arguments of operators in torch.export's JSON, and boxes them for LibTorch's dispatcher.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/exported/archive/schema_values.hpp>
#include <looptorch/exported/graph/graph.hpp>

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail::exported {

/// Values that nodes made, inputs and weights, by their names in the file.
using NamedArguments = std::map<std::string, GraphArgument, std::less<>>;

/// Returns the only member of an object, as torch.export writes unions.
[[nodiscard]] inline const JsonMember& only_member(const Json& json) {
  if (json.as_object().size() != 1)
    throw ExportedModelError(message("a value has ", json.as_object().size(), " kinds instead of one"));
  return *json.as_object().begin();
}

/// Returns a number as a tensor that takes part in type promotion as Python's numbers do.
[[nodiscard]] inline at::Tensor wrapped_number(const c10::IValue& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

/// Converts one argument of the JSON to a GraphArgument.
class ArgumentReader {
 public:
  /// Keeps a reference to the names, which are looked up.
  explicit ArgumentReader(const NamedArguments& names) : names_(names) {}

  /// Returns an argument as the file has it. Throws ExportedModelError and JsonError.
  [[nodiscard]] GraphArgument read(const Json& json) const {
    const auto& [kind, value] = only_member(json);
    if (kind == "as_none") return GraphArgument::of({});
    if (kind == "as_tensor") return named(value.at("name"));
    if (kind == "as_bool") return GraphArgument::of(value.as_bool());
    if (kind == "as_int") return GraphArgument::of(value.as_int());
    if (kind == "as_float") return GraphArgument::of(number_of(value));
    if (kind == "as_string") return GraphArgument::of(value.as_string());
    if (kind == "as_scalar_type") return GraphArgument::of(static_cast<std::int64_t>(dtype_of(value)));
    if (kind == "as_layout") return GraphArgument::of(static_cast<std::int64_t>(layout_of(value)));
    if (kind == "as_memory_format")
      return GraphArgument::of(static_cast<std::int64_t>(memory_format_of(value)));
    if (kind == "as_device") return GraphArgument::of(device_of(value));
    if (kind == "as_complex")
      return GraphArgument::of(
          c10::complex<double>(number_of(value.at("real")), number_of(value.at("imag"))));
    if (kind == "as_name") return named(value);
    if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool" ||
        kind == "as_optional_tensor")
      return read(value);
    if (kind == "as_strings") return strings(value);
    if (kind == "as_tensors")
      return list(ArgumentKind::tensors, value, [&](const Json& item) { return named(item.at("name")); });
    if (kind == "as_optional_tensors") return list(ArgumentKind::optional_tensors, value, reads_item());
    if (kind == "as_sym_ints") return list(ArgumentKind::ints, value, reads_item());
    if (kind == "as_sym_floats") return list(ArgumentKind::floats, value, reads_item());
    if (kind == "as_sym_bools") return list(ArgumentKind::bools, value, reads_item());
    if (kind == "as_ints")
      return list(ArgumentKind::ints, value,
                  [](const Json& item) { return GraphArgument::of(item.as_int()); });
    if (kind == "as_floats")
      return list(ArgumentKind::floats, value,
                  [](const Json& item) { return GraphArgument::of(number_of(item)); });
    if (kind == "as_bools")
      return list(ArgumentKind::bools, value,
                  [](const Json& item) { return GraphArgument::of(item.as_bool()); });
    if (kind == "as_custom_obj")
      throw ExportedModelError("takes an object of the class " + value.at("class_fqn").as_string() +
                               ": custom classes are not supported");
    throw ExportedModelError("takes an argument of the kind " + kind + ", which is not supported");
  }

  /// Returns an argument in the type that its operator declares.
  [[nodiscard]] GraphArgument read(const Json& json, const c10::Argument& declared) const {
    GraphArgument argument = read(json);
    auto type = declared.type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    const auto kind = type->kind();
    if (kind == c10::TypeKind::FloatType && argument.constant.isInt())
      argument.constant = static_cast<double>(argument.constant.toInt());
    if (kind == c10::TypeKind::TensorType) {
      if (argument.kind == ArgumentKind::constant && argument.constant.isScalar())
        argument.constant = wrapped_number(argument.constant);
      else if (argument.kind == ArgumentKind::slot && !only_member(json).first.starts_with("as_tensor"))
        argument.kind = ArgumentKind::wrapped;
    }
    if (kind == c10::TypeKind::ListType) as_list(argument, *type, declared);
    fold(argument);
    return argument;
  }

 private:
  /// Boxes a list once, if all of its items are constants.
  static void fold(GraphArgument& argument) {
    for (const auto& item : argument.items)
      if (item.kind != ArgumentKind::constant) return;
    if (argument.kind == ArgumentKind::ints)
      argument =
          GraphArgument::of(boxed_list(argument.items, [](const c10::IValue& item) { return item.toInt(); }));
    else if (argument.kind == ArgumentKind::floats)
      argument = GraphArgument::of(boxed_list(argument.items, sizes::real));
    else if (argument.kind == ArgumentKind::bools)
      argument = GraphArgument::of(
          boxed_list(argument.items, [](const c10::IValue& item) { return item.toBool(); }));
  }
  template <class Unbox>
  static c10::IValue boxed_list(const std::vector<GraphArgument>& items, const Unbox& unbox) {
    c10::List<decltype(unbox(c10::IValue()))> list;
    for (const auto& item : items) list.push_back(unbox(item.constant));
    return list;
  }

  /// Gives a list its declared type: an empty list has no type of its own, and a list of tensors may be
  /// declared as one of optional tensors.
  static void as_list(GraphArgument& argument, const c10::Type& type, const c10::Argument& declared) {
    const auto element = type.expectRef<c10::ListType>().getElementType();
    if (argument.kind == ArgumentKind::constant && !argument.constant.isNone() &&
        !argument.constant.isList()) {
      const GraphArgument one = argument;  // a number stands for a list of such numbers, as in Python
      argument = {ArgumentKind::ints};
      argument.items.assign(static_cast<std::size_t>(std::max(declared.N().value_or(1), 1)), one);
    } else if (argument.kind == ArgumentKind::slot) {
      throw ExportedModelError("takes one value for the list \"" + declared.name() + '"');
    }
    if (argument.kind == ArgumentKind::constant) return;
    const auto kind = element->kind();
    if (kind == c10::TypeKind::FloatType) argument.kind = ArgumentKind::floats;
    if (kind == c10::TypeKind::BoolType) argument.kind = ArgumentKind::bools;
    if (kind == c10::TypeKind::TensorType) argument.kind = ArgumentKind::tensors;
    if (kind == c10::TypeKind::OptionalType) argument.kind = ArgumentKind::optional_tensors;
  }

  [[nodiscard]] std::function<GraphArgument(const Json&)> reads_item() const {
    return [this](const Json& item) { return read(item); };
  }

  template <class Read>
  static GraphArgument list(ArgumentKind kind, const Json& json, const Read& read_item) {
    GraphArgument made{kind};
    for (const Json& item : json.as_array()) made.items.push_back(read_item(item));
    return made;
  }

  static GraphArgument strings(const Json& json) {
    c10::List<std::string> list;
    for (const Json& item : json.as_array()) list.push_back(item.as_string());
    return GraphArgument::of(std::move(list));
  }

  [[nodiscard]] GraphArgument named(const Json& name) const {
    const auto found = names_.find(name.as_string());
    if (found == names_.end())
      throw ExportedModelError("refers to \"" + name.as_string() + "\", which no node before it has made");
    return found->second;
  }

  const NamedArguments& names_;
};

}  // namespace looptorch::detail::exported
