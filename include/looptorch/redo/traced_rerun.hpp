// SPDX-License-Identifier: MIT
// Reruns a window's forward and backward with every operator traced, for one of the Trainer's updates, until
// it knows what made a NaN. Restores the run afterwards; the optimizer makes no step. Policies call it
// through WindowRerun (loop/examine_context.hpp); replay_window.hpp calls it for a saved window. Compiled
// only for policies with `may_rerun` and for replays.
#pragma once

#include <looptorch/autopsy/operator_watch.hpp>
#include <looptorch/base/device/random_states.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/tensor_list.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/data/batch/batch_state.hpp>
#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/loop/compose/deferred_code.hpp>
#include <looptorch/loop/examine_context.hpp>
#include <looptorch/loop/parameter_names.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/redo/judge_window.hpp>
#include <looptorch/redo/redone_window.hpp>

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

/// The observer of a rerun: passes the loss to the OperatorWatch, and adds it to no mean.
template <class Engine>
struct TracingObserver : MicroBatchObserver {
  TracingObserver(Engine& engine_in, OperatorWatch& watch_in, bool& is_finite, bool is_scaled)
      : engine(engine_in), watch(watch_in), finite(is_finite), scaled(is_scaled) {}
  Engine& engine;
  OperatorWatch& watch;
  bool& finite;
  bool scaled;

  bool accept(const Loss& loss) { return finite = !watch.note_loss(loss_tensor(loss)); }
  at::Tensor scale(const at::Tensor& weighed) { return scaled ? engine.scaled(weighed) : weighed; }
};

/// Reruns the window of update I with a trace of its operators, which names the first that is not finite.
template <std::size_t I, class Engine, class Batch>
class TracedRerun final : public WindowRerun {
 public:
  /// Reruns the window under way.
  TracedRerun(Engine& engine, WindowStart& window_start, std::vector<Batch>& kept)
      : engine_(engine),
        window_start_(window_start),
        kept_(kept),
        is_seeded_(engine.ranks() && engine.ranks()->chunks() > 0) {}
  /// Replays a saved window; `random` has its micro-batches' generators, if each was seeded.
  TracedRerun(Engine& engine, WindowStart& window_start, std::vector<Batch>& kept,
              std::vector<RandomStates> random)
      : engine_(engine),
        window_start_(window_start),
        kept_(kept),
        is_seeded_(!random.empty()),
        random_(std::move(random)) {}

  const Finding& examine() override {
    if (!finding_) finding_ = engine_.ranks().template agreed_finding<I>(engine_, trace(/*scaled=*/true));
    return *finding_;
  }
  Finding examine_unscaled() override {
    return engine_.ranks().template agreed_finding<I>(engine_, trace(/*scaled=*/false));
  }

  std::filesystem::path keep_in(const std::filesystem::path& folder) override {
    if constexpr (SavableBatch<Batch>) {
      const Finding& found = examine();  // all ranks come here
      require_one_process();
      if (found.cause == Finding::Cause::elsewhere || kept_.empty()) return {};
      WindowStart::Aside aside(window_start_, *engine_.model(), view(), work());
      std::vector<RandomStates> random;
      for (std::size_t i = 0; is_seeded_ && i < kept_.size(); ++i) {
        seed(i);
        random.push_back(RandomStates::now());
      }
      auto bundle = WindowCode<Engine>::keep(engine_, I, found, kept_, engine_.window().shared.ranks,
                                             std::move(random), folder_of_rank(folder));
      aside.restore();
      return bundle;
    } else {
      throw UsageError(
          "the window's batches cannot be written to disk: make the batch an aggregate of tensors, numbers, strings "
          "and lists, or give it state_dict(StateDict&) const and load_state_dict(const StateDict&)");
    }
  }

  std::string agreed(const Finding& finding, std::string sentence) override {
    return engine_.ranks().template agreed_sentence<I>(engine_, finding, std::move(sentence));
  }

 private:
  /// Throws UsageError if a rank cannot rerun its micro-batches alone.
  void require_one_process() const {
    if (engine_.ranks() && engine_.ranks()->syncs_batch_norm())
      throw UsageError(
          "its layers take batch statistics over all ranks (BatchNormMode::sync), and replay() reruns "
          "them on one process: leave `folder` empty, or use GroupNorm, LayerNorm or BatchNormMode::per_rank");
  }

