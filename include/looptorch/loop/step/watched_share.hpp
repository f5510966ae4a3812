// SPDX-License-Identifier: MIT
// Does an update's share of a window again for a look: every operator is watched, nothing of the run changes,
// and no update is made. Compiled only where a policy has `keeps_windows`, and for replays.
#pragma once

#include <looptorch/autopsy/operator_watch.hpp>
#include <looptorch/base/device/random_states.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/batch.hpp>
#include <looptorch/data/batch_state.hpp>
#include <looptorch/loop/batch_range.hpp>
#include <looptorch/loop/compose/included_code.hpp>
#include <looptorch/loop/examine_context.hpp>
#include <looptorch/loop/parameter_names.hpp>
#include <looptorch/loop/step/agree_on_finding.hpp>
#include <looptorch/loop/step/attempt.hpp>
#include <looptorch/loop/step/examine.hpp>
#include <looptorch/loop/step/put_aside.hpp>
#include <looptorch/loop/step/retry.hpp>
#include <looptorch/loop/step/side_by_side.hpp>
#include <looptorch/loop/step/update_step.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace looptorch::detail {

template <std::size_t I, class Engine, class Batch>
class WatchedShare final : public ShareAgain {
 public:
  /// A share of the window under way.
  WatchedShare(Engine& engine, Attempt& attempt, std::vector<Batch>& kept)
      : engine_(engine),
        attempt_(attempt),
        kept_(kept),
        ranks_(engine.ranks() ? engine.ranks()->size() : 0),
        is_seeded_(engine.ranks() && engine.ranks()->shards() > 0) {}
  /// A share that is replayed, of a run on so many ranks; `random` are its micro-batches' generators, if each
  /// was seeded.
  WatchedShare(Engine& engine, Attempt& attempt, std::vector<Batch>& kept, std::int64_t ranks,
               std::vector<RandomStates> random)
      : engine_(engine),
        attempt_(attempt),
        kept_(kept),
        ranks_(ranks),
        is_seeded_(!random.empty()),
        random_(std::move(random)) {}

  const Finding& examine() override {
    if (!finding_) finding_ = agreed(watch(/*scaled=*/true));
    return *finding_;
  }
  Finding examine_unscaled() override { return agreed(watch(/*scaled=*/false)); }

  std::filesystem::path keep_in(const std::filesystem::path& folder) override {
    if constexpr (SavableBatch<Batch>) {
      const Finding& found = examine();  // all ranks come here
      require_one_process();
      if (found.cause == Finding::Cause::elsewhere || kept_.empty()) return {};
      const PutAside aside(*engine_.model(), attempt_, view(), work());
      std::vector<RandomStates> random;
      for (std::size_t i = 0; is_seeded_ && i < kept_.size(); ++i) {
        seed(i);
        random.push_back(RandomStates::now());
      }
      return WindowCode<Engine>::keep(engine_, I, found, kept_, ranks_, std::move(random), of_rank(folder));
    } else {
      throw UsageError(
          "the window's batches cannot be written to disk: make the batch an aggregate of tensors, numbers, strings "
          "and lists, or give it state_dict(StateDict&) const and load_state_dict(const StateDict&)");
    }
  }

  std::string agreed(const Finding& finding, std::string sentence) override {
    if constexpr (Engine::kHasRanks)
      if (engine_.ranks())
        return agree_on_sentence(*engine_.ranks(), finding, std::move(sentence),
                                 moment_of_look(engine_, I, "the report"));
    return sentence;
  }

 private:
  [[nodiscard]] Finding agreed(Finding own) {
    if constexpr (Engine::kHasRanks)
      if (engine_.ranks())
        return agree_on_finding(*engine_.ranks(), std::move(own),
                                moment_of_look(engine_, I, "a second look"));
    return own;
  }

  /// Throws UsageError if a rank's share cannot be done again without the others.
  void require_one_process() const {
    if (engine_.ranks() && engine_.ranks()->synchronises())
      throw UsageError(
          "its layers take batch statistics over all ranks (OnBatchStatistics::synchronise), and replay() does it "
          "again on one process: leave keep_in empty, or use GroupNorm, LayerNorm or OnBatchStatistics::per_rank");
  }

  /// Returns the number of a kept batch in the window, counting those that the loader left out.
  [[nodiscard]] std::int64_t number_in_window(std::size_t kept) {
    return engine_.window().origin.narrowed(kept).place().first_batch - engine_.progress().batch;
  }

  /// Seeds the generators as they were when this micro-batch began.
  void seed(std::size_t number) {
    if (!random_.empty()) return random_.at(number).apply();
    if constexpr (Engine::kHasRanks)
      engine_.ranks()->seed_micro_batch(engine_.progress().step, number_in_window(number));
  }

  /// Returns where this rank's bundles lie in `folder`.
  [[nodiscard]] std::filesystem::path of_rank(const std::filesystem::path& folder) const {
    if constexpr (Engine::kHasRanks)
      if (ranks_ > 1) return folder / message("rank-", engine_.ranks()->rank());
    return folder;
  }

