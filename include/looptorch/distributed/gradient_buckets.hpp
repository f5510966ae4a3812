// SPDX-License-Identifier: MIT
// All-reduces gradients in buckets during backward. Sends a bucket once backward has made all gradients in
// it; the order of buckets is the same on all ranks. Takes memory for a second copy of the gradients, and
// copies them once per window. With a sharded optimizer, each rank receives the sums for its shard of the
// parameters only.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/tensor_list.hpp>
#include <looptorch/distributed/bucket_layout.hpp>
#include <looptorch/distributed/chunk_sums.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/state/optimizer_shards.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Gathers gradients in buckets while backward makes them, and launches the sum of each full bucket.
class GradientBuckets {
 public:
  /// Begins to sum a bucket: a flat tensor, and its shards by rank; a single one if the optimizer is not
  /// sharded.
  using Launch = std::function<void(const at::Tensor& flat, const std::vector<at::Tensor>& by_rank)>;

  /// `bytes` is the size of a full bucket. `shards` shards these parameters over `ranks`; null: no shards.
  GradientBuckets(const std::vector<at::Tensor>& parameters, std::int64_t bytes, Launch launch,
                  const OptimizerShards* shards = nullptr, std::int64_t ranks = 1)
      : state_(std::make_shared<State>()) {
    state_->launch = std::move(launch);
    state_->shards = shards;
    state_->ranks = shards ? static_cast<std::size_t>(ranks) : 1;
    for (const at::Tensor& parameter : distinct(parameters)) {
      listed_.push_back(parameter);
      trainable_.push_back(parameter.requires_grad());
    }
    for (auto parameter = listed_.rbegin(); parameter != listed_.rend(); ++parameter)
      if (parameter->requires_grad()) place(*parameter, bytes);
    for (Bucket& bucket : state_->buckets) allocate(bucket, state_->members, state_->ranks);
    for (std::size_t i = 0; i < state_->members.size(); ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(state_->members[i].parameter,
                                                     std::make_unique<Hook>(state_, i));
  }
  ~GradientBuckets() {
    for (const Member& member : state_->members)
      torch::autograd::impl::set_post_acc_grad_hooks(member.parameter, nullptr);
  }
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// True if the buckets were made for these parameters and shards, with the same ones frozen.
  [[nodiscard]] bool matches(const std::vector<at::Tensor>& parameters, const OptimizerShards* shards) const {
    const std::vector<at::Tensor> now = distinct(parameters);
    if (now.size() != listed_.size() || state_->shards != shards) return false;
    for (std::size_t i = 0; i < now.size(); ++i)
      if (!now[i].is_same(listed_[i]) || now[i].requires_grad() != trainable_[i]) return false;
    return true;
  }

  /// Keeps the gradients so far as the sum of the chunks before `chunk`. Later gradients of backward belong
  /// to `chunk`.
  void enter_chunk(std::int64_t chunk) {
    at::NoGradGuard no_gradients;
    while (state_->chunks.count() < chunk) state_->chunks.close(taken_gradients());
  }
  [[nodiscard]] std::int64_t chunk() const { return state_->chunks.count(); }

  /// Lets buckets be sent during the next backward; gradients enter them multiplied by `factor`.
  void arm(double factor) {
    state_->begin(factor);
    state_->armed = true;
  }

  /// Fills and sends the remaining buckets. Throws UsageError if a gradient has changed since it was sent.
  void send_rest(double factor) {
    if (!state_->armed) state_->begin(factor);
    state_->armed = false;
    for (const Member& member : state_->members)
      if (member.packed && version_of(member.parameter.grad()) != member.version)
        throw UsageError(
            message("the gradient of a parameter of shape ", member.parameter.sizes(),
                    " changed after backward had completed it: give DataParallel{.overlap = false}"));
    for (std::size_t i = 0; i < state_->members.size(); ++i) state_->pack(i);
  }

  /// Makes the received sums the parameters' gradients. A sum stays in its bucket's memory until the next
  /// window, unless its parameter has another memory layout.
  void unpack() {
    at::NoGradGuard no_gradients;
    each_member(0, [](const Member& member, bool has_any) { take(member, has_any); });
    state_->chunks.clear();
  }
  /// Makes the sums the gradients of this rank's shards; the parameters have no gradients afterwards. The
  /// sums stay in the buckets' memory until the next window.
  void unpack_shard(std::size_t rank) {
    at::NoGradGuard no_gradients;
    each_member(rank, [&](const Member& member, bool has_any) {
      member.parameter.mutable_grad() = at::Tensor();
      for (const Slice& slice : member.slices)
        if (slice.range.rank == static_cast<std::int64_t>(rank) && member.split->shard.defined())
          member.split->shard.mutable_grad() = has_any ? slice.view : at::Tensor();
    });
    state_->chunks.clear();
  }

  /// Gathers the parameters, of which each rank has updated its shard. `broadcast(tensor, rank)` begins to
  /// send and returns a handle; `wait(handle)` waits until it is done.
  template <class Broadcast, class Wait>
  void gather(std::size_t rank, Broadcast&& broadcast, Wait&& wait) {
    at::NoGradGuard no_gradients;
    const auto is_mine = [&](const Slice& slice) {
      return slice.range.rank == static_cast<std::int64_t>(rank);
    };
    std::vector<decltype(broadcast(at::Tensor(), 0))> under_way;
    for (const Bucket& bucket : state_->buckets) {
      for (std::size_t i = bucket.first; i < bucket.end; ++i)
        for (const Slice& slice : state_->members[i].slices)
          if (is_mine(slice))
            slice.view.copy_(place_of(state_->members[i], state_->members[i].parameter, slice));
      for (std::size_t from = 0; from < bucket.by_rank.size(); ++from)
        under_way.push_back(broadcast(bucket.by_rank[from], static_cast<std::int64_t>(from)));
    }
    for (auto& each : under_way) wait(each);
    for (const Member& member : state_->members) {
      for (const Slice& slice : member.slices)
        if (!is_mine(slice)) place_of(member, member.parameter, slice).copy_(slice.view);
      member.parameter.unsafeGetTensorImpl()->bump_version();
    }
  }

  void disarm() {
    state_->armed = false;
    state_->chunks.clear();
  }
  [[nodiscard]] std::size_t count() const { return state_->buckets.size(); }
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t bytes = 0;
    for (const Bucket& bucket : state_->buckets) bytes += static_cast<std::int64_t>(bucket.flat.nbytes());
    return bytes;
  }

