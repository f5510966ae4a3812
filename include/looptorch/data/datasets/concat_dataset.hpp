// SPDX-License-Identifier: MIT
// Concatenates several datasets, for corpora that are trained on together. Finding a sample's dataset costs a
// binary search among the datasets.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/datasets/dataset.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Finds the dataset of a sample from the datasets' cumulative sizes.
class ConcatEnds {
 public:
  struct Location {
    std::size_t part;
    std::int64_t index;
  };

  void add(std::int64_t size) { ends_.push_back(total() + size); }
  std::int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }

  Location find(std::int64_t index) const {
    const auto part = static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    return {part, part == 0 ? index : index - ends_[part - 1]};
  }

 private:
  std::vector<std::int64_t> ends_;
};

/// Datasets of several types with one sample type.
template <class... Sets>
class ConcatParts {
 public:
  using First = std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Sets...>>>;
  static constexpr bool kDatasets = (Dataset<std::remove_cvref_t<Sets>> && ...);
  static constexpr bool kSeeded = (SeededDataset<std::remove_cvref_t<Sets>> || ...);
  static constexpr bool kIdentified = (IdentifiedDataset<std::remove_cvref_t<Sets>> && ...);
  static constexpr bool kLocated = (LocatedDataset<std::remove_cvref_t<Sets>> || ...);
  static constexpr bool kFingerprinted = (FingerprintedDataset<std::remove_cvref_t<Sets>> || ...);
  static constexpr bool same_samples() {
    if constexpr (kDatasets)
      return (std::is_same_v<sample_t<std::remove_cvref_t<Sets>>, sample_t<First>> && ...);
    else
      return true;
  }

  explicit ConcatParts(Sets&&... sets) : sets_(std::forward<Sets>(sets)...) {}

  const First& first() const { return std::get<0>(sets_); }

  template <class Visit>
  void each(Visit&& visit) const {
    std::apply([&](const auto&... set) { (visit(set), ...); }, sets_);
  }

  template <std::size_t I = 0, class Visit>
  auto visit(std::size_t part, const Visit& visitor) const {
    if constexpr (I + 1 < sizeof...(Sets))
      return part == I ? visitor(std::get<I>(sets_)) : visit<I + 1>(part, visitor);
    else
      return visitor(std::get<I>(sets_));
  }

 private:
  std::tuple<Sets...> sets_;
};

/// Any number of datasets of one type.
template <class Set>
class ConcatParts<std::vector<Set>> {
 public:
  using First = Set;
  static constexpr bool kDatasets = Dataset<Set>;
  static constexpr bool kSeeded = SeededDataset<Set>;
  static constexpr bool kIdentified = IdentifiedDataset<Set>;
  static constexpr bool kLocated = LocatedDataset<Set>;
  static constexpr bool kFingerprinted = FingerprintedDataset<Set>;
  static constexpr bool same_samples() { return true; }

  explicit ConcatParts(std::vector<Set>&& sets) : sets_(std::move(sets)) {
    if (sets_.empty()) throw UsageError("ConcatDataset: there is no dataset");
  }

  const First& first() const { return sets_.front(); }

  template <class Visit>
  void each(Visit&& visit) const {
    for (const Set& set : sets_) visit(set);
  }

  template <class Visit>
  auto visit(std::size_t part, const Visit& visitor) const {
    return visitor(sets_[part]);
  }

 private:
  std::vector<Set> sets_;
};

}  // namespace detail

/// Yields the samples of the first dataset, then of the second, and so on: `ConcatDataset(a, b)`, or
/// `ConcatDataset(std::vector<Set>)` for a number that is known at run time. Lvalues are held by reference
/// and must outlive this; temporaries are moved in. The first dataset's collate serves all. Each dataset's
/// size is read once, on construction. Seeds depend on the index among all samples.
template <class... Sets>
class ConcatDataset {
  using Parts = detail::ConcatParts<Sets...>;
  using First = typename Parts::First;
  static_assert(
      Parts::kDatasets,
      "looptorch: ConcatDataset needs datasets. Give each type `size() const` and `get(std::int64_t "
      "index) const` returning a sample by value. See docs/errors.md#dataset");
  static_assert(
      Parts::same_samples(),
      "looptorch: ConcatDataset's datasets return samples of different types. Bring them to one type "
      "with MapDataset. See docs/errors.md#concat-dataset");

 public:
  explicit ConcatDataset(std::type_identity_t<Sets>&&... sets) : parts_(std::forward<Sets>(sets)...) {
    parts_.each([this](const auto& set) { ends_.add(static_cast<std::int64_t>(set.size())); });
  }

  std::int64_t size() const { return ends_.total(); }

  auto get(std::int64_t index) const requires(!Parts::kSeeded) { return get_from(index, {}); }
  auto get(std::int64_t index, const SampleContext& context) const requires(Parts::kSeeded) {
    return get_from(index, context);
  }

  auto collate(std::span<sample_t<First>> samples) const requires CollatingDataset<First> {
    return parts_.first().collate(samples);
  }
  std::string identity(std::int64_t index) const requires(Parts::kIdentified) {
    const auto location = ends_.find(index);
    return parts_.visit(location.part,
                        [&](const auto& set) -> std::string { return set.identity(location.index); });
  }
  /// Returns the sample's path, or an empty one if its dataset has none.
  std::filesystem::path path(std::int64_t index) const requires(Parts::kLocated) {
    const auto location = ends_.find(index);
    return parts_.visit(location.part, [&](const auto& set) -> std::filesystem::path {
      if constexpr (LocatedDataset<std::remove_cvref_t<decltype(set)>>) return set.path(location.index);
      return {};
    });
  }
  /// Returns the sample's fingerprint, or an empty one if its dataset has none.
  std::string fingerprint(std::int64_t index) const requires(Parts::kFingerprinted) {
    const auto location = ends_.find(index);
    return parts_.visit(location.part, [&](const auto& set) -> std::string {
      if constexpr (FingerprintedDataset<std::remove_cvref_t<decltype(set)>>)
        return set.fingerprint(location.index);
      return {};
    });
  }

 private:
  auto get_from(std::int64_t index, const SampleContext& context) const {
    const auto location = ends_.find(index);
    return parts_.visit(location.part,
                        [&](const auto& set) { return get_sample(set, location.index, context); });
  }

  Parts parts_;
  detail::ConcatEnds ends_;
};

template <class... Sets>
ConcatDataset(Sets&&...) -> ConcatDataset<detail::held_t<Sets>...>;
template <class Set>
ConcatDataset(std::vector<Set>) -> ConcatDataset<std::vector<Set>>;

}  // namespace looptorch
