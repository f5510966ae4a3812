// SPDX-License-Identifier: MIT
// Selects some samples of a dataset in any order: a split, a filter, a smaller run. Costs 8 bytes a sample.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/datasets/dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

/// Yields the samples `indices` of a dataset, which may repeat. An lvalue dataset is held by reference and
/// must outlive this; a temporary is moved in. Seeds depend on the index in the subset.
template <class Set>
class SubsetDataset {
  using Inner = std::remove_cvref_t<Set>;
  static_assert(
      Dataset<Inner>,
      "looptorch: SubsetDataset needs a dataset. Give the type `size() const` and `get(std::int64_t "
      "index) const` returning a sample by value. See docs/errors.md#dataset");

 public:
  /// Throws UsageError for an index outside the dataset.
  SubsetDataset(std::type_identity_t<Set>&& dataset, std::vector<std::int64_t> indices)
      : dataset_(std::forward<Set>(dataset)), indices_(std::move(indices)) {
    const auto size = static_cast<std::int64_t>(dataset_.size());
    for (const std::int64_t index : indices_)
      if (index < 0 || index >= size)
        throw UsageError(message("SubsetDataset: index ", index, " of a dataset of ", size, " samples"));
  }

  std::int64_t size() const { return std::ssize(indices_); }

  auto get(std::int64_t index) const requires(!SeededDataset<Inner>) { return dataset_.get(at(index)); }
  auto get(std::int64_t index, const SampleContext& context) const requires SeededDataset<Inner> {
    return dataset_.get(at(index), context);
  }

  auto collate(std::span<sample_t<Inner>> samples) const requires CollatingDataset<Inner> {
    return dataset_.collate(samples);
  }

  std::filesystem::path path(std::int64_t index) const requires LocatedDataset<Inner> {
    return dataset_.path(at(index));
  }
  std::string identity(std::int64_t index) const requires IdentifiedDataset<Inner> {
    return dataset_.identity(at(index));
  }
  std::string fingerprint(std::int64_t index) const requires FingerprintedDataset<Inner> {
    return dataset_.fingerprint(at(index));
  }

 private:
  std::int64_t at(std::int64_t index) const { return indices_[static_cast<std::size_t>(index)]; }

  Set dataset_;  // a reference where an lvalue was given
  std::vector<std::int64_t> indices_;
};

template <class Set>
SubsetDataset(Set&&, std::vector<std::int64_t>) -> SubsetDataset<detail::held_t<Set>>;

}  // namespace looptorch
