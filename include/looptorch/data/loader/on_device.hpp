// SPDX-License-Identifier: MIT
// Applies a function to whole batches on the device: for example, computes the features of many clips by a
// few large operators. Use it if the workers' cores are busy and the device has time to spare. Costs memory
// on the device for one more batch.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/data/loader/loader_options.hpp>
#include <looptorch/data/loader/loader_position.hpp>
#include <looptorch/data/loader/loader_stats.hpp>
#include <looptorch/data/loader/regrouping.hpp>

#include <c10/core/Device.h>
#include <c10/core/GradMode.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace looptorch {

/// The values on which a batch's randomness may depend.
struct BatchContext {
  std::uint64_t seed = 0;  ///< the loader's
  std::int64_t epoch = 0;
  std::span<const std::int64_t> indices = {};  ///< indices of the batch's samples, in its order

  /// Returns the context of the sample in `row`, which is the same in any batch. Its seed differs from the
  /// one that the dataset below was given.
  [[nodiscard]] SampleContext sample(std::size_t row) const {
    const SampleContext context = sample_context(seed, epoch, indices[row]);
    return {.seed = derive_seed(context.seed, 2), .epoch = epoch};
  }
};

namespace detail {

template <class Transform, class Batch>
concept TransformsBatchSeeded = std::is_invocable_v<const Transform&, Batch, const BatchContext&>;
template <class Transform, class Batch>
concept TransformsBatch =
    TransformsBatchSeeded<Transform, Batch> || std::is_invocable_v<const Transform&, Batch>;

template <class Transform, class Batch>
auto transform_batch(const Transform& transform, Batch&& batch,
                     [[maybe_unused]] const BatchContext& context) {
  if constexpr (TransformsBatchSeeded<Transform, Batch>)
    return std::invoke(transform, std::move(batch), context);
  else
    return std::invoke(transform, std::move(batch));
}

/// The yielded type; the batch itself if the transform cannot be called, so that no further errors follow.
template <class Transform, class Batch>
auto transformed_batch() {
  if constexpr (TransformsBatch<Transform, Batch>)
    return std::type_identity<std::remove_cvref_t<decltype(transform_batch(
        std::declval<const Transform&>(), std::declval<Batch>(), BatchContext{}))>>{};
  else
    return std::type_identity<Batch>{};
}

}  // namespace detail

/// Yields a loader's batches on `device`, each passed there through `transform(batch)` or `transform(batch,
/// const BatchContext&)`, without gradients. A loader given as an lvalue is held by reference and must
/// outlive this. An exception of the transform is thrown as a LoaderError in place of its batch, for the
/// first batch by `begin()`. `++` continues after it, and so does `skip(error.batch + 1)` in its epoch, as
/// after errors of the loader. Has all members that the loader has as a range.
///
///     OnDevice mels(loader, device, audio::LogMel());   // the loader yields samples [B, T]
template <class Loader, class Transform>
class OnDevice {
  using Inner = std::remove_cvref_t<Loader>;
  using Given = typename Inner::Batch;
  static_assert(detail::TransformsBatch<Transform, Given>,
                "looptorch: OnDevice's transform cannot be called with this batch. It takes the batch, and a "
                "`const BatchContext&` after it if it draws, and is const. See docs/errors.md#on-device");
  static_assert(
      BatchLike<Given>,
      "looptorch: OnDevice cannot find the tensors of this batch to move them. See docs/errors.md#batch");

 public:
  using Batch = typename decltype(detail::transformed_batch<Transform, Given>())::type;

 private:
  /// The work on each batch, shared with the iterators.
  struct Work {
    at::Device device;
    Transform transform;
    std::uint64_t seed;

