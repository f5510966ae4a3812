// SPDX-License-Identifier: MIT
// Gathers on every rank the samples that the loader of any rank has skipped in a fit. A loader knows only the
// skipped samples of its own shard.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/loop/ranks.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch::detail {

/// Appends a field as its length, a colon and its bytes.
inline void add_field(std::string& text, std::string_view field) {
  text += message(field.size(), ":");
  text += field;
}
/// Returns the first field, and removes it.
[[nodiscard]] inline std::string take_field(std::string_view& text) {
  const std::size_t colon = text.find(':');
  const std::size_t size = std::stoull(std::string(text.substr(0, colon)));
  const std::string field(text.substr(colon + 1, size));
  text.remove_prefix(colon + 1 + size);
  return field;
}

/// Adds what other ranks' loaders have skipped to what this one's has, in the order of ranks. All ranks call
/// it together.
inline void gather_skipped(Ranks& ranks, SkippedSamples& skipped) {
  std::string text;
  for (const SkippedSample& sample : skipped.first) {
    add_field(text, message(sample.epoch));
    add_field(text, message(sample.batch));
    add_field(text, message(sample.index));
    add_field(text, sample.path);
    add_field(text, sample.message);
  }
  RankReduction reduction;
  reduction.sum("skipped samples", skipped.count);
  reduction.append("skipped", text);
  ranks.all_reduce(reduction, "the samples skipped in a fit");
  skipped.first.clear();
  for (std::string_view rest = text; !rest.empty();) {
    SkippedSample sample;
    for (std::int64_t* number : {&sample.epoch, &sample.batch, &sample.index})
      *number = std::stoll(take_field(rest));
    sample.path = take_field(rest);
    sample.message = take_field(rest);
    if (skipped.first.size() < SkippedSamples::kListed) skipped.first.push_back(std::move(sample));
  }
}

}  // namespace looptorch::detail
