// SPDX-License-Identifier: MIT
// Implements the loop's interface Ranks (loop/ranks.hpp) on a process group: reduces numbers by Gloo, sums
// gradients in buckets, shards optimizers and runs SyncBN. DataParallel makes one GroupRanks for its Trainer.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/hash/stable_hash.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/base/tensors/tensor_list.hpp>
#include <looptorch/base/text/hex.hpp>
#include <looptorch/distributed/batch_statistics.hpp>
#include <looptorch/distributed/broadcast_tensors.hpp>
#include <looptorch/distributed/gradient_buckets.hpp>
#include <looptorch/distributed/process_group.hpp>
#include <looptorch/distributed/shard_layout.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/optim/state/optimizer_shards.hpp>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// How a reproducible window is cut into chunks.
struct Chunks {
  std::int64_t count = 0;  ///< 0: not cut
  std::uint64_t seed = 0;  ///< the seed of the micro-batches' random numbers
};

/// Ranks that are the processes of a c10d group.
class GroupRanks final : public Ranks {
 public:
  /// `group` is null for one process.
  GroupRanks(ProcessGroup* group, std::int64_t bucket_bytes, bool overlap, Chunks chunks = {})
      : group_(group), bucket_bytes_(bucket_bytes), overlap_(overlap), chunks_(chunks) {}

  [[nodiscard]] std::int64_t rank() const override { return group_ ? group_->rank() : 0; }
  [[nodiscard]] std::int64_t size() const override { return group_ ? group_->size() : 1; }
  [[nodiscard]] std::int64_t chunks() const override { return chunks_.count; }

  void plan_windows(std::int64_t micro_batches) override {
    micro_batches_ = micro_batches;
    if (chunks() > 0 && micro_batches % chunks_here() != 0)
      throw UsageError(message("DataParallel{.reproducible} cuts a window into ", chunks(), " chunks, ",
                               chunks_here(), " on each of ", size(), " ranks, but a window has ",
                               micro_batches, " micro-batches on each: list Accumulate<", chunks_here(),
                               "> or a multiple of it"));
  }

  std::int64_t enter_micro_batch(const UpdateView& update, std::int64_t step, std::int64_t number) override {
    const std::int64_t chunk = number / (micro_batches_ / chunks_here());
    buckets_of(update).enter_chunk(chunk);
    seed_micro_batch(step, number);
    return rank() * chunks_here() + chunk;
  }
  void seed_micro_batch(std::int64_t step, std::int64_t number) override {
    if (chunks() == 0) return;
    const auto among_all = static_cast<std::uint64_t>(rank() * micro_batches_ + number);
    at::manual_seed(derive_seed(derive_seed(chunks_.seed, static_cast<std::uint64_t>(step)), among_all));
  }

  void all_reduce(RankReduction& reduction, const std::string& point) override {
    require_unbroken();
    point_ = point;
    if (group_) group_->watch().at(point);
    const std::string mine = point + '\n' + reduction.message();
    std::vector<std::string> all = group_ ? group_->gather(mine, point) : std::vector{mine};
    while (!leads() && all[0].starts_with(kRequest)) {  // rank 0 first asks for something else (see `serve`)
      const std::string asked = all[0].substr(kRequest.size());
      (void)group_->gather(service_ ? service_(asked) : std::string(), point);
      all = group_->gather(mine, point);
    }
    std::vector<std::string> messages;
    for (std::size_t other = 0; other < all.size(); ++other) {
      const std::size_t end = all[other].find('\n');
      if (const std::string there = all[other].substr(0, end); there != point)
        throw RanksDiffer(message("the ranks do different things: rank ", other, " is at ", there, ", rank ",
                                  rank(), " at ", point));
      messages.push_back(all[other].substr(end + 1));
    }
    reduction.take(messages);
    ++reductions_;
  }

  std::vector<std::string> ask(const std::string& request) override {
    require_unbroken();
    if (!group_) return {};
    const std::string point = "a request to all ranks";
    (void)group_->gather(std::string(kRequest) + request, point);
    return group_->gather({}, point);
  }
  void serve(std::function<std::string(const std::string&)> service) override {
    service_ = std::move(service);
  }

