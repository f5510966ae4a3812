// SPDX-License-Identifier: MIT
// Runs the dry steps of one `preflight`, and searches for remedies if the run does not fit: smaller
// micro-batches, recomputed layers, bf16, frozen parts of the model.
#pragma once

#include <looptorch/loop.hpp>
#include <looptorch/loop/compose/checks.hpp>
#include <looptorch/loop/step/trainer_access.hpp>
#include <looptorch/optim/gradients/frozen_scope.hpp>
#include <looptorch/policies/accumulate.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/preflight/preflight_report.hpp>
#include <looptorch/preflight/recompute_scope.hpp>
#include <looptorch/preflight/remedies.hpp>
#include <looptorch/preflight/sample_batches.hpp>
#include <looptorch/preflight/trials.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Runs one Trainer's dry steps, and tries remedies.
template <class Engine, class Source>
class Preflight {
 public:
  Preflight(Engine& engine, Source source, const PreflightOptions& options)
      : engine_(engine), options_(options), trials_(engine, std::move(source), options) {}

  [[nodiscard]] PreflightReport run() {
    PreflightReport report = trials_.report([this] {
      look_for_remedies();
      return nullptr;
    });
    if (!report.fits && options_.try_remedies) report.tried = try_remedies();
    return report;
  }

  [[nodiscard]] Trials<Engine, Source>& trials() { return trials_; }

 private:
  using Change = typename Trials<Engine, Source>::Change;

  /// Notes the remedies available to the run, once its policies have set theirs.
  void look_for_remedies() {
    recomputing_ = recomputing_policies(*engine_.model());
    const auto type = trials_.device().type();
    computes_in_16_bits_ = engine_.stack().template in_scopes<forward_scope_hook>(
        ForwardContext{engine_.run(), /*training=*/true},
        [type] { return at::autocast::is_autocast_enabled(type); });
    engine_.stack().template each_with<on_fit_begin_hook>([this](auto& slot) {
      using Policy = typename std::remove_reference_t<decltype(slot)>::Policy;
      if constexpr (exclusion_between<Policy, Accumulate<2>>()) accumulates_ = false;
    });
    for (const at::Tensor& parameter : engine_.parameters().all())
      computes_in_16_bits_ |= parameter.is_floating_point() && parameter.element_size() == 2;
  }

  /// Tries remedies that cost time, then precision, then both, each with smaller micro-batches if needed;
  /// last those that cost learning.
  [[nodiscard]] std::vector<PreflightTrial> try_remedies() {
    const PreflightRemedies& words = options_.remedies;
    const auto& model = *engine_.model();
    std::vector<PreflightTrial> tried;
    try_smaller_batches({}, "", tried);
    std::string recomputation;
    if (words.recomputation && !recomputing_.empty()) recomputation = words.recomputation(recomputing_);
    const Change recompute = [&model] { return std::make_shared<RecomputeScope>(model); };
    if (!recomputation.empty()) try_with_batches(recompute, recomputation, tried);
    if (!words.bf16.empty() && !computes_in_16_bits_) {
      const Change cast = [type = trials_.device().type()] {
        return std::make_shared<AutocastScope>(type, bf16::kType);
      };
      try_with_batches(cast, words.bf16, tried);
      if (!recomputation.empty() && !any_fits(tried))
        try_with_batches(
            [&] {
              return std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(recompute(),
                                                                                               cast());
            },
            recomputation + words.separator + words.bf16, tried);
    }
    if (words.frozen)
      for (const auto& child : model.named_children())
        if (const auto parameters = child.value()->parameters(); can_freeze(parameters))
          tried.push_back(trials_.attempt(words.frozen(child.key()), trials_.size(),
                                          [&] { return std::make_shared<FrozenScope>(parameters); }));
    return tried;
  }

  [[nodiscard]] static bool any_fits(const std::vector<PreflightTrial>& tried) {
    return std::any_of(tried.begin(), tried.end(), [](const auto& trial) { return trial.fits; });
  }

