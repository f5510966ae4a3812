// SPDX-License-Identifier: MIT
// A dataset that is read from front to back and whose length nobody knows: a socket, a tar archive, a
// generator. Reading is serial; what a sample then costs goes into `transform`, which runs in the workers.
#pragma once

#include <looptorch/data/dataset.hpp>
#include <looptorch/data/detail/split_mix64.hpp>
#include <looptorch/data/sampler.hpp>
#include <looptorch/error.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

/// `next()` returns std::optional of the next sample, nothing at the end. Never called from two threads at
/// once, but from different ones. Optional members:
/// - `begin(std::int64_t epoch)`: starts anew; without it the stream is read once.
/// - `transform(sample) const`, or `transform(sample, const SampleContext&) const` where it draws: makes the
///   sample that is collated, in the workers, several at once, while `next` reads on.
/// - `collate(std::span<Sample>) const`, as a dataset's.
template <class T>
concept StreamDataset = !Dataset<T> && requires(T & stream) {
  requires detail::is_movable_optional<std::remove_cvref_t<decltype(stream.next())>>;
};

/// A stream that can be read again.
template <class T>
concept RestartableStream = StreamDataset<T> && requires(T& stream, std::int64_t epoch) {
  stream.begin(epoch);
};

/// Shuffles a stream: each sample is drawn from the `size` that lie ready, which are refilled as the stream
/// is read. Given to a loader of a stream in a sampler's place. Holds `size` samples as they were read.
struct ShuffleBuffer {
  std::int64_t size = 1000;
  std::uint64_t seed = 0;
};

namespace detail {

/// What a stream's `next` reads.
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

/// The sample that is collated.
template <class Stream>
auto transform_read(const Stream& stream, read_t<Stream>&& read, const SampleContext& context) {
  if constexpr (TransformsSeeded<Stream>)
    return stream.transform(std::move(read), context);
  else if constexpr (TransformsPlain<Stream>)
    return stream.transform(std::move(read));
  else
    return std::move(read);
}

template <class Stream>
using streamed_t = std::remove_cvref_t<decltype(transform_read(
    std::declval<const Stream&>(), std::declval<read_t<Stream>>(), SampleContext{}))>;

/// What a stream's samples may be visited in.
template <class Order>
inline constexpr bool is_stream_order =
    std::is_same_v<Order, SequentialSampler> || std::is_same_v<Order, ShuffleBuffer>;

/// How a loader holds its data: a stream by a reference through which it can be read.
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

/// Hands on a stream's samples, out of a buffer that is drawn from if there is one.
template <class Stream>
class StreamReader {
 public:
  using Sample = Numbered<read_t<Stream>>;

  /// Begins the epoch, if the stream can.
  StreamReader(Stream& stream, const ShuffleBuffer& shuffle, std::int64_t epoch)
      : stream_(stream),
        room_(static_cast<std::size_t>(shuffle.size)),
        random_(epoch_random(shuffle.seed, epoch)) {
    if constexpr (RestartableStream<Stream>) stream_.begin(epoch);
  }

  /// The next sample; nothing at the end.
  std::optional<Sample> next() {
    while (buffer_.size() < room_)
      if (std::optional<Sample> sample = read())
        buffer_.push_back(std::move(*sample));
      else
        break;
    return room_ == 0 ? read() : draw();
  }

 private:
  std::optional<Sample> read() {
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
  const std::size_t room_;
  SplitMix64 random_;
  std::vector<Sample> buffer_;
  std::int64_t count_ = 0;
  bool ended_ = false;
};

}  // namespace detail
}  // namespace looptorch
