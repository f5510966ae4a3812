// SPDX-License-Identifier: MIT
// Takes a range of a batch's samples as a smaller batch. RetryOnOom splits a micro-batch in this way if it
// did not fit into memory. Copies no data of a tensor: the smaller batch has views of the batch's tensors.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/batch/batch.hpp>

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch {
namespace detail {

template <class T>
concept HasSlice = !TensorLike<T> && requires(const T& value, std::int64_t index) {
  { value.slice(index, index) } -> std::same_as<T>;
};

/// A map or a set. Its elements never correspond to samples.
template <class T>
concept Associative = requires {
  typename T::key_type;
};

/// A string or a path. A list of them that is as long as the batch has one per sample.
template <class T>
concept TextLike = Opaque<T> && !std::is_arithmetic_v<T> && !std::is_enum_v<T>;

template <class T>
constexpr bool sliceable();

template <class T, std::size_t... I>
constexpr bool fields_sliceable(std::index_sequence<I...>) {
  return (sliceable<std::remove_cvref_t<std::tuple_element_t<I, T>>>() && ...);
}

template <class T>
constexpr bool sliceable() {
  if constexpr (HasSlice<T> || TensorLike<T>)
    return true;
  else if constexpr (EachTensor<T>)
    return false;  // what else it holds is unknown
  else if constexpr (Opaque<T>)
    return true;
  else if constexpr (is_optional<T>)
    return sliceable<typename T::value_type>();
  else if constexpr (TupleLike<T>)
    return fields_sliceable<T>(std::make_index_sequence<std::tuple_size_v<T>>{});
  else if constexpr (Associative<T>)
    return sliceable<typename T::value_type>();
  else if constexpr (std::ranges::input_range<T>)
    return (TextLike<std::ranges::range_value_t<T>> ||
            (!Opaque<std::ranges::range_value_t<T>> && sliceable<std::ranges::range_value_t<T>>())) &&
           std::constructible_from<T, std::ranges::iterator_t<T>, std::ranges::iterator_t<T>>;
  else if constexpr (KnownAggregate<T>)
    return fields_sliceable<field_types_t<T>>(std::make_index_sequence<kFieldCount<T>>{});
  else
    return false;
}

/// Samples [begin, end) of a batch of `size`.
struct SampleRange {
  std::int64_t begin, end, size;
};

template <class... What>
[[noreturn]] void refuse_slice(std::int64_t samples, const What&... what) {
  throw UsageError(message("a batch of ", samples, " samples has ", what...,
                           "; give the batch a member `slice(std::int64_t begin, std::int64_t end) const`"));
}

inline void take_samples(at::Tensor& tensor, const SampleRange& range) {
  if (!tensor.defined() || tensor.dim() == 0) return;
  if (tensor.size(0) != range.size)
    refuse_slice(range.size, "a tensor of shape ", tensor.sizes(), ", which cannot be split by samples");
  tensor = tensor.narrow(0, range.begin, range.end - range.begin);
}

/// True if the list has one element per sample. Throws UsageError if its elements may instead be tensors of
/// the whole batch.
template <class List>
bool has_one_a_sample(const List& list, const SampleRange& range) {
  if (std::ranges::distance(list) != range.size) return false;
  if constexpr (!TextLike<std::ranges::range_value_t<List>>) {
    std::int64_t whole = 0, others = 0;
    for (const auto& element : list)
      for_each_tensor(element, [&](const at::Tensor& tensor) {
        if (tensor.defined() && tensor.dim() > 0) ++(tensor.size(0) == range.size ? whole : others);
      });
    if (whole > 0 && others == 0)
      refuse_slice(range.size, "a list of ", range.size,
                   ", whose elements may be those of a sample each, or of all samples");
  }
  return true;
}

template <class T>
void take_samples(T& value, const SampleRange& range) {
  const auto take_field = [&](auto& field) { take_samples(field, range); };
  if constexpr (HasSlice<T>) {
    value = std::as_const(value).slice(range.begin, range.end);
  } else if constexpr (Opaque<T>) {
    return;
  } else if constexpr (is_optional<T>) {
    if (value) take_field(*value);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](auto&... field) { (take_field(field), ...); }, value);
  } else if constexpr (Associative<T>) {
    for (auto& field : value) take_field(field);
  } else if constexpr (std::ranges::input_range<T>) {
    if (has_one_a_sample(value, range))
      value = T(std::ranges::next(value.begin(), range.begin), std::ranges::next(value.begin(), range.end));
    else
      for (auto& field : value) take_field(field);
  } else {
    visit_fields(value, take_field);
  }
}

}  // namespace detail

/// A batch that can be split into samples: it has `slice(std::int64_t begin, std::int64_t end) const`, or
/// consists of tensors, numbers, texts, and containers of tensors and texts. A batch with a list of numbers
/// needs a `slice`, since nothing tells whether the list has one number per sample.
template <class Batch>
concept SliceableBatch = BatchLike<Batch> && std::copy_constructible<Batch> &&
    detail::sliceable<std::remove_cvref_t<Batch>>();

/// Returns samples [begin, end) of `batch`, by its member `slice` if it has one. Otherwise slices each tensor
/// along its first dimension, and each list of texts or tensors that has one element per sample; copies 0-dim
/// tensors and everything else unchanged. Throws UsageError for a tensor whose first dimension is not the
/// batch's, and for a list of tensors that need not have one element per sample.
template <SliceableBatch Batch>
[[nodiscard]] Batch slice_batch(const Batch& batch, std::int64_t begin, std::int64_t end) {
  Batch samples = batch;
  detail::take_samples(samples, {begin, end, batch_size(batch)});
  return samples;
}

}  // namespace looptorch