  /// Connects the ranks for batch statistics until the fit ends. A collective call.
  void connect_statistics(std::int64_t channels, std::vector<at::Tensor> buffers) {
    if (syncs_batch_norm_)
      statistics_ = std::make_unique<BatchStatistics>(*group_, channels, std::move(buffers));
  }
  [[nodiscard]] bool syncs_batch_norm() const override { return syncs_batch_norm_; }
  bool begin_micro_batch(Turn turn) override { return statistics_->begin(turn); }
  void end_micro_batch() override { statistics_->end(); }

  void shard_optimizers() override { is_sharded_ = group_ != nullptr; }
  [[nodiscard]] bool shards_optimizers() const override { return is_sharded_; }
  OptimizerShards& shards_of(torch::optim::Optimizer& optimizer, bool by_element) override {
    auto& shards = shards_[&optimizer];
    if (!shards) shards = std::make_unique<detail::ShardLayout>(rank(), size(), by_element);
    return *shards;
  }
  void gather(const UpdateView& update) override {
    const std::string point = message("the parameters of ", point_);
    group_->watch().at(point);
    buckets_of(update).gather(
        static_cast<std::size_t>(rank()),
        [&](const at::Tensor& tensor, std::int64_t from) { return group_->broadcast(tensor, from); },
        [&](ProcessGroup::Work& work) { group_->wait(*work, point); });
  }

  void expect_last_backward(const UpdateView& update, double factor) override {
    if (!overlap_ || (syncs_batch_norm_ && !find_buckets(update))) return;  // new ones are agreed on
    require_unbroken();
    GradientBuckets& buckets = buckets_of(update);
    if (chunks() == 0 || buckets.chunk() == chunks_here() - 1) buckets.arm(factor);
  }
  void begin_sums(const UpdateView& update, double factor) override {
    require_unbroken();
    GradientBuckets& buckets = buckets_of(update);
    if (chunks() > 0) buckets.enter_chunk(chunks_here() - 1);
    buckets.send_rest(factor);
  }
  void take_sums() override {
    const std::string point = message("the gradients of ", point_);
    for (std::int64_t level = 0; !sums_in_flight_.empty(); ++level) {
      const bool is_last = !by_pairs() || (std::int64_t{2} << level) >= size();
      for (Sum& sum : sums_in_flight_) {
        group_->wait(*sum.work, point);
        if (!is_last) sum.work = group_->sum_of_pair(sum.flat, level + 1);
      }
      if (is_last) sums_in_flight_.clear();
    }
    if (scatters())
      buckets_in_flight_->unpack_shard(static_cast<std::size_t>(rank()));
    else
      buckets_in_flight_->unpack();
  }
  void drop_sums() override {
    if (!sums_in_flight_.empty()) broken_ = true;  // the others wait for what this rank will not send
    sums_in_flight_.clear();
    for (const auto& buckets : buckets_) buckets->disarm();
  }

  void report_failure(std::string_view what, std::int64_t step) noexcept override {
    if (!group_) return;
    try {
      group_->watch().fail(message("rank ", rank(), " ended in step ", step, ": ", what));
    } catch (...) {
    }
  }

  void begin_fit(std::chrono::seconds timeout, bool synchronises) {
    if (!group_) return;
    syncs_batch_norm_ = synchronises;
    group_->set_timeout(timeout);
    group_->watch().begin_fit();
    is_sharded_ = false;
  }
  /// Connects ranks for sums of chunks. A collective call. Throws RanksDiffer for different numbers of
  /// chunks.
  void connect_chunks() {
    require_same("the chunks of DataParallel{.reproducible}", chunks() > 0 ? message(chunks()) : "none");
    if (group_ && chunks() > 0) group_->connect_pairs();
  }
  void end_fit(bool failed) override {
    if (failed && group_ && (group_->is_lost() || broken_ || !sums_in_flight_.empty())) group_->abandon();
    buckets_.clear(), buckets_in_flight_ = nullptr, statistics_.reset();
    if (failed || !group_) return;
    RankReduction reduction;
    all_reduce(reduction, "the end of a fit");
    service_ = nullptr;
    group_->watch().end_fit();
    group_->leave_together();
  }

  /// Broadcasts the tensors of rank 0.
  void broadcast(const std::vector<at::Tensor>& tensors) {
    if (group_) broadcast_tensors(*group_, distinct(tensors), bucket_bytes_);
  }

  /// Returns the number of RankReductions so far.
  [[nodiscard]] std::int64_t reductions() const { return reductions_; }

