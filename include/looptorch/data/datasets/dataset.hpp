// SPDX-License-Identifier: MIT
// Defines what a dataset is: any type with `size()` and a `get(index)` that several threads may call at once.
// It needs no base class. A dataset that augments has `get(index, context)`; the context holds the sample's
// seed. Samples become a batch by the dataset's own `collate`, by a callable given to the loader, or field by
// field.
#pragma once

#include <looptorch/base/random.hpp>
#include <looptorch/data/batch/stack_samples.hpp>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch {

/// The values on which a sample's randomness may depend. None changes with the number of workers or the order
/// in which they run.
struct SampleContext {
  std::uint64_t seed = 0;  ///< seed of this sample in this epoch
  std::int64_t epoch = 0;
};

/// Returns the context of sample `index`: a function of the run's seed, the epoch and the index, the same on
/// every platform.
inline SampleContext sample_context(std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
  const std::uint64_t in_epoch = derive_seed(seed, static_cast<std::uint64_t>(epoch));
  return {.seed = derive_seed(in_epoch, static_cast<std::uint64_t>(index)), .epoch = epoch};
}

namespace detail {

template <class T>
concept PlainGet = requires(const T& dataset, std::int64_t index) {
  requires std::movable<std::remove_cvref_t<decltype(dataset.get(index))>>;
};

template <class T>
concept SeededGet = requires(const T& dataset, std::int64_t index, const SampleContext& context) {
  requires std::movable<std::remove_cvref_t<decltype(dataset.get(index, context))>>;
};

}  // namespace detail

// clang-format off
/// A type with `size()` samples and `get(index)` or `get(index, const SampleContext&)` for 0 <= index <
/// size(). `get` is const and safe to call from several threads. Its result should depend only on its
/// arguments, so that a run does not depend on the number of workers.
template <class T>
concept Dataset = requires(const T& dataset) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
} && (detail::PlainGet<T> || detail::SeededGet<T>);

/// A dataset whose samples differ from epoch to epoch: `get(index, const SampleContext&)`, which takes
/// precedence over a `get(index)`.
template <class T>
concept SeededDataset = Dataset<T> && detail::SeededGet<T>;

/// A dataset with `identity(index)`, a text that identifies the sample's source, such as
/// `remembered_content_identity(path)`. Settings that are the same for all samples are not part of it. A
/// cache uses it as key.
template <class T>
concept IdentifiedDataset = Dataset<T> && requires(const T& dataset, std::int64_t index) {
  { dataset.identity(index) } -> std::convertible_to<std::string>;
};

/// A dataset with `path(index)`, the sample's file, which errors name.
template <class T>
concept LocatedDataset = requires(const T& dataset, std::int64_t index) {
  { dataset.path(index) } -> std::convertible_to<std::filesystem::path>;
};

/// A dataset with `fingerprint(index)`, a text that identifies the sample's content, such as its line in a
/// manifest. Snapshots keep a checksum of all texts; a run with other samples, or another order, is refused
/// when it resumes. A text should be cheap to make, and contain neither paths of this machine nor settings
/// that a resumed run may change.
template <class T>
concept FingerprintedDataset = Dataset<T> && requires(const T& dataset, std::int64_t index) {
  { dataset.fingerprint(index) } -> std::convertible_to<std::string>;
};
// clang-format on

/// Returns sample `index` of either kind of dataset.
template <Dataset T>
auto get_sample(const T& dataset, std::int64_t index, const SampleContext& context) {
  if constexpr (SeededDataset<T>)
    return dataset.get(index, context);
  else
    return dataset.get(index);
}

/// The type that a dataset's `get` returns.
template <Dataset T>
using sample_t = std::remove_cvref_t<decltype(get_sample(std::declval<const T&>(), std::int64_t{},
                                                         std::declval<const SampleContext&>()))>;

namespace detail {

template <class Set, class Sample>
concept CollatesItself = requires(const Set& set, std::span<Sample> samples) {
  { set.collate(samples) } -> std::movable;
};

}  // namespace detail

/// A dataset with `collate(std::span<Sample>) const`, which makes a batch of samples. It may move from the
/// samples, and is called from several threads at once.
template <class T>
concept CollatingDataset = Dataset<T> && detail::CollatesItself<T, sample_t<T>>;

/// The loader's default: the dataset's own `collate`, if it has one. Otherwise tensors are stacked
/// (`StackTensors`); numbers become a tensor [B], int64 for integers; strings, paths and vectors become a
/// vector of them; aggregates, tuples, pairs and arrays become a std::tuple of their fields' batches. The
/// batch of an aggregate whose fields are all tensors has the aggregate's own type.
struct DefaultCollate {};

namespace detail {

/// Returns a batch of `samples`, made by the dataset or the given callable.
template <class Set, class Collate, class Sample>
auto collate_samples(const Set& dataset, const Collate& collate, std::span<Sample> samples) {
  if constexpr (!std::is_same_v<Collate, DefaultCollate>)
    return collate(samples);
  else if constexpr (CollatesItself<Set, Sample>)
    return dataset.collate(samples);
  else
    return stack_samples(samples);
}

/// True if samples of the dataset or stream can be made into a batch.
template <class Set, class Collate, class Sample>
concept Collates = (std::is_same_v<Collate, DefaultCollate>
                        ? CollatesItself<Set, Sample> || Stackable<Sample>
                        : std::is_invocable_v<const Collate&, std::span<Sample>>);

template <class Set, class Collate, class Sample>
using collated_t = std::remove_cvref_t<decltype(collate_samples(
    std::declval<const Set&>(), std::declval<const Collate&>(), std::span<Sample>{}))>;

/// The type in which a loader holds a dataset: a reference for an lvalue, a value for a temporary.
template <class Set>
using held_t = std::conditional_t<std::is_lvalue_reference_v<Set>, const std::remove_cvref_t<Set>&,
                                  std::remove_cv_t<Set>>;

}  // namespace detail

/// The batch type of a loader over the dataset.
template <Dataset Set, class Collate = DefaultCollate>
using batch_t = detail::collated_t<Set, Collate, sample_t<Set>>;

}  // namespace looptorch
