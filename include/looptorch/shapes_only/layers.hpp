// SPDX-License-Identifier: MIT
// Replaces, under ShapesOnly, the kernels of attention, normalisation and pooling: allocates their results
// and computes nothing. Replaces binary cross entropy and multinomial as well, whose own kernels would refuse
// the meaningless numbers as probabilities. The real kernels' buffers, a few hundred KB per thread, are not
// counted.
//
// Shapes: B batch, H heads, T queries, S keys and values, d width of a head.
#pragma once

#include <looptorch/shapes_only/arguments.hpp>
#include <looptorch/shapes_only/arithmetic.hpp>

#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch::detail::shapes {

/// Returns zeros of the sizes of `[B, H, T, d]`, in memory ordered `[B, T, H, d]`.
[[nodiscard]] inline at::Tensor zeros_in_BTHd_order(const at::Tensor& like_BHTd) {
  const auto sizes = like_BHTd.sizes();
  return at::zeros({sizes[0], sizes[2], sizes[1], sizes[3]}, like_BHTd.options()).transpose(1, 2);
}

inline bool allocate_attention(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor query_BHTd = arguments.tensor("query");
  const auto sizes = query_BHTd.sizes();
  const auto sums_BHT = at::zeros({sizes[0], sizes[2], sizes[1]},
                                  query_BHTd.options().dtype(at::toOpMathType(query_BHTd.scalar_type())))
                            .transpose(1, 2);
  arguments.return_results(at::zeros_like(query_BHTd), sums_BHT);
  return true;
}

inline bool allocate_attention_backward(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const auto gradient = [&](const char* of) { return zeros_in_BTHd_order(arguments.tensor(of)); };
  arguments.return_results(gradient("query"), gradient("key"), gradient("value"));
  return true;
}

inline bool allocate_layer_norm(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments.tensor("input").contiguous(), weight = arguments.tensor("weight");
  const auto normalised = arguments.integers("normalized_shape").size();
  std::vector<std::int64_t> rows(x.sizes().begin(), x.sizes().end());
  std::fill(rows.end() - static_cast<std::ptrdiff_t>(normalised), rows.end(), 1);
  const auto options = weight.defined() ? x.options().dtype(weight.scalar_type()) : x.options();
  arguments.return_results(at::zeros_like(x, at::MemoryFormat::Contiguous), at::zeros(rows, options),
                           at::zeros(rows, options));
  return true;
}

inline bool allocate_layer_norm_backward(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const auto wanted = arguments.flags("output_mask");
  const auto gradient = [](bool is_wanted, const at::Tensor& of) {
    return is_wanted ? at::zeros_like(of, at::MemoryFormat::Contiguous) : at::Tensor();
  };
  arguments.return_results(gradient(wanted[0], arguments.tensor("input").contiguous()),
                           gradient(wanted[1], arguments.tensor("weight")),
                           gradient(wanted[2], arguments.tensor("bias")));
  return true;
}

inline bool allocate_group_norm(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments.tensor("input"), weight = arguments.tensor("weight");
  const auto options = weight.defined() ? x.options().dtype(weight.scalar_type()) : x.options();
  const auto of_group = [&] {
    return at::zeros({arguments.integer("N"), arguments.integer("group")}, options);
  };
  arguments.return_results(at::zeros_like(x, x.suggest_memory_format()), of_group(), of_group());
  return true;
}

inline bool allocate_group_norm_backward(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments.tensor("input");
  const auto wanted = arguments.flags("output_mask");
  const auto of_channels = [&](bool is_wanted) {
    return is_wanted ? at::zeros_like(arguments.tensor("weight")) : at::Tensor();
  };
  arguments.return_results(wanted[0] ? at::zeros_like(x, x.suggest_memory_format()) : at::Tensor(),
                           of_channels(wanted[1]), of_channels(wanted[2]));
  return true;
}

/// Allocates the maxima and their indices, and a copy of an input that is not contiguous.
inline bool allocate_max_pool(const c10::OperatorHandle& op, Stack& stack, const Arguments& arguments) {
  const at::Tensor input = arguments.tensor("self");
  const at::Tensor copy = input.contiguous(input.suggest_memory_format());
  return allocate_results(op, stack, arguments);
}

/// Allocates the losses of all elements. Their mean or sum keeps this memory.
inline bool allocate_cross_entropy(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor loss = at::zeros_like(arguments.tensor("self"));
  const auto reduction = arguments.integer("reduction");
  if (reduction != at::Reduction::None) {
    const at::Tensor reduced = reduction == at::Reduction::Mean ? loss.mean() : loss.sum();
    loss.resize_(reduced.sizes());
  }
  arguments.return_results(loss);
  return true;
}

/// Allocates the indices that multinomial draws, and without replacement its random numbers.
inline bool allocate_choices(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor weights = arguments.tensor("self");
  auto sizes = weights.sizes().vec();
  sizes.back() = arguments.integer("num_samples");
  const at::Tensor places = at::zeros(sizes, weights.options().dtype(at::kLong));
  if (!arguments.named("replacement").toBool()) (void)at::empty_like(weights);
  arguments.return_results(places);
  return true;
}

}  // namespace looptorch::detail::shapes
