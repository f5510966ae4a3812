// SPDX-License-Identifier: MIT
// Describes a batch by a text, its form; batches of equal form can share a CUDA graph. The form has each
// tensor's shape, strides and type. It also has the values that are not tensors, which a captured graph would
// repeat from its first batch. An objective with a function `weight(batch)` promises to use these values for
// the loss's weight only; the form then leaves them out.
#pragma once

#include <looptorch/data/batch/batch.hpp>
#include <looptorch/graph/graph_reasons.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace looptorch::detail {

template <class T>
void append_bytes(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void append_form(std::string& out, const at::Tensor& tensor) {
  if (!tensor.defined()) return void(out += 'u');
  out += 't';
  append_bytes(out, tensor.scalar_type());
  append_bytes(out, tensor.dim());
  for (const std::int64_t size : tensor.sizes()) append_bytes(out, size);
  for (const std::int64_t stride : tensor.strides()) append_bytes(out, stride);
}

/// Appends what a batch has besides its tensors, in the order of its fields: which optional fields it has,
/// how long its lists are, and with `kValues` its values that are no tensors. A type with `each_tensor` shows
/// only tensors: `is_complete` becomes false.
template <bool kValues, class Batch>
void append_parts(std::string& out, const Batch& batch, bool& is_complete) {
  const auto append = [&](const auto& field) { append_parts<kValues>(out, field, is_complete); };
  if constexpr (TensorLike<Batch> || std::is_same_v<Batch, std::nullopt_t> || (Opaque<Batch> && !kValues)) {
    return;
  } else if constexpr (EachTensor<const Batch>) {
    is_complete = false;
  } else if constexpr (std::is_arithmetic_v<Batch> || std::is_enum_v<Batch>) {
    append_bytes(out, batch);
  } else if constexpr (std::is_convertible_v<const Batch&, std::string_view>) {
    const std::string_view text = batch;
    append_bytes(out, text.size());
    out += text;
  } else if constexpr (std::is_same_v<Batch, std::filesystem::path>) {
    append(batch.native());
  } else if constexpr (is_optional<Batch>) {
    append_bytes(out, batch.has_value());
    if (batch) append(*batch);
  } else if constexpr (TorchExample<Batch>) {
    append(batch.data);
    if constexpr (!std::is_void_v<typename Batch::TargetType>) append(batch.target);
  } else if constexpr (TupleLike<Batch>) {
    std::apply([&](const auto&... field) { (append(field), ...); }, batch);
  } else if constexpr (std::ranges::input_range<const Batch>) {
    if constexpr (kValues || !Opaque<std::ranges::range_value_t<const Batch>>) {
      std::int64_t count = 0;
      for (const auto& field : batch) append(field), ++count;
      append_bytes(out, count);
    }
  } else {
    visit_fields(batch, append);
  }
}

/// Appends the values of a batch that are no tensors, and its structure.
template <class Batch>
void append_host_values(std::string& out, const Batch& batch, bool& is_complete) {
  append_parts</*kValues=*/true>(out, batch, is_complete);
}

/// Appends which optional fields a batch has, and how long its lists of fields with tensors are.
template <class Batch>
void append_structure(std::string& out, const Batch& batch) {
  bool is_complete = true;
  append_parts</*kValues=*/false>(out, batch, is_complete);
}

/// Returns why a graph cannot run on copies of a batch's tensors; null if it can.
template <class Batch>
[[nodiscard]] const char* reason_against_tensors(const Batch& batch) {
  const char* reason = nullptr;
  for_each_tensor(batch, [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (tensor.layout() != at::kStrided) reason = graph_reasons::kSparseBatch;
    if (tensor.requires_grad()) reason = graph_reasons::kBatchGradient;
  });
  return reason;
}

/// Returns the forms of a batch's tensors.
template <class Batch>
[[nodiscard]] std::string form_of(const Batch& batch) {
  std::string form;
  for_each_tensor(batch, [&](const at::Tensor& tensor) { append_form(form, tensor); });
  return form;
}

}  // namespace looptorch::detail
