// SPDX-License-Identifier: MIT
// What `fit` asks of a range of batches: how many there are, whether it can be gone through again, and how to
// begin an epoch in its middle.
#pragma once

#include <looptorch/data/batch.hpp>
#include <looptorch/data/loader/loader_stats.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

template <class Range>
using range_batch_t = std::remove_cvref_t<std::ranges::range_reference_t<Range>>;

/// A range that shuffles by epoch, such as a loader: `begin()` after `begin_epoch(e)` gives epoch e's
/// batches.
template <class Range>
concept EpochRange = requires(Range& range, std::int64_t epoch) {
  range.begin_epoch(epoch);
};

/// A range that can pass over batches without making them.
template <class Range>
concept SkippableRange = requires(Range& range, std::int64_t count) {
  range.skip(count);
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

/// An iterator to the batch with index `skip` of epoch `epoch`, or the end if there are fewer. A single-pass
/// range stands there already, unless another process had begun the epoch: `from_start`.
template <class Range>
auto begin_at(Range& range, std::int64_t epoch, std::int64_t skip, bool from_start = false) {
  if constexpr (EpochRange<Range>) range.begin_epoch(epoch);
  if constexpr (SkippableRange<Range>) {
    range.skip(  // 0 too: what the range was told before is not fit's place
        std::min(skip, known_size(range).value_or(skip)));
    return std::ranges::begin(range);
  } else {
    auto position = std::ranges::begin(range);
    if (kRepeatable<Range> || from_start)
      for (; skip > 0 && position != std::ranges::end(range); --skip) ++position;
    return position;
  }
}

/// The dataset indices of the batch that `position` stands at, where the iterator offers them.
template <class Iterator>
auto indices_at(const Iterator& position) {
  if constexpr (requires { std::span<const std::int64_t>(position.indices()); })
    return position.indices();
  else
    return std::span<const std::int64_t>();
}

/// A loader, whose iterators know their batch's number in the epoch: where samples cannot be had, batches may
/// be missing.
template <class Range>
concept NumberedRange = SkippableRange<Range> && requires(std::ranges::iterator_t<Range> position) {
  { position.number() } -> std::convertible_to<std::int64_t>;
};

/// What a loader measures; null for any other range.
template <class Range>
std::shared_ptr<const LoaderStats> stats_of([[maybe_unused]] const Range& range) {
  if constexpr (requires { range.shared_stats(); })
    return range.shared_stats();
  else
    return nullptr;
}

/// Whether a range's pinned batches can be read after the next one was asked for: a loader never writes to
/// one that it has given out, and any other range may decode all of them into one buffer.
template <class Range>
inline constexpr PinnedSource kPinnedSource = PinnedSource::staged;
// clang-format off
template <class Range>
  requires requires(const Range& range) { range.shared_stats(); }
inline constexpr PinnedSource kPinnedSource<Range> = PinnedSource::in_place;
// clang-format on

/// Calls `use(batch)` with a batch on `device`: the given one if it is there, else a copy that is moved
/// there. A batch that cannot be copied is moved there itself.
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

}  // namespace looptorch::detail
