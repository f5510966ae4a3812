// SPDX-License-Identifier: MIT
// Applies a function to the samples of a dataset, for example to compute features, to augment or to convert
// to a smaller type. The function runs in the loader's workers, each time a sample is requested.
#pragma once

#include <looptorch/data/datasets/dataset.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch {
namespace detail {

template <class Function, class Sample>
concept MapsSeeded = std::is_invocable_v<const Function&, Sample, const SampleContext&>;

template <class Function, class Sample>
concept Maps = MapsSeeded<Function, Sample> || std::is_invocable_v<const Function&, Sample>;

template <class Function, class Sample>
auto map_sample(const Function& function, Sample&& sample, [[maybe_unused]] const SampleContext& context) {
  if constexpr (MapsSeeded<Function, Sample>)
    return std::invoke(function, std::move(sample), context);
  else
    return std::invoke(function, std::move(sample));
}

template <class Function, class Sample>
using mapped_t =
    decltype(map_sample(std::declval<const Function&>(), std::declval<Sample>(), SampleContext{}));

/// Returns the context for the inner dataset of one that draws random numbers. Its seed differs, since both
/// datasets would otherwise draw the same numbers.
inline SampleContext context_below(const SampleContext& context) {
  return {.seed = derive_seed(context.seed, 1), .epoch = context.epoch};
}

}  // namespace detail

/// Yields `function(sample)`, or `function(sample, const SampleContext&)` for a function that draws random
/// numbers. It must draw from `context.seed` alone, so that a sample does not depend on the number of
/// workers. It is called from several threads at once and gets the sample as an rvalue. An lvalue dataset is
/// held by reference and must outlive this; a temporary is moved in. The dataset's own collate is kept if the
/// function returns samples of the same type.
///
///     MapDataset noisy(clips, [](Clip clip, const SampleContext& context) {
///       return mixer(clip, context.seed);
///     });
template <class Set, class Function>
class MapDataset {
  using Inner = std::remove_cvref_t<Set>;
  static_assert(Dataset<Inner>,
                "looptorch: MapDataset needs a dataset. Give the type `size() const` and `get(std::int64_t "
                "index) const` returning a sample by value. See docs/errors.md#dataset");
  static_assert(
      detail::Maps<Function, sample_t<Inner>>,
      "looptorch: MapDataset's function cannot be called with this sample. It takes the sample, and a "
      "`const SampleContext&` after it if it draws, and is const. See docs/errors.md#map-dataset");
  static constexpr bool kDraws = detail::MapsSeeded<Function, sample_t<Inner>>;
  static constexpr bool kSeeded = kDraws || SeededDataset<Inner>;
  static constexpr bool kCollates =
      CollatingDataset<Inner> && std::is_same_v<detail::mapped_t<Function, sample_t<Inner>>, sample_t<Inner>>;

 public:
  MapDataset(std::type_identity_t<Set>&& dataset, Function function)
      : dataset_(std::forward<Set>(dataset)), function_(std::move(function)) {}

  std::int64_t size() const { return static_cast<std::int64_t>(dataset_.size()); }

  auto get(std::int64_t index) const requires(!kSeeded) {
    return detail::map_sample(function_, dataset_.get(index), {});
  }
  auto get(std::int64_t index, const SampleContext& context) const requires kSeeded {
    const SampleContext below = kDraws ? detail::context_below(context) : context;
    return detail::map_sample(function_, get_sample(dataset_, index, below), context);
  }

  auto collate(std::span<sample_t<Inner>> samples) const requires kCollates {
    return dataset_.collate(samples);
  }

  std::filesystem::path path(std::int64_t index) const requires LocatedDataset<Inner> {
    return dataset_.path(index);
  }

  /// Returns the dataset's fingerprint; it does not cover the function.
  std::string fingerprint(std::int64_t index) const requires FingerprintedDataset<Inner> {
    return dataset_.fingerprint(index);
  }

 private:
  Set dataset_;  // a reference where an lvalue was given
  Function function_;
};

template <class Set, class Function>
MapDataset(Set&&, Function) -> MapDataset<detail::held_t<Set>, Function>;

}  // namespace looptorch
