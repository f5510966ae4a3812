// SPDX-License-Identifier: MIT
// Holds the averages of AverageWeights, one for each trained weight of the model: updates them, exchanges
// them with the weights for an evaluation, and saves them. They take as much memory as the trained weights,
// or twice as much for 16-bit weights, on the weights' device or on the host (average_memory.hpp). Functions
// that read the model are templates, so that this header does not include torch/nn.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/policies/weights/average_memory.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns a model's parameters and buffers by name. One that has several names, as a tied weight does,
/// appears under each.
template <class Module>
std::map<std::string, at::Tensor> weights_by_name(const Module& model, bool buffers) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : buffers ? model.named_buffers() : model.named_parameters())
    if (item.value().defined()) weights.emplace(item.key(), item.value());
  return weights;
}
template <class Module>
std::map<std::string, at::Tensor> weights_by_name(const Module& model) {
  auto weights = weights_by_name(model, /*buffers=*/false);
  weights.merge(weights_by_name(model, /*buffers=*/true));
  return weights;
}

inline at::Tensor copy_of(const at::Tensor& weight) {
  at::NoGradGuard no_gradients;
  return at::empty_like(weight).copy_(weight);
}

/// The state that `trainer.policy<AverageWeights>()` returns.
class WeightAverages {
 public:
  /// Returns how often the weights of the update with this index were averaged.
  [[nodiscard]] std::int64_t count(std::size_t update = 0) const {
    return update < updates_.size() ? updates_[update].count : 0;
  }

  /// Returns the averages by their weights' names in the model. They are not copies and keep changing. Waits
  /// for averages that are on their way to the host.
  [[nodiscard]] std::map<std::string, at::Tensor> named() const {
    memory_.wait();
    std::map<std::string, at::Tensor> averages;
    for (const Group& group : updates_)
      for (std::size_t i = 0; i < group.names.size(); ++i)
        averages.emplace(group.names[i], group.averages[i]);
    return averages;
  }

  /// Copies the averages into `model`, into its weights of the same names: the trained model itself, for
  /// good, or another of its kind. Throws StateError, before it copies, unless all names and shapes fit.
  template <class Module>
  void copy_to(const Module& model) const {
    at::NoGradGuard no_gradients;
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;
    const auto weights = weights_by_name(model);
    for (const auto& [name, average] : named())
      copies.emplace_back(counterpart(weights, name, average), average);
    for (auto& [weight, average] : copies) weight.copy_(average);
  }

  /// Sets whether averages of weights on a device lie in host memory, from the next `follow` on.
  void set_offload(bool offload) { memory_.set_offload(offload); }

  /// Ties the averages to the weights that the model has now. The model may have moved to another device, and
  /// loaded averages know only names. Throws StateError for a name or shape that the model lacks.
  template <class Module>
  void follow(const Module& model) {
    if (updates_.empty()) return;
    at::NoGradGuard no_gradients;
    const auto weights = weights_by_name(model);
    averaged_.clear();
    for (Group& group : updates_) {
      group.seen.clear();
      for (std::size_t i = 0; i < group.names.size(); ++i) {
        group.weights[i] = counterpart(weights, group.names[i], group.averages[i]);
        averaged_.insert(key(group.weights[i]));
      }
      adapt(group);
    }
  }

  /// Begins averages for candidates that need a gradient, belong to the model and have no average yet. An
  /// average begins as its weight's value. Cheap if there are none.
  template <class Module>
  void admit(std::size_t update, const std::vector<at::Tensor>& candidates, const Module& model) {
    Group& group = grown(update);
    std::unordered_set<const void*> fresh;
    for (const at::Tensor& candidate : candidates)
      if (candidate.requires_grad() && !group.seen.contains(key(candidate))) fresh.insert(key(candidate));
    if (fresh.empty()) return;
    const auto parameters = model.named_parameters();
    std::int64_t bytes = 0;
    for (const auto& item : parameters)
      if (fresh.count(key(item.value()))) bytes += memory_.bytes_for(item.value());
    memory_.reserve(bytes);
    for (const auto& item : parameters)
      if (fresh.count(key(item.value()))) add(group, item.key(), item.value());
    group.seen.merge(fresh);  // not earlier: `add` may run out of memory
  }