  [[nodiscard]] UpdateView& view() { return engine_.run().updates()[I]; }
  [[nodiscard]] UpdateWork& work() { return engine_.works()[I]; }

  Finding watch(bool scaled) {
    const PutAside aside(*engine_.model(), attempt_, view(), work());
    OperatorWatch watch(parameters(), buffers(), modules());
    const std::int64_t turns = std::exchange(engine_.window().turns, 0);
    try {
      go_through(watch, scaled);
      watch.take_gradient_bits();
    } catch (...) {
      watch.fail(what_of(std::current_exception()));
    }
    engine_.window().turns = turns;
    drop_gradients(view().parameters);
    return watch.finding();
  }

  /// Does the micro-batches until the cause is known. Ranks that take batch statistics together go on side by
  /// side: one that knows its cause takes part with nothing, as in training.
  void go_through(OperatorWatch& watch, bool scaled) {
    const bool side_by_side = go_side_by_side(engine_);
    bool goes_on = true;
    for (std::size_t number = 0; number < kept_.size() && (goes_on || side_by_side); ++number)
      beside_other_ranks(engine_, side_by_side ? number_in_window(number) : 0, [&] {
        if (!goes_on) return;
        try {
          goes_on = micro_batch(watch, number, scaled);
        } catch (...) {
          goes_on = false;
          watch.fail(what_of(std::current_exception()));
        }
      });
    wait_side_by_side(engine_);
  }

  /// Returns false once the cause is known.
  bool micro_batch(OperatorWatch& watch, std::size_t number, bool scaled) {
    bool finite = true;
    std::int64_t row = 0;
    if (is_seeded_) seed(number);
    for_each_piece_of(kept_[number], [&](auto&& piece) {
      if (!finite) return;
      with_batch_on(engine_.run().device(), PinnedSource::staged, piece, [&](const auto& there) {
        begin(watch, number, row, there);
        finite = differentiate(watch, there, scaled) && !watch.take_gradients();
      });
      row += batch_size(piece);
    });
    return finite;
  }

  template <class Use>
  void for_each_piece_of(Batch& batch, const Use& use) {
    if constexpr (Engine::kRetries)
      for_each_piece(batch, work().pieces, use);
    else
      use(batch);
  }

  void begin(OperatorWatch& watch, std::size_t number, std::int64_t row, const Batch& there) {
    std::vector<at::Tensor> tensors;
    for_each_tensor(there, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
    watch.begin_micro_batch(static_cast<std::int64_t>(number), row, batch_size(there),
                            engine_.window().origin.narrowed(number).place().samples, tensors);
  }

  /// Differentiates as `differentiate` does; returns false for a loss that is not finite.
  bool differentiate(OperatorWatch& watch, const Batch& batch, bool scales) {
    UpdateWork& work = this->work();
    const FrozenScope frozen(engine_.parameters().outside(I));
    Loss loss = as_loss(engine_.forward(engine_.template update<I>().objective, batch, /*training=*/true));
    if (watch.take_loss(loss_tensor(loss))) return false;
    if (ranks_ > 0) read_weight(loss);
    const bool is_alone = engine_.window_length() == 1 && work.pieces == 1 && ranks_ == 0;
    const at::Tensor weighed = is_alone ? work.weight.weigh_alone(loss) : work.weight.weigh(loss);
    if (!weighed.defined()) return true;
    require_graph(weighed, view());
    const at::Tensor scaled = scales ? engine_.stack().scaled(weighed) : weighed;
    rescale_gradients(view(), work, work.weight.take_correction());
    scaled.backward();
    return true;
  }

  /// Returns the model's parameters by their paths, and those outside of it that the update trains.
  std::vector<NamedTensor> parameters() {
    const ParameterNames names(*engine_.model(), engine_.run().updates());
    std::vector<NamedTensor> named;
    for (const at::Tensor& parameter : distinct((*engine_.model()).parameters()))
      named.push_back({names.of(parameter), parameter});
    for (const at::Tensor& parameter : without(view().parameters, (*engine_.model()).parameters()))
      named.push_back({names.of(parameter), parameter});
    return named;
  }
  std::vector<NamedTensor> buffers() {
    std::vector<NamedTensor> named;
    for (const auto& item : (*engine_.model()).named_buffers()) named.push_back({item.key(), item.value()});
    return named;
  }
  /// Returns the model and its modules with their paths, each before its children.
  std::vector<KnownModule> modules() {
    const auto known = [](std::string path, const auto& module) {
      return KnownModule{std::move(path), c10::demangle(typeid(module).name()), !module.parameters().empty()};
    };
    std::vector<KnownModule> all{known("", *engine_.model())};
    for (const auto& item : (*engine_.model()).named_modules("", /*include_self=*/false))
      all.push_back(known(item.key(), *item.value()));
    return all;
  }

  Engine& engine_;
  Attempt& attempt_;
  std::vector<Batch>& kept_;
  std::int64_t ranks_;  // of the run; 0: none
  bool is_seeded_;      // each micro-batch by itself
  std::vector<RandomStates> random_;
  std::optional<Finding> finding_;
};

}  // namespace looptorch::detail
