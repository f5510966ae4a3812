// SPDX-License-Identifier: MIT
// Draws batches of samples of similar length, and limits the tokens or frames of a batch. Less padding saves
// time and memory. Use it if clips or sentences differ in length. Sorts a million lengths once in about 0.1
// s, and draws an epoch's batches in about 40 ms.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/data/samplers/sampler.hpp>
#include <looptorch/data/samplers/sampler_identity.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// The treatment of a sample that is longer than the budget of a batch.
enum class TooLong {
  fail,   ///< throws SampleTooLong when the sampler is made
  alone,  ///< makes a batch of its own, beyond the budget
};

/// Options of `LengthBucketSampler`. The order of the fields is API; new ones come last.
struct LengthBucketOptions {
  std::int64_t budget = 0;      ///< largest number of tokens or frames a batch, padding included; 0: no limit
  std::int64_t batch_size = 0;  ///< largest number of samples a batch; 0: no limit
  /// The largest number of batches in a bucket, whose samples of similar length make up its batches. A bucket
  /// takes samples from the longest on, and ends early before a batch whose longest sample is shorter than
  /// 3/4 of the bucket's longest. Fewer batches mean less padding, more mean more variety. 1 composes the
  /// same batches in every epoch.
  std::int64_t batches_per_bucket = 8;
  bool longest_first = false;  ///< begins each epoch with a full batch that holds the longest sample
  TooLong too_long = TooLong::fail;
  std::uint64_t seed = 0;
  /// The number of first epochs with batches from the shortest to the longest, which helps a speech
  /// recogniser to start learning (SortaGrad, Amodei et al. 2016).
  std::int64_t shortest_first_epochs = 0;
};

/// Thrown for a sample that no batch within the budget can hold.
struct SampleTooLong : UsageError {
  SampleTooLong(std::int64_t sample, std::int64_t sample_length, std::int64_t budget)
      : UsageError(message("LengthBucketSampler: sample ", sample, " has length ", sample_length,
                           ", more than the budget of ", budget,
                           "; leave it out, raise the budget, or say too_long = TooLong::alone")),
        index(sample),
        length(sample_length) {}
  std::int64_t index;
  std::int64_t length;
};

/// Yields every sample once an epoch, in batches of similar lengths. The composition of the batches and their
/// order are drawn anew for each epoch from (seed, epoch) alone. A batch's number of samples times its
/// longest length never exceeds the budget. With `longest_first` each epoch begins with a full batch that
/// holds the longest sample, so insufficient memory shows at once.
///
/// The samples, sorted by length, are cut into buckets. All batches of a bucket are as large as its longest
/// sample allows, so the number of batches is the same in every epoch.
class LengthBucketSampler {
 public:
  /// Takes the tokens or frames of sample i in `lengths[i]`. Throws SampleTooLong, and UsageError for a
  /// negative length and for options out of range.
  explicit LengthBucketSampler(const std::vector<std::int64_t>& lengths, LengthBucketOptions options);

  /// Throws UsageError if `size` is not the number of lengths.
  BatchPlan batches(std::int64_t epoch, std::int64_t size) const;
  std::int64_t batch_count(std::int64_t size) const;

  /// Returns the largest number of samples in a batch; 0 for no limit but the budget.
  std::int64_t batch_size() const { return options_.batch_size; }

  /// Returns a sampler that differs in this option alone.
  LengthBucketSampler with_batch_size(std::int64_t batch_size) const {
    LengthBucketOptions options = options_;
    options.batch_size = batch_size;
    return LengthBucketSampler(layout_->lengths, options);
  }

  std::string identity() const {
    return message("LengthBucketSampler, budget ", options_.budget, ", batch_size ", options_.batch_size,
                   ", batches_per_bucket ", options_.batches_per_bucket, ", longest_first ",
                   options_.longest_first, ", shortest_first_epochs ", options_.shortest_first_epochs,
                   ", seed ", options_.seed, ", lengths ",
                   detail::checksum_of(std::span<const std::int64_t>(layout_->sorted)), ' ',
                   detail::checksum_of(std::span<const Bucket>(layout_->buckets)));
  }

 private:
  struct Bucket {
    std::size_t begin, end;  // in sorted
    std::size_t batch;       // samples a batch
  };
  struct Layout {
    std::vector<std::int64_t> lengths;
    std::vector<std::int64_t> sorted;  // longest first
    std::vector<Bucket> buckets;
    std::int64_t batches = 0;
  };
  using Range = std::pair<std::size_t, std::size_t>;

  void check_options() const;
  void check_size(std::int64_t size) const;
  std::size_t batch_of(std::int64_t index, std::int64_t length) const;
  Bucket bucket_at(std::size_t begin, std::span<const std::int64_t> sorted,
                   const std::vector<std::int64_t>& lengths) const;
  Layout lay_out(const std::vector<std::int64_t>& lengths) const;
  std::vector<Range> cut() const;

  LengthBucketOptions options_;
  std::shared_ptr<const Layout> layout_;  // shared, so that copies cost nothing
};

inline LengthBucketSampler::LengthBucketSampler(const std::vector<std::int64_t>& lengths,
                                                LengthBucketOptions options)
    : options_(options) {
  check_options();
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] < 0)
      throw UsageError(message("LengthBucketSampler: the length of sample ", i, " is ", lengths[i]));
  layout_ = std::make_shared<const Layout>(lay_out(lengths));
}

