// SPDX-License-Identifier: MIT
// Makes a preflight's batches from chosen samples of a dataset, one batch for each list of samples. For
// smaller micro-batches it collates only the first samples of each list.
#pragma once

#include <looptorch/data/batch/batch.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/loader/batch_range.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

namespace looptorch {

/// Batches of the samples with these indices, made in this thread as a loader does. Skips unreadable samples;
/// throws the last error if none can be read. Holds the dataset by reference.
template <Dataset Set>
class SampleBatches {
 public:
  using Batch = batch_t<Set>;

  SampleBatches(const Set& dataset, std::vector<std::vector<std::int64_t>> lists)
      : dataset_(dataset), lists_(std::move(lists)) {}

  /// Returns a batch of each list, of its first `most` samples.
  [[nodiscard]] std::vector<Batch> of_at_most(std::int64_t most) const {
    std::vector<Batch> batches;
    std::exception_ptr error;
    for (const auto& list : lists_) {
      std::vector<sample_t<Set>> samples;
      for (const std::int64_t index : list) {
        if (static_cast<std::int64_t>(samples.size()) == most) break;
        try {
          samples.push_back(get_sample(dataset_, index, SampleContext{}));
        } catch (const std::exception&) {
          error = std::current_exception();
        }
      }
      if (!samples.empty())
        batches.push_back(detail::collate_samples(dataset_, DefaultCollate{}, std::span(samples)));
    }
    if (batches.empty() && error) std::rethrow_exception(error);
    return batches;
  }

  /// Returns the number of samples in the longest list.
  [[nodiscard]] std::int64_t size() const {
    std::size_t most = 0;
    for (const auto& list : lists_) most = std::max(most, list.size());
    return static_cast<std::int64_t>(most);
  }

 private:
  const Set& dataset_;
  std::vector<std::vector<std::int64_t>> lists_;
};

namespace detail {

/// Returns the first `samples` samples of a batch: views of its tensors whose first dimension counts samples.
template <class Batch>
[[nodiscard]] Batch first_samples(const Batch& batch, std::int64_t samples) {
  Batch some = batch;
  const std::int64_t size = batch_size(batch);
  if (samples < size)
    for_each_tensor(some, [&](at::Tensor& tensor) {
      if (tensor.defined() && tensor.dim() > 0 && tensor.size(0) == size)
        tensor = tensor.narrow(0, 0, samples);
    });
  return some;
}

/// The first samples of the batches of a range, which is read once. Copies the tensors of a range that may
/// refill them.
template <class Batch>
class GivenBatches {
 public:
  template <class Range>
  explicit GivenBatches(Range& range) {
    for (auto&& batch : range) {
      batches_.push_back(batch);
      if constexpr (kRefills<Range>)
        for_each_tensor(batches_.back(), [](at::Tensor& tensor) {
          if (tensor.defined()) tensor = tensor.clone();
        });
    }
  }
  [[nodiscard]] std::vector<Batch> of_at_most(std::int64_t most) const {
    std::vector<Batch> some;
    for (const Batch& batch : batches_) some.push_back(first_samples(batch, most));
    return some;
  }
  [[nodiscard]] std::int64_t size() const {
    std::int64_t most = 0;
    for (const Batch& batch : batches_) most = std::max(most, batch_size(batch));
    return most;
  }

 private:
  std::vector<Batch> batches_;
};

}  // namespace detail
}  // namespace looptorch
