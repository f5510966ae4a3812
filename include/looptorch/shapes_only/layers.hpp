// SPDX-License-Identifier: MIT
// Attention and normalisation without computing. Omits the real kernels' buffers, a few hundred KB a thread.
//
// Shapes: B batch, H heads, T queries, S keys and values, d width of a head.
#pragma once

#include <looptorch/shapes_only/arguments.hpp>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch::detail::shapes {

/// Returns zeros of the sizes of `[B, H, T, d]`, in memory ordered `[B, T, H, d]`.
[[nodiscard]] inline at::Tensor heads_behind_time(const at::Tensor& like_BHTd) {
  const auto sizes = like_BHTd.sizes();
  return at::zeros({sizes[0], sizes[2], sizes[1], sizes[3]}, like_BHTd.options()).transpose(1, 2);
}

inline bool attend(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor query_BHTd = arguments[0].toTensor();
  const auto sizes = query_BHTd.sizes();
  const auto sums_BHT =
      at::zeros({sizes[0], sizes[2], sizes[1]}, query_BHTd.options().dtype(at::kFloat)).transpose(1, 2);
  arguments.become(at::zeros_like(query_BHTd), sums_BHT);
  return true;
}

inline bool attend_backward(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const auto gradient = [&](std::size_t i) { return heads_behind_time(arguments[i].toTensor()); };
  arguments.become(gradient(1), gradient(2), gradient(3));
  return true;
}

inline bool normalise_layer(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments[0].toTensor().contiguous();
  const at::Tensor weight = arguments[2].isTensor() ? arguments[2].toTensor() : at::Tensor();
  const auto normalised = arguments[1].toIntVector().size();
  std::vector<std::int64_t> rows(x.sizes().begin(), x.sizes().end());
  std::fill(rows.end() - static_cast<std::ptrdiff_t>(normalised), rows.end(), 1);
  const auto options = weight.defined() ? x.options().dtype(weight.scalar_type()) : x.options();
  arguments.become(at::zeros_like(x, at::MemoryFormat::Contiguous), at::zeros(rows, options),
                   at::zeros(rows, options));
  return true;
}

inline bool normalise_layer_backward(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments[1].toTensor().contiguous();
  const auto wanted = arguments[7].toBoolList();
  const auto of = [&](std::size_t i) {
    return wanted[i - 4] ? at::zeros_like(arguments[i].toTensor(), at::MemoryFormat::Contiguous)
                         : at::Tensor();
  };
  const at::Tensor of_x = wanted[0] ? at::zeros_like(x, at::MemoryFormat::Contiguous) : at::Tensor();
  arguments.become(of_x, of(5), of(6));
  return true;
}

inline bool normalise_groups(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments[0].toTensor();
  const at::Tensor weight = arguments[1].isTensor() ? arguments[1].toTensor() : at::Tensor();
  const auto options = weight.defined() ? x.options().dtype(weight.scalar_type()) : x.options();
  const auto of_group = [&] { return at::zeros({arguments[3].toInt(), arguments[6].toInt()}, options); };
  arguments.become(at::zeros_like(x, x.suggest_memory_format()), of_group(), of_group());
  return true;
}

inline bool normalise_groups_backward(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments[1].toTensor();
  const auto wanted = arguments[9].toBoolList();
  const auto of_channels = [&](bool is_wanted) {
    return is_wanted ? at::zeros_like(arguments[4].toTensor()) : at::Tensor();
  };
  arguments.become(wanted[0] ? at::zeros_like(x, x.suggest_memory_format()) : at::Tensor(),
                   of_channels(wanted[1]), of_channels(wanted[2]));
  return true;
}

}  // namespace looptorch::detail::shapes
