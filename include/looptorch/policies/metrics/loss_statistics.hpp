// SPDX-License-Identifier: MIT
// Computes the running mean and deviation of losses, by which SkipBadWindows and Autopsy recognise a spike.
// Also packs SkipBadWindows' list of skipped windows into a tensor, for snapshots.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/window_place.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace looptorch::detail {

/// Mean and variance of a sequence: exact while there are few numbers (Welford's recurrence), then with
/// exponentially falling weights.
struct LossStatistics {
  std::int64_t count = 0;
  double mean = 0;
  double variance = 0;

  /// Adds a number; from the `memory`-th on with a weight of 1 / `memory`.
  void add(double number, std::int64_t memory) {
    const double share = 1.0 / static_cast<double>(std::min(++count, memory));
    const double distance = number - mean;
    mean += share * distance;
    variance = (1 - share) * (variance + share * distance * distance);
  }
  /// Returns how many standard deviations `number` lies above the mean; 0 while all numbers are equal.
  [[nodiscard]] double deviations(double number) const {
    return variance > 0 ? (number - mean) / std::sqrt(variance) : 0;
  }

  void save(StateDict& out) const {
    out.set("count", count);
    out.set("mean", mean);
    out.set("variance", variance);
  }
  static LossStatistics loaded(const StateDict& in) {
    return {in.get<std::int64_t>("count"), in.get<double>("mean"), in.get<double>("variance")};
  }
};

/// Returns the windows as one tensor: for each its step, epoch, first and last batch, number of samples, and
/// samples.
inline at::Tensor packed(const std::vector<WindowPlace>& places) {
  std::vector<std::int64_t> all;
  for (const WindowPlace& place : places) {
    all.insert(all.end(), {place.step, place.epoch, place.first_batch, place.last_batch,
                           static_cast<std::int64_t>(place.samples.size())});
    all.insert(all.end(), place.samples.begin(), place.samples.end());
  }
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(all.size())}, at::kLong);
  std::copy(all.begin(), all.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}

/// Returns the list that `packed` was given. Throws StateError for a tensor of another form.
inline std::vector<WindowPlace> unpacked(const at::Tensor& tensor) {
  constexpr std::int64_t kHead = 5;
  const auto refuse = [] { throw StateError("the list of skipped windows is damaged"); };
  if (tensor.scalar_type() != at::kLong || tensor.dim() != 1) refuse();
  const at::Tensor on_host = tensor.to(at::kCPU).contiguous();
  const std::int64_t* number = on_host.data_ptr<std::int64_t>();
  std::vector<WindowPlace> places;
  for (std::int64_t left = on_host.numel(); left > 0;) {
    if (left < kHead || number[4] < 0 || number[4] > left - kHead) refuse();
    const std::int64_t length = kHead + number[4];
    places.push_back({number[0], number[1], number[2], number[3], {number + kHead, number + length}});
    number += length, left -= length;
  }
  return places;
}

}  // namespace looptorch::detail
