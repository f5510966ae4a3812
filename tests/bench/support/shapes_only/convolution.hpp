// SPDX-License-Identifier: MIT
// Convolutions without computing. The workspaces of the real kernels, mostly copies in oneDNN's own layouts,
// are measured on a few samples.
#pragma once

#include "arguments.hpp"
#include "workspace.hpp"

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/ConvUtils.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace looptorch_bench {

/// A convolution's arguments, of which those numbered `batched` have samples in their first dimension.
struct ConvolutionCall {
  const c10::OperatorHandle& op;
  const Arguments& arguments;
  std::vector<std::size_t> batched;

  [[nodiscard]] std::int64_t samples() const { return arguments[batched.front()].toTensor().size(0); }

  /// Returns the sizes of a tensor among them, with `some` samples instead of all.
  [[nodiscard]] std::vector<std::int64_t> sizes(std::size_t i, const at::Tensor& tensor,
                                                std::int64_t some) const {
    auto sizes = tensor.sizes().vec();
    if (std::find(batched.begin(), batched.end(), i) != batched.end()) sizes[0] = some;
    return sizes;
  }

  /// Returns a text that is the same for equal calls with `some` samples.
  [[nodiscard]] std::string key(std::int64_t some) const {
    std::string key = c10::str(op.operator_name());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].isTensor()) key += c10::str(arguments[i]);
      visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
        key += c10::str(at::IntArrayRef(sizes(i, tensor, some)), tensor.strides(), tensor.scalar_type());
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
    if (is_new)
      found->second = workspace_of([&] { return with(some); },
                                   [&](const Stack& inputs) {
                                     Stack stack = inputs;  // the operator takes what lies there
                                     op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
                                     return stack;
                                   });
    return found->second;
  }

  /// Returns the workspace with all samples: measured with up to 4, else continued from 2 and 4.
  [[nodiscard]] std::int64_t workspace() const {
    const std::int64_t all = samples();
    if (all <= 4) return workspace(all);
    const std::int64_t of_two = workspace(2), of_four = workspace(4);
    return of_four + (of_four - of_two) * (all - 4) / 2;
  }
};

inline void take_for_a_moment(std::int64_t bytes) { (void)at::empty({bytes}, at::kByte); }

/// Returns the numbers of a convolution for each of `dimensions`; a single one is that of all.
[[nodiscard]] inline std::vector<std::int64_t> for_each_dimension(const c10::IValue& value,
                                                                  std::int64_t dimensions) {
  auto numbers = value.toIntVector();
  if (numbers.size() == 1) numbers.resize(static_cast<std::size_t>(dimensions), numbers[0]);
  return numbers;
}

inline bool convolve(const c10::OperatorHandle& op, Stack&, const Arguments& arguments) {
  using namespace at::native;
  const at::Tensor x = arguments[0].toTensor(), w = arguments[1].toTensor();
  const auto numbers = [&](std::size_t i) { return for_each_dimension(arguments[i], x.dim() - 2); };
  const auto stride = numbers(3), padding = numbers(4), dilation = numbers(5), output_padding = numbers(7);
  const auto sizes = arguments[6].toBool()
                         ? conv_input_size(x.sizes(), w.sizes(), padding, output_padding, stride, dilation,
                                           arguments[8].toInt())
                         : conv_output_size(x.sizes(), w.sizes(), padding, stride, dilation);
  const auto format = x.dim() == 4 && mkldnn_conv_use_channels_last(x, w) ? at::MemoryFormat::ChannelsLast
                                                                          : at::MemoryFormat::Contiguous;
  const auto workspace = ConvolutionCall{op, arguments, {0}}.workspace();
  const auto y = at::empty(sizes, x.options().memory_format(format)).zero_();
  take_for_a_moment(workspace);
  arguments.become(y);
  return true;
}

inline bool convolve_backward(const c10::OperatorHandle& op, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments[1].toTensor(), w = arguments[2].toTensor();
  const bool channels_last = x.dim() == 4 && at::native::mkldnn_conv_use_channels_last(x, w);
  const auto format = channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const auto wanted = arguments[10].toBoolList();
  const auto workspace = ConvolutionCall{op, arguments, {0, 1}}.workspace();
  const auto like = [&](bool is_wanted, at::IntArrayRef sizes, at::MemoryFormat format) {
    return is_wanted ? at::empty(sizes, w.options().memory_format(format)).zero_() : at::Tensor();
  };
  const auto of_x = like(wanted[0], x.sizes(), format), of_w = like(wanted[1], w.sizes(), format);
  const auto of_bias = like(wanted[2], {w.size(0)}, at::MemoryFormat::Contiguous);
  take_for_a_moment(workspace);
  arguments.become(of_x, of_w, of_bias);
  return true;
}

}  // namespace looptorch_bench
