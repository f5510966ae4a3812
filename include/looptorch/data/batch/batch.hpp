// SPDX-License-Identifier: MIT
// Visits the tensors of a batch, to move, pin or measure it without knowing its type. A batch is a tensor, a
// torch::data::Example, a type with `each_tensor(f)`, or an aggregate, container, tuple or optional of these,
// which may also hold numbers and strings. Types are resolved at compile time, and nothing is copied.
#pragma once

#include <looptorch/data/batch/aggregate.hpp>
#include <looptorch/data/batch/copy_stream.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ranges>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch {
namespace detail {

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class T>
concept TensorLike = std::is_same_v<T, at::Tensor>;

template <class T>
concept EachTensor = requires(T& value) {
  value.each_tensor([](auto&) {});
};

template <class T>
concept Opaque =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<const T&, std::string_view> ||
    std::is_same_v<T, std::filesystem::path> || std::is_same_v<T, std::nullopt_t>;

/// A torch::data::Example. It has constructors, so it is not an aggregate. Recognised by its members, so that
/// its header need not be included.
template <class T>
concept TorchExample = requires(T& example) {
  typename T::DataType;
  typename T::TargetType;
  example.data;
};

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

template <class T>
constexpr bool traversable();

template <class T, std::size_t... I>
constexpr bool fields_traversable(std::index_sequence<I...>) {
  return (traversable<std::remove_cvref_t<std::tuple_element_t<I, T>>>() && ...);
}

template <class T>
constexpr bool traversable() {
  if constexpr (TensorLike<T> || EachTensor<T> || Opaque<T>)
    return true;
  else if constexpr (is_optional<T>)
    return traversable<typename T::value_type>();
  else if constexpr (TorchExample<T>)
    return traversable<typename T::DataType>() &&
           (std::is_void_v<typename T::TargetType> || traversable<typename T::TargetType>());
  else if constexpr (TupleLike<T>)
    return fields_traversable<T>(std::make_index_sequence<std::tuple_size_v<T>>{});
  else if constexpr (std::ranges::input_range<T>)
    return traversable<std::remove_cvref_t<std::ranges::range_reference_t<T>>>();
  else if constexpr (KnownAggregate<T>)
    return fields_traversable<field_types_t<T>>(std::make_index_sequence<kFieldCount<T>>{});
  else
    return false;
}

}  // namespace detail

/// A type in which looptorch finds tensors; the comment at the top of this file lists them.
template <class T>
concept BatchLike = detail::traversable<std::remove_cvref_t<T>>();

/// Calls `visit(tensor)` for each tensor in `batch`, in the order of its fields; `visit` takes `at::Tensor&`,
/// or `const at::Tensor&` for a const batch. Undefined tensors are visited too.
template <class Batch, class Visit>
requires BatchLike<Batch>
void for_each_tensor(Batch& batch, Visit&& visit) {
  using T = std::remove_const_t<Batch>;
  const auto visit_field = [&](auto& field) { for_each_tensor(field, visit); };
  if constexpr (detail::TensorLike<T>)
    visit(batch);
  else if constexpr (detail::EachTensor<T>)
    batch.each_tensor(visit);
  else if constexpr (detail::Opaque<T>)
    return;
  else if constexpr (detail::is_optional<T>)
    batch ? visit_field(*batch) : void();
  else if constexpr (detail::TorchExample<T>) {
    visit_field(batch.data);
    if constexpr (!std::is_void_v<typename T::TargetType>) visit_field(batch.target);
  } else if constexpr (detail::TupleLike<T>)
    std::apply([&](auto&... field) { (visit_field(field), ...); }, batch);
  else if constexpr (std::ranges::input_range<T>) {
    if constexpr (!detail::Opaque<std::ranges::range_value_t<T>>)
      for (auto& field : batch) visit_field(field);
  } else
    detail::visit_fields(batch, visit_field);
}

/// Returns the number of samples in a batch: the first dimension of its first tensor that has one, or 0 if no
/// tensor has.
template <BatchLike Batch>
[[nodiscard]] std::int64_t batch_size(const Batch& batch) {
  std::int64_t size = -1;
  for_each_tensor(batch, [&](const at::Tensor& tensor) {
    if (size < 0 && tensor.defined() && tensor.dim() > 0) size = tensor.size(0);
  });
  return size < 0 ? 0 : size;
}

/// True if every defined tensor of `batch` is on `device`.
template <BatchLike Batch>
[[nodiscard]] bool is_on(const Batch& batch, at::Device device) {
  bool there = true;
  for_each_tensor(batch,
                  [&](const at::Tensor& tensor) { there &= !tensor.defined() || tensor.device() == device; });
  return there;
}

namespace detail {

template <BatchLike Batch>
void move_to(Batch& batch, at::Device device, PinnedSource pinned) {
  CopyStream copies(device, pinned);
  for_each_tensor(batch, [&](at::Tensor& tensor) {
    if (tensor.defined() && tensor.device() != device) tensor = copies.copy(tensor);
  });
  copies.hand_over();
}

/// Calls `use(batch)` with a batch on `device`: the given one if it is there, otherwise a copy that is moved
/// there. A batch that cannot be copied is itself moved.
template <class Batch, class Use>
void with_batch_on(at::Device device, PinnedSource pinned, Batch& batch, Use&& use) {
  using Plain = std::remove_const_t<Batch>;
  if (is_on(batch, device)) return use(std::as_const(batch));
  if constexpr (std::is_copy_constructible_v<Plain>) {
    Plain there = batch;
    move_to(there, device, pinned);
    use(std::as_const(there));
  } else {
    static_assert(!std::is_const_v<Batch>,
                  "looptorch: a const batch that cannot be copied cannot be moved to the model's device. "
                  "Let the range yield it by value. See docs/errors.md#batch");
    move_to(batch, device, pinned);
    use(std::as_const(batch));
  }
}

}  // namespace detail

/// Moves the tensors of `batch` that are elsewhere to `device`. Copies from the host to an accelerator run on
/// a separate stream, in parallel with the device's computation; only the device's current stream waits for
/// them, not the host. Pinned tensors are read after this call returns: do not write to them before the
/// device has used the batch. Pageable tensors are copied to pinned memory first and may be refilled at once.
template <BatchLike Batch>
void move_to(Batch& batch, at::Device device) {
  detail::move_to(batch, device, detail::PinnedSource::in_place);
}

}  // namespace looptorch
