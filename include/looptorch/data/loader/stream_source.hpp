// SPDX-License-Identifier: MIT
// Makes the batches of a stream. One worker at a time reads the samples of a batch; then it transforms and
// collates them while another worker reads the next batch.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/batch/batch_empty.hpp>
#include <looptorch/data/datasets/stream_dataset.hpp>
#include <looptorch/data/loader/batch_maker.hpp>
#include <looptorch/data/loader/data_fingerprint.hpp>
#include <looptorch/data/loader/in_flight_samples.hpp>
#include <looptorch/data/loader/loader_options.hpp>
#include <looptorch/data/loader/loader_position.hpp>
#include <looptorch/data/loader/regrouping.hpp>
#include <looptorch/data/loader/turn_lock.hpp>
#include <looptorch/data/samplers/sampler.hpp>

#include <c10/core/GradMode.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A stream within a const source. Reading changes it; only the worker whose turn it is reads.
template <class Set>
struct HeldStream {
  mutable Set value;
};
template <class Stream>
struct HeldStream<Stream&> {
  Stream& value;
};

/// One epoch's reading of a stream. All members but `turns` belong to the worker whose turn it is.
template <class Stream>
struct StreamVisit {
  /// `saved` is the stream's state after `saved_batch` of the `skip` batches; null: at the beginning.
  StreamVisit(Stream& stream, const StreamShard& shard, std::int64_t of_epoch, std::int64_t skip,
              const StateDict* saved, std::int64_t saved_batch)
      : epoch(of_epoch), to_skip(skip - saved_batch), reader(stream, shard, of_epoch, saved), turns(skip) {}

  const std::int64_t epoch;
  std::int64_t to_skip;  // batches to read past before the first
  StreamReader<Stream> reader;
  bool ended = false;  // the stream ended or failed
  TurnLock turns;
  InFlightSamples in_flight{};
};

template <class Set, class Order, class Collate>
class StreamSource final : public Regroupable {
  using Stream = std::remove_cvref_t<Set>;

 public:
  using Sample = streamed_t<Stream>;
  using Batch = collated_t<Stream, Collate, Sample>;
  using Visit = StreamVisit<Stream>;
  using Made = MadeBatch<Batch>;
  static constexpr bool kSized = false;
  static constexpr bool kRepeatable = RestartableStream<Stream>;

  StreamSource(Set&& stream, const LoaderOptions& options, Order order, Collate collate)
      : stream_{std::forward<Set>(stream)},
        options_(options),
        shard_(shard_of(order)),
        collate_(std::move(collate)) {
    require_option(options_.batch_size >= 1, "batch_size", options_.batch_size, "at least 1");
    require_option(options_.prefetch <= kMaxAhead, "prefetch", options_.prefetch,
                   "at most 1048576 for a stream, which has no last batch");
    check_options(options_);
    if (shard_.shuffle.size < 0)
      throw UsageError(message("ShuffleBuffer: size is ", shard_.shuffle.size, "; it must be 0 or more"));
    if (shard_.world_size < 1 || shard_.rank < 0 || shard_.rank >= shard_.world_size)
      throw UsageError(message("StreamShard: rank ", shard_.rank, " of world size ", shard_.world_size));
  }

  const LoaderOptions& options() const { return options_; }

  /// Returns the memory into which batches are collated.
  BatchMemoryPool& pool() const { return *pool_; }

  /// Opens an epoch. Its first `skip` batches are read and dropped, or skipped if the stream resumes from
  /// `saved`. Throws UsageError if the stream was read before and cannot begin again.
  std::unique_ptr<Visit> open(std::int64_t epoch, std::int64_t skip, const StateDict* saved) const {
    if (!ResumableStream<Stream>) saved = nullptr;
    std::int64_t saved_batch = saved ? skip : 0;
    if (ResumableStream<Stream> && !saved && place_ && place_->at.epoch == epoch && place_->at.batch <= skip)
      saved = place_->state.get(), saved_batch = place_->at.batch;
    if (began_.exchange(true) && !kRepeatable && !saved)
      throw UsageError(
          "PinnedPrefetchLoader: this stream was read once and cannot begin again; give it "
          "`begin(std::int64_t epoch)`");
    return std::make_unique<Visit>(stream_.value, shard_, epoch, skip, saved, saved_batch);
  }

  std::int64_t end_of(const Visit&) const { return std::numeric_limits<std::int64_t>::max(); }

  std::span<const std::int64_t> indices_of(const Visit&, std::int64_t, const Made& made) const {
    return made.indices;
  }

