// SPDX-License-Identifier: MIT
// Allocates the results of convolutions without computing. The real kernels' workspaces, mostly copies in
// oneDNN's own layouts, are measured by running them on a few samples.
#pragma once

#include <looptorch/shapes_only/arguments.hpp>
#include <looptorch/shapes_only/kernel_call.hpp>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/ConvUtils.h>

#include <cstddef>

namespace looptorch::detail::shapes {

/// Returns the layout of results: channels last if oneDNN gets the input or the weight in that layout.
[[nodiscard]] inline at::MemoryFormat layout_of(const at::Tensor& x, const at::Tensor& w) {
  if (x.dim() < 4 || !at::native::mkldnn_conv_use_channels_last(x, w)) return at::MemoryFormat::Contiguous;
  return x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
}

inline bool allocate_convolution(const c10::OperatorHandle& op, Stack&, const Arguments& arguments) {
  using namespace at::native;
  const at::Tensor x = arguments.tensor("input"), w = arguments.tensor("weight");
  const auto by_dimension = [&](const char* name) {  // a single number applies to all dimensions
    auto numbers = arguments.integers(name);
    if (numbers.size() == 1) numbers.resize(static_cast<std::size_t>(x.dim() - 2), numbers[0]);
    return numbers;
  };
  const auto stride = by_dimension("stride"), padding = by_dimension("padding"),
             dilation = by_dimension("dilation");
  const auto sizes = arguments.named("transposed").toBool()
                         ? conv_input_size(x.sizes(), w.sizes(), padding, by_dimension("output_padding"),
                                           stride, dilation, arguments.integer("groups"))
                         : conv_output_size(x.sizes(), w.sizes(), padding, stride, dilation);
  const auto workspace = KernelCall{op, arguments, {"input"}}.workspace();
  const auto y = at::empty(sizes, x.options().memory_format(layout_of(x, w))).zero_();
  allocate_workspace(workspace);
  arguments.return_results(y);
  return true;
}

inline bool allocate_convolution_backward(const c10::OperatorHandle& op, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments.tensor("input"), w = arguments.tensor("weight");
  const auto format = layout_of(x, w);
  const auto wanted = arguments.flags("output_mask");
  const auto workspace = KernelCall{op, arguments, {"grad_output", "input"}}.workspace();
  const auto like = [&](bool is_wanted, at::IntArrayRef sizes, at::MemoryFormat layout) {
    return is_wanted ? at::empty(sizes, w.options().memory_format(layout)).zero_() : at::Tensor();
  };
  const auto grad_x = like(wanted[0], x.sizes(), format), grad_w = like(wanted[1], w.sizes(), format);
  const auto grad_bias =
      like(wanted[2], {arguments.tensor("grad_output").size(1)}, at::MemoryFormat::Contiguous);
  allocate_workspace(workspace);
  arguments.return_results(grad_x, grad_w, grad_bias);
  return true;
}

}  // namespace looptorch::detail::shapes
