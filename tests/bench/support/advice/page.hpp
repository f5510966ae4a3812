// SPDX-License-Identifier: MIT
// Writes the tables of memory_advice: which choice is advised for a card, and what it needs.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/shapes_only/shapes_only.hpp>

#include "candidate.hpp"

#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch_bench {

inline constexpr std::array<std::int64_t, 11> kCards{4, 6, 8, 11, 12, 16, 24, 32, 40, 48, 80};  ///< GB

/// What may be taken of a card.
struct Limits {
  double reserve = 0.9;  ///< GB that the CUDA context and libraries take beside tensors.
  double margin = 0.1;   ///< The share of the rest that stays free.

  [[nodiscard]] std::int64_t allowed(std::int64_t gigabytes) const {
    return std::llround((static_cast<double>(gigabytes) - reserve) * (1 - margin) * 1e9);
  }
};

/// The bytes that commands of a candidate need, each measured once. Ask for large cards first.
class Needs {
 public:
  explicit Needs(const Candidate& candidate) : candidate(candidate) {}
  const Candidate& candidate;

  /// Returns the bytes; of what does not fit into `allowed`, perhaps only those that are held between steps.
  [[nodiscard]] std::int64_t bytes(const std::string& flags, std::int64_t allowed) {
    const auto [found, is_new] = known_.try_emplace(flags, 0);
    if (is_new) {
      const looptorch::ShapesOnly shapes_only(looptorch::ShapesOf::cuda);
      found->second = candidate.needed(candidate.with(flags), allowed);
      std::fprintf(stderr, "%s %s: %.3f GB\n", candidate.name.c_str(), flags.c_str(),
                   static_cast<double>(found->second) / 1e9);
    }
    return found->second;
  }

 private:
  std::map<std::string, std::int64_t> known_;
};

/// A choice that fits.
struct Advice {
  Saving saving;
  Window window;
  std::string flags;
  std::int64_t bytes = 0;
  friend bool operator==(const Advice& a, const Advice& b) {
    return a.saving.words == b.saving.words && a.window.batch == b.window.batch && a.bytes == b.bytes;
  }
};

/// Returns what `--fit` takes: of what trains most the largest micro-batch with which something fits, and of
/// those the first saving in order of cost.
[[nodiscard]] inline std::optional<Advice> advise(Needs& needs, const std::vector<Window>& windows,
                                                  std::int64_t allowed) {
  const auto& savings = needs.candidate.savings;
  for (int rank = 0; rank <= kLastRank; ++rank)
    for (const Window& window : windows)
      for (const Saving& saving : savings) {
        if (saving.rank != rank) continue;
        const std::string flags = flags_of(window, saving);
        if (const auto bytes = needs.bytes(flags, allowed); bytes <= allowed)
          return Advice{saving, window, flags, bytes};
      }
  return std::nullopt;
}

/// Returns the program's own settings for a card; nothing if it has none, or if they do not fit.
[[nodiscard]] inline std::optional<Advice> preset(Needs& needs, std::int64_t card, std::int64_t allowed) {
  const std::string flags = needs.candidate.preset(card);
  if (flags.empty()) return std::nullopt;
  const auto bytes = needs.bytes(flags, allowed);
  if (bytes > allowed) return std::nullopt;
  return Advice{
      {.words = "none", .flags = {}}, needs.candidate.window(needs.candidate.with(flags)), flags, bytes};
}

[[nodiscard]] inline std::string gigabytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes) / 1e9);
  return text;
}

[[nodiscard]] inline std::string window_text(const Window& window) {
  return std::to_string(window.batch) + " x " + std::to_string(window.accumulate);
}

using AdviceByCard = std::array<std::optional<Advice>, kCards.size()>;

/// Returns the flags of a choice in code quotes, or "none" for a program's defaults.
[[nodiscard]] inline std::string flags_cell(const Candidate& candidate, const Advice& advice) {
  const Window given = candidate.window(candidate.command);
  const bool has_default_window =
      given.batch == advice.window.batch && given.accumulate == advice.window.accumulate;
  const std::string flags = has_default_window ? advice.saving.flags : advice.flags;
  return flags.empty() ? "none" : "`" + flags + "`";
}

