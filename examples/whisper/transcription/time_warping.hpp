// SPDX-License-Identifier: MIT
// Assigns a stretch of time to each token of a text by dynamic time warping: finds the cheapest path through
// a matrix of costs, tokens by times, from one corner to the other. word_alignment.hpp derives the costs from
// the decoder's attention. Breaks ties as openai-whisper does.
//
// Shapes: N tokens, T times.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace whisper {

/// A step of the path.
struct WarpedPoint {
  std::int64_t token, time;
  friend bool operator==(const WarpedPoint&, const WarpedPoint&) = default;
};

/// Returns the path through `costs_NT` (float64 on the CPU, contiguous) from (0, 0) to the last token and
/// time. Each step advances by a token, a time or both. O(N T) time; 5 bytes of memory for each cost.
inline std::vector<WarpedPoint> warp_times(const at::Tensor& costs_NT) {
  const auto tokens = costs_NT.size(0), times = costs_NT.size(1);
  const auto* cost = costs_NT.const_data_ptr<double>();
  enum Way : unsigned char { kBoth, kToken, kTime };
  std::vector<Way> ways(static_cast<std::size_t>(tokens * times));
  // Sums of the costs up to each token, at the last time and now, with an impassable border.
  constexpr float kBorder = std::numeric_limits<float>::infinity();
  std::vector<float> before(static_cast<std::size_t>(tokens) + 1, kBorder), now(before);
  before[0] = 0;
  for (std::int64_t time = 0; time < times; ++time) {
    now[0] = kBorder;
    for (std::int64_t token = 0; token < tokens; ++token) {
      const auto at = static_cast<std::size_t>(token);
      const float both = before[at], by_token = now[at], by_time = before[at + 1];
      const Way way = both < by_token && both < by_time       ? kBoth
                      : by_token < both && by_token < by_time ? kToken
                                                              : kTime;
      const float sum = way == kBoth ? both : way == kToken ? by_token : by_time;
      now[at + 1] = static_cast<float>(cost[token * times + time] + static_cast<double>(sum));
      ways[static_cast<std::size_t>(token * times + time)] = way;
    }
    std::swap(before, now);
  }
  std::vector<WarpedPoint> path;
  for (WarpedPoint at{tokens - 1, times - 1}; at.token >= 0 && at.time >= 0;) {
    path.push_back(at);
    auto way = ways[static_cast<std::size_t>(at.token * times + at.time)];
    if (at.token == 0) way = kTime;
    if (at.time == 0 && at.token > 0) way = kToken;
    at.token -= way != kTime, at.time -= way != kToken;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace whisper
