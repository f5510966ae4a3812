// SPDX-License-Identifier: MIT
// Merges programs that were recorded at several sizes into one program with dynamic sizes. A number that
// differs among them is replaced by a polynomial of the sizes. If no polynomial fits, throws an error that
// names the operator and the argument.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/export/program/equal_values.hpp>
#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>
#include <looptorch/export/program/polynomial_fit.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// One merge of programs, made by `trace_program`. `merge` moves the result out, so it is called once.
class SizeMerger {
 public:
  /// `programs` were recorded at the points of `fit`, in their order.
  SizeMerger(std::vector<ExportedProgram> programs, const PolynomialFit& fit)
      : all_(std::move(programs)), fit_(fit), merged_(all_.front()) {}

  /// Returns the program of the first point with all sizes dynamic. Throws ExportError.
  [[nodiscard]] ExportedProgram merge() {
    for (std::size_t i = 0; i < merged_.nodes.size(); ++i) merge_node(i);
    for (const auto& program : all_)
      if (program.nodes.size() != merged_.nodes.size() || program.outputs != merged_.outputs ||
          program.values.size() != merged_.values.size())
        throw other_operations(merged_.nodes.size());
    for (std::size_t c = 0; c < merged_.constants.size(); ++c)
      for (const auto& program : all_)
        if (!has_equal_values(program.constants[c].tensor, merged_.constants[c].tensor)) refuse_constant(c);
    for (const auto& input : merged_.inputs) merge_meta(input.value, "an input");
    for (const auto& node : merged_.nodes)
      for (const auto& result : node.results)
        for (const ValueId value : result.values) merge_meta(value, node.name());
    return std::move(merged_);
  }

 private:
  using Numbers = std::vector<std::int64_t>;
  using Alternatives = std::vector<const ProgramArgument*>;  ///< one argument at each of the points

  void merge_node(std::size_t i) {
    ProgramNode& node = merged_.nodes[i];
    for (const auto& program : all_) {
      if (i >= program.nodes.size()) throw other_operations(i);
      const ProgramNode& other = program.nodes[i];
      bool same = other.op == node.op && other.arguments.size() == node.arguments.size();
      for (std::size_t r = 0; same && r < node.results.size(); ++r)
        same = other.results[r].values.size() == node.results[r].values.size();
      if (!same)
        throw ExportError(node.name(), "",
                          "at other sizes the forward calls " + other.name() +
                              (other.op == node.op ? " for another number of results" : " in its place") +
                              kOnePathNote);
    }
    for (std::size_t a = 0; a < node.arguments.size(); ++a) {
      Alternatives alternatives;
      for (const auto& program : all_) alternatives.push_back(&program.nodes[i].arguments[a]);
      node.arguments[a] = merge_argument(alternatives, node, node.op.schema().arguments()[a].name());
    }
  }

  static constexpr const char* kOnePathNote =
      ". A loop or a branch that depends on a size takes one path for all sizes in a file: leave the size "
      "constant";

  /// Returns the error for programs whose nodes are the same up to `i`, and differ from there.
  [[nodiscard]] ExportError other_operations(std::size_t i) const {
    std::size_t fewest = merged_.nodes.size(), most = fewest;
    std::string name;
    for (const auto& program : all_) {
      fewest = std::min(fewest, program.nodes.size());
      most = std::max(most, program.nodes.size());
      if (i < program.nodes.size()) name = program.nodes[i].name();
    }
    if (fewest == most)
      return ExportError(std::string("the outputs are other tensors at other sizes") + kOnePathNote);
    return {name, "",
            message("the forward makes ", fewest, " to ", most,
                    " operations at the sizes tried, and "
                    "calls this one at some of them only",
                    kOnePathNote)};
  }

  ProgramArgument merge_argument(const Alternatives& all, const ProgramNode& node, const std::string& name) {
    const ProgramArgument& first = *all.front();
    if (first.value() || first.list()) return merge_tensors(all, node, name);
    std::vector<c10::IValue> constants;
    for (const auto* each : all) {
      if (!each->constant())
        throw ExportError(node.name(), name, std::string("is not always a number") + kOnePathNote);
      constants.push_back(*each->constant());
    }
    if (is_always([](const c10::IValue& value) { return value.isInt(); }, constants)) {
      Numbers numbers;
      for (const auto& value : constants) numbers.push_back(value.toInt());
      return number(numbers, node, name);
    }
    if (is_always([](const c10::IValue& value) { return value.isIntList(); }, constants))
      return int_list(constants, node, name);
    for (const auto& value : constants)
      if (!is_equal_constant(value, constants.front()))
        throw ExportError(
            node.name(), name,
            message("is ", constants.front(), " and ", value, " for the sizes and values tried: ",
                    value.isDouble()
                        ? "a number that is no integer cannot follow them. Compute it with tensors, or leave "
                          "the size constant"
                        : "only integers can follow a size"));
    return first;
  }

