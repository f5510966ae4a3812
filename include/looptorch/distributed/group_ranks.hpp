// SPDX-License-Identifier: MIT
// The ranks of a process group as the loop uses them: ballots, and gradients summed in buckets.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/distributed/gradient_buckets.hpp>
#include <looptorch/distributed/process_group.hpp>
#include <looptorch/loop/ballot.hpp>
#include <looptorch/loop/ranks.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

class GroupRanks final : public Ranks {
 public:
  GroupRanks(ProcessGroup& group, std::int64_t bucket_bytes, bool overlap)
      : group_(group), bucket_bytes_(bucket_bytes), overlap_(overlap) {}

  [[nodiscard]] std::int64_t rank() const override { return group_.rank(); }
  [[nodiscard]] std::int64_t size() const override { return group_.size(); }

  void agree(Ballot& ballot, const std::string& moment) override {
    require_whole();
    moment_ = moment;
    group_.watch().at(moment);
    const std::vector<std::string> all = group_.gather(moment + '\n' + ballot.message(), moment);
    std::vector<std::string> messages;
    for (std::size_t other = 0; other < all.size(); ++other) {
      const std::size_t end = all[other].find('\n');
      if (const std::string there = all[other].substr(0, end); there != moment)
        throw RanksDiffer(message("the ranks do different things: rank ", other, " is at ", there, ", rank ",
                                  rank(), " at ", moment));
      messages.push_back(all[other].substr(end + 1));
    }
    ballot.take(messages);
    ++ballots_;
  }

  void expect_last_backward(const std::vector<at::Tensor>& parameters, double factor) override {
    if (!overlap_) return;
    require_whole();
    buckets_of(parameters).arm(factor);
  }
  void begin_sums(const std::vector<at::Tensor>& parameters, double factor) override {
    require_whole();
    buckets_of(parameters).send_rest(factor);
  }
  void take_sums() override {
    for (const ProcessGroup::Work& work : under_way_)
      group_.wait(*work, message("the gradients of ", moment_));
    under_way_.clear();
    under_way_of_->unpack();
  }
  void drop_sums() override {
    if (!under_way_.empty()) broken_ = true;  // the others wait for what this rank will not send
    under_way_.clear();
    for (const auto& buckets : buckets_) buckets->disarm();
  }

  void report_failure(std::string_view what, std::int64_t step) noexcept override {
    try {
      group_.watch().fail(message("rank ", rank(), " ended in step ", step, ": ", what));
    } catch (...) {
    }
  }

  void begin_fit(std::chrono::seconds patience) {
    group_.set_patience(patience);
    group_.watch().begin_fit();
  }
  /// Frees buckets and hooks. All ranks come here together unless the fit `failed`.
  void end_fit(bool failed) {
    buckets_.clear(), under_way_of_ = nullptr;
    if (failed) return;
    group_.watch().end_fit();
    group_.part();
  }

  /// Gives all ranks the tensors of rank 0.
  void broadcast(const std::vector<at::Tensor>& tensors) {
    at::NoGradGuard no_gradients;
    for (const at::Tensor& tensor : distinct(tensors)) {
      if (tensor.numel() == 0) continue;
      at::Tensor sent = tensor.detach().contiguous();
      if (sent.scalar_type() == at::kBool) sent = sent.to(at::kByte);
      group_.wait(*group_.broadcast(sent), "the broadcast of the model");
      if (rank() != 0 && !sent.is_same(tensor)) tensor.detach().copy_(sent);
    }
  }

  /// Returns how many exchanges of ballots there were.
  [[nodiscard]] std::int64_t ballots() const { return ballots_; }

 private:
  void require_whole() const {
    if (broken_)
      throw RanksDiffer("an exception ended a window of this rank alone: the ranks have to begin anew");
  }

  GradientBuckets& buckets_of(const std::vector<at::Tensor>& parameters) {
    for (const auto& buckets : buckets_)
      if (buckets->fit(parameters)) return use(*buckets);
    if (buckets_.size() > kListsOfParameters) buckets_.clear();  // of parameters that were unfrozen since
    buckets_.push_back(std::make_unique<GradientBuckets>(
        parameters, bucket_bytes_,
        [this](std::size_t, const at::Tensor& flat) { under_way_.push_back(group_.sum(flat)); }));
    return use(*buckets_.back());
  }
  GradientBuckets& use(GradientBuckets& buckets) {
    under_way_of_ = &buckets;
    return buckets;
  }

  static constexpr std::size_t kListsOfParameters = 8;

  ProcessGroup& group_;
  std::int64_t bucket_bytes_;
  bool overlap_;
  std::vector<std::unique_ptr<GradientBuckets>> buckets_;  // one of each update's parameters
  GradientBuckets* under_way_of_ = nullptr;
  std::vector<ProcessGroup::Work> under_way_;
  std::string moment_ = "the beginning";
  std::int64_t ballots_ = 0;
  bool broken_ = false;
};

}  // namespace looptorch::detail
