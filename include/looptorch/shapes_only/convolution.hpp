// SPDX-License-Identifier: MIT
// Convolutions without computing. The workspaces of the real kernels, mostly copies in oneDNN's own layouts,
// are measured on a few samples.
#pragma once

#include <looptorch/shapes_only/arguments.hpp>
#include <looptorch/shapes_only/kernel_call.hpp>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/ConvUtils.h>

#include <cstdint>
#include <vector>

namespace looptorch::detail::shapes {

/// Returns a convolution's numbers by dimension; a single one applies to all `dimensions`.
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
  const auto workspace = KernelCall{op, arguments, {0}}.workspace();
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
  const auto workspace = KernelCall{op, arguments, {0, 1}}.workspace();
  const auto like = [&](bool is_wanted, at::IntArrayRef sizes, at::MemoryFormat layout) {
    return is_wanted ? at::empty(sizes, w.options().memory_format(layout)).zero_() : at::Tensor();
  };
  const auto of_x = like(wanted[0], x.sizes(), format), of_w = like(wanted[1], w.sizes(), format);
  const auto of_bias = like(wanted[2], {w.size(0)}, at::MemoryFormat::Contiguous);
  take_for_a_moment(workspace);
  arguments.become(of_x, of_w, of_bias);
  return true;
}

}  // namespace looptorch::detail::shapes