  /// Tries a change alone, then with smaller micro-batches if it does not fit.
  void try_with_batches(const Change& change, const std::string& words, std::vector<PreflightTrial>& tried) {
    tried.push_back(trials_.attempt(words, trials_.size(), change));
    if (!tried.back().fits) try_smaller_batches(change, words + options_.remedies.separator, tried);
  }

  /// Records the largest smaller micro-batch that fits, or the smallest if none does.
  void try_smaller_batches(const Change& change, const std::string& with,
                           std::vector<PreflightTrial>& tried) {
    const std::vector<std::int64_t> sizes = trials_.micro_batch_sizes();
    if (!accumulates_ || !options_.remedies.batches || sizes.empty() || sizes.front() >= trials_.size())
      return;
    std::vector<PreflightTrial> trials;
    const auto largest = trials_.largest_micro_batch(trials, change, /*is_too_large=*/true);
    const std::string wanted = trials_.window_text(largest.value_or(sizes.front()));
    for (PreflightTrial& each : trials)
      if (each.change == wanted) {
        each.change = with + wanted;
        tried.push_back(std::move(each));
        return;
      }
  }

  /// True if some of `parameters` are trained, and each update also trains others.
  [[nodiscard]] bool can_freeze(const std::vector<at::Tensor>& parameters) {
    const auto among = [&](const at::Tensor& tensor) {
      return std::any_of(parameters.begin(), parameters.end(),
                         [&](const at::Tensor& each) { return each.is_same(tensor); });
    };
    bool trained = false;
    for (const UpdateView& view : engine_.run().updates()) {
      bool others = false;
      for (const at::Tensor& parameter : view.parameters)
        if (parameter.requires_grad()) (among(parameter) ? trained : others) = true;
      if (!others) return false;
    }
    return trained;
  }

  Engine& engine_;
  PreflightOptions options_;
  Trials<Engine, Source> trials_;
  std::string recomputing_;  ///< Policies of the layers that could recompute and do not.
  bool computes_in_16_bits_ = false;
  bool accumulates_ = true;  ///< No policy that is on excludes Accumulate.
};

template <class Updates>
inline constexpr bool all_saved = false;
template <class... Updates>
inline constexpr bool all_saved<std::tuple<Updates...>> = (is_saved<Updates> && ...);

/// Checks a call of preflight or find_micro_batch. To undo dry steps, optimizers must have a state to save.
template <class Trainer, class Batches>
struct CheckDrySteps {
  using Updates =
      std::remove_reference_t<decltype(TrainerAccess::engine(std::declval<Trainer&>()).updates())>;
  static constexpr bool has_batches = std::ranges::input_range<Batches> || requires(Batches & batches) {
    batches.of_at_most(1);
  };
  static constexpr bool passed = has_batches && all_saved<Updates>;
  static_assert(has_batches,
                "looptorch: preflight and find_micro_batch need a range of batches, or SampleBatches of a "
                "dataset. Give them a single batch as std::vector{batch}. See docs/errors.md#not-a-range");
  static_assert(all_saved<Updates>,
                "looptorch: preflight and find_micro_batch undo their steps, and cannot save what this "
                "optimizer keeps. Hold it by its own type, or give it `state_dict(StateDict&) const` and "
                "`load_state_dict(const StateDict&)`. See docs/errors.md#snapshot-optimizer");
};

/// Returns the Preflight of a trainer on SampleBatches, or on the batches of a range.
template <class Trainer, class Batches>
[[nodiscard]] auto make_preflight(Trainer& trainer, Batches& batches, const PreflightOptions& options) {
  auto& engine = TrainerAccess::engine(trainer);
  using Engine = std::remove_reference_t<decltype(engine)>;
  require_no_open_window(engine, "preflight()");
  resolve_updates(engine);
  TrainerAccess::restart(trainer);
  if constexpr (requires { batches.of_at_most(1); }) {
    using Samples = std::remove_const_t<Batches>;
    return Preflight<Engine, Samples>(engine, batches, options);
  } else {
    using Given = GivenBatches<range_batch_t<Batches>>;
    return Preflight<Engine, Given>(engine, Given(batches), options);
  }
}

}  // namespace looptorch::detail
