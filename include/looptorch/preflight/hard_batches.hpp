// SPDX-License-Identifier: MIT
// Finds the batches that may need the most memory, from the lengths of samples. Returns several candidates,
// such as the longest inputs and the longest targets: which of them needs the most depends on the model, so a
// preflight runs all of them.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

namespace looptorch {

/// The lengths of a sample: frames or pixels, and tokens, in any unit.
struct SampleLengths {
  std::int64_t input = 0;
  std::int64_t target = 0;
};

namespace detail {

/// A batch's longest input and target, and its number of samples.
struct PaddedSize {
  std::int64_t input = 0, target = 0, samples = 0;
};
[[nodiscard]] inline PaddedSize padded_size(std::span<const SampleLengths> lengths,
                                            const std::vector<std::int64_t>& batch) {
  PaddedSize size;
  for (const std::int64_t index : batch) {
    if (index < 0 || index >= static_cast<std::int64_t>(lengths.size()))
      throw UsageError(message("a batch has sample ", index, ", and there are lengths of ", lengths.size()));
    const SampleLengths& sample = lengths[static_cast<std::size_t>(index)];
    size.input = std::max(size.input, sample.input);
    size.target = std::max(size.target, sample.target);
    ++size.samples;
  }
  return size;
}

}  // namespace detail

/// Returns those of a sampler's batches that are largest by padded inputs, by padded targets, by both, by
/// their longest input or target, or by the number of samples. Each comes once, longest samples first, so
/// that its smaller micro-batches are the hardest too. Throws UsageError for a sample without lengths.
[[nodiscard]] inline std::vector<std::vector<std::int64_t>> hard_batches(
    std::span<const SampleLengths> lengths, const std::vector<std::vector<std::int64_t>>& batches) {
  std::vector<detail::PaddedSize> sizes;
  for (const auto& batch : batches) sizes.push_back(detail::padded_size(lengths, batch));
  double input = 1, target = 1;
  for (const SampleLengths& sample : lengths) {
    input = std::max(input, static_cast<double>(sample.input));
    target = std::max(target, static_cast<double>(sample.target));
  }
  const auto total = [&](const detail::PaddedSize& size) {
    return static_cast<double>(size.samples) *
           (static_cast<double>(size.input) / input + static_cast<double>(size.target) / target);
  };
  using Size = detail::PaddedSize;
  using Length = std::int64_t SampleLengths::*;
  struct Measure {
    std::function<double(const Size&)> of;
    Length longest_first;  // so that the first samples of a batch are its hardest
  };
  const std::vector<Measure> measures{
      {[](const Size& size) { return static_cast<double>(size.input) * static_cast<double>(size.samples); },
       &SampleLengths::input},
      {[](const Size& size) { return static_cast<double>(size.target) * static_cast<double>(size.samples); },
       &SampleLengths::target},
      {[](const Size& size) { return static_cast<double>(size.input); }, &SampleLengths::input},
      {[](const Size& size) { return static_cast<double>(size.target); }, &SampleLengths::target},
      {[](const Size& size) { return static_cast<double>(size.samples); }, &SampleLengths::input},
      {total, &SampleLengths::input}};
  std::vector<std::vector<std::int64_t>> result;
  for (const Measure& measure : measures) {
    const auto most = std::max_element(sizes.begin(), sizes.end(), [&](const Size& a, const Size& b) {
      return measure.of(a) < measure.of(b);
    });
    if (most == sizes.end()) break;
    std::vector<std::int64_t> batch = batches[static_cast<std::size_t>(most - sizes.begin())];
    std::stable_sort(batch.begin(), batch.end(), [&](std::int64_t a, std::int64_t b) {
      return lengths[static_cast<std::size_t>(a)].*measure.longest_first >
             lengths[static_cast<std::size_t>(b)].*measure.longest_first;
    });
    if (std::find(result.begin(), result.end(), batch) == result.end()) result.push_back(std::move(batch));
  }
  return result;
}

/// Forms the hardest batches of `batch_size` samples that a shuffling sampler could meet: the longest inputs,
/// the longest targets, and the most of both, each sorted from the longest. Throws UsageError without
/// samples, and for a size below 1.
[[nodiscard]] inline std::vector<std::vector<std::int64_t>> hard_batches(
    std::span<const SampleLengths> lengths, std::int64_t batch_size) {
  if (lengths.empty()) throw UsageError("hard_batches was given no lengths");
  if (batch_size < 1) throw UsageError(message("a batch has at least 1 sample, got ", batch_size));
  std::int64_t input = 1, target = 1;
  for (const SampleLengths& sample : lengths)
    input = std::max(input, sample.input), target = std::max(target, sample.target);
  const auto share = [](std::int64_t part, std::int64_t of) {
    return static_cast<double>(part) / static_cast<double>(of);
  };
  const std::vector<std::function<double(const SampleLengths&)>> measures{
      [&](const SampleLengths& sample) { return share(sample.input, input); },
      [&](const SampleLengths& sample) { return share(sample.target, target); },
      [&](const SampleLengths& sample) { return share(sample.input, input) + share(sample.target, target); }};
  std::vector<std::vector<std::int64_t>> result;
  for (const auto& measure : measures) {
    std::vector<std::int64_t> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return measure(lengths[static_cast<std::size_t>(a)]) > measure(lengths[static_cast<std::size_t>(b)]);
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(batch_size)));
    if (std::find(result.begin(), result.end(), order) == result.end()) result.push_back(std::move(order));
  }
  return result;
}

/// Returns the first `batch_size` samples, for samples that all have one size. Throws as above.
[[nodiscard]] inline std::vector<std::vector<std::int64_t>> hard_batches(std::int64_t samples,
                                                                         std::int64_t batch_size) {
  const std::vector<SampleLengths> alike(static_cast<std::size_t>(std::max<std::int64_t>(samples, 0)));
  return hard_batches(alike, batch_size);
}

}  // namespace looptorch
