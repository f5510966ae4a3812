// SPDX-License-Identifier: MIT
// Runs the nodes of a Graph (graph.hpp) one after the other through LibTorch's dispatcher, with the caller's
// autograd and autocast settings. Each call of an operator converts its arguments to IValues, which takes
// about a microsecond.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/running_module.hpp>
#include <looptorch/base/trace_ranges.hpp>
#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/exported/graph/graph.hpp>
#include <looptorch/exported/graph/read_arguments.hpp>
#include <looptorch/layers/linear_node.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail::exported {

/// Tells profilers and Autopsy which of Python's modules the running nodes belong to. Costs one comparison a
/// node if neither is active.
class ModuleRanges {
 public:
  /// Keeps a reference to the modules.
  explicit ModuleRanges(const std::vector<RunningModule>& modules)
      : modules_(modules), is_recorded_(at::hasCallbacks()), before_(running_module) {}
  ~ModuleRanges() {
    if (is_recorded_) running_module = before_;
  }
  ModuleRanges(const ModuleRanges&) = delete;
  ModuleRanges& operator=(const ModuleRanges&) = delete;

  /// Enters a module: opens its range and those of its parents ("encoder", "encoder.layers", ...), and closes
  /// the others.
  void enter(std::size_t module) {
    if (!is_recorded_ || running_module == &modules_[module]) return;
    running_module = &modules_[module];
    const std::string& path = running_module->path;
    while (!open_.empty() && !holds(open_.back(), path)) open_.pop_back();
    ranges_.close_to(open_.size());
    for (std::size_t begin = open_.empty() ? 0 : open_.back().size() + 1; begin < path.size();) {
      const std::size_t end = path.find('.', begin);
      ranges_.open(open_.emplace_back(path.substr(0, end)));
      begin = end == path.npos ? end : end + 1;
    }
  }

 private:
  static bool holds(const std::string& parent, const std::string& path) {
    return path == parent || path.starts_with(parent + '.');
  }

  const std::vector<RunningModule>& modules_;
  bool is_recorded_;
  const RunningModule* before_;
  std::vector<std::string> open_;  // paths of the ranges
  TraceRanges ranges_;
};

/// The values of slots during one run.
using Values = std::vector<c10::IValue>;

/// Sets gradients and autocast as a BeginScope asks, while it lives.
class ModeScope {
 public:
  ModeScope(const BeginScope& wanted, at::DeviceType device)
      : device_(device), gradients_(at::GradMode::is_enabled()) {
    if (wanted.gradients) at::GradMode::set_enabled(*wanted.gradients);
    if (!wanted.autocast) return;
    autocast_.emplace(at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device));
    at::autocast::set_autocast_enabled(device, *wanted.autocast);
    if (*wanted.autocast) at::autocast::set_autocast_dtype(device, wanted.autocast_type);
    at::autocast::increment_nesting();
  }
  ~ModeScope() {
    at::GradMode::set_enabled(gradients_);
    if (!autocast_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, autocast_->first);
    at::autocast::set_autocast_dtype(device_, autocast_->second);
  }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  at::DeviceType device_;
  bool gradients_;
  std::optional<std::pair<bool, at::ScalarType>> autocast_;
};

/// Boxes arguments from the values of a run. A value that is read for the last time is moved.
class ArgumentBoxer {
 public:
  explicit ArgumentBoxer(Values& values) : values_(values) {}

  [[nodiscard]] c10::IValue operator()(const GraphArgument& argument) {
    switch (argument.kind) {
      case ArgumentKind::constant:
        return argument.constant;
      case ArgumentKind::slot:
        return take(argument);
      case ArgumentKind::wrapped:
        return wrapped(take(argument));
      case ArgumentKind::ints:
        return list<std::int64_t>(argument, [](const c10::IValue& item) { return item.toInt(); });
      case ArgumentKind::floats:
        return list<double>(argument, sizes::real);
      case ArgumentKind::bools:
        return list<bool>(argument, [](const c10::IValue& item) { return item.toBool(); });
      case ArgumentKind::tensors:
        return list<at::Tensor>(argument, [](c10::IValue item) { return std::move(item).toTensor(); });
      case ArgumentKind::optional_tensors:
        return list<std::optional<at::Tensor>>(
            argument, [](c10::IValue item) { return std::move(item).toOptional<at::Tensor>(); });
    }
    return {};
  }

