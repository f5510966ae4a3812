// SPDX-License-Identifier: MIT
// Throws if a `Checkpointed` layer's plain forward was called, which bypasses the checkpointing (bypass.hpp).
// Looks in the loss's graph for operations on the layer's parameters that were made outside of its
// checkpointed calls. Costs a walk over the graph of a fit's first loss. If a layer is not called at first,
// up to 15 more graphs are walked.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/memory/recompute/bypass.hpp>
#include <looptorch/memory/recompute/layer_watch.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Maps each parameter to the operations of a graph that use it, also through casts or transpositions.
class ParameterUses {
 public:
  using Node = torch::autograd::Node;
  struct Use {
    const Node* by;
    std::string name;
  };

  ParameterUses(const at::Tensor& loss, const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters)
      if (const auto leaf = torch::autograd::impl::try_get_grad_accumulator(parameter))
        leaves_.insert(leaf.get());
    walk(loss.grad_fn().get());
  }

  [[nodiscard]] const std::vector<Use>& of(const at::Tensor& parameter) const {
    static const std::vector<Use> none;
    const auto leaf = torch::autograd::impl::try_get_grad_accumulator(parameter);
    const auto found = uses_.find(leaf.get());
    return found == uses_.end() ? none : found->second;
  }

 private:
  static bool is_pass_through(const std::string& name) {
    static constexpr std::array<std::string_view, 6> kNames{"ToCopyBackward0",    "TBackward0",
                                                            "TransposeBackward0", "PermuteBackward0",
                                                            "ViewBackward0",      "AliasBackward0"};
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
  }

  /// Walks the graph depth first; a node is finished after all nodes below it.
  void walk(const Node* root) {
    std::vector<std::pair<const Node*, bool>> open{{root, false}};
    std::unordered_set<const Node*> seen;
    while (!open.empty()) {
      const auto [node, is_finished] = open.back();
      open.pop_back();
      if (is_finished)
        finish(*node);
      else if (node && seen.insert(node).second) {
        open.emplace_back(node, true);
        for (const auto& edge : node->next_edges()) open.emplace_back(edge.function.get(), false);
      }
    }
  }
  void finish(const Node& node) {
    std::vector<const Node*> used;
    for (const auto& edge : node.next_edges()) {
      if (leaves_.contains(edge.function.get())) used.push_back(edge.function.get());
      if (const auto through = pass_through_.find(edge.function.get()); through != pass_through_.end())
        used.insert(used.end(), through->second.begin(), through->second.end());
    }
    if (used.empty()) return;
    const std::string name = node.name();
    if (is_pass_through(name))
      pass_through_.emplace(&node, std::move(used));
    else
      for (const Node* leaf : used) uses_[leaf].push_back({&node, name});
  }

  std::unordered_set<const Node*> leaves_;
  std::unordered_map<const Node*, std::vector<const Node*>> pass_through_;
  std::unordered_map<const Node*, std::vector<Use>> uses_;
};

/// Watches the layers of a model until a graph has shown how each is called.
class BypassWatch final : public LayerWatch {
 public:
  template <class Module>
  explicit BypassWatch(const Module& model) {
    for (const auto& item : model.named_modules())
      if (auto* const layer = dynamic_cast<Bypassable*>(item.value().get())) {
        layer->watch(true);
        watched_.push_back({item.key(), layer, [module = item.value()] { return module->parameters(); }});
      }
  }

  /// Throws UsageError for a layer that was called past its wrapper in the graph of `loss`.
  void check(const at::Tensor& loss) override {
    if (watched_.empty()) return;
    std::vector<at::Tensor> parameters;
    for (const Watched& each : watched_) {
      const auto trained = each.trained();
      parameters.insert(parameters.end(), trained.begin(), trained.end());
    }
    if (!parameters.empty()) {
      const ParameterUses uses(loss, parameters);
      for (Watched& each : watched_) each.check(uses);
    }
    for (const Watched& each : watched_) each.layer->forget_calls();
    std::erase_if(watched_, [](const Watched& each) { return each.is_done; });
  }

 private:
  struct Watched {
    std::string name;
    Bypassable* layer;
    std::function<std::vector<at::Tensor>()> parameters;  ///< Also keeps the layer alive.
    bool is_done = false;
    int checks = 0;

    [[nodiscard]] std::vector<at::Tensor> trained() const {
      if (!layer->saves_memory()) return {};
      std::vector<at::Tensor> all = parameters();
      std::erase_if(all, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
      return all;
    }

    /// The index of a parameter and the name of an operation that uses it.
    using Kinds = std::set<std::pair<std::size_t, std::string>>;

    void check(const ParameterUses& uses) {
      constexpr int kMaxChecks = 16;  // a layer may be skipped at random
      const auto watched = trained();
      if (watched.empty()) return;
      Kinds within, past;
      for (std::size_t i = 0; i < watched.size(); ++i)
        for (const auto& [by, operation] : uses.of(watched[i]))
          (layer->has_made(*by) ? within : past).emplace(i, operation);
      if (within.empty() ? uses_all(past, watched.size()) : repeats(within, past)) throw_bypassed();
      is_done = !within.empty() || ++checks == kMaxChecks;
      if (is_done) layer->watch(false);
    }

    static bool uses_all(const Kinds& kinds, std::size_t count) {
      std::set<std::size_t> used;
      for (const auto& kind : kinds) used.insert(kind.first);
      return used.size() == count;
    }
    /// True if everything that the layer's calls do with its parameters was also done outside of its calls.
    /// False if these are only products, which may be a weight penalty.
    static bool repeats(const Kinds& within, const Kinds& past) {
      return std::includes(past.begin(), past.end(), within.begin(), within.end()) &&
             std::any_of(within.begin(), within.end(), [](const auto& kind) {
               return kind.second != "MmBackward0" && kind.second != "MulBackward0";
             });
    }
    [[noreturn]] void throw_bypassed() const {
      throw UsageError(
          message("layer '", name, "' is Checkpointed, but the plain layer's forward was called: ",
                  "it kept all its activations. Call it through its holder, or "
                  "as<Checkpointed<Layer>>()->forward(...) instead of as<Layer>()->forward(...)"));
    }
  };

  std::vector<Watched> watched_;
};

}  // namespace looptorch::detail
