// SPDX-License-Identifier: MIT
// Caches decoded features on disk: the first epoch computes and stores them, later epochs and later runs read
// them. Use it if a sample costs more to compute than to read, such as FLAC to log-mel (15 ms against 0.3).
// Costs the features' size on disk, and a copy and a checksum for each read.
#pragma once

#include <looptorch/data/cache/cache_build.hpp>
#include <looptorch/data/cache/cached_identity.hpp>
#include <looptorch/data/cache/cached_options.hpp>
#include <looptorch/data/cache/sample_codec.hpp>
#include <looptorch/data/cache/sample_pack.hpp>
#include <looptorch/data/cache/sample_store.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/loader/intra_op.hpp>

#include <c10/core/GradMode.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch {

/// The default of CachedDataset: the dataset's own `identity(index)`.
struct DatasetIdentity {};

/// Stores a dataset's samples on disk, bit for bit. A sample's source is described by its identity: the
/// dataset's `identity(index)`, or a callable given as the third argument, which usually returns
/// `remembered_content_identity(path)` or `file_identity(path)`. Identity, settings, version and the
/// structure of the sample's type form the key, so a changed file or setting is recomputed. Other changes go
/// unnoticed.
///
///     CachedDataset cached(clips, {.folder = "cache", .settings = "log-mel 80"});
///     cached.build({.workers = 4, .progress = print_cache_progress()});   // or let the first epoch fill it
///
/// Samples may be CPU tensors, numbers, enums, strings, paths, and vectors, maps, optionals, tuples and
/// aggregates of them. Tensors are contiguous, whether computed or read. `get` is safe to call from several
/// threads. A sample is stored completely or not at all, whenever a process is killed. An entry that fails
/// its checksum is recomputed and counted. A dataset that draws (SeededDataset) is refused: put the drawing
/// above the cache.
///
/// At the size limit the stored samples stay, and the rest is computed each time. Every epoch reads all
/// samples, so evicting one for another would gain nothing, and evicting the least recently used would evict
/// each just before it is needed. Files of other settings in the folder that no process has open are removed
/// first, the oldest first.
template <class Set, class Identity = DatasetIdentity>
class CachedDataset {
  using Inner = std::remove_cvref_t<Set>;
  static_assert(
      Dataset<Inner>,
      "looptorch: CachedDataset needs a dataset. Give the type `size() const` and `get(std::int64_t "
      "index) const` returning a sample by value. See docs/errors.md#dataset");
  static_assert(
      !SeededDataset<Inner>,
      "looptorch: CachedDataset would freeze what this dataset draws. Cache the dataset below it, and put "
      "the drawing above in a MapDataset. See docs/errors.md#cached-dataset");
  using Sample = sample_t<Inner>;
  static_assert(
      detail::Storable<Sample>,
      "looptorch: CachedDataset cannot write this sample. Make it an aggregate of tensors, numbers, "
      "strings and containers of them; views and pointers cannot be read back. See "
      "docs/errors.md#cached-dataset");
  static constexpr bool kOwnIdentity = std::is_same_v<Identity, DatasetIdentity>;
  static_assert(
      !kOwnIdentity || IdentifiedDataset<Inner>,
      "looptorch: CachedDataset must know what a sample is made from. Give the dataset "
      "`std::string identity(std::int64_t index) const`, or a callable as third argument, returning "
      "file_identity(path). See docs/errors.md#cached-dataset");

 public:
  /// Opens the cache. An lvalue dataset is held by reference and must outlive this; a temporary is moved in.
  /// Throws UsageError for an empty folder name and a negative limit, and FileError if the folder cannot be
  /// created or read. A folder that cannot be written is only read from.
  CachedDataset(std::type_identity_t<Set>&& dataset, const CacheOptions& options, Identity identity = {})
      : dataset_(std::forward<Set>(dataset)),
        identity_(std::move(identity)),
        store_(std::make_unique<detail::SampleStore>(options, detail::layout_of<Sample>())) {}

  std::int64_t size() const { return static_cast<std::int64_t>(dataset_.size()); }

  /// Reads the sample, or computes and stores it. Throws what the dataset throws.
  Sample get(std::int64_t index) const {
    const detail::PackKey key = key_of(index);
    if (auto sample = store_->template read<Sample>(key)) return std::move(*sample);
    return compute(index, key);
  }

  auto collate(std::span<Sample> samples) const requires CollatingDataset<Inner> {
    return dataset_.collate(samples);
  }

  std::filesystem::path path(std::int64_t index) const requires LocatedDataset<Inner> {
    return dataset_.path(index);
  }
  std::string fingerprint(std::int64_t index) const requires FingerprintedDataset<Inner> {
    return dataset_.fingerprint(index);
  }

  /// Computes all samples that are not stored yet, in parallel, until one does not fit. Processes that build
  /// at the same time share the work. Throws CacheBuildError for a sample that fails.
  CacheBuildResult build(const CacheBuildOptions& options = {}) const {
    return detail::CacheBuild(options, size(),
                              [this](std::int64_t index, bool room) { return add(index, room); })
        .run();
  }

  CacheCounts counts() const { return store_->counts(); }

 private:
  detail::PackKey key_of(std::int64_t index) const {
    if constexpr (kOwnIdentity)
      return detail::pack_key(std::string(dataset_.identity(index)));
    else
      return detail::pack_key(std::string(std::invoke(identity_, index)));
  }

  /// Computes a sample on one intra-op thread, as in a loader's worker, so that sums round in the same way.
  Sample compute(std::int64_t index, const detail::PackKey& key) const {
    const c10::NoGradGuard no_grad;
    std::optional<detail::SingleIntraOpThread> single;
    if (at::get_num_threads() != 1) single.emplace();
    Sample sample = dataset_.get(index);
    detail::make_plain(sample);
    store_->write(key, sample);
    return sample;
  }

  detail::CacheStep add(std::int64_t index, bool room) const {
    const detail::PackKey key = key_of(index);
    if (store_->has(key)) return detail::CacheStep::present;
    if (!room) return detail::CacheStep::full;
    compute(index, key);
    return store_->has(key) ? detail::CacheStep::added : detail::CacheStep::full;
  }

  Set dataset_;  // a reference where an lvalue was given
  Identity identity_;
  std::unique_ptr<detail::SampleStore> store_;
};

template <class Set, class Identity = DatasetIdentity>
CachedDataset(Set&&, const CacheOptions&, Identity = {}) -> CachedDataset<detail::held_t<Set>, Identity>;

}  // namespace looptorch
