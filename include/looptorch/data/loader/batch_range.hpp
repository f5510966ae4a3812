// SPDX-License-Identifier: MIT
// Gives `fit` one interface to any range of batches, such as a vector or a loader. It tells how many batches
// there are, whether the range can restart, and which samples a batch holds; it can also begin within an
// epoch. `fit` wraps its range in a BatchRange once.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/data/loader/feed.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/data/loader/regrouping.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

template <class Range>
using range_batch_t = std::remove_cvref_t<std::ranges::range_reference_t<Range>>;

/// A range that shuffles by epoch, such as a loader: after `begin_epoch(e)`, `begin()` gives epoch e's
/// batches.
template <class Range>
concept EpochRange = requires(Range& range, std::int64_t epoch) {
  range.begin_epoch(epoch);
};

/// A range that can skip batches without making them.
template <class Range>
concept SkippableRange = requires(Range& range, std::int64_t count) {
  range.skip(count);
};

/// While it lives, the range yields its epoch 0 from the first batch on. Its destructor returns a loader to
/// the place where it was.
template <class Range>
class FirstEpochScope {
 public:
  explicit FirstEpochScope(Range& range) : range_(range), place_(place_of(range)) {
    if constexpr (EpochRange<Range>) range.begin_epoch(0);
    if constexpr (EpochRange<Range> && SkippableRange<Range>) range.skip(0);
  }
  ~FirstEpochScope() {
    if constexpr (kGoesBack) range_.put_back(place_);
  }
  FirstEpochScope(const FirstEpochScope&) = delete;
  FirstEpochScope& operator=(const FirstEpochScope&) = delete;

 private:
  static constexpr bool kGoesBack = EpochRange<Range> && requires(Range & range) {
    range.put_back(range.place());
  };
  static auto place_of(Range& range) {
    if constexpr (kGoesBack)
      return range.place();
    else
      return nullptr;
  }

  Range& range_;
  decltype(place_of(std::declval<Range&>())) place_;
};

/// True where `begin()` may be called again for the next epoch.
template <class Range>
inline constexpr bool kRepeatable = std::ranges::forward_range<Range> || EpochRange<Range>;

template <class Range>
std::optional<std::int64_t> known_size(Range& range) {
  if constexpr (std::ranges::sized_range<Range>)
    return static_cast<std::int64_t>(std::ranges::size(range));
  else
    return std::nullopt;
}

/// A loader, whose iterators know their batch's number in the epoch. Numbers may be missing where samples
/// were skipped.
template <class Range>
concept NumberedRange = SkippableRange<Range> && requires(std::ranges::iterator_t<Range> position) {
  { position.number() } -> std::convertible_to<std::int64_t>;
};

/// A loader, which measures how long its consumer waits for it.
template <class Range>
concept MeasuredRange = requires(const Range& range) {
  range.shared_stats();
};

/// A loader that can cut a resumed run's original windows into batches of another size.
template <class Range>
concept RegroupableRange = requires(const Range& range) {
  { range.regroupable() } -> std::same_as<Regroupable&>;
};

/// How pinned batches of `Range` are read: a loader's in place, since it never writes to a batch that it has
/// given out. Batches of other ranges are staged, since the range may decode all of them into one buffer.
template <class Range>
inline constexpr PinnedSource kPinnedSource =
    MeasuredRange<Range> ? PinnedSource::in_place : PinnedSource::staged;

/// True if the range may write the next batch into the memory of one that it gave out. A loader never does,
/// nor does a multi-pass range that stores its elements, such as a vector.
template <class Range>
inline constexpr bool kRefills =
    !MeasuredRange<Range> &&
    !(std::ranges::forward_range<Range> && std::is_lvalue_reference_v<std::ranges::range_reference_t<Range>>);

/// A user's range, held by reference.
template <class Range>
class BatchRange {
 public:
  using Batch = range_batch_t<Range>;
  static constexpr bool repeatable = kRepeatable<Range>;
  static constexpr bool numbered = NumberedRange<Range>;
  static constexpr PinnedSource pinned = kPinnedSource<Range>;
  static constexpr bool refills = kRefills<Range>;

  explicit BatchRange(Range& range) : range_(range) {}

  [[nodiscard]] std::optional<std::int64_t> size() const { return known_size(range_); }

  /// Sets the number of batches that the identity has: the largest of all ranks.
  void count_as(std::optional<std::int64_t> batches) { counted_as_ = batches; }

  /// Returns what distinguishes this data and its order: its number of batches, and the range's `identity()`
  /// where it has one. A loader that cuts a resumed run's windows has the identity of the run's batches.
  [[nodiscard]] StateDict identity() const {
    StateDict identity;
    if constexpr (RegroupableRange<Range>) return range_.regroupable().planned_identity();
    if constexpr (requires { StateDict(range_.identity()); }) identity = range_.identity();
    if (const auto batches = size()) identity.set("batches", counted_as_.value_or(*batches));
    return identity;
  }

  /// Returns the loader's source, which can cut a resumed run's windows; null for other ranges.
  [[nodiscard]] Regroupable* regroupable() const {
    if constexpr (RegroupableRange<Range>)
      return &range_.regroupable();
    else
      return nullptr;
  }

  /// Returns the samples that a loader has skipped since it was made.
  [[nodiscard]] SkippedSamples skipped() const {
    if constexpr (requires { range_.skipped().first; })
      return range_.skipped();
    else
      return {};
  }

  /// Returns the range as policies and snapshots see it.
  [[nodiscard]] Feed feed() const {
    Feed feed{.batches = size(), .repeatable = repeatable, .has_epochs = true};
    if constexpr (MeasuredRange<Range>) feed.stats = range_.shared_stats();
    if constexpr (requires { range_.shared_log(); }) feed.log = range_.shared_log();
    feed.identity = [self = *this] { return self.identity(); };
    feed.skipped = [self = *this] { return self.skipped(); };
    feed.source = regroupable();
    return feed;
  }

  /// Returns an iterator to the batch with index `skip` of epoch `epoch`, or the end if there are fewer. A
  /// single-pass range is already there, unless another process began the epoch (`from_start`).
  [[nodiscard]] auto begin_at(std::int64_t epoch, std::int64_t skip, bool from_start) const {
    if constexpr (EpochRange<Range>) range_.begin_epoch(epoch);
    if constexpr (SkippableRange<Range>) {
      range_.skip(std::min(skip, size().value_or(skip)));  // also 0, which undoes an earlier skip
      return std::ranges::begin(range_);
    } else {
      auto position = std::ranges::begin(range_);
      if (repeatable || from_start)
        for (; skip > 0 && position != end(); --skip) ++position;
      return position;
    }
  }
  [[nodiscard]] auto end() const { return std::ranges::end(range_); }

  /// Returns the number in its epoch of the batch at `position`; empty where the range does not number its
  /// batches.
  template <class Iterator>
  [[nodiscard]] static std::optional<std::int64_t> number_at([[maybe_unused]] const Iterator& position) {
    if constexpr (NumberedRange<Range>)
      return position.number();
    else
      return std::nullopt;
  }

  /// Returns the dataset indices of the batch at `position`; empty where the iterator does not offer them.
  template <class Iterator>
  [[nodiscard]] static decltype(auto) indices_at([[maybe_unused]] const Iterator& position) {
    if constexpr (requires { std::span<const std::int64_t>(position.indices()); })
      return position.indices();
    else
      return std::span<const std::int64_t>();
  }

 private:
  Range& range_;
  std::optional<std::int64_t> counted_as_;
};

}  // namespace looptorch::detail
