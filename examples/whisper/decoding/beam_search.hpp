// SPDX-License-Identifier: MIT
// Beam search as in openai-whisper: continues the best `beam_size` texts of a clip and collects those that
// end. A clip is done when round(beam_size * patience) texts have ended.
//
// Shapes: R rows (unfinished texts, clip by clip), K candidates of a row.
#pragma once

#include "token_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace whisper {

class BeamTexts {
 public:
  BeamTexts(int64_t clips, const DecodingOptions& options)
      : width_(static_cast<std::size_t>(options.beam_size)),
        wanted_(static_cast<std::size_t>(
            std::nearbyint(static_cast<double>(options.beam_size) * options.patience))),
        options_(options),
        found_(static_cast<std::size_t>(clips)),
        texts_(found_.size()),
        sums_(found_.size(), 0.0F) {
    for (std::size_t clip = 0; clip < found_.size(); ++clip) live_.push_back(clip);
  }

  /// Returns the unfinished texts, by row.
  [[nodiscard]] const std::vector<std::vector<int64_t>>& texts() const { return texts_; }

  /// Returns 0: a beam search draws no random numbers.
  static double draw(std::size_t /*row*/) { return 0; }

  /// Takes the candidates of each row, as TokenChoice returns them; the first time there is one row a clip.
  SearchStep advance(const at::Tensor& chosen_R2K) {
    const auto rows = texts_.size() / live_.size();
    Rows next;
    SearchStep step;
    std::vector<std::size_t> live;
    for (std::size_t clip = 0; clip < live_.size(); ++clip) {
      auto continued = continue_clip(found_[live_[clip]], candidates(clip * rows, rows, chosen_R2K));
      if (found_[live_[clip]].size() >= wanted_ || continued.texts.size() < width_) {
        fill_up(found_[live_[clip]], continued);
        continue;
      }
      step.clips.push_back(static_cast<int64_t>(clip));
      live.push_back(live_[clip]);
      std::move(continued.texts.begin(), continued.texts.end(), std::back_inserter(next.texts));
      next.sums.insert(next.sums.end(), continued.sums.begin(), continued.sums.end());
      step.tokens.insert(step.tokens.end(), continued.tokens.begin(), continued.tokens.end());
      step.parents.insert(step.parents.end(), continued.parents.begin(), continued.parents.end());
    }
    texts_ = std::move(next.texts), sums_ = std::move(next.sums), live_ = std::move(live);
    return step;
  }

  /// Returns the texts of each clip.
  [[nodiscard]] std::vector<std::vector<FoundText>> take() && {
    for (std::size_t clip = 0; clip < live_.size(); ++clip) {
      const auto rows = texts_.size() / live_.size(), first = clip * rows;
      Rows left;
      for (auto row = first; row < first + rows; ++row)
        left.texts.push_back(std::move(texts_[row])), left.sums.push_back(sums_[row]);
      fill_up(found_[live_[clip]], left);
    }
    return std::move(found_);
  }

 private:
  struct Candidate {
    float log_probability;
    int64_t token;
    std::size_t row;
  };

  struct Rows {
    std::vector<std::vector<int64_t>> texts;
    std::vector<float> sums;
    std::vector<int64_t> tokens, parents;
  };

  /// Returns a clip's continuations, best first.
  [[nodiscard]] std::vector<Candidate> candidates(std::size_t first, std::size_t rows,
                                                  const at::Tensor& chosen_R2K) const {
    const auto chosen = chosen_R2K.accessor<float, 2>();
    const auto count = chosen.size(1) / 2;
    std::vector<Candidate> all;
    for (auto row = first; row < first + rows; ++row) {
      const auto of_row = chosen[static_cast<int64_t>(row)];
      for (int64_t k = 0; k < count; ++k)
        all.push_back({sums_[row] + of_row[k], static_cast<int64_t>(of_row[count + k]), row});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
    return all;
  }

  /// Collects texts that end and returns the rows that continue.
  Rows continue_clip(std::vector<FoundText>& found, const std::vector<Candidate>& candidates) const {
    Rows rows;
    for (const auto& candidate : candidates) {
      if (rows.texts.size() == width_) break;
      const auto& text = texts_[candidate.row];
      if (options_.ends_text(candidate.token)) {
        if (found.size() < wanted_) found.push_back({text, candidate.log_probability});
        continue;
      }
      rows.texts.push_back(text);
      rows.texts.back().push_back(candidate.token);
      rows.sums.push_back(candidate.log_probability);
      rows.tokens.push_back(candidate.token);
      rows.parents.push_back(static_cast<int64_t>(candidate.row));
    }
    return rows;
  }

  /// Adds unfinished texts, best first, up to `beam_size` texts.
  void fill_up(std::vector<FoundText>& found, Rows& rows) const {
    for (std::size_t row = 0; row < rows.texts.size() && found.size() < width_; ++row)
      found.push_back({std::move(rows.texts[row]), rows.sums[row]});
  }

  std::size_t width_, wanted_;
  DecodingOptions options_;
  std::vector<std::vector<FoundText>> found_;  // by clip
  std::vector<std::size_t> live_;              // unfinished clips
  std::vector<std::vector<int64_t>> texts_;    // by row
  std::vector<float> sums_;                    // by row
};

}  // namespace whisper
