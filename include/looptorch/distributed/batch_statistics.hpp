// SPDX-License-Identifier: MIT
// Exchanges BatchNorm's statistics between ranks during a micro-batch, for SyncBN. All messages have the same
// size, so a rank that has no batch can take part: it need not know which layer the other ranks run at a
// time. Costs at least two small messages per micro-batch, and two more for each BatchNorm layer.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/distributed/process_group.hpp>
#include <looptorch/loop/ranks.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Exchanges layers' statistics between the ranks that have a batch, while the others wait in `end`.
class BatchStatistics {
 public:
  using Turn = Ranks::Turn;

  /// `channels` is the most in any layer; `buffers` are the layers' running statistics.
  BatchStatistics(ProcessGroup& group, std::int64_t channels, std::vector<at::Tensor> buffers)
      : group_(group), size_(kHead + 1 + 2 * channels), buffers_(std::move(buffers)) {
    group_.connect_statistics();
  }
  ~BatchStatistics() {
    if (active() == this) active() = nullptr;
  }
  BatchStatistics(const BatchStatistics&) = delete;
  BatchStatistics& operator=(const BatchStatistics&) = delete;

  /// Returns the exchange of this process's current micro-batch; null outside of one.
  static std::atomic<BatchStatistics*>& active() {
    static std::atomic<BatchStatistics*> exchange{nullptr};
    return exchange;
  }

  /// Begins a micro-batch; this rank has a batch if its turn is `now`. Returns false, and begins no
  /// micro-batch, once the window is over for all ranks.
  bool begin(Turn turn) {
    at::Tensor mine = message_of(/*done=*/false, static_cast<double>(turn));
    const std::vector<at::Tensor> all = exchange(mine);
    turns_.clear();
    for (const at::Tensor& row : all) turns_.push_back(static_cast<Turn>(static_cast<int>(number(row, 1))));
    if (std::ranges::all_of(turns_, [](Turn each) { return each == Turn::over; })) return false;
    ++begun_;
    if (turn == Turn::now) active() = this;
    return true;
  }
  /// Waits until all ranks are done. Ranks without a batch get the running statistics of a rank with one.
  void end() {
    active() = nullptr;
    while (std::ranges::any_of(exchange(message_of(/*done=*/true, 0.0)),
                               [](const at::Tensor& row) { return number(row, 0) == 0; })) {
    }
    const auto first = std::ranges::find(turns_, Turn::now);
    if (first == turns_.end() || std::ranges::all_of(turns_, [](Turn each) { return each == Turn::now; }))
      return;
    at::NoGradGuard no_gradients;
    std::vector<std::pair<ProcessGroup::Work, at::Tensor>> under_way;
    for (const at::Tensor& buffer : buffers_) {
      const at::Tensor sent = buffer.detach().cpu().contiguous();
      under_way.emplace_back(group_.broadcast_statistics(sent, first - turns_.begin()), sent);
    }
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const auto& [work, sent] = under_way[i];
      group_.wait(*work, kMoment);
      buffers_[i].detach().copy_(sent);
    }
  }

  /// Returns the values of all ranks with a batch for one layer, by rank: fp64, as long as `values`. Throws
  /// RanksDiffer if `what` differs between these ranks.
  std::vector<at::Tensor> gather(double what, const at::Tensor& values) {
    if (values.numel() > size_ - kHead)
      throw UsageError(message("batch statistics of ", values.numel() / 2,
                               " channels, more than any layer of the model has, cannot be synchronised"));
    at::Tensor mine = message_of(/*done=*/false, what);
    mine.narrow(0, kHead, values.numel()).copy_(values);
    std::vector<at::Tensor> given;
    for (const at::Tensor& row : exchange(mine)) {
      if (number(row, 0) != 0) continue;
      if (number(row, 1) != what)
        throw RanksDiffer(
            "the ranks do different things: one of them normalises another layer of the model. With "
            "BatchNormMode::sync all ranks run the same layers in the same order");
      given.push_back(row.narrow(0, kHead, values.numel()));
    }
    return given;
  }

  /// Returns how many micro-batches have begun.
  [[nodiscard]] std::int64_t begun() const { return begun_; }

 private:
  static constexpr std::int64_t kHead = 2;  // whether the rank is done; its current operation
  static constexpr const char* kMoment = "batch statistics";

  [[nodiscard]] at::Tensor message_of(bool done, double what) const {
    at::Tensor mine = at::zeros({size_}, at::kDouble);
    mine.mutable_data_ptr<double>()[0] = done ? 1.0 : 0.0;
    mine.mutable_data_ptr<double>()[1] = what;
    return mine;
  }
  static double number(const at::Tensor& row, std::int64_t at) { return row.const_data_ptr<double>()[at]; }
  std::vector<at::Tensor> exchange(const at::Tensor& mine) {
    at::NoGradGuard no_gradients;
    return group_.gather_statistics(mine, kMoment);
  }

  ProcessGroup& group_;
  std::int64_t size_;
  std::vector<at::Tensor> buffers_;
  std::vector<Turn> turns_;  // of the current micro-batch, by rank
  std::int64_t begun_ = 0;
};

}  // namespace looptorch::detail
