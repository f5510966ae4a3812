// SPDX-License-Identifier: MIT
// Gradients in buckets that are summed over the ranks while backward still runs: a bucket goes out once its
// parameters have their gradients, in a fixed order that is the same on all ranks. Holds a copy of the
// gradients, and costs one copy of them a window.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/distributed/shard_sums.hpp>
#include <looptorch/optim/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace looptorch::detail {

class GradientBuckets {
 public:
  /// Begins to sum bucket `index`, whose flat tensor is given.
  using Launch = std::function<void(std::size_t index, const at::Tensor& flat)>;

  /// `bytes` is the size from which a bucket is full; the first, which goes out last, is as large.
  GradientBuckets(const std::vector<at::Tensor>& parameters, std::int64_t bytes, Launch launch)
      : state_(std::make_shared<State>()) {
    state_->launch = std::move(launch);
    for (const at::Tensor& parameter : distinct(parameters)) listed_.push_back(parameter);
    for (auto parameter = listed_.rbegin(); parameter != listed_.rend(); ++parameter) {
      trainable_.push_back(parameter->requires_grad());
      if (parameter->requires_grad()) place(*parameter, bytes);
    }
    for (Bucket& bucket : state_->buckets) allocate(bucket);
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

  /// True if the buckets are those of these parameters, frozen and trained as they are now.
  [[nodiscard]] bool fit(const std::vector<at::Tensor>& parameters) const {
    const std::vector<at::Tensor> now = distinct(parameters);
    if (now.size() != listed_.size()) return false;
    for (std::size_t i = 0; i < now.size(); ++i)
      if (!now[i].is_same(listed_[i]) || now[i].requires_grad() != trainable_[now.size() - 1 - i])
        return false;
    return true;
  }

  /// Puts the gradients so far away as those of the shards before `shard`. What backward adds from now on are
  /// gradients of `shard`.
  void enter_shard(std::int64_t shard) {
    at::NoGradGuard no_gradients;
    while (state_->shards.count() < shard) state_->shards.close(taken_gradients());
  }
  [[nodiscard]] std::int64_t shard() const { return state_->shards.count(); }

  /// Lets buckets go out during the next backward; gradients enter them times `factor`.
  void arm(double factor) {
    state_->begin(factor);
    state_->armed = true;
  }
  [[nodiscard]] bool is_armed() const { return state_->armed; }

  /// Fills and sends what has not gone out yet. Throws UsageError if a gradient has changed since it was
  /// sent.
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

  /// Puts sums that have arrived into the gradients.
  void unpack() {
    at::NoGradGuard no_gradients;
    for (const Bucket& bucket : state_->buckets) {
      const at::Tensor counts = bucket.counts.cpu().to(at::kDouble);
      for (std::size_t i = bucket.first; i < bucket.end; ++i)
        take(state_->members[i], counts.const_data_ptr<double>()[i - bucket.first] > 0);
    }
    state_->shards.clear();
  }

  void disarm() {
    state_->armed = false;
    state_->shards.clear();
  }
  [[nodiscard]] std::size_t count() const { return state_->buckets.size(); }
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t bytes = 0;
    for (const Bucket& bucket : state_->buckets) bytes += static_cast<std::int64_t>(bucket.flat.nbytes());
    return bytes;
  }

 private:
  struct Member {
    at::Tensor parameter, view;  // the view is into a bucket
    std::size_t bucket = 0;
    bool packed = false;
    std::int64_t version = 0;  // of the gradient that was packed
  };
  struct Bucket {
    std::size_t first = 0, end = 0, filled = 0;  // members
    std::int64_t numbers = 0;
    at::Tensor flat, counts;  // gradients, then for each member on how many ranks it has one
  };

  static std::int64_t version_of(const at::Tensor& gradient) {
    return gradient.defined() ? static_cast<std::int64_t>(gradient._version()) : -1;
  }

  struct State {
    std::vector<Member> members;  // the last parameter first: backward comes to it first
    std::vector<Bucket> buckets;
    Launch launch;
    bool armed = false;
    double factor = 1.0;
    std::size_t next = 0;  // the bucket that goes out next
    ShardSums shards;      // before the one under way

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
      const at::Tensor gradient = shards.with(index, own);
      bucket.counts[static_cast<std::int64_t>(index - bucket.first)].fill_(gradient.defined() ? 1.0 : 0.0);
      if (gradient.defined()) {
        member.view.copy_(gradient);
        if (factor != 1.0) member.view.mul_(factor);
      } else {
        member.view.zero_();
      }
      member.packed = true;
      member.version = version_of(own);
      ++bucket.filled;
      for (; next < buckets.size() && buckets[next].filled == buckets[next].end - buckets[next].first; ++next)
        launch(next, buckets[next].flat);
    }
  };

  /// Runs when backward has completed a parameter's gradient.
  class Hook final : public torch::autograd::PostAccumulateGradHook {
   public:
    Hook(const std::shared_ptr<State>& state, std::size_t index) : state_(state), index_(index) {}
    void operator()(const torch::autograd::Variable&) override {
      if (const auto state = state_.lock(); state && state->armed) state->pack(index_);
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
    member.bucket = buckets.size() - 1;
    members.push_back(std::move(member));
    buckets.back().numbers += parameter.numel();
    ++buckets.back().end;
  }

  void allocate(Bucket& bucket) {
    const auto of = static_cast<std::int64_t>(bucket.end - bucket.first);
    const at::Tensor& first = state_->members[bucket.first].parameter;
    bucket.flat = at::zeros({bucket.numbers + of}, first.options().requires_grad(false));
    bucket.counts = bucket.flat.narrow(0, bucket.numbers, of);
    std::int64_t at = 0;
    for (std::size_t i = bucket.first; i < bucket.end; ++i) {
      Member& member = state_->members[i];
      member.view = bucket.flat.narrow(0, at, member.parameter.numel()).view(member.parameter.sizes());
      at += member.parameter.numel();
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
    if (!gradient.defined())
      gradient = at::empty_like(member.parameter, member.parameter.options().requires_grad(false));
    gradient.copy_(member.view);
  }

  std::shared_ptr<State> state_;
  std::vector<at::Tensor> listed_;  // as the update lists them
  std::vector<bool> trainable_;     // in reverse
};

}  // namespace looptorch::detail