 private:
  using Slice = BucketSlice;
  using Member = BucketMember;
  using Bucket = GradientBucket;

  static std::int64_t version_of(const at::Tensor& gradient) {
    return gradient.defined() ? static_cast<std::int64_t>(gradient._version()) : -1;
  }

  struct State {
    std::vector<Member> members;  // the last parameter first, as backward reaches them
    std::vector<Bucket> buckets;
    Launch launch;
    const OptimizerShards* shards = nullptr;
    std::size_t ranks = 1;
    std::mutex packing;  // backward has a thread for each device
    bool armed = false;
    double factor = 1.0;
    std::size_t next = 0;  // the bucket to send next
    ChunkSums chunks;      // before the current one

    void begin(double by) {
      factor = by;
      next = 0;
      for (Member& member : members) member.packed = false;
      for (Bucket& bucket : buckets) bucket.filled = 0;
    }

    /// Copies a gradient into its bucket, and sends the buckets that are full, in order.
    void pack(std::size_t index) {
      Member& member = members[index];
      if (member.packed) return;
      at::NoGradGuard no_gradients;
      Bucket& bucket = buckets[member.bucket];
      const at::Tensor& own = member.parameter.grad();
      if (own.defined()) require_dense(own, "DataParallel");
      const at::Tensor gradient = chunks.with(index, own);
      const bool is_cut = member.slices.size() > 1;
      const at::Tensor source = is_cut && gradient.defined() ? gradient.contiguous().view({-1}) : gradient;
      for (Slice& slice : member.slices) {
        if (!gradient.defined()) {
          slice.view.zero_();
          continue;
        }
        const at::Tensor part = is_cut ? source.narrow(0, slice.range.begin, slice.range.count) : source;
        if (factor == 1.0)
          slice.view.copy_(part);
        else  // one pass over memory; a copy and a multiplication would take two
          at::mul_out(slice.view, part, at::scalar_tensor(factor, at::kDouble));
      }
      member.packed = true;
      member.has_gradient = gradient.defined();
      member.version = version_of(own);
      ++bucket.filled;
      for (; next < buckets.size() && buckets[next].filled == buckets[next].end - buckets[next].first;
           ++next) {
        write_counts(buckets[next]);
        launch(buckets[next].flat, buckets[next].by_rank);
      }
    }

