// SPDX-License-Identifier: MIT
// Selects the class that makes a loader's batches: BatchSource for a dataset, StreamSource for a stream. For
// arguments that a static_assert of the loader refuses, it selects RefusedBatchSource, a stand-in without
// definitions, so that the compiler prints only the assertion's sentence.
#pragma once

#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/datasets/stream_dataset.hpp>
#include <looptorch/data/loader/batch_source.hpp>
#include <looptorch/data/loader/stream_source.hpp>

#include <type_traits>

namespace looptorch::detail {

/// Checks a loader's template arguments, and names the source of its batches.
template <class Set, class Order, class Collate>
struct LoaderSource {
  static constexpr bool has_data = false, has_order = true, has_collate = true;
  using type = RefusedBatchSource;
};
template <class Set, class Order, class Collate>
requires Dataset<std::remove_cvref_t<Set>>
struct LoaderSource<Set, Order, Collate> {
  static constexpr bool has_data = true, has_order = AnySampler<Order>;
  static constexpr bool has_collate =
      Collates<std::remove_cvref_t<Set>, Collate, sample_t<std::remove_cvref_t<Set>>>;
  using type = typename std::conditional_t<has_order && has_collate,
                                           std::type_identity<BatchSource<Set, Order, Collate>>,
                                           std::type_identity<RefusedBatchSource>>::type;
};
template <class Set, class Order, class Collate>
requires StreamDataset<std::remove_reference_t<Set>>
struct LoaderSource<Set, Order, Collate> {
  using Stream = std::remove_reference_t<Set>;
  static constexpr bool has_data = true, has_order = is_stream_order<Order>;
  static constexpr bool has_collate = Collates<Stream, Collate, streamed_t<Stream>>;
  using type = typename std::conditional_t<has_order && has_collate,
                                           std::type_identity<StreamSource<Set, Order, Collate>>,
                                           std::type_identity<RefusedBatchSource>>::type;
};

}  // namespace looptorch::detail
