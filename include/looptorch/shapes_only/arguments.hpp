// SPDX-License-Identifier: MIT
// The arguments of a dispatched operator, and the tensors among them.
#pragma once

#include <looptorch/shapes_only/virtual_blocks.hpp>

#include <ATen/Functions.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <utility>

namespace looptorch::detail::shapes {

using torch::jit::Stack;

/// True for a CPU tensor in a virtual block. Integers, which steer kernels, are real.
[[nodiscard]] inline bool is_virtual(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.storage().nbytes() >= VirtualBlocks::kLeast &&
         !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
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

/// The same, and replaces each tensor by `f`'s result.
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
  Arguments(Stack& stack, std::size_t count) : stack_(stack), count_(count) {}

  [[nodiscard]] c10::IValue& operator[](std::size_t i) const { return stack_[stack_.size() - count_ + i]; }
  [[nodiscard]] std::size_t size() const { return count_; }

  /// Replaces the arguments by results.
  template <class... Results>
  void become(Results&&... results) const {
    torch::jit::drop(stack_, count_);
    torch::jit::push(stack_, std::forward<Results>(results)...);
  }

 private:
  Stack& stack_;
  std::size_t count_;
};

}  // namespace looptorch::detail::shapes