 private:
  void require_unbroken() const {
    if (broken_)
      throw RanksDiffer("an exception ended a window of this rank alone: the ranks have to begin anew");
  }

  /// Throws RanksDiffer, on all ranks, unless all call it with the same text.
  void require_same(const std::string& what, const std::string& text) {
    if (!group_) return;
    RankReduction reduction;
    reduction.require_equal(what, text);
    const std::string before = point_;
    all_reduce(reduction, message("the comparison of ", what));
    point_ = before, --reductions_;
  }
  [[nodiscard]] std::string description_of(const std::vector<at::Tensor>& parameters) const {
    std::int64_t tensors = 0, numbers = 0;
    std::string shapes;
    for (const at::Tensor& parameter : distinct(parameters)) {
      if (!parameter.requires_grad()) continue;
      ++tensors, numbers += parameter.numel();
      shapes += message(parameter.sizes(), parameter.scalar_type());
    }
    return message("those of ", tensors, " tensors of ", numbers, " numbers, in buckets of ", bucket_bytes_,
                   " bytes (", hex_of(stable_hash(shapes)), ")");
  }

  /// Returns the buckets of an update's parameters; null if there are none yet.
  [[nodiscard]] GradientBuckets* find_buckets(const UpdateView& update) const {
    for (const auto& buckets : buckets_)
      if (buckets->matches(update.parameters, find_shards(update))) return buckets.get();
    return nullptr;
  }
  GradientBuckets& buckets_of(const UpdateView& update) {
    if (GradientBuckets* const known = find_buckets(update)) return use(*known);
    require_same("the gradients to sum", description_of(update.parameters));
    if (buckets_.size() > kListsOfParameters) buckets_.clear();  // of parameters that were unfrozen since
    OptimizerShards* const shards = find_shards(update);
    if (shards) shards->refresh(update.parameters);
    buckets_.push_back(std::make_unique<GradientBuckets>(
        update.parameters, bucket_bytes_,
        [this](const at::Tensor& flat, const std::vector<at::Tensor>& by_rank) { launch(flat, by_rank); },
        shards, size()));
    return use(*buckets_.back());
  }
  /// Returns the shards of the update's own optimizer; another optimizer may train some of its parameters.
  [[nodiscard]] OptimizerShards* find_shards(const UpdateView& update) const {
    const auto found = shards_.find(update.optimizer);
    return is_sharded_ && found != shards_.end() ? found->second.get() : nullptr;
  }
  void launch(const at::Tensor& flat, const std::vector<at::Tensor>& by_rank) {
    if (!group_) return;
    if (by_pairs()) return sums_in_flight_.push_back({group_->sum_of_pair(flat, 0), flat});
    if (!scatters()) return sums_in_flight_.push_back({group_->sum(flat), flat});
    for (std::size_t to = 0; to < by_rank.size(); ++to)
      sums_in_flight_.push_back({group_->sum_for(by_rank[to], static_cast<std::int64_t>(to)), by_rank[to]});
  }
  [[nodiscard]] bool by_pairs() const { return chunks() > 0; }
  GradientBuckets& use(GradientBuckets& buckets) {
    buckets_in_flight_ = &buckets;
    return buckets;
  }

  static constexpr std::size_t kListsOfParameters = 8;
  static constexpr std::string_view kRequest = "\1";  // begins a request; no point begins with it

  struct Sum {
    ProcessGroup::Work work;
    at::Tensor flat;
  };

  [[nodiscard]] std::int64_t chunks_here() const { return chunks() / size(); }

  ProcessGroup* group_;
  std::int64_t bucket_bytes_;
  bool overlap_;
  Chunks chunks_;
  std::int64_t micro_batches_ = 1;                         // of this rank in a window
  std::vector<std::unique_ptr<GradientBuckets>> buckets_;  // one of each update's parameters
  GradientBuckets* buckets_in_flight_ = nullptr;
  std::vector<Sum> sums_in_flight_;
  std::string point_ = "the beginning";  // of the last reduction
  std::int64_t reductions_ = 0;
  bool broken_ = false;
  bool is_sharded_ = false, syncs_batch_norm_ = false;
  std::unique_ptr<BatchStatistics> statistics_;
  // These live as long as the optimizers' moments.
  std::map<torch::optim::Optimizer*, std::unique_ptr<OptimizerShards>> shards_;
  std::function<std::string(const std::string&)> service_;
};

}  // namespace looptorch::detail