inline void LengthBucketSampler::check_options() const {
  const auto require = [](bool holds, const char* name, std::int64_t value, const char* expected) {
    if (!holds)
      throw UsageError(message("LengthBucketSampler: ", name, " is ", value, "; it must be ", expected));
  };
  require(options_.budget >= 0, "budget", options_.budget, "0 (none) or more");
  require(options_.batch_size >= 0, "batch_size", options_.batch_size, "0 (any) or more");
  require(options_.batches_per_bucket > 0, "batches_per_bucket", options_.batches_per_bucket, "at least 1");
  require(options_.shortest_first_epochs >= 0, "shortest_first_epochs", options_.shortest_first_epochs,
          "0 or more");
  if (options_.longest_first && options_.shortest_first_epochs > 0)
    throw UsageError("LengthBucketSampler: longest_first and shortest_first_epochs exclude each other");
  if (options_.budget == 0 && options_.batch_size == 0)
    throw UsageError("LengthBucketSampler: give a budget, a batch_size, or both");
}

inline void LengthBucketSampler::check_size(std::int64_t size) const {
  if (size != std::ssize(layout_->sorted))
    throw UsageError(message("LengthBucketSampler: ", layout_->sorted.size(), " lengths for a dataset of ",
                             size, " samples"));
}

/// Returns the number of samples of this length that a batch may hold.
inline std::size_t LengthBucketSampler::batch_of(std::int64_t index, std::int64_t length) const {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  if (options_.budget > 0 && length > options_.budget) {
    if (options_.too_long == TooLong::fail) throw SampleTooLong(index, length, options_.budget);
    return 1;
  }
  const std::int64_t by_budget = options_.budget > 0 && length > 0 ? options_.budget / length : kAny;
  return static_cast<std::size_t>(std::min(by_budget, options_.batch_size > 0 ? options_.batch_size : kAny));
}

/// Returns the bucket that begins at `begin`: whole batches, except perhaps for the very last, up to the
/// first that begins with a much shorter sample.
inline LengthBucketSampler::Bucket LengthBucketSampler::bucket_at(
    std::size_t begin, std::span<const std::int64_t> sorted, const std::vector<std::int64_t>& lengths) const {
  const auto length_at = [&](std::size_t i) { return lengths[static_cast<std::size_t>(sorted[i])]; };
  const std::int64_t longest = length_at(begin);
  const std::size_t batch = std::min(batch_of(sorted[begin], longest), sorted.size() - begin);
  std::size_t end = begin;
  for (std::int64_t taken = 0; taken < options_.batches_per_bucket && end < sorted.size(); ++taken) {
    if (taken > 0 && length_at(end) < longest - longest / 4) break;
    end += std::min(batch, sorted.size() - end);
  }
  return {begin, end, batch};
}

inline LengthBucketSampler::Layout LengthBucketSampler::lay_out(
    const std::vector<std::int64_t>& lengths) const {
  Layout layout{
      .lengths = lengths, .sorted = SequentialSampler{}.order(0, std::ssize(lengths)), .buckets = {}};
  std::ranges::stable_sort(layout.sorted, std::ranges::greater{}, [&lengths](std::int64_t index) {
    return lengths[static_cast<std::size_t>(index)];
  });
  for (std::size_t begin = 0; begin < lengths.size(); begin = layout.buckets.back().end) {
    const Bucket& bucket = layout.buckets.emplace_back(bucket_at(begin, layout.sorted, lengths));
    layout.batches += static_cast<std::int64_t>((bucket.end - begin - 1) / bucket.batch + 1);
  }
  return layout;
}

/// Returns the ranges of the batches, bucket by bucket.
inline std::vector<LengthBucketSampler::Range> LengthBucketSampler::cut() const {
  std::vector<Range> ranges;
  for (const Bucket& bucket : layout_->buckets)
    for (std::size_t begin = bucket.begin; begin < bucket.end; begin += bucket.batch)
      ranges.emplace_back(begin, std::min(begin + bucket.batch, bucket.end));
  return ranges;
}

inline BatchPlan LengthBucketSampler::batches(std::int64_t epoch, std::int64_t size) const {
  check_size(size);
  SplitMix64 random = detail::epoch_random(options_.seed, epoch);
  std::vector<std::int64_t> samples = layout_->sorted;
  for (const Bucket& bucket : layout_->buckets)
    shuffle(std::span(samples).subspan(bucket.begin, bucket.end - bucket.begin), random);
  if (options_.longest_first && size > 0)
    std::swap(samples.front(), *std::ranges::find(samples, layout_->sorted.front()));
  std::vector<Range> ranges = cut();
  if (epoch < options_.shortest_first_epochs)
    std::ranges::reverse(ranges);
  else
    shuffle(std::span(ranges).subspan(options_.longest_first && size > 0 ? 1 : 0), random);
  BatchPlan plan;
  plan.indices.reserve(samples.size());
  for (const auto& [begin, end] : ranges) plan.add(std::span(samples).subspan(begin, end - begin));
  return plan;
}

inline std::int64_t LengthBucketSampler::batch_count(std::int64_t size) const {
  check_size(size);
  return layout_->batches;
}

}  // namespace looptorch
