// SPDX-License-Identifier: MIT
// Runs operators without a kernel of their own on the simulated accelerator by the CPU's kernels. Refuses
// arguments that CUDA refuses: tensors on several devices, except for numbers and indices. A sparse tensor is
// passed as its indices and values.
#include "support/accelerator/device/generator.hpp"
#include "support/accelerator/dispatch/cuda_launches.hpp"
#include "support/accelerator/dispatch/launch.hpp"
#include "support/accelerator/dispatch/sparse.hpp"
#include "support/accelerator/dispatch/values.hpp"
#include "support/accelerator/driver.hpp"
#include "support/accelerator/graph/recording.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch_test::accelerator {

namespace {

/// What a schema says about an operator.
struct Operator {
  explicit Operator(const c10::OperatorHandle& op)
      : handle(op),
        name(op.schema().name() +
             (op.schema().overload_name().empty() ? "" : "." + op.schema().overload_name())),
        is_index(op.schema().name().starts_with("aten::index") ||
                 op.schema().name() == "aten::_index_put_impl_" ||
                 op.schema().name() == "aten::_unsafe_index"),
        expands_masks(is_index && name != "aten::index.Tensor_out"),  // for which nonzero was called before
        takes_host_tensors(is_index || name.find("_packed") != std::string::npos ||
                           name.starts_with("aten::_pack")),
        takes_host_numbers(name.find("_amp_") == std::string::npos &&
                           (name.find("_fused_") == std::string::npos || name.ends_with("tensor_lr")) &&
                           (name.find("_foreach_") == std::string::npos)),
        // CTC copies the lengths to the host, and waits; so does what counts distinct indices.
        host_needs_result(!is_index && (op.hasTag(at::Tag::data_dependent_output) ||
                                        op.hasTag(at::Tag::dynamic_output_shape) ||
                                        op.schema().name() == "aten::_ctc_loss" ||
                                        op.schema().name() == "aten::_coalesce")) {
    for (const c10::Argument& argument : op.schema().arguments()) {
      writes.push_back(argument.alias_info() && argument.alias_info()->isWrite());
      is_generator.push_back(argument.name() == "generator");
    }
    for (const c10::Argument& result : op.schema().returns()) returned.push_back(written_argument(result));
  }

  /// The argument that a result is, as for `add_` and `add.out`, or -1.
  [[nodiscard]] int written_argument(const c10::Argument& result) const {
    if (!result.alias_info() || !result.alias_info()->isWrite()) return -1;
    const auto& arguments = handle.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].alias_info() && *arguments[i].alias_info() == *result.alias_info())
        return static_cast<int>(i);
    return -1;
  }

  c10::OperatorHandle handle;
  std::string name;
  bool is_index, expands_masks, takes_host_tensors, takes_host_numbers, host_needs_result;
  std::vector<bool> writes, is_generator;  // by argument
  std::vector<int> returned;               // by result
};

const Operator& operator_of(const c10::OperatorHandle& op) {
  static auto* const known = new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<Operator>>;
  auto& entry = (*known)[&op.schema()];
  if (!entry) entry = std::make_unique<Operator>(op);
  return *entry;
}

bool has_mask(const torch::jit::Stack& arguments) {
  for (const c10::IValue& value : arguments)
    if (value.isOptionalTensorList())
      for (const std::optional<at::Tensor>& index : value.toOptionalTensorVector())
        if (index && index->defined() &&
            (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte))
          return true;
  return false;
}

void demand_one_device(const Operator& op, const at::Tensor& tensor, std::optional<c10::Device>& device) {
  if (!is_here(tensor)) return;
  TORCH_CHECK(!device || *device == tensor.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", *device,
              " and ", tensor.device(), "! (", op.name, ")");
  device = tensor.device();
}

