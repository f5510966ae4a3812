// SPDX-License-Identifier: MIT
// Defines what a stream is: a dataset that is read from front to back and whose length is unknown, such as a
// socket, a tar archive or a generator. Reading is serial; the expensive work on a sample goes into
// `transform`, which runs in the workers.
#pragma once

#include <looptorch/base/random.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/samplers/sampler.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

template <class T>
inline constexpr bool is_movable_optional = false;
template <std::movable T>
inline constexpr bool is_movable_optional<std::optional<T>> = true;

}  // namespace detail

/// A type whose `next()` returns std::optional of the next sample, empty at the end. The loader calls it from
/// different threads, but never from two at once. Optional members:
///
/// - `begin(std::int64_t epoch)` starts anew; without it the stream is read once.
///
/// - `transform(sample) const`, or `transform(sample, const SampleContext&) const` if it draws random
/// numbers, makes the sample that is collated, in several workers at once, while `next` reads on.
///
/// - `collate(std::span<Sample>) const` makes a batch, as for a Dataset.
///
/// - `state_dict()` and `load_state_dict(const StateDict&)` save and restore the position, so that a resumed
/// loader need not read the processed part again. They are called between two calls of `next`; `begin`, if
/// there is one, comes before `load_state_dict`.
///
/// - `fingerprint() const` returns a text by which a resumed run recognises the stream's data.
template <class T>
concept StreamDataset = !Dataset<T> && requires(T & stream) {
  requires detail::is_movable_optional<std::remove_cvref_t<decltype(stream.next())>>;
};

/// A stream that can be read again.
template <class T>
concept RestartableStream = StreamDataset<T> && requires(T& stream, std::int64_t epoch) {
  stream.begin(epoch);
};

/// Shuffles a stream: draws each sample from a buffer of `size` samples, which is refilled as the stream is
/// read. Give it to a loader of a stream instead of a sampler. Holds `size` samples as they were read.
struct ShuffleBuffer {
  std::int64_t size = 1000;
  std::uint64_t seed = 0;
};

/// A stream that can save its position and resume from it.
template <class T>
concept ResumableStream = StreamDataset<T> && requires(T& stream, const T& constant, const StateDict& state) {
  { constant.state_dict() } -> std::same_as<StateDict>;
  stream.load_state_dict(state);
};

/// A stream that identifies its data.
template <class T>
concept FingerprintedStream = StreamDataset<T> && requires(const T& stream) {
  { stream.fingerprint() } -> std::convertible_to<std::string>;
};

/// Selects one rank's shard of a stream that every rank reads: of each `world_size` samples, the one of its
/// rank. Together the ranks have each sample once. Give it to a loader of a stream instead of a sampler.
/// Samples keep their numbers in the whole stream, so that ranks draw different random numbers. The other
/// ranks' samples are read but not transformed; if a stream can read only its shard, do that instead.
struct StreamShard {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  bool even = false;  ///< leaves out the last samples if not every rank gets one, for equal numbers of steps
  ShuffleBuffer shuffle{.size = 0};  ///< shuffles the shard; 0: in the stream's order
};

