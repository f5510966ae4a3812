// SPDX-License-Identifier: MIT
// Converts a run's examples (texts, pictures, sounds, distributions) to JSON with data in base64, for
// report.html, and to events, for TensorBoard.
#pragma once

#include <looptorch/base/example.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/report/tensorboard/events.hpp>
#include <looptorch/report/tensorboard/wire.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch::report {

namespace detail {

/// Returns RFC 4648's base64.
inline std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

/// Returns a WAV file of 16-bit samples.
inline std::string wav_of(const SoundExample& sound) {
  const auto rate = static_cast<std::uint64_t>(std::llround(sound.sample_rate));
  const std::uint64_t bytes = 2 * sound.samples.size();
  std::string wav = "RIFF" + little_endian(36 + bytes, 4) + "WAVEfmt " + little_endian(16, 4);
  wav += little_endian(1, 2) + little_endian(1, 2) + little_endian(rate, 4) + little_endian(2 * rate, 4);
  wav += little_endian(2, 2) + little_endian(16, 2) + "data" + little_endian(bytes, 4);
  for (const float sample : sound.samples) {
    const float inside = std::isfinite(sample) ? std::clamp(sample, -1.0f, 1.0f) : 0.0f;
    wav += little_endian(static_cast<std::uint16_t>(std::lround(inside * 32767)), 2);
  }
  return wav;
}

/// Escapes a text so that Markdown shows every character.
inline std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*_~<>|[]#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// Returns a text in Markdown; errors are **expected → got**, and ∅ stands for no word. TensorBoard's
/// Markdown strikes nothing out.
inline std::string marked_text(const TextExample& text) {
  const auto word = [](const std::string& plain) { return plain.empty() ? "∅" : markdown_text(plain); };
  std::string out = text.title.empty() ? "" : "*" + markdown_text(text.title) + "*: ";
  for (std::size_t i = 0; i < text.pieces.size(); ++i) {
    const auto& [expected, got] = text.pieces[i];
    if (i > 0) out += text.separator;
    out += expected == got ? markdown_text(got) : "**" + word(expected) + " → " + word(got) + "**";
  }
  return out;
}

/// Returns how many of `values` lie in each of `buckets` between the lowest and the highest; NaN and
/// infinities are skipped.
inline std::vector<std::int64_t> bucket_counts(const std::vector<double>& values, double low, double high,
                                               std::size_t buckets) {
  std::vector<std::int64_t> counts(buckets, 0);
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const double share = high > low ? (value - low) / (high - low) : 0;
    ++counts[std::min(static_cast<std::size_t>(share * static_cast<double>(buckets)), buckets - 1)];
  }
  return counts;
}

}  // namespace detail

/// Returns an example as the page's script takes it: {"kind": ..., "title": ..., ...}. Bytes that are not
/// UTF-8 are replaced.
[[nodiscard]] inline Json page_example(const Example& example) {
  struct Form {
    Json operator()(const TextExample& text) const {
      Json pieces = Json::array();
      for (const auto& [expected, got] : text.pieces)
        pieces.push_back(expected == got ? Json::array({shown(got)})
                                         : Json::array({shown(expected), shown(got)}));
      return begin("text", text.title)
          .set("pieces", std::move(pieces))
          .set("separator", shown(text.separator));
    }
    Json operator()(const PictureExample& picture) const {
      return begin("picture", picture.title)
          .set("columns", picture.columns)
          .set("data", "data:image/png;base64," + detail::base64(picture.png));
    }
    Json operator()(const SoundExample& sound) const {
      return begin("sound", sound.title)
          .set("data", "data:audio/wav;base64," + detail::base64(detail::wav_of(sound)));
    }
    Json operator()(const DistributionExample& numbers) const {
      constexpr std::size_t kBuckets = 40;
      std::vector<double> finite;
      for (const double value : numbers.values)
        if (std::isfinite(value)) finite.push_back(value);
      const double low = finite.empty() ? 0 : *std::min_element(finite.begin(), finite.end());
      const double high = finite.empty() ? 0 : *std::max_element(finite.begin(), finite.end());
      Json counts = Json::array();
      for (const std::int64_t count : detail::bucket_counts(finite, low, high, kBuckets))
        counts.push_back(Json(count));
      return begin("distribution", numbers.title)
          .set("low", low)
          .set("high", high)
          .set("counts", std::move(counts));
    }
    static Json begin(const char* kind, const std::string& title) {
      return Json::object().set("kind", kind).set("title", shown(title));
    }
    static Json shown(const std::string& text) { return Json(replace_invalid_utf8(text)); }
  };
  return std::visit(Form{}, example);
}

/// Returns an example as TensorBoard's event. Texts are in Markdown.
[[nodiscard]] inline std::string example_event(EventTime time, const std::string& tag,
                                               const Example& example) {
  struct Form {
    EventTime time;
    const std::string& tag;
    std::string operator()(const TextExample& text) const {
      return text_event(time, tag, detail::marked_text(text));
    }
    std::string operator()(const PictureExample& picture) const {
      return image_event(time, tag, picture.rows, picture.columns, picture.png);
    }
    std::string operator()(const SoundExample& sound) const {
      const auto frames = static_cast<std::int64_t>(sound.samples.size());
      return audio_event(time, tag, sound.sample_rate, frames, detail::wav_of(sound));
    }
    std::string operator()(const DistributionExample& numbers) const {
      return histogram_event(time, tag, numbers.values);
    }
  };
  const std::string shown_tag = replace_invalid_utf8(tag);
  return std::visit(Form{time, shown_tag}, example);
}

}  // namespace looptorch::report