c10::Device device_of_call(const Operator& op, const torch::jit::Stack& arguments) {
  std::optional<c10::Device> device;
  for (const c10::IValue& value : arguments)
    for_each_tensor(value, [&](const at::Tensor& tensor) { demand_one_device(op, tensor, device); });
  for (const c10::IValue& value : arguments)
    if (!device && value.isDevice() && value.toDevice().is_privateuseone()) device = value.toDevice();
  if (!device || !device->has_index()) device = accelerator::device(current_device());
  for (std::size_t i = 0; i < arguments.size(); ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      const bool takes_number = !op.writes[i] && op.takes_host_numbers;
      TORCH_CHECK(!tensor.defined() || !tensor.is_cpu() || op.takes_host_tensors ||
                      (tensor.dim() == 0 && takes_number),
                  "Expected all tensors to be on the same device, but found at least two devices, ", *device,
                  " and cpu! (", op.name, ")");
    });
  return *device;
}

/// Calls the CPU's kernel. Two of them do other work in 16 bits than CUDA's and are given copies in fp32:
/// that of SGD leaves weights as they were (LibTorch 2.11), and that of a list times a number rounds the
/// number.
void call_kernel(const Operator& op, c10::DispatchKey key, torch::jit::Stack& stack) {
  std::vector<std::pair<at::Tensor, at::Tensor>> widened;
  const auto wide = [&](const at::Tensor& tensor) {
    if (tensor.element_size() >= 4) return tensor;
    return widened.emplace_back(tensor, tensor.to(at::kFloat)).second;
  };
  if (op.name == "aten::_foreach_mul_.Scalar" || op.name.starts_with("aten::_fused_sgd_"))
    for (std::size_t i = 0; i < stack.size(); ++i)
      if (op.writes[i]) stack[i] = with_tensors(stack[i], wide);
  op.handle.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  for (const auto& [narrow, copy] : widened) narrow.copy_(copy);
}

/// The CPU's operator with arguments other than tensors bound.
class CpuCall {
 public:
  CpuCall(const Operator& op, c10::DispatchKey key, const torch::jit::Stack& arguments, int device)
      : op_(&op), key_(key) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const c10::IValue& value = arguments[i];
      for_each_tensor(value, [&](const at::Tensor& tensor) { forms_.emplace_back(tensor); });
      bound_.push_back(with_tensors(value, [](const at::Tensor&) { return at::Tensor(); }));
      if (value.isDevice()) bound_.back() = c10::Device(c10::kCPU);
      if (value.isGenerator() || (value.isNone() && op.is_generator[i])) {
        const auto given = value.isGenerator() ? std::optional(value.toGenerator()) : std::nullopt;
        seed_ = draw_seed(given, device);
        generator_ = i;
      }
    }
  }

  /// Returns the results, a list of its parts for each that is sparse.
  torch::jit::Stack operator()(const std::vector<at::Tensor>& operands) const {
    torch::jit::Stack stack;
    stack.reserve(bound_.size());
    std::size_t next = 0, number = 0;
    for (const c10::IValue& value : bound_)
      stack.push_back(
          with_tensors(value, [&](const at::Tensor&) { return forms_[number++].take(operands, next); }));
    if (generator_)
      stack[*generator_] =
          at::detail::createCPUGenerator(seed_.recorded < 0 ? seed_.value : replayed_seed(seed_.recorded));
    call_kernel(*op_, key_, stack);
    return in_parts(std::move(stack));
  }

  /// Puts a result together again that `operator()` has returned in parts.
  [[nodiscard]] at::Tensor whole(std::size_t result, const std::vector<at::Tensor>& parts) const {
    std::size_t next = 0;
    return results_->at(result).take(parts, next);
  }
  [[nodiscard]] bool is_in_parts(std::size_t result) const { return results_->count(result) > 0; }

 private:
  torch::jit::Stack in_parts(torch::jit::Stack results) const {
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i].isTensor() || !results[i].toTensor().defined() || !results[i].toTensor().is_sparse())
        continue;
      const at::Tensor sparse = results[i].toTensor();
      c10::List<at::Tensor> parts;
      for_each_part(sparse, [&](const at::Tensor& part) { parts.push_back(part); });
      results_->emplace(i, Form(sparse));
      results[i] = std::move(parts);
    }
    return results;
  }

  const Operator* op_;
  c10::DispatchKey key_;
  torch::jit::Stack bound_;
  std::vector<Form> forms_;  // of the tensors, in order
  std::shared_ptr<std::map<std::size_t, Form>> results_ = std::make_shared<std::map<std::size_t, Form>>();
  std::optional<std::size_t> generator_;
  Seed seed_;
};

