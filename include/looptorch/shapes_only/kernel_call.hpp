// SPDX-License-Identifier: MIT
// Measures, for ShapesOnly on a CPU, the memory that an operator's real kernel takes besides its results
// (workspace.hpp). Runs the kernel on a few samples of zeros, and extrapolates to all samples.
#pragma once

#include <looptorch/shapes_only/arguments.hpp>
#include <looptorch/shapes_only/workspace.hpp>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

namespace looptorch::detail::shapes {

/// An operator's arguments; those named in `batched` have samples in their first dimension. The kernel is
/// measured with dimensions of at most `longest`.
struct KernelCall {
  const c10::OperatorHandle& op;
  const Arguments& arguments;
  std::vector<const char*> batched = {};
  std::int64_t longest = std::numeric_limits<std::int64_t>::max();

  [[nodiscard]] std::int64_t samples() const { return arguments.tensor(batched.front()).size(0); }

  /// Returns the measured sizes of one of its tensors, with `some` samples instead of all.
  [[nodiscard]] std::vector<std::int64_t> sizes(std::size_t i, const at::Tensor& tensor,
                                                std::int64_t some) const {
    auto sizes = tensor.sizes().vec();
    if (std::find(batched.begin(), batched.end(), arguments.name(i)) != batched.end()) sizes[0] = some;
    for (std::int64_t& size : sizes) size = std::min(size, longest);
    return sizes;
  }

  /// Returns a text that is the same for equal calls with `some` samples.
  [[nodiscard]] std::string key(std::int64_t some) const {
    std::string key = op.operator_name().name + '.' + op.operator_name().overload_name;
    const auto add = [&key](at::IntArrayRef numbers) {
      for (const std::int64_t number : numbers) key += std::to_string(number) += ',';
    };
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].isTensor()) key += c10::str(arguments[i]);
      visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
        add(sizes(i, tensor, some)), key += ':';
        add(tensor.strides()), key += c10::toString(tensor.scalar_type());
      });
      key += '|';
    }
    return key;
  }

  /// Returns the arguments with `some` samples, of zeros.
  [[nodiscard]] Stack with(std::int64_t some) const {
    Stack stack;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      stack.push_back(arguments[i]);
      replace_tensors(stack.back(), [&](const at::Tensor& tensor) {
        return at::empty_strided(sizes(i, tensor, some), tensor.strides(), tensor.options()).zero_();
      });
    }
    return stack;
  }

  /// Measures the workspace of the real kernel with `some` samples, once.
  [[nodiscard]] std::int64_t workspace(std::int64_t some) const {
    static std::unordered_map<std::string, std::int64_t> known;
    const auto [found, is_new] = known.try_emplace(key(some), 0);
    if (is_new) {
      const RealThreadsScope real_threads;
      found->second = workspace_of([&] { return with(some); },
                                   [&](const Stack& inputs) {
                                     Stack stack = inputs;  // the operator takes its arguments from it
                                     op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
                                     return stack;
                                   });
    }
    return found->second;
  }

  /// Returns the workspace with all samples: measured with up to 4, else extrapolated from 2 and 4. Without
  /// batched arguments, measured as a whole.
  [[nodiscard]] std::int64_t workspace() const {
    if (!counted_run.workspaces) return 0;
    if (batched.empty()) return workspace(0);
    const std::int64_t all = samples();
    if (all <= 4) return workspace(all);
    const std::int64_t of_two = workspace(2), of_four = workspace(4);
    return of_four + (of_four - of_two) * (all - 4) / 2;
  }
};

/// Allocates and frees so much memory, as a workspace.
inline void allocate_workspace(std::int64_t bytes) { (void)at::empty({bytes}, at::kByte); }

}  // namespace looptorch::detail::shapes