  /// Returns the number of a kept batch in the window, batches that the loader skipped included.
  [[nodiscard]] std::int64_t number_in_window(std::size_t kept) {
    return engine_.window().origin.narrowed(kept).place().first_batch - engine_.progress().batch;
  }

  /// Seeds the generators as they were when this micro-batch began.
  void seed(std::size_t number) {
    if (!random_.empty()) return random_.at(number).apply();
    engine_.ranks()->seed_micro_batch(engine_.progress().step, number_in_window(number));
  }

  /// Returns the folder of this rank's bundles within `folder`.
  [[nodiscard]] std::filesystem::path folder_of_rank(const std::filesystem::path& folder) const {
    return engine_.window().shared.ranks > 1 ? folder / message("rank-", engine_.ranks()->rank()) : folder;
  }

  [[nodiscard]] UpdateView& view() { return engine_.run().updates()[I]; }
  [[nodiscard]] UpdateWork& work() { return engine_.works()[I]; }

  /// Reruns the kept micro-batches and returns this rank's finding; with `scaled` losses are times the loss
  /// scale. Leaves no trace in the run.
  Finding trace(bool scaled) {
    WindowStart::Aside aside(window_start_, *engine_.model(), view(), work());
    Finding finding = watched_rerun(scaled);
    aside.restore();
    return finding;
  }

  Finding watched_rerun(bool scaled) {
    OperatorWatch watch(parameters(), buffers(), modules());
    const std::int64_t turns = std::exchange(engine_.window().shared.lockstep_turns, 0);
    try {
      rerun_micro_batches(watch, scaled);
      watch.note_gradient_bits();
    } catch (...) {
      watch.fail(what_of(std::current_exception()));
    }
    engine_.window().shared.lockstep_turns = turns;
    drop_gradients(view().parameters);
    return watch.finding();
  }

  /// Runs micro-batches until the cause is known. Under SyncBN ranks stay in lockstep, as in training: a rank
  /// that knows its cause joins with empty statistics.
  void rerun_micro_batches(OperatorWatch& watch, bool scaled) {
    const bool in_lockstep = engine_.ranks().is_lockstep(engine_);
    bool cause_unknown = true;  // on this rank
    for (std::size_t number = 0; number < kept_.size() && (cause_unknown || in_lockstep); ++number)
      engine_.ranks().join_rerun_micro_batch(engine_, in_lockstep ? number_in_window(number) : 0, [&] {
        if (!cause_unknown) return;
        try {
          cause_unknown = rerun_micro_batch(watch, number, scaled);
        } catch (...) {
          cause_unknown = false;
          watch.fail(what_of(std::current_exception()));
        }
      });
    engine_.ranks().wait_in_lockstep(engine_);
  }

  /// Returns false once the cause is known.
  bool rerun_micro_batch(OperatorWatch& watch, std::size_t number, bool scaled) {
    bool finite = true;
    std::int64_t row = 0;
    if (is_seeded_) seed(number);
    each_piece<I>(engine_, kept_[number], [&](auto&& piece) {
      if (!finite) return;
      with_batch_on(engine_.run().device(), PinnedSource::staged, piece, [&](const auto& there) {
        announce(watch, number, row, there);
        run_micro_batch<I>(engine_, there, TracingObserver<Engine>(engine_, watch, finite, scaled));
        finite = finite && !watch.note_gradients();
      });
      row += batch_size(piece);
    });
    return finite;
  }

  /// Tells the trace which batch comes: its first sample is row `row` of micro-batch `number`.
  void announce(OperatorWatch& watch, std::size_t number, std::int64_t row, const Batch& there) {
    std::vector<at::Tensor> tensors;
    for_each_tensor(there, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
    watch.begin_micro_batch(static_cast<std::int64_t>(number), row, batch_size(there),
                            engine_.window().origin.narrowed(number).place().samples, tensors);
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
  WindowStart& window_start_;
  std::vector<Batch>& kept_;
  bool is_seeded_;                    // true if each micro-batch has its own seed
  std::vector<RandomStates> random_;  // saved generators of each micro-batch; empty: those of the ranks
  std::optional<Finding> finding_;
};

}  // namespace looptorch::detail
