// SPDX-License-Identifier: MIT
// Plans a corpus of Morse code: the text, the speed, the conditions of reception (noise, fading, other
// stations) and the length of each clip.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>

#include "morse_code.hpp"
#include "morse_sound.hpp"
#include "morse_text.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace morse {

/// The ranges from which clips are drawn.
struct ClipRanges {
  Between words_per_minute{15, 40}, seconds{3, 28};
  std::vector<Conditions> conditions{kConditions.begin(), kConditions.end()};
  double noise_share = .05;     ///< Share of clips without a text, from 0 to 1.
  std::int64_t characters = 0;  ///< Most characters of a text, drawn singly; 0: texts are phrases.
};

/// One clip before synthesis.
struct Clip {
  std::string text;  ///< Empty: noise alone.
  Conditions conditions;
  double words_per_minute = 0, start = 0, seconds = 0;
  std::vector<Mark> marks;
  std::uint64_t seed = 0;

  [[nodiscard]] std::vector<float> samples() const {
    looptorch::SplitMix64 random(seed);
    return render(marks, start, seconds, conditions, random);
  }
};

/// Draws clips one by one. No phrase is repeated; texts of characters may be, since a few have few orders.
class Clips {
 public:
  /// Throws MorseError for ranges that no clip can meet: the shortest phrase must fit the longest clip.
  Clips(ClipRanges ranges, std::uint64_t seed)
      : ranges_(std::move(ranges)), random_(seed), texts_(looptorch::derive_seed(seed, 1)) {
    if (ranges_.conditions.empty()) throw MorseError("there are no conditions to choose from");
    if (!(ranges_.seconds.low > 0 && ranges_.seconds.low <= ranges_.seconds.high))
      throw MorseError(looptorch::message("clips of ", ranges_.seconds.low, " to ", ranges_.seconds.high,
                                          " s: --shortest must be above 0 and at most --longest"));
    if (!(ranges_.words_per_minute.low <= ranges_.words_per_minute.high))
      throw MorseError(looptorch::message(ranges_.words_per_minute.low, " to ", ranges_.words_per_minute.high,
                                          " words a minute: --slowest must be at most --fastest"));
    if (ranges_.characters > 0) {
      if (.6 + unit_seconds(ranges_.words_per_minute.low) <= ranges_.seconds.high) return;
      throw MorseError(looptorch::message("no character fits into ", ranges_.seconds.high, " s"));
    }
    const double longest = 8 * 12 * unit_seconds(ranges_.words_per_minute.low);  // eight characters
    if (longest > ranges_.seconds.high)
      throw MorseError(looptorch::message("a call sign at ", ranges_.words_per_minute.low,
                                          " words a minute may take ", longest, " s, and clips end after ",
                                          ranges_.seconds.high, " s"));
  }

  [[nodiscard]] Clip next() {
    Clip clip;
    clip.conditions = ranges_.conditions[random_.below(ranges_.conditions.size())];
    clip.words_per_minute = ranges_.words_per_minute.draw(random_);
    clip.start = Between{.1, .5}.draw(random_);
    clip.seconds = ranges_.seconds.draw(random_);
    clip.seed = random_.next();
    if (random_.uniform() >= ranges_.noise_share) ranges_.characters > 0 ? drill(clip) : fill(clip);
    return clip;
  }

 private:
  /// Gives the clip as many phrases as fit, and a length that ends soon after the last.
  void fill(Clip& clip) {
    const Keying keying{clip.words_per_minute, clip.conditions.jitter.draw(random_)};
    for (int refused = 0; clip.text.empty() || refused < 3;) {
      const std::string text = clip.text.empty() ? texts_.phrase() : clip.text + " " + texts_.phrase();
      looptorch::SplitMix64 hand(clip.seed);
      std::vector<Mark> marks = keyed(text, keying, hand);
      const double end = clip.start + marks.back().end;
      if (end > clip.seconds && !(clip.text.empty() && end + .1 <= ranges_.seconds.high)) {
        ++refused;
      } else if (taken_.insert(text).second) {
        clip.text = text, clip.marks = std::move(marks);
        if (end > clip.seconds) break;
      }
    }
    finish(clip);
  }

  /// Fills the clip with as many drawn characters as the longest clip holds, at least one. Characters that
  /// take long to key are rarer, since they fit less often.
  void drill(Clip& clip) {
    const double jitter = clip.conditions.jitter.draw(random_);
    while (clip.text.empty()) {
      clip.words_per_minute = ranges_.words_per_minute.draw(random_);
      clip.text = texts_.characters(static_cast<std::uint64_t>(ranges_.characters));
      for (; !clip.text.empty(); shorten(clip.text)) {
        looptorch::SplitMix64 hand(clip.seed);
        clip.marks = keyed(clip.text, {clip.words_per_minute, jitter}, hand);
        if (clip.start + clip.marks.back().end + .1 <= ranges_.seconds.high) break;
      }
    }
    finish(clip);
  }

  /// Drops the last character, and the space before it.
  static void shorten(std::string& text) {
    text.pop_back();
    if (text.ends_with(' ')) text.pop_back();
  }

  /// Ends the clip soon after its last mark.
  void finish(Clip& clip) {
    const double end = clip.start + clip.marks.back().end;
    clip.seconds = std::clamp(end + Between{.1, .6}.draw(random_), ranges_.seconds.low, ranges_.seconds.high);
  }

  ClipRanges ranges_;
  looptorch::SplitMix64 random_;
  MorseText texts_;
  std::set<std::string> taken_;
};

}  // namespace morse
