// SPDX-License-Identifier: MIT
// What a dataset is: anything with `size()` and a `get(index)` that several threads may call at once. No base
// class. How samples become a batch: the dataset's own `collate`, a callable given to the loader, or stacking
// tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace looptorch {

/// `size()` samples, `get(index)` for 0 <= index < size(). `get` is const and safe to call from several
/// threads; what it returns should depend on the index only, so that a run does not depend on the number of
/// workers.
template <class T>
concept Dataset = requires(const T& dataset, std::int64_t index) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  requires std::movable<std::remove_cvref_t<decltype(dataset.get(index))>>;
};

/// What a dataset's `get` returns.
template <Dataset T>
using sample_t = std::remove_cvref_t<decltype(std::declval<const T&>().get(std::int64_t{}))>;

/// A dataset that says how its samples become a batch: `collate(std::span<Sample>) const`. It may move from
/// the samples, and is called from several threads at once.
template <class T>
concept CollatingDataset = Dataset<T> && requires(const T& dataset, std::span<sample_t<T>> samples) {
  { dataset.collate(samples) } -> std::movable;
};

/// Stacks tensors of one shape along a new first dimension: `[...]` becomes `[B, ...]`.
struct StackTensors {
  at::Tensor operator()(std::span<at::Tensor> samples) const {
    return at::stack(at::TensorList(samples.data(), samples.size()));
  }
};

/// The loader's default: the dataset's own `collate`, else `StackTensors`.
struct DefaultCollate {};

namespace detail {

/// A batch of `samples`, made as the dataset or the given callable says.
template <class Set, class Collate>
auto collate_samples(const Set& dataset, const Collate& collate, std::span<sample_t<Set>> samples) {
  if constexpr (!std::is_same_v<Collate, DefaultCollate>)
    return collate(samples);
  else if constexpr (CollatingDataset<Set>)
    return dataset.collate(samples);
  else
    return StackTensors{}(samples);
}

/// How a loader holds a dataset: an lvalue by reference, a temporary by value.
template <class Set>
using held_t = std::conditional_t<std::is_lvalue_reference_v<Set>, const std::remove_cvref_t<Set>&,
                                  std::remove_cv_t<Set>>;

template <class Set, class Collate>
concept Collatable = Dataset<Set> &&(std::is_same_v<Collate, DefaultCollate>
                                         ? CollatingDataset<Set> || std::is_same_v<sample_t<Set>, at::Tensor>
                                         : std::is_invocable_v<const Collate&, std::span<sample_t<Set>>>);

}  // namespace detail

/// What a loader over the dataset yields.
template <Dataset Set, class Collate = DefaultCollate>
using batch_t = decltype(detail::collate_samples(std::declval<const Set&>(), std::declval<const Collate&>(),
                                                 std::span<sample_t<Set>>{}));

}  // namespace looptorch
