// SPDX-License-Identifier: MIT
// Makes LibTorch's DataLoader a range of batches for fit, evaluate and Validate, since its iterators do not
// make a C++20 range. Use it to keep a pipeline of torch::data. A PinnedPrefetchLoader does more: it resumes
// in mid-epoch, knows its length and names the samples of an error.
//
//   auto loader = torch::data::make_data_loader(std::move(dataset), 32);
//   TorchBatches batches(*loader);
//   trainer.fit(batches, {.epochs = 3});
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

namespace looptorch {

/// Holds a DataLoader by reference: it must outlive the range. Every pass is an epoch of the DataLoader,
/// which its sampler may shuffle. A DataLoader with workers allows one pass at a time: a pass that was left
/// early, as by `max_steps`, is read to its end before the next one begins. So give all fits on a DataLoader
/// the same TorchBatches.
template <class Loader>
class TorchBatches {
  using Position = decltype(std::declval<Loader&>().begin());

 public:
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = std::remove_cvref_t<decltype(*std::declval<Position&>())>;
    using difference_type = std::ptrdiff_t;

    /// Returns the current batch, which the next `++` replaces.
    decltype(auto) operator*() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.at_ == it.end_; }

   private:
    friend TorchBatches;
    Iterator(Position at, Position end) : at_(std::move(at)), end_(std::move(end)) {}

    mutable Position at_;  // LibTorch's operator* is not const
    Position end_;
  };

  explicit TorchBatches(Loader& loader) : loader_(&loader) {}

  /// Begins a pass. Throws what the dataset throws.
  Iterator begin() {
    if (open_) read_to_end(*open_);
    open_ = Iterator(loader_->begin(), loader_->end());
    return *open_;
  }
  std::default_sentinel_t end() const { return {}; }

  /// Allows several epochs. Which samples come in which order is left to the DataLoader's sampler.
  void begin_epoch(std::int64_t) {}

 private:
  static void read_to_end(Iterator& it) {
    while (it != std::default_sentinel) ++it;
  }

  Loader* loader_;
  std::optional<Iterator> open_;  // a copy shares the position
};

}  // namespace looptorch