    Batch operator()(const typename Inner::Iterator& at) const {
      const c10::NoGradGuard no_grad;
      const BatchContext context{seed, at.epoch(), at.indices()};
      try {
        Given batch = std::move(*at);  // freed here if the transform takes a reference
        move_to(batch, device);
        return detail::transform_batch(transform, std::move(batch), context);
      } catch (...) {
        std::throw_with_nested(
            LoaderError(message("batch ", at.number(), " of epoch ", at.epoch(),
                                " could not be transformed: ", detail::what_of(std::current_exception())),
                        at.epoch(), at.number(), -1));
      }
    }
  };

 public:
  /// Single-pass, like the loader's.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;

    /// Returns the batch. Throws UsageError at the end, and if the transform has failed.
    Batch& operator*() const {
      if (!*batch_)
        throw UsageError("OnDevice: there is no batch here: the epoch has ended, or the transform failed");
      return **batch_;
    }
    Batch* operator->() const { return &**this; }

    std::span<const std::int64_t> indices() const { return inner_.indices(); }
    std::int64_t number() const { return inner_.number(); }
    std::int64_t epoch() const { return inner_.epoch(); }

    Iterator& operator++() {
      batch_->reset();
      ++inner_;
      make();
      return *this;
    }
    void operator++(int) { ++*this; }

    friend bool operator==(const Iterator& it, std::default_sentinel_t end) { return it.inner_ == end; }

   private:
    friend OnDevice;
    Iterator(typename Inner::Iterator inner, std::shared_ptr<const Work> work)
        : inner_(std::move(inner)), work_(std::move(work)) {
      make();
    }

    void make() {
      if (inner_ != std::default_sentinel) batch_->emplace((*work_)(inner_));
    }

    typename Inner::Iterator inner_;
    std::shared_ptr<std::optional<Batch>> batch_ = std::make_shared<std::optional<Batch>>();
    std::shared_ptr<const Work> work_;  // an OnDevice may be moved, and end before its iterators
  };

  OnDevice(std::type_identity_t<Loader>&& loader, at::Device device, Transform transform)
      : loader_(std::forward<Loader>(loader)),
        work_(std::make_shared<const Work>(Work{device, std::move(transform), loader_.options().seed})) {}

  Iterator begin() { return Iterator(loader_.begin(), work_); }
  std::default_sentinel_t end() const { return {}; }

  // clang-format off: version 14 lays out no requires-clauses
  std::int64_t size() const requires requires(const Inner& inner) { inner.size(); }
  { return loader_.size(); }
  void begin_epoch(std::int64_t epoch) requires requires(Inner& inner) { inner.begin_epoch(epoch); }
  { loader_.begin_epoch(epoch); }
  // clang-format on
  void skip(std::int64_t batches) { loader_.skip(batches); }
  [[nodiscard]] auto place() const { return loader_.place(); }
  void put_back(const auto& place) { loader_.put_back(place); }
  [[nodiscard]] LoaderPosition position() const { return loader_.position(); }
  [[nodiscard]] StateDict identity() const { return loader_.identity(); }
  [[nodiscard]] StateDict state_dict() const { return loader_.state_dict(); }
  void load_state_dict(const StateDict& state) { loader_.load_state_dict(state); }
  [[nodiscard]] const SkippedSamples& skipped() const { return loader_.skipped(); }
  [[nodiscard]] const LoaderStats& stats() const { return loader_.stats(); }
  [[nodiscard]] std::shared_ptr<const LoaderStats> shared_stats() const { return loader_.shared_stats(); }
  [[nodiscard]] auto shared_log() const { return loader_.shared_log(); }
  [[nodiscard]] const LoaderOptions& options() const { return loader_.options(); }
  [[nodiscard]] detail::Regroupable& regroupable() const { return loader_.regroupable(); }

 private:
  Loader loader_;  // a reference where an lvalue was given
  std::shared_ptr<const Work> work_;
};

template <class Loader, class Transform>
OnDevice(Loader&&, at::Device, Transform) -> OnDevice<Loader, Transform>;

}  // namespace looptorch