  /// Begins averages for the model's floating-point buffers.
  template <class Module>
  void admit_buffers(std::size_t update, const Module& model) {
    for (const auto& [name, buffer] : weights_by_name(model, /*buffers=*/true))
      if (buffer.is_floating_point() || buffer.is_complex()) add(grown(update), name, buffer);
  }

  /// Keeps a copy of the model's buffers at the end of a window, for an update that is counted only after the
  /// next forward pass.
  template <class Module>
  void keep_buffers(const Module& model) {
    kept_.clear();
    for (const auto& [name, buffer] : weights_by_name(model, /*buffers=*/true))
      if (buffer.is_floating_point() || buffer.is_complex()) kept_.emplace(key(buffer), copy_of(buffer));
  }
  void forget_buffers() { kept_.clear(); }

  /// Excludes `weight` from the averages of this update.
  void exclude(std::size_t update, const at::Tensor& weight) { grown(update).seen.insert(key(weight)); }

  /// Moves the averages of this update by `share` of the way to its weights, and counts it.
  void move(std::size_t update, double share) {
    Group& group = grown(update);
    adapt(group);  // a model may move between two windows
    memory_.lerp(group.averages, kept_.empty() ? group.weights : as_left(group.weights), share);
    ++group.count;
  }

  /// Counts the averages that have just begun as the first.
  void begin(std::size_t update) { grown(update).count = 1; }
  /// Drops averages of this update, which have not all begun.
  void forget(std::size_t update) {
    for (const at::Tensor& weight : grown(update).weights) averaged_.erase(key(weight));
    updates_[update] = {};
  }

  [[nodiscard]] bool in_place() const { return in_place_; }

  /// Puts the averages into the weights: without copies, unless they lie on the host or the weights have 16
  /// bits. Puts all weights back if it throws.
  void swap_in() {
    in_place_ = true;
    auto back = c10::make_scope_exit([this] { swap_out(); });
    for (Group& group : updates_) {
      group.replaced.reserve(group.weights.size());
      for (std::size_t i = 0; i < group.weights.size(); ++i)
        group.replaced.push_back(memory_.put_in(group.weights[i], group.averages[i]));
    }
    back.release();
  }
  /// Puts the weights back, in reverse order, as weights that share memory need.
  void swap_out() {
    for (std::size_t g = updates_.size(); g-- > 0;) {
      Group& group = updates_[g];
      for (std::size_t i = group.replaced.size(); i-- > 0; group.replaced.pop_back())
        memory_.take_out(group.weights[i], group.averages[i], group.replaced[i]);
    }
    memory_.free_pieces();
    in_place_ = false;
  }

  /// Saves handles, as `named` returns them.
  void save(StateDict& dict) const {
    memory_.wait();
    dict.set("updates", updates_.size());
    for (std::size_t g = 0; g < updates_.size(); ++g) {
      dict.set(message("updates.", g, ".count"), updates_[g].count);
      for (std::size_t i = 0; i < updates_[g].names.size(); ++i)
        dict.set(message("updates.", g, ".averages.", updates_[g].names[i]), updates_[g].averages[i]);
    }
  }

  /// Loads averages, which have no weights until `follow` is called.
  void load(const StateDict& dict) {
    const auto updates = dict.get<std::int64_t>("updates");
    if (updates < 0 || static_cast<std::size_t>(updates) > dict.values().size())  // each has a count
      throw StateError(message("averages of ", updates, " updates cannot be"));
    std::vector<Group> loaded(static_cast<std::size_t>(updates));
    for (std::size_t g = 0; g < loaded.size(); ++g) {
      loaded[g].count = dict.get<std::int64_t>(message("updates.", g, ".count"));
      const StateDict averages = dict.under(message("updates.", g, ".averages"));
      for (const auto& [name, value] : averages.values()) {
        loaded[g].names.push_back(name);
        loaded[g].averages.push_back(copy_of(averages.get<at::Tensor>(name)));
      }
      loaded[g].weights.resize(loaded[g].names.size());
      loaded[g].is_loaded = true;
    }
    updates_ = std::move(loaded);
    averaged_.clear();
  }