namespace detail {

/// The type that a stream's `next` reads.
template <class Stream>
using read_t = typename std::remove_cvref_t<decltype(std::declval<Stream&>().next())>::value_type;

template <class Stream>
concept TransformsSeeded = requires(const Stream& stream, read_t<Stream> read, const SampleContext& context) {
  stream.transform(std::move(read), context);
};

template <class Stream>
concept TransformsPlain = requires(const Stream& stream, read_t<Stream> read) {
  stream.transform(std::move(read));
};

/// Returns the sample that is collated.
template <class Stream>
auto transform_read(const Stream& stream, read_t<Stream>&& read, const SampleContext& context) {
  if constexpr (TransformsSeeded<Stream>)
    return stream.transform(std::move(read), context);
  else if constexpr (TransformsPlain<Stream>)
    return stream.transform(std::move(read));
  else
    return std::move(read);
}

/// The type of the sample that is collated.
template <class Stream>
using streamed_t = std::remove_cvref_t<decltype(transform_read(
    std::declval<const Stream&>(), std::declval<read_t<Stream>>(), SampleContext{}))>;

/// True for the types that may order a stream's samples.
template <class Order>
inline constexpr bool is_stream_order =
    std::is_same_v<Order, SequentialSampler> || std::is_same_v<Order, ShuffleBuffer> ||
    std::is_same_v<Order, StreamShard>;

/// Converts any such order to a StreamShard, the most general one.
template <class Order>
StreamShard shard_of([[maybe_unused]] const Order& order) {
  if constexpr (std::is_same_v<Order, StreamShard>)
    return order;
  else if constexpr (std::is_same_v<Order, ShuffleBuffer>)
    return {.shuffle = order};
  else
    return {};
}

/// The type in which a loader holds its data: a stream by a reference through which it can be read.
template <class Set>
using loader_held_t =
    std::conditional_t<std::is_lvalue_reference_v<Set> && StreamDataset<std::remove_reference_t<Set>>, Set,
                       held_t<Set>>;

/// A sample as it was read, and its number in the stream.
template <class Read>
struct Numbered {
  std::int64_t index;
  Read read;
};

/// Yields a rank's samples of a stream, drawn from a shuffle buffer if there is one.
template <class Stream>
class StreamReader {
 public:
  using Sample = Numbered<read_t<Stream>>;

  /// Begins the epoch, if the stream can. Resumes from the position in `saved`, if given.
  StreamReader(Stream& stream, const StreamShard& shard, std::int64_t epoch, const StateDict* saved)
      : stream_(stream),
        shard_(shard),
        room_(static_cast<std::size_t>(shard.shuffle.size)),
        random_(epoch_random(shard.shuffle.seed, epoch)) {
    if constexpr (RestartableStream<Stream>) stream_.begin(epoch);
    if constexpr (ResumableStream<Stream>) {
      if (!saved) return;
      stream_.load_state_dict(saved->under("stream"));
      count_ = saved->get<std::int64_t>("read");
    }
  }

  /// Returns the stream's position, if it can save one. Null with a shuffle buffer, whose samples the
  /// stream's position does not include.
  std::shared_ptr<const StateDict> position() const {
    if constexpr (ResumableStream<Stream>) {
      if (room_ > 0) return nullptr;
      StateDict position;
      position.set("stream", std::as_const(stream_).state_dict());
      position.set("read", count_);
      return std::make_shared<const StateDict>(std::move(position));
    }
    return nullptr;
  }

  /// Returns the next sample, or nothing at the end.
  std::optional<Sample> next() {
    while (buffer_.size() < room_)
      if (std::optional<Sample> sample = read())
        buffer_.push_back(std::move(*sample));
      else
        break;
    return room_ == 0 ? read() : draw();
  }

 private:
  /// Reads one sample for each rank and returns this rank's.
  std::optional<Sample> read() {
    std::optional<Sample> mine;
    for (std::int64_t rank = 0; rank < shard_.world_size; ++rank) {
      std::optional<Sample> sample = read_any();
      if (!sample) return shard_.even ? std::nullopt : std::move(mine);
      if (rank == shard_.rank) mine.emplace(std::move(*sample));
    }
    return mine;
  }

  std::optional<Sample> read_any() {
    if (ended_) return std::nullopt;
    auto read = stream_.next();
    ended_ = !read;
    if (ended_) return std::nullopt;
    return Sample{count_++, std::move(*read)};
  }

  std::optional<Sample> draw() {
    if (buffer_.empty()) return std::nullopt;
    std::swap(buffer_[random_.below(buffer_.size())], buffer_.back());
    Sample drawn = std::move(buffer_.back());
    buffer_.pop_back();
    return drawn;
  }

  Stream& stream_;
  const StreamShard shard_;
  const std::size_t room_;
  SplitMix64 random_;
  std::vector<Sample> buffer_;
  std::int64_t count_ = 0;
  bool ended_ = false;
};

}  // namespace detail
}  // namespace looptorch