  template <class Test>
  static bool is_always(const Test& test, const std::vector<c10::IValue>& values) {
    for (const auto& value : values)
      if (!test(value)) return false;
    return true;
  }

  ProgramArgument merge_tensors(const Alternatives& all, const ProgramNode& node, const std::string& name) {
    const ProgramArgument& first = *all.front();
    for (const auto* each : all) {
      const bool same = first.value() ? each->value() && *each->value() == *first.value()
                                      : each->list() && each->list()->size() == first.list()->size();
      if (!same)
        throw ExportError(node.name(), name, std::string("is another tensor at other sizes") + kOnePathNote);
    }
    if (first.value()) return first;
    ProgramArgument::List merged;
    for (std::size_t i = 0; i < first.list()->size(); ++i) {
      Alternatives items;
      for (const auto* each : all) items.push_back(&(*each->list())[i]);
      merged.push_back(merge_argument(items, node, name));
    }
    return {std::move(merged)};
  }

  ProgramArgument int_list(const std::vector<c10::IValue>& lists, const ProgramNode& node,
                           const std::string& name) {
    std::vector<Numbers> all;
    for (const auto& list : lists) {
      all.push_back(list.toIntVector());
      if (all.back().size() != all.front().size())
        throw ExportError(node.name(), name, std::string("has another length at other sizes") + kOnePathNote);
    }
    ProgramArgument::List items;
    bool dynamic = false;
    for (std::size_t i = 0; i < all.front().size(); ++i) {
      Numbers numbers;
      for (const auto& list : all) numbers.push_back(list[i]);
      items.push_back(number(numbers, node, name));
      dynamic = dynamic || items.back().size();
    }
    if (!dynamic) return {lists.front()};
    return {std::move(items)};
  }

  ProgramArgument number(const Numbers& numbers, const ProgramNode& node, const std::string& name) {
    const auto polynomial = fit_(numbers);
    if (!polynomial) refuse_number(numbers, node.name(), name);
    if (polynomial->is_constant()) return {c10::IValue(polynomial->constant())};
    return {*polynomial};
  }

  [[noreturn]] void refuse_number(const Numbers& numbers, const std::string& op,
                                  const std::string& name) const {
    throw ExportError(
        op, name,
        message("is ", at::IntArrayRef(numbers),
                " at the sizes tried, which is no polynomial of "
                "the dynamic sizes. Make the dimension a multiple (DimPlace::multiple), or leave it "
                "constant"));
  }

  /// Merges sizes, which must follow the dims, and strides, which need not: readers compute their own.
  void merge_meta(ValueId value, const std::string& op) {
    TensorMeta& meta = merged_.values[value];
    for (const auto& program : all_)
      if (program.values[value].sizes.size() != meta.sizes.size() ||
          program.values[value].dtype != meta.dtype)
        throw ExportError(op, "",
                          std::string("the result has another rank or dtype at other sizes") + kOnePathNote);
    const auto column = [&](const auto& of, std::size_t d) {
      Numbers numbers;
      for (const auto& program : all_) {
        const auto& list = of(program.values[value]);
        numbers.push_back(d < list.size() ? list[d].constant() : 0);
      }
      return numbers;
    };
    for (std::size_t d = 0; d < meta.sizes.size(); ++d) {
      const auto numbers = column(
          [](const TensorMeta& m) -> const auto& { return m.sizes; }, d);
      const auto polynomial = fit_(numbers);
      if (!polynomial) refuse_number(numbers, op, message("the size of the result's dimension ", d));
      meta.sizes[d] = *polynomial;
    }
    Polynomial dense = 1;
    meta.strides.resize(meta.sizes.size());
    for (std::size_t d = meta.sizes.size(); d-- > 0;) {
      const auto numbers = column(
          [](const TensorMeta& m) -> const auto& { return m.strides; }, d);
      const auto polynomial = fit_.fits(dense, numbers) ? dense : fit_(numbers);
      meta.strides[d] = polynomial.value_or(dense);
      dense = dense * meta.sizes[d];
    }
  }

  [[noreturn]] void refuse_constant(std::size_t constant) const {
    const ValueId value = merged_.constants[constant].value;
    for (const auto& node : merged_.nodes)
      for (std::size_t a = 0; a < node.arguments.size(); ++a) {
        bool is_it = false;
        for_each_value(node.arguments[a], [&](ValueId each) { is_it = is_it || each == value; });
        if (is_it)
          throw ExportError(
              node.name(), node.op.schema().arguments()[a].name(),
              "is a tensor that the forward makes outside of LibTorch's operators, and that depends "
              "on the sizes or the values of its inputs. Make it by operators");
      }
    throw ExportError("an output depends on the sizes, and is not made by operators");
  }

  std::vector<ExportedProgram> all_;
  const PolynomialFit& fit_;
  ExportedProgram merged_;
};

}  // namespace looptorch::detail
