// SPDX-License-Identifier: MIT
// Watches the operators of a forward for what a tracer would silently turn into a constant: values of a
// tensor that the host reads, and shapes that depend on values. The export refuses such a model. Costs a
// look-up for each operator while the watch exists.
#pragma once

#include <looptorch/base/recorded_inputs.hpp>
#include <looptorch/export/program/export_error.hpp>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace looptorch::detail {

/// Watches the operators that this thread calls while it lives.
class ValueWatch {
 public:
  ValueWatch() : outer_(current()) {
    current() = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&look).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~ValueWatch() {
    at::removeCallback(handle_);
    current() = outer_;
  }
  ValueWatch(const ValueWatch&) = delete;
  ValueWatch& operator=(const ValueWatch&) = delete;

  /// Throws ExportError for the first operator that takes a generator, makes a shape from values, or reads
  /// values that are not `trusted`.
  void refuse(bool trusted) const {
    if (!generator_.empty())
      throw ExportError(generator_, "generator",
                        "the forward draws from a generator of its own, which no file can hold");
    if (!shape_.empty())
      throw ExportError(shape_, "self",
                        "the shape of the result depends on values, which an exported program cannot follow. "
                        "Compute with masks (torch::where)");
    if (!read_.empty() && !trusted)
      throw ExportError(
          read_, "self",
          "the forward reads values of a tensor, and what it does with them would be frozen. "
          "Compute with tensors (torch::where), or set trust_value_reads if it only checks them");
  }

 private:
  static ValueWatch*& current() {
    static thread_local ValueWatch* watch = nullptr;
    return watch;
  }

  static std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& call) {
    ValueWatch* const watch = current();
    const auto name = call.operator_name();
    const auto op = name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
    if (watch && op) watch->see(call, *op, name->name);
    return nullptr;
  }

  void see(const at::RecordFunction& call, const c10::OperatorHandle& op, const std::string& name) {
    for (const c10::IValue& input : recorded_inputs(call))
      if (input.isGenerator()) set(generator_, name);
    // Indexing by a mask calls nonzero, which is noticed instead.
    const bool indexes = std::string_view(name).starts_with("aten::index");
    if (!indexes && op.hasTag(at::Tag::dynamic_output_shape)) set(shape_, name);
    const bool reads = (!indexes && op.hasTag(at::Tag::data_dependent_output)) || name == "aten::item" ||
                       name == "aten::is_nonzero";
    // Reads within an operator that the tracer records as a whole happen again when the file is run.
    if (reads && torch::jit::tracer::isTracing()) set(read_, name);
  }

  static void set(std::string& found, const std::string& name) {
    if (found.empty()) found = name;
  }

  ValueWatch* outer_;
  at::CallbackHandle handle_ = 0;
  std::string read_, shape_, generator_;
};

}  // namespace looptorch::detail
