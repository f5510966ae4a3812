// SPDX-License-Identifier: MIT
// Encodes TensorBoard's events as records: scalars, histograms, texts, images, sound and hyperparameters.
// Field numbers are those of TensorBoard's event.proto, summary.proto and tensor.proto, and of the .proto
// files of its hparams plug-in.
#pragma once

#include <looptorch/base/hash/crc32.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/report/tensorboard/wire.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::report {

namespace detail {

/// Returns the masked CRC-32C that a TFRecord stores.
[[nodiscard]] constexpr std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = looptorch::detail::crc32<looptorch::detail::kCrc32c>(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

inline std::string little_endian(std::uint64_t value, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}
inline std::uint64_t from_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace detail

/// Returns `data` as a record of a TFRecord file: its length, the length's checksum, the data and theirs.
[[nodiscard]] inline std::string record_of(std::string_view data) {
  const std::string length = detail::little_endian(data.size(), 8);
  return length + detail::little_endian(detail::masked_crc(length), 4) + std::string(data) +
         detail::little_endian(detail::masked_crc(data), 4);
}

/// Returns the data of the record at the front of `file` and removes the record. Returns nothing at the end,
/// and where a record is cut off or damaged.
[[nodiscard]] inline std::optional<std::string_view> take_record(std::string_view& file) {
  constexpr std::size_t kHead = 12, kTail = 4;
  if (file.size() < kHead + kTail) return std::nullopt;
  const std::uint64_t size = detail::from_little_endian(file.substr(0, 8));
  if (detail::from_little_endian(file.substr(8, 4)) != detail::masked_crc(file.substr(0, 8)) ||
      size > file.size() - kHead - kTail)
    return std::nullopt;
  const std::string_view data = file.substr(kHead, size);
  if (detail::from_little_endian(file.substr(kHead + size, kTail)) != detail::masked_crc(data))
    return std::nullopt;
  file.remove_prefix(kHead + size + kTail);
  return data;
}

/// When an event happened.
struct EventTime {
  double seconds = 0;     ///< Since 1970-01-01, UTC.
  std::int64_t step = 0;  ///< At least 0.
};

namespace detail {

inline Message event_at(EventTime time) {
  Message event;
  event.real(1, time.seconds);
  if (time.step > 0) event.number(2, static_cast<std::uint64_t>(time.step));
  return event;
}

/// Returns the record of an event with one value, filled by `fill`.
template <class Fill>
std::string value_event(EventTime time, std::string_view tag, Fill&& fill) {
  Message value, summary;
  value.bytes(1, tag);
  fill(value);
  summary.message(1, value);
  return record_of(event_at(time).message(5, summary).bytes());
}

/// Adds the metadata that tell which plug-in shows a value.
inline void add_plugin(Message& value, std::string_view name, std::string_view content = {}) {
  Message plugin, metadata;
  plugin.bytes(1, name);
  if (!content.empty()) plugin.bytes(2, content);
  metadata.message(1, plugin);
  value.message(9, metadata);
}

inline std::string packed(const std::vector<double>& values) {
  std::string bytes;
  for (const double value : values) bytes += little_endian(std::bit_cast<std::uint64_t>(value), 8);
  return bytes;
}

}  // namespace detail

/// Returns the first record of an event file.
[[nodiscard]] inline std::string version_event(double seconds) {
  return record_of(detail::event_at({seconds}).bytes(3, "brain.Event:2").bytes());
}

/// Returns a number, in single precision as TensorBoard keeps it. NaN stays NaN.
[[nodiscard]] inline std::string scalar_event(EventTime time, std::string_view tag, double number) {
  return detail::value_event(time, tag,
                             [&](detail::Message& value) { value.single(2, static_cast<float>(number)); });
}

/// Returns a text in Markdown.
[[nodiscard]] inline std::string text_event(EventTime time, std::string_view tag, std::string_view text) {
  constexpr std::uint64_t kString = 7;  // DT_STRING
  return detail::value_event(time, tag, [&](detail::Message& value) {
    detail::Message tensor, shape, dimension;
    dimension.number(1, 1);
    shape.message(2, dimension);
    value.message(8, tensor.number(1, kString).message(2, shape).bytes(8, text));
    detail::add_plugin(value, "text");
  });
}

/// Returns a picture, given as a PNG file of RGB pixels.
[[nodiscard]] inline std::string image_event(EventTime time, std::string_view tag, std::int64_t rows,
                                             std::int64_t columns, std::string_view png) {
  constexpr std::uint64_t kRgb = 3;
  return detail::value_event(time, tag, [&](detail::Message& value) {
    detail::Message image;
    image.number(1, static_cast<std::uint64_t>(rows)).number(2, static_cast<std::uint64_t>(columns));
    value.message(4, image.number(3, kRgb).bytes(4, png));
  });
}

/// Returns sound of one channel, given as a WAV file of `frames` samples.
[[nodiscard]] inline std::string audio_event(EventTime time, std::string_view tag, double sample_rate,
                                             std::int64_t frames, std::string_view wav) {
  return detail::value_event(time, tag, [&](detail::Message& value) {
    detail::Message audio;
    audio.single(1, static_cast<float>(sample_rate)).number(2, 1);
    audio.number(3, static_cast<std::uint64_t>(frames)).bytes(4, wav).bytes(5, "audio/wav");
    value.message(6, audio);
  });
}

/// Returns the distribution of `values` in `buckets` of equal width; NaN and infinities are skipped.
[[nodiscard]] inline std::string histogram_event(EventTime time, std::string_view tag,
                                                 std::span<const double> values, std::size_t buckets = 30) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
               [](double value) { return std::isfinite(value); });
  double low = 0, high = 0, sum = 0, squares = 0;
  if (!finite.empty()) {
    const auto [lowest, highest] = std::minmax_element(finite.begin(), finite.end());
    low = *lowest, high = *highest;
  }
  std::vector<double> limits, counts(buckets, 0.0);
  const double width = high > low ? (high - low) / static_cast<double>(buckets) : 1.0;
  for (std::size_t i = 1; i <= buckets; ++i) limits.push_back(low + width * static_cast<double>(i));
  if (high > low) limits.back() = high;
  for (const double value : finite) {
    const auto bucket = static_cast<std::size_t>((value - low) / width);
    ++counts[std::min(bucket, buckets - 1)];
    sum += value, squares += value * value;
  }
  return detail::value_event(time, tag, [&](detail::Message& value) {
    detail::Message histogram;
    histogram.real(1, low).real(2, high).real(3, static_cast<double>(finite.size()));
    histogram.real(4, sum).real(5, squares);
    value.message(5, histogram.bytes(6, detail::packed(limits)).bytes(7, detail::packed(counts)));
  });
}

