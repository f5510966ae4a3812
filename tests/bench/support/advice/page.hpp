// SPDX-License-Identifier: MIT
// The tables of memory_advice: what each choice needs, and which one is advised for a card.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>

#include "candidate.hpp"

#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch_bench {

inline constexpr std::array<std::int64_t, 6> kCards{4, 8, 12, 16, 24, 32};  ///< GB

/// What may be taken of a card.
struct Limits {
  double reserve = 0.6;  ///< GB that the CUDA context and libraries take beside tensors.
  double margin = 0.1;   ///< The share of the rest that stays free.

  [[nodiscard]] std::int64_t allowed(std::int64_t gigabytes) const {
    return std::llround((static_cast<double>(gigabytes) - reserve) * (1 - margin) * 1e9);
  }
};

/// Stands for a choice that needs more than the largest card has.
inline constexpr std::int64_t kTooMuch = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kLargest = kCards.back() * 1'000'000'000;

/// The bytes that each choice needs, by saving and window; kTooMuch if a smaller micro-batch needs too much.
struct Needs {
  const Candidate& candidate;
  std::vector<Window> windows;
  std::vector<std::vector<std::int64_t>> bytes;  ///< [saving][window]
  std::vector<std::int64_t> of_presets = {};     ///< By card; 0 where the program has no settings for it.
};

/// A choice that fits.
struct Advice {
  std::size_t saving, window;
};

/// Returns the first saving in order of cost with which a micro-batch fits, and the largest one that does.
/// Savings whose numbers do not hold on a GPU are not advised.
[[nodiscard]] inline std::optional<Advice> advise(const Needs& needs, std::int64_t allowed) {
  for (std::size_t saving = 0; saving < needs.bytes.size(); ++saving) {
    if (!needs.candidate.savings[saving].counts_for_gpus) continue;
    for (std::size_t window = 0; window < needs.windows.size(); ++window)
      if (needs.bytes[saving][window] <= allowed) return Advice{saving, window};
  }
  return std::nullopt;
}

[[nodiscard]] inline std::string gigabytes(std::int64_t bytes) {
  if (bytes > kLargest) return "over " + std::to_string(kCards.back());
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes) / 1e9);
  return text;
}

/// Returns the row of a card whose settings the program has itself; nothing if it has none, or if they do not
/// fit.
[[nodiscard]] inline std::optional<std::string> preset_row(const Needs& needs, std::size_t card,
                                                           std::int64_t allowed) {
  const std::int64_t bytes = needs.of_presets.empty() ? 0 : needs.of_presets[card];
  if (bytes == 0 || bytes > allowed) return std::nullopt;
  const std::string flags = needs.candidate.preset(kCards[card]);
  const Window window = needs.candidate.window(needs.candidate.with(flags));
  return std::to_string(window.batch) + " x " + std::to_string(window.accumulate) + " | nothing | " +
         gigabytes(bytes) + " GB | `" + flags + "` |\n";
}

/// Returns the advice for each card as a Markdown table.
[[nodiscard]] inline std::string advice_table(const Needs& needs, const Limits& limits) {
  std::string text =
      "| memory | micro-batch x accumulation | saved by | needs | flags |\n|---:|---:|---|---:|---|\n";
  for (std::size_t i = 0; i < kCards.size(); ++i) {
    const std::int64_t card = kCards[i], allowed = limits.allowed(card);
    text += "| " + std::to_string(card) + " GB | ";
    if (const auto row = preset_row(needs, i, allowed)) {
      text += *row;
      continue;
    }
    const auto advice = advise(needs, allowed);
    if (!advice) {
      text += "| does not fit | | |\n";
      continue;
    }
    const Window& window = needs.windows[advice->window];
    const Saving& saving = needs.candidate.savings[advice->saving];
    text += std::to_string(window.batch) + " x " + std::to_string(window.accumulate) + " | " +
            (saving.is_full ? saving.words : "does not fit by full fine-tuning; " + saving.words) + " | " +
            gigabytes(needs.bytes[advice->saving][advice->window]) + " GB | `" + flags_of(window, saving) +
            "` |\n";
  }
  return text;
}

/// Returns what each choice needs as a Markdown table.
[[nodiscard]] inline std::string needs_table(const Needs& needs) {
  std::string text = "| GB at the peak, micro-batch of |", rule = "|---|";
  for (const Window& window : needs.windows)
    text += " " + std::to_string(window.batch) + " |", rule += "---:|";
  text += "\n" + rule + "\n";
  for (std::size_t saving = 0; saving < needs.bytes.size(); ++saving) {
    const Saving& each = needs.candidate.savings[saving];
    text += "| " + each.words + (each.counts_for_gpus ? "" : " (*)") + " |";
    for (const std::int64_t bytes : needs.bytes[saving]) text += " " + gigabytes(bytes) + " |";
    text += "\n";
  }
  return text;
}

/// Returns a model's section of the page.
[[nodiscard]] inline std::string section(const Needs& needs, const Limits& limits) {
  const Candidate& candidate = needs.candidate;
  return "### " + candidate.name + "\n\n`" + candidate.command + "`; " + candidate.input + ". LibTorch " +
         TORCH_VERSION + ", CPU.\n\n" + advice_table(needs, limits) + "\n" + needs_table(needs) + "\n";
}

/// The part of a page that the program writes: sections between two markers.
class Page {
 public:
  /// Throws FileError, and UsageError for a page without markers.
  explicit Page(std::filesystem::path path) : path_(std::move(path)), text_(looptorch::read_file(path_)) {
    begin_ = text_.find(kBegin), end_ = text_.find(kEnd);
    if (begin_ == std::string::npos || end_ == std::string::npos || end_ < begin_)
      throw looptorch::UsageError(
          looptorch::message(path_.string(), " has no lines \"", kBegin, "\" and \"", kEnd, '"'));
    begin_ += kBegin.size();
  }

  /// Replaces the section of the same title, or adds it as the last, and writes the page.
  void put(const std::string& section) {
    const std::string title = section.substr(0, section.find('\n') + 1);
    const auto from = text_.find(title, begin_);
    if (from < end_) {
      const auto next = std::min(text_.find("\n### ", from), end_ - 1) + 1;
      replace(from, next, section);
    } else {
      replace(end_, end_, (text_[end_ - 2] == '\n' ? "" : "\n") + section);
    }
    looptorch::write_file_atomically(path_, text_);
  }

 private:
  static constexpr std::string_view kBegin = "<!-- memory_advice: begin -->\n",
                                    kEnd = "<!-- memory_advice: end -->";

  void replace(std::size_t from, std::size_t to, const std::string& section) {
    text_.replace(from, to - from, section);
    end_ = text_.find(kEnd);
  }

  std::filesystem::path path_;
  std::string text_;
  std::size_t begin_, end_;
};

}  // namespace looptorch_bench