/// Gives a sparse argument the parts that a kernel has made for it.
void replace_parts(const at::Tensor& argument, const at::Tensor& result) {
  auto *const to = at::sparse::get_sparse_impl(argument), *const from = at::sparse::get_sparse_impl(result);
  to->set_indices_and_values_unsafe(from->indices(), from->values());
  to->set_coalesced(from->coalesced());
}

template <c10::DispatchKey kCpuKey>
void fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Lock lock(driver().mutex);
  const Operator& op = operator_of(handle);
  const auto begin = stack->end() - static_cast<std::ptrdiff_t>(op.writes.size());
  const torch::jit::Stack arguments(std::make_move_iterator(begin), std::make_move_iterator(stack->end()));
  stack->erase(begin, stack->end());

  const c10::Device device = device_of_call(op, arguments);
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      for_each_part(tensor, [&](const at::Tensor& part) { operands.push_back({part, op.writes[i]}); });
    });
  const bool host_needs_result = op.host_needs_result || (op.expands_masks && has_mask(arguments));

  ++driver().ledger.counts.fallbacks;
  const CpuCall call(op, kCpuKey, arguments, device.index());
  torch::jit::Stack results = launch({.name = op.name,
                                      .device = device,
                                      .host_needs_result = host_needs_result,
                                      .launches_on_cuda = launches_on_cuda(op.name, arguments)},
                                     operands, call);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (call.is_in_parts(i)) results[i] = call.whole(i, results[i].toTensorVector());
    if (op.returned[i] < 0) {
      stack->push_back(std::move(results[i]));
      continue;
    }
    const c10::IValue& argument = arguments[static_cast<std::size_t>(op.returned[i])];
    if (call.is_in_parts(i)) replace_parts(argument.toTensor(), results[i].toTensor());
    stack->push_back(argument);
  }
}

/// For operators on lists. Those of several devices go through LibTorch's loop over their tensors, as on
/// CUDA.
void on_lists(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  std::optional<c10::Device> device;
  bool is_one = true;
  const auto begin = stack->end() - static_cast<std::ptrdiff_t>(handle.schema().arguments().size());
  std::for_each(begin, stack->end(), [&](const c10::IValue& value) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      is_one = is_one && (!device || *device == tensor.device());
      device = tensor.device();
    });
  });
  if (is_one) return fallback<c10::DispatchKey::CPU>(handle, stack);
  handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);  // where the loop is the kernel
}

}  // namespace

/// For lists LibTorch has loops over their tensors, and for norms and two gradients several operators, which
/// come before the fallback; here they are one kernel each, as on CUDA.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* const op : {"native_layer_norm", "native_group_norm", "silu_backward", "mish_backward"})
    library.impl(op, torch::CppFunction::makeFromBoxedFunction<&fallback<c10::DispatchKey::CPU>>());
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames())
    if (op.name.starts_with("aten::_foreach_") && !op.overload_name.ends_with("out"))
      library.impl(c10::toString(op).c_str(), torch::CppFunction::makeFromBoxedFunction<&on_lists>());
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback<c10::DispatchKey::CPU>>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback<c10::DispatchKey::SparseCPU>>());
}

}  // namespace looptorch_test::accelerator