/// Names and values of a run's settings.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Returns the two records by which the HPARAMS tab knows a run: its settings, as text, and the metrics to
/// show beside them.
[[nodiscard]] inline std::string hyperparameter_events(double seconds, const Facts& settings,
                                                       const std::vector<std::string>& metrics) {
  using detail::Message;
  constexpr std::uint64_t kText = 1;
  Message experiment, start;
  for (const auto& [given_name, given_setting] : settings) {
    const std::string name = replace_invalid_utf8(given_name), setting = replace_invalid_utf8(given_setting);
    Message info, entry, text;
    experiment.message(4, info.bytes(1, name).number(4, kText));
    start.message(1, entry.bytes(1, name).message(2, text.bytes(3, setting)));
  }
  for (const std::string& metric : metrics) {
    Message name, info;
    experiment.message(5, info.message(1, name.bytes(2, metric)));
  }
  start.real(5, seconds);
  const auto event = [&](const char* tag, int field, const Message& content) {
    return detail::value_event({seconds}, tag, [&](Message& value) {
      detail::add_plugin(value, "hparams", Message().message(field, content).bytes());
    });
  };
  return event("_hparams_/experiment", 2, experiment) + event("_hparams_/session_start_info", 3, start);
}

/// Returns the step of an event; 0 where it has none.
[[nodiscard]] inline std::int64_t step_of_event(std::string_view event) {
  return static_cast<std::int64_t>(detail::find_number(event, 2).value_or(0));
}

}  // namespace looptorch::report