/// Returns what is advised for each card as a Markdown table, without rows that equal the one above.
[[nodiscard]] inline std::string advice_table(const Candidate& candidate, const AdviceByCard& advised) {
  std::string text =
      "| memory | micro-batch x accumulation | savings | tensors | flags |\n|---:|---:|---|---:|---|\n";
  for (std::size_t i = 0; i < kCards.size(); ++i) {
    if (i > 0 && advised[i] == advised[i - 1]) continue;
    text += "| " + std::to_string(kCards[i]) + " GB | ";
    const auto& advice = advised[i];
    text += advice ? window_text(advice->window) + " | " + advice->saving.words + " | " +
                         gigabytes(advice->bytes) + " GB | " + flags_cell(candidate, *advice) + " |\n"
                   : "| does not fit | | |\n";
  }
  return text;
}

/// Returns the program's own settings for cards as a Markdown table; empty if it has none.
[[nodiscard]] inline std::string preset_table(const AdviceByCard& presets) {
  std::string text;
  for (std::size_t i = 0; i < kCards.size(); ++i) {
    const auto& own = presets[i];
    if (!own || (i > 0 && own == presets[i - 1])) continue;
    text += "| " + std::to_string(kCards[i]) + " GB | " + window_text(own->window) + " | " +
            gigabytes(own->bytes) + " GB | `" + own->flags + "` |\n";
  }
  if (text.empty()) return text;
  return "\nThe original project's batches, which leave memory free:\n\n"
         "| memory | micro-batch x accumulation | tensors | flags |\n|---:|---:|---:|---|\n" +
         text;
}

/// Returns a model's section of the page.
[[nodiscard]] inline std::string section(Needs& needs, const Limits& limits) {
  const Candidate& candidate = needs.candidate;
  AdviceByCard advised, presets;
  for (std::size_t i = kCards.size(); i-- > 0;) {
    const auto allowed = limits.allowed(kCards[i]);
    presets[i] = preset(needs, kCards[i], allowed);
    advised[i] = advise(needs, candidate.windows(), allowed);
  }
  return "### " + candidate.name + "\n\n`" + candidate.command + "`; " + candidate.input + ".\n\n" +
         advice_table(candidate, advised) + preset_table(presets) + "\n";
}

/// Returns a heading's anchor, as GitHub makes it.
[[nodiscard]] inline std::string anchor(const std::string& heading) {
  std::string anchor;
  for (const char c : heading)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (c == ' ')
      anchor += '-';
  return anchor;
}

/// Returns what stands above the sections: how the figures were made, and a link to each model.
[[nodiscard]] inline std::string preface(const std::vector<Candidate>& candidates) {
  std::string text = "\nAll figures: LibTorch " + std::string(TORCH_VERSION) +
                     ", [by shapes](#what-was-measured-and-on-what).\n\n";
  for (const Candidate& candidate : candidates)
    text += "- [" + candidate.name + "](#" + anchor(candidate.name) + ")\n";
  return text + "\n";
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

  /// Replaces what stands above the first section, and writes the page.
  void put_preface(const std::string& preface) {
    replace(begin_, std::min(text_.find("### ", begin_), end_), preface);
    looptorch::write_file_atomically(path_, text_);
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

  /// True if the page has this section, of which bytes may differ by a share of `tolerance`.
  [[nodiscard]] bool agrees(const std::string& section, double tolerance) const {
    const auto from = text_.find(section.substr(0, section.find('\n') + 1), begin_);
    if (from >= end_) return false;
    std::istringstream now(section),
        there(text_.substr(from, std::min(text_.find("\n### ", from), end_) - from));
    std::string word, written;
    while (now >> word) {
      if (!(there >> written)) return false;
      const double number = std::strtod(word.c_str(), nullptr),
                   on_page = std::strtod(written.c_str(), nullptr);
      const bool is_near =
          word.find('.') != word.npos && number > 0 && std::abs(on_page / number - 1) <= tolerance;
      if (word != written && !is_near) return false;
    }
    return !(there >> written);
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
