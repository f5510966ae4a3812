// SPDX-License-Identifier: MIT
// Makes a batch of samples of any plain type: the default collate. Stacks tensors, puts numbers into a tensor
// and texts and lists into vectors, and collates aggregates field by field. Types decide this at compile
// time. In a loader, tensors are stacked straight into the loader's reused memory.
#pragma once

#include <looptorch/data/batch/aggregate.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/data/batch/batch_empty.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

/// Stacks tensors of one shape along a new first dimension: `[...]` becomes `[B, ...]`. In a loader, tensors
/// of one type are stacked straight into its slot.
struct StackTensors {
  at::Tensor operator()(std::span<at::Tensor> samples) const {
    const at::TensorList list(samples.data(), samples.size());
    if (!detail::open_slot.pool || !fit_in_slot(samples)) return at::stack(list);
    std::vector<std::int64_t> sizes = samples.front().sizes().vec();
    sizes.insert(sizes.begin(), std::ssize(samples));
    at::Tensor batch = batch_empty(sizes, samples.front().options().pinned_memory(false));
    return at::stack_out(batch, list);
  }

 private:
  static bool fit_in_slot(std::span<at::Tensor> samples) {
    return std::ranges::all_of(samples, [&first = samples.front()](const at::Tensor& sample) {
      return sample.is_cpu() && sample.layout() == at::kStrided && !sample.requires_grad() &&
             !sample.is_quantized() && sample.suggest_memory_format() == at::MemoryFormat::Contiguous &&
             !sample.is_conj() && !sample.is_neg() && sample.scalar_type() == first.scalar_type() &&
             sample.sizes() == first.sizes();
    });
  }
};

namespace detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

template <class T>
concept StackedNumber = (std::is_arithmetic_v<T> || std::is_enum_v<T>)&&!std::is_same_v<T, long double>;

/// A type whose values are collected unchanged in a vector.
template <class T>
concept StackedList =
    std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path> || is_vector<T>;

/// Returns references to the fields of an aggregate, or to the elements of a tuple, pair or array.
template <class T>
constexpr auto stacked_fields(T& value) {
  if constexpr (TupleLike<T>)
    return std::apply([](auto&... element) { return std::tie(element...); }, value);
  else
    return tie_fields<T>(value);
}

template <class T>
using stacked_fields_t = decltype(stacked_fields(std::declval<T&>()));

template <class T, std::size_t I>
using stacked_field_t = std::remove_cvref_t<std::tuple_element_t<I, stacked_fields_t<T>>>;

template <class T>
constexpr bool stackable();

template <class T, std::size_t... I>
constexpr bool fields_stackable(std::index_sequence<I...>) {
  return sizeof...(I) > 0 && (stackable<stacked_field_t<T, I>>() && ...);
}

template <class T>
constexpr bool stackable() {
  if constexpr (TensorLike<T> || StackedNumber<T> || StackedList<T>)
    return true;
  else if constexpr (TupleLike<T> || KnownAggregate<T>)
    return fields_stackable<T>(std::make_index_sequence<std::tuple_size_v<stacked_fields_t<T>>>{});
  else
    return false;
}

/// A sample that has a default collate. A bare bool has none, since its std::vector has no span.
template <class T>
concept Stackable = stackable<T>() && !std::is_same_v<T, bool>;

/// Returns the dtype of a tensor of such numbers: PyTorch's int64 for integers, which losses expect for
/// classes.
template <StackedNumber T>
using stacked_number_t =
    std::conditional_t<std::is_same_v<T, bool> || std::is_floating_point_v<T>, T, std::int64_t>;

/// Returns `number(i)` for i < count, as a tensor [count].
template <StackedNumber T, class Number>
at::Tensor stack_numbers(std::size_t count, const Number& number) {
  using Value = stacked_number_t<T>;
  const auto type = c10::CppTypeToScalarType<Value>::value;
  at::Tensor batch = batch_empty({static_cast<std::int64_t>(count)}, at::TensorOptions().dtype(type));
  auto* out = batch.template mutable_data_ptr<Value>();
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<Value>(number(i));
  return batch;
}

template <class T>
auto stack_samples(std::span<T> samples);

template <std::size_t I, class T>
auto stack_field(std::span<T> samples) {
  using Field = stacked_field_t<T, I>;
  const auto field = [&](std::size_t i) -> auto& { return std::get<I>(stacked_fields(samples[i])); };
  if constexpr (StackedNumber<Field>) {
    return stack_numbers<Field>(samples.size(), field);
  } else {
    std::vector<Field> fields;
    fields.reserve(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) fields.push_back(std::move(field(i)));
    return stack_samples(std::span(fields));
  }
}

/// True if each field's batch has the field's own type: then the aggregate is its own batch type.
template <class T, class... Batches>
constexpr bool stacks_to_itself() {
  if constexpr (TupleLike<T>)
    return false;
  else
    return std::is_same_v<std::tuple<Batches&...>, stacked_fields_t<T>>;
}

template <class T, std::size_t... I>
auto stack_fields(std::span<T> samples, std::index_sequence<I...>) {
  if constexpr (stacks_to_itself<T, decltype(stack_field<I>(samples))...>())
    return T{stack_field<I>(samples)...};
  else
    return std::tuple<decltype(stack_field<I>(samples))...>{stack_field<I>(samples)...};
}

/// Returns a batch of `samples`, which are moved from.
template <class T>
auto stack_samples(std::span<T> samples) {
  if constexpr (TensorLike<T>)
    return StackTensors{}(samples);
  else if constexpr (StackedNumber<T>)
    return stack_numbers<T>(samples.size(), [&](std::size_t i) { return samples[i]; });
  else if constexpr (StackedList<T>)
    return std::vector<T>(std::move_iterator(samples.begin()), std::move_iterator(samples.end()));
  else
    return stack_fields(samples, std::make_index_sequence<std::tuple_size_v<stacked_fields_t<T>>>{});
}

}  // namespace detail
}  // namespace looptorch