 private:
  /// The weights of one update, each list in the same order.
  struct Group {
    std::int64_t count = 0;
    std::vector<std::string> names;
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> averages;
    std::vector<AverageMemory::Replaced> replaced;  // while the averages are in place
    std::unordered_set<const void*> seen;           // weights that need no further check
    bool is_loaded = false;                         // from a file, and not yet where averages belong
  };

  static const void* key(const at::Tensor& weight) { return weight.unsafeGetTensorImpl(); }

  /// Moves averages to where they belong.
  void adapt(Group& group) {
    std::vector<std::size_t> others;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < group.averages.size(); ++i) {
      const at::Tensor &weight = group.weights[i], &average = group.averages[i];
      const bool to_pinned = group.is_loaded && memory_.offloads(weight);
      if (memory_.is_placed(weight, average) && !to_pinned) continue;
      others.push_back(i);
      bytes += memory_.bytes_for(weight);
    }
    group.is_loaded = false;
    memory_.reserve(bytes);
    for (const std::size_t i : others)
      group.averages[i] = memory_.average_of(group.weights[i], group.averages[i]);
  }

  static at::Tensor counterpart(const std::map<std::string, at::Tensor>& weights, const std::string& name,
                                const at::Tensor& average) {
    const auto found = weights.find(name);
    if (found == weights.end())
      throw StateError(
          message("there is an average of the weight '", name, "', which the model does not have"));
    if (found->second.sizes() != average.sizes())
      throw StateError(message("the average of the weight '", name, "' has the shape ", average.sizes(),
                               ", the weight ", found->second.sizes()));
    return found->second;
  }

  Group& grown(std::size_t update) {
    if (updates_.size() <= update) updates_.resize(update + 1);
    return updates_[update];
  }

  /// Adds a weight with its average. A weight of a known name replaces the former weight and its average.
  void add(Group& group, const std::string& name, const at::Tensor& weight) {
    if (averaged_.contains(key(weight))) return;
    const at::Tensor average = memory_.average_of(weight, as_left(weight));  // may throw
    averaged_.insert(key(weight));
    if (const auto known = std::find(group.names.begin(), group.names.end(), name);
        known != group.names.end()) {
      const auto index = static_cast<std::size_t>(known - group.names.begin());
      averaged_.erase(key(std::exchange(group.weights[index], weight)));
      group.averages[index] = average;
      return;
    }
    group.names.push_back(name);
    group.weights.push_back(weight);
    group.averages.push_back(average);
  }

  /// Returns a weight, or a buffer as its window left it.
  [[nodiscard]] const at::Tensor& as_left(const at::Tensor& weight) const {
    const auto found = kept_.find(key(weight));
    return found == kept_.end() ? weight : found->second;
  }
  [[nodiscard]] std::vector<at::Tensor> as_left(std::vector<at::Tensor> weights) const {
    for (at::Tensor& weight : weights) weight = as_left(std::as_const(weight)).to(weight.device());
    return weights;
  }

  AverageMemory memory_;
  std::vector<Group> updates_;
  std::unordered_set<const void*> averaged_;
  std::unordered_map<const void*, at::Tensor> kept_;  // buffers, while an update may still count
  bool in_place_ = false;
};

/// Exchanges the averages and the weights while it lives.
class AveragesInPlace {
 public:
  /// Changes nothing if `averages` is null.
  explicit AveragesInPlace(WeightAverages* averages) : averages_(averages) {
    if (averages_) averages_->swap_in();
  }
  ~AveragesInPlace() {
    if (averages_) averages_->swap_out();
  }
  AveragesInPlace(const AveragesInPlace&) = delete;
  AveragesInPlace& operator=(const AveragesInPlace&) = delete;

 private:
  WeightAverages* averages_;
};

}  // namespace looptorch::detail
