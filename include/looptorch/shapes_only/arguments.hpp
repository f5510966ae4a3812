// SPDX-License-Identifier: MIT
// Reads an operator's arguments by the names in its schema, for kernels that only allocate
// (skipped_kernels.hpp). Also decides which tensors are virtual: large ones, whose values are meaningless
// or not used. ShapesOnly replaces a slow kernel that gets one by a kernel that only allocates.
#pragma once

#include <looptorch/shapes_only/virtual_blocks.hpp>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail::shapes {

using torch::jit::Stack;

/// True for integers and masks: kernels use their values as indices or codes, so these must be real. False
/// for int8, the type of quantised weights.
[[nodiscard]] inline bool steers_kernels(at::ScalarType type) {
  return type != at::kChar && at::isIntegralType(type, /*includeBool=*/true);
}

/// True for a CPU tensor in a virtual block, and for a large mask: kernels compute nothing from it.
[[nodiscard]] inline bool is_virtual(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.has_storage() &&
         tensor.storage().nbytes() >= VirtualBlocks::kLeast &&
         (!steers_kernels(tensor.scalar_type()) || tensor.scalar_type() == at::kBool);
}

/// Calls `f` with each tensor of a value, lists included.
template <class F>
void visit_tensors(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList())
      if (tensor.defined()) f(tensor);
  }
}

/// Replaces each defined tensor of an argument, also within lists, by `f`'s result.
template <class F>
void replace_tensors(c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = f(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> replaced;
    for (const at::Tensor& tensor : value.toTensorList())
      replaced.push_back(tensor.defined() ? f(tensor) : tensor);
    value = std::move(replaced);
  }
}

/// The arguments of an operator, in place on the stack.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, Stack& stack)
      : schema_(op.schema()), stack_(stack), count_(schema_.arguments().size()) {}

  [[nodiscard]] c10::IValue& operator[](std::size_t i) const { return stack_[stack_.size() - count_ + i]; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] const std::string& name(std::size_t i) const { return schema_.arguments()[i].name(); }

  /// Returns the argument of a name. Throws c10::Error if the operator has none.
  [[nodiscard]] const c10::IValue& named(const char* name) const {
    const auto i = schema_.argumentIndexWithName(name);
    TORCH_CHECK(i, schema_.name(), " has no argument ", name);
    return (*this)[static_cast<std::size_t>(*i)];
  }
  [[nodiscard]] std::int64_t integer(const char* name) const { return named(name).toInt(); }
  [[nodiscard]] std::vector<std::int64_t> integers(const char* name) const {
    return named(name).toIntVector();
  }
  [[nodiscard]] c10::List<bool> flags(const char* name) const { return named(name).toBoolList(); }
  /// Returns a tensor; an undefined one for an optional tensor without a value.
  [[nodiscard]] at::Tensor tensor(const char* name) const {
    const c10::IValue& value = named(name);
    return value.isTensor() ? value.toTensor() : at::Tensor();
  }

  /// Ends the call: replaces the arguments on the stack by results.
  template <class... Results>
  void return_results(Results&&... results) const {
    torch::jit::drop(stack_, count_);
    torch::jit::push(stack_, std::forward<Results>(results)...);
  }

 private:
  const c10::FunctionSchema& schema_;
  Stack& stack_;
  std::size_t count_;
};

}  // namespace looptorch::detail::shapes