    /// Writes 1 for each gradient of a bucket, and 0 for those that this rank lacks.
    void write_counts(const Bucket& bucket) const {
      for (const at::Tensor& counts : bucket.counts) {
        counts.fill_(1.0);
        for (std::size_t i = bucket.first; i < bucket.end; ++i)
          if (!members[i].has_gradient) counts[static_cast<std::int64_t>(i - bucket.first)].zero_();
      }
    }
  };

  /// Runs when backward has completed a parameter's gradient.
  class Hook final : public torch::autograd::PostAccumulateGradHook {
   public:
    Hook(const std::shared_ptr<State>& state, std::size_t index) : state_(state), index_(index) {}
    void operator()(const torch::autograd::Variable&) override {
      const auto state = state_.lock();
      if (!state || !state->armed) return;
      const std::lock_guard lock(state->packing);
      state->pack(index_);
    }

   private:
    std::weak_ptr<State> state_;
    std::size_t index_;
  };

  void place(const at::Tensor& parameter, std::int64_t bytes) {
    auto& buckets = state_->buckets;
    auto& members = state_->members;
    const auto full = [&](const Bucket& bucket) {
      const at::Tensor& first = members[bucket.first].parameter;
      return bucket.numbers * first.element_size() >= bytes ||
             first.scalar_type() != parameter.scalar_type() || first.device() != parameter.device();
    };
    if (buckets.empty() || full(buckets.back())) {
      Bucket bucket;
      bucket.first = bucket.end = members.size();
      buckets.push_back(std::move(bucket));
    }
    Member member;
    member.parameter = parameter;
    if (state_->shards) member.split = &state_->shards->of(parameter);
    member.bucket = buckets.size() - 1;
    members.push_back(std::move(member));
    buckets.back().numbers += parameter.numel();
    ++buckets.back().end;
  }

  /// Calls `use(member, has_any)` for each parameter. `has_any` is true if some rank had a gradient of it.
  /// Reads the counts that `rank` received, which costs a host sync, only for parameters without a gradient
  /// on this rank.
  template <class Use>
  void each_member(std::size_t rank, Use&& use) {
    for (const Bucket& bucket : state_->buckets) {
      at::Tensor counts;
      const auto received = [&](std::size_t i) {
        if (!counts.defined()) counts = bucket.counts[rank].cpu().to(at::kDouble);
        return counts.const_data_ptr<double>()[i - bucket.first] > 0;
      };
      for (std::size_t i = bucket.first; i < bucket.end; ++i)
        use(state_->members[i], state_->members[i].has_gradient || received(i));
    }
  }

  std::vector<at::Tensor> taken_gradients() {
    std::vector<at::Tensor> taken;
    for (const Member& member : state_->members) {
      taken.push_back(std::exchange(member.parameter.mutable_grad(), at::Tensor()));
      if (taken.back().defined()) require_dense(taken.back(), "DataParallel");
    }
    return taken;
  }

  static void take(const Member& member, bool has_any) {
    at::Tensor& gradient = member.parameter.mutable_grad();
    if (!has_any) return;
    if (member.slices.size() == 1 && member.slices.front().view.strides() == member.parameter.strides()) {
      gradient = member.slices.front().view.variable_data();  // with a version of its own
      return;
    }
    if (!gradient.defined() || (member.slices.size() > 1 && !gradient.is_contiguous()))
      gradient = at::empty_like(member.parameter, member.parameter.options().requires_grad(false));
    for (const Slice& slice : member.slices) place_of(member, gradient, slice).copy_(slice.view);
  }

  std::shared_ptr<State> state_;
  std::vector<at::Tensor> listed_;  // as the update lists them
  std::vector<bool> trainable_;     // in the same order
};

}  // namespace looptorch::detail