  Made make(Visit& visit, std::int64_t number, const std::stop_token& stop) const {
    const c10::NoGradGuard no_grad;
    auto [read, position] = take_turn(visit, number, stop);
    if (is_no_batch(read.size())) return {.end = true};
    BatchMaker<Sample, Batch> maker(options_, *pool_, visit.epoch, number);
    maker.reserve(read.size());
    for (auto& sample : read) {
      throw_if_stopped(stop);
      if (options_.timeout > 0) visit.in_flight.begin(number, sample.index);
      const SampleContext context = sample_context(options_.seed, visit.epoch, sample.index);
      maker.add(
          sample.index,
          [&] { return transform_read<Stream>(stream_.value, std::move(sample.read), context); },
          [&] { return path(sample.index); });
    }
    throw_if_stopped(stop);
    if (options_.timeout > 0) visit.in_flight.end(number);
    Made made = maker.finish(
        [this](std::span<Sample> samples) {
          return collate_samples(std::as_const(stream_.value), collate_, samples);
        },
        [this](std::int64_t index) { return path(index); });
    made.stream = std::move(position);
    return made;
  }

  /// Returns an empty path: a stream's samples have none.
  std::string path(std::int64_t /*index*/) const { return {}; }

  std::string description() const { return "a stream"; }

  StateDict identity() const { return planned_identity(); }

  std::int64_t batch_size() const override { return options_.batch_size; }

  std::optional<StateDict> identity_with(std::int64_t batch_size) const override {
    StateDict identity;
    identity.set("dataset", description());
    if constexpr (FingerprintedStream<Stream>) identity.set(kFingerprint, fingerprint());
    identity.set("batch_size", batch_size);
    identity.set("drop_last", options_.drop_last);
    identity.set("seed", options_.seed);
    identity.set("sampler", order_identity());
    return identity;
  }

  std::string different_data([[maybe_unused]] const std::string& saved,
                             [[maybe_unused]] const char* there) const override {
    if constexpr (FingerprintedStream<Stream>)
      return message("the stream's fingerprint is \"", fingerprint(), "\" here, \"", saved, "\" in ", there);
    return {};
  }

  bool cuts_an_order() const override { return true; }

  std::string refusal(const Regrouping& how) const override {
    if (!options_.drop_last) return {};
    return message("the last samples of a stream that drop_last leaves out are others with batches of ",
                   how.read.batch_size, " than with batches of ", how.planned.batch_size);
  }

  std::optional<std::int64_t> size_with(const Regrouping&) const override { return std::nullopt; }
  void regroup(std::optional<Regrouping> how) override { regrouping_ = std::move(how); }
  const std::optional<Regrouping>& regrouping() const override { return regrouping_; }
  void continue_from(std::optional<StreamPlace> place) override { place_ = std::move(place); }

 private:
  using Read = std::vector<Numbered<read_t<Stream>>>;
  static constexpr std::int64_t kMaxAhead = std::int64_t{1} << 20;

  std::string fingerprint() const { return std::as_const(stream_.value).fingerprint(); }

  /// Returns the order's identity without the rank, since all ranks are at the same position.
  std::string order_identity() const {
    const ShuffleBuffer& shuffle = shard_.shuffle;
    const std::string order = shuffle.size == 0
                                  ? "SequentialSampler"
                                  : message("ShuffleBuffer, size ", shuffle.size, ", seed ", shuffle.seed);
    if (shard_.world_size == 1) return order;
    // The name that saved identities have.
    return message("StreamShare, world_size ", shard_.world_size, ", even ", shard_.even, " of ", order);
  }

  bool is_no_batch(std::size_t samples) const {
    return samples == 0 || (options_.drop_last && static_cast<std::int64_t>(samples) < options_.batch_size);
  }

  /// Reads the samples of batch `number`, fewer at the end, and returns them with the stream's position
  /// after them.
  std::pair<Read, std::shared_ptr<const StateDict>> take_turn(Visit& visit, std::int64_t number,
                                                              const std::stop_token& stop) const {
    const TurnLock::Turn turn = visit.turns.wait_for(number);
    try {
      for (; visit.to_skip > 0 && !visit.ended; --visit.to_skip) read_batch(visit, stop);
      Read read = read_batch(visit, stop);
      return {std::move(read), visit.reader.position()};
    } catch (...) {
      visit.ended = true;
      throw_failed(visit.epoch, number);
    }
  }

  Read read_batch(Visit& visit, const std::stop_token& stop) const {
    Read read;
    while (!visit.ended && std::ssize(read) < options_.batch_size) {
      throw_if_stopped(stop);
      if (auto sample = visit.reader.next())
        read.push_back(std::move(*sample));
      else
        visit.ended = true;
    }
    return read;
  }

  [[noreturn]] static void throw_failed(std::int64_t epoch, std::int64_t batch) {
    std::throw_with_nested(LoaderError(message("the stream failed in batch ", batch, " of epoch ", epoch,
                                               ": ", what_of(std::current_exception())),
                                       epoch, batch, -1));
  }

  const HeldStream<Set> stream_;  // a reference where the loader was given an lvalue
  const LoaderOptions options_;
  const StreamShard shard_;
  const Collate collate_;
  const std::shared_ptr<BatchMemoryPool> pool_ = make_batch_memory_pool();
  std::optional<Regrouping> regrouping_;
  std::optional<StreamPlace> place_;
  mutable std::atomic<bool> began_ = false;
};

}  // namespace looptorch::detail