 private:
  c10::IValue take(const GraphArgument& argument) {
    if (argument.kind == ArgumentKind::constant) return argument.constant;
    c10::IValue& value = values_[argument.slot];
    return argument.is_last ? std::move(value) : value;
  }
  static c10::IValue wrapped(c10::IValue value) {
    return value.isScalar() ? c10::IValue(wrapped_number(value)) : std::move(value);
  }
  template <class Item, class Unbox>
  c10::IValue list(const GraphArgument& argument, const Unbox& unbox) {
    c10::List<Item> items;
    items.reserve(argument.items.size());
    for (const auto& item : argument.items) items.push_back(unbox(take(item)));
    return items;
  }

  Values& values_;
};

/// Runs nodes one after the other. On destruction ends the scopes that are open, as after an exception.
class GraphRun {
 public:
  /// `device` is where autocast is switched. Keeps references to `values` and `modules`.
  GraphRun(Values& values, at::DeviceType device, const std::vector<RunningModule>& modules)
      : values_(values), box_(values), device_(device), ranges_(modules) {}
  ~GraphRun() { leave_scopes(); }
  GraphRun(const GraphRun&) = delete;
  GraphRun& operator=(const GraphRun&) = delete;

  /// Sets the module that the next nodes come from.
  void enter(std::size_t module) { ranges_.enter(module); }

  /// Runs one node. In a call, `replacement` takes the place of argument number `replaced`, such as a
  /// dropout's `training`.
  void run(const GraphNode& node, std::size_t replaced = kNone, const c10::IValue& replacement = {}) {
    if (const auto* op = node.op()) return call(node, *op, replaced, replacement);
    if (const auto* scope = std::get_if<BeginScope>(&node.action)) {
      scopes_.emplace_back(*scope, device_);
      return;
    }
    if (std::holds_alternative<EndScope>(node.action)) {
      scopes_.pop_back();
      return;
    }
    Numbers numbers;
    for (const auto& argument : node.arguments) numbers.push_back(box_(argument));
    store(node.results[0].slots[0], std::get<SizeOperation>(node.action)(numbers));
  }

  /// Runs a node that calls aten::linear as one node of autograd. The results have aten::linear's bits.
  void run_linear(const GraphNode& node) {
    const at::Tensor input = box_(node.arguments[0]).toTensor(), weight = box_(node.arguments[1]).toTensor();
    const auto bias = box_(node.arguments[2]).toOptional<at::Tensor>();
    store(node.results[0].slots[0], linear_node(input, weight, bias.value_or(at::Tensor())));
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void call(const GraphNode& node, const c10::OperatorHandle& op, std::size_t replaced,
            const c10::IValue& replacement) {
    stack_.clear();
    for (const auto& argument : node.arguments) stack_.push_back(box_(argument));
    if (replaced != kNone) stack_[replaced] = replacement;
    op.callBoxed(&stack_);
    for (std::size_t i = 0; i < node.results.size(); ++i) store_result(node.results[i], std::move(stack_[i]));
  }

  void store(Slot slot, c10::IValue value) {
    if (slot != kNoSlot) values_[slot] = std::move(value);
  }

  void store_result(const GraphResult& result, c10::IValue made) {
    if (!result.is_list) return store(result.slots[0], std::move(made));
    const auto tensors = std::move(made).toTensorVector();
    if (tensors.size() != result.slots.size())
      throw UsageError(message("an operator returns ", tensors.size(), " tensors, of which the program has ",
                               result.slots.size(),
                               ": its sizes are others than those it was exported with"));
    for (std::size_t i = 0; i < tensors.size(); ++i) store(result.slots[i], tensors[i]);
  }

  void leave_scopes() {
    while (!scopes_.empty()) scopes_.pop_back();  // the innermost first
  }

  Values& values_;
  ArgumentBoxer box_;
  at::DeviceType device_;
  torch::jit::Stack stack_;
  std::deque<ModeScope> scopes_;
  ModuleRanges ranges_;
};

}  // namespace looptorch::detail::exported
