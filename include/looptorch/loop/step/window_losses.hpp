// SPDX-License-Identifier: MIT
// Sums the losses and metrics of the window under way. The sums are added to the epoch's means when the
// window ends, unless it throws or is skipped. On a device this costs one small kernel per mean and window.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/objective/agreed_means.hpp>
#include <looptorch/objective/running_mean.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

class WindowLosses {
 public:
  void add(const Loss& loss) {
    if (!sum_.defined()) return record(loss, loss_, metrics_);
    loss_.borrow_sum(std::exchange(sum_, {}), loss.weight.number());
    record_metrics(loss, metrics_);
  }
  /// Makes `sum`, 0-dim fp64, the sum of the window's only loss, which is added next. A graph has computed
  /// `sum` and will reuse its memory.
  void expect_sum(const at::Tensor& sum) { sum_ = sum; }

  /// Keeps what is added from now on apart from other chunks, until `take`.
  void enter_chunk(std::int64_t chunk) {
    if (chunk != chunk_) close_chunk();
    chunk_ = chunk;
  }

  /// Returns the means of the window's metrics, to which policies add theirs.
  [[nodiscard]] RunningMeans& metrics() { return metrics_; }

  /// Returns the part of the losses' sum on a device, 0-dim; undefined if there is none.
  [[nodiscard]] const at::Tensor& device_sum() const { return loss_.device_sum(); }

  /// Moves the `device_sum` to `place`, 0-dim fp64, from which a graph reads it.
  void move_sum_to(const at::Tensor& place) { loss_.move_sum_to(place); }

  /// Returns the mean loss; NaN while nothing has any weight. Waits for the device.
  [[nodiscard]] double mean() const { return loss_.mean(); }

  /// Adds the window to the update's means, unless `skipped` is not zero: see RunningMean::add_window. With
  /// `by_graph` a graph has added the loss already.
  void add_to(UpdateView& view, const at::Tensor& skipped, bool by_graph) const {
    by_graph ? view.loss.count_graphed_window(loss_, skipped) : view.loss.add_window(loss_, skipped);
    for (const auto& [name, mean] : metrics_)
      if (mean.has_any()) view.metrics[name].add_window(mean, skipped);
  }

  /// Adds the window to `reduction`, by names that begin with `of`; `take` then sets it to all ranks' sums.
  /// `chunks` is the number of chunks in a window; 0: sums are added in the order of ranks.
  void all_reduce(RankReduction& reduction, const std::string& of, std::int64_t chunks) {
    if (chunks == 0) return agreed_.add(reduction, of, loss_, metrics_);
    close_chunk();
    for (auto& [chunk, part] : closed_)
      part.agreed.add(reduction, name_of(of, chunk), part.loss, part.metrics);
  }
  void take(const RankReduction& reduction, const std::string& of, std::int64_t chunks) {
    if (chunks == 0) return agreed_.take(reduction, of, loss_, metrics_);
    closed_.clear();
    std::map<std::string, std::vector<WeightedSum>> sums;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      for (const auto& [name, sum] : AgreedMeans::totals_of(reduction, name_of(of, chunk))) {
        sums[name].resize(static_cast<std::size_t>(chunks));
        sums[name][static_cast<std::size_t>(chunk)] = sum;
      }
    for (auto& [name, of_chunks] : sums)
      AgreedMeans::set(name.empty() ? loss_ : metrics_[name], sum_in_tree(std::move(of_chunks)));
  }
  /// Returns the weight of the losses; reads it.
  [[nodiscard]] double weight() const { return loss_.totals().weight; }

  /// Decides whether the window that was added last counts.
  static void resolve(UpdateView& view, bool counts) {
    view.loss.resolve(counts);
    for (auto& [name, mean] : view.metrics) mean.resolve(counts);
  }

  /// Begins the next window. Keeps the metrics' names, which mostly stay the same.
  void clear() {
    loss_.reset();
    sum_ = at::Tensor();
    for (auto& [name, mean] : metrics_) mean.reset();
    closed_.clear();
    chunk_ = kNoChunk;
  }

 private:
  static constexpr std::int64_t kNoChunk = -1;
  struct Part {
    RunningMean loss;
    RunningMeans metrics;
    AgreedMeans agreed;
  };

  void close_chunk() {
    if (chunk_ == kNoChunk) return;
    closed_.emplace(chunk_, Part{std::exchange(loss_, {}), std::exchange(metrics_, {}), {}});
    chunk_ = kNoChunk;
  }

  static std::string name_of(const std::string& of, std::int64_t chunk) {
    return message(of, "chunk ", chunk, " ");
  }

  /// Adds the sums of chunks, a power of two of them, as a binary tree: neighbours first.
  static WeightedSum sum_in_tree(std::vector<WeightedSum> sums) {
    for (std::size_t size = sums.size(); size > 1; size /= 2)
      for (std::size_t i = 0; i < size / 2; ++i)
        sums[i] = {sums[2 * i].sum + sums[2 * i + 1].sum, sums[2 * i].weight + sums[2 * i + 1].weight};
    return sums.front();
  }

  RunningMean loss_;
  RunningMeans metrics_;
  at::Tensor sum_;  // the sum that a graph has computed for the next loss
  AgreedMeans agreed_;
  std::map<std::int64_t, Part> closed_;  // chunks of this rank
  std::int64_t chunk_ = kNoChunk;        // the chunk of loss_ and metrics_
};

}  // namespace looptorch::detail
