// SPDX-License-Identifier: MIT
// Read this header first: makes a run of `whisper_finetune` fit into memory. --fit chooses the cheapest
// savings with which the run fits; --preflight names them, and stops a run that does not fit. The memory of
// each choice is predicted from shapes, without the model's weights. On a GPU, real training steps then
// confirm the choice.
//
// The functions here take `with_trainer(recognizer, corpus, options, use)`, which makes the Trainer of a run
// and calls `use(trainer, training_clips)`.
#pragma once

#include <looptorch/app/device/memory_cap.hpp>
#include <looptorch/app/memory_check.hpp>
#include <looptorch/app/session.hpp>
#include <looptorch/shapes_only/shapes_only.hpp>

#include "../../clips/corpus.hpp"
#include "../../decoding/recognizer.hpp"
#include "../../model/adapters.hpp"
#include "../load_model.hpp"
#include "../options.hpp"
#include "../training_clips.hpp"
#include "measure_trial.hpp"
#include "memory_plan.hpp"
#include "saved_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// Measures how much memory of a device runs with other options need.
template <class WithTrainer>
class PlanSearch {
 public:
  /// Takes the sizes of `settings`' model, without its weights.
  PlanSearch(const WithTrainer& with_trainer, const Corpus& corpus, const Recognizer& settings,
             MemoryBudget budget, bool whole_program)
      : with_trainer_(with_trainer),
        corpus_(corpus),
        settings_(settings),
        config_(settings.model->config()),
        budget_(budget),
        whole_program_(whole_program) {
    settings_.model = nullptr;
  }

  /// Returns the first choice that fits. Throws app::DoesNotFit if none does. On a CPU a prediction is exact,
  /// so no real window, which takes as long as in training, confirms it.
  [[nodiscard]] PlanChoice choose(const FinetuneOptions& given, const PlanQuestion& question) {
    PlanMeasure proof;
    if (!budget_.device.is_cpu()) proof = [this](const FinetuneOptions& options) { return prove(options); };
    return choose_plan(
        given, budget_.cap, [this](const FinetuneOptions& options) { return predict(options); }, std::cerr,
        question, proof);
  }

 private:
  /// Predicts by shapes. Reuses a trial in which the same bytes, held between steps, were too many.
  PlanTrial predict(const FinetuneOptions& options) {
    const auto known = too_large_.find(held_by(options));
    if (known != too_large_.end()) return known->second;
    const auto& hardest = batches_of(options);
    const looptorch::app::HostCapLifted lifted;
    PlanTrial trial;
    {
      const looptorch::ShapesOnly shapes_only(looptorch::shapes_of(budget_.device));
      settings_.model = detail::make_model(config_, options.memory.dtype());
      options.memory.apply(settings_.model);
      trial = measure(settings_, options, hardest, PlanBy::shapes);
      settings_.model = nullptr;
    }
    if (!trial.smaller_batch_helps) too_large_.emplace(held_by(options), trial);
    if (whole_program_) add_loading(trial, longest_clips(options), options, budget_);
    return trial;
  }

  /// Runs real windows of the run on its device.
  PlanTrial prove(const FinetuneOptions& options) {
    return with_refusals(budget_, [&] {
      auto recognizer = load_model(options, budget_.device);
      return measure(recognizer, options, batches_of(options), PlanBy::steps);
    });
  }

  PlanTrial measure(Recognizer& recognizer, const FinetuneOptions& options, const std::vector<Batch>& hardest,
                    PlanBy by) {
    PlanTrial trial;
    with_trainer_(recognizer, corpus_, options, [&](auto& trainer, const TrainingClips&) {
      trial = measure_run(trainer, recognizer, options, hardest, budget_, by, whole_program_);
    });
    return trial;
  }
  [[nodiscard]] TrainingClips longest_clips(const FinetuneOptions& options) const {
    return options.clips_of(corpus_, settings_).longest();
  }
  /// Reads the hardest batches, unless the last trial had as many clips. Frees older ones, which would count.
  const std::vector<Batch>& batches_of(const FinetuneOptions& options) {
    const auto size = options.training.batch_size;
    if (std::exchange(clips_, size) != size) {
      hardest_.clear();
      const auto clips = longest_clips(options);
      hardest_ = hardest_batches(clips, size).of_at_most(size);
    }
    return hardest_;
  }

  const WithTrainer& with_trainer_;
  const Corpus& corpus_;
  Recognizer settings_;
  WhisperConfig config_;
  MemoryBudget budget_;
  bool whole_program_;
  std::int64_t clips_ = 0;  // clips in each batch of `hardest_`
  std::vector<Batch> hardest_;
  std::map<std::string, PlanTrial> too_large_;  // by the text of held_by
};

/// Writes a line on memory. With --preflight, throws app::DoesNotFit for a run that does not fit, and names
/// the first choice of --fit that does (for a `resumed` run, the first that it can resume with). Releases the
/// model before it tries choices.
template <class WithTrainer>
void check_memory(const WithTrainer& with_trainer, Recognizer& recognizer, const Corpus& corpus,
                  const FinetuneOptions& options, at::Device device, bool resumed) {
  const auto& training = options.training;
  looptorch::PreflightReport report{.fits = true};
  with_trainer(recognizer, corpus, options, [&](auto& trainer, const TrainingClips& clips) {
    looptorch::app::print_memory(trainer);
    if (!training.preflight) return;
    const auto longest = clips.longest();
    report = looptorch::app::run_preflight(training, trainer, hardest_batches(longest, training.batch_size),
                                           {.try_remedies = false});
  });
  if (report.fits) return;
  PlanSearch search(with_trainer, corpus, recognizer,
                    {.device = device, .cap = report.cap, .margin = report.margin}, /*whole_program=*/false);
  recognizer.model = nullptr;
  const auto choice =
      search.choose(options, {.asking = "preflight:", .margin = report.margin, .resumed = resumed});
  looptorch::app::throw_does_not_fit(report.cap, choice.flags);
}

namespace detail {

/// Returns the choice that the run of `snapshot` made by --fit; without one, chooses.
template <class WithTrainer>
[[nodiscard]] PlanChoice plan_of_run(const WithTrainer& with_trainer, const FinetuneOptions& given,
                                     const std::filesystem::path& snapshot, const Corpus& corpus,
                                     Recognizer& settings, const MemoryBudget& budget) {
  if (!snapshot.empty())
    if (auto kept = saved_plan(snapshot, given, budget.cap, std::cerr)) return *std::move(kept);
  std::cerr << budget.words() << std::endl;
  PlanSearch search(with_trainer, corpus, settings, budget, /*whole_program=*/true);
  settings.model = nullptr;  // it would count here, but the run does not hold it
  return search.choose(given, {.margin = budget.margin, .resumed = !snapshot.empty()});
}

}  // namespace detail

/// Sets the choice of --fit in `options` and the session, and limits the device to its size.
template <class WithTrainer>
void fit_to_memory(const WithTrainer& with_trainer, looptorch::app::Session& session, const Corpus& corpus,
                   Recognizer& settings, FinetuneOptions& options) {
  session.snapshot().release();  // dry steps need the memory
  const auto budget = memory_budget(options.memory.fit, session.device());
  looptorch::app::set_memory_cap(session.device(), std::max<std::int64_t>(budget.tensors(), 1));
  auto choice = detail::plan_of_run(with_trainer, options, session.snapshot().path, corpus, settings, budget);
  if (choice.options.memory.lora > 0) require_room_for_adapters(options.output);
  save_plan(options.output, choice);
  options = std::move(choice.options);
  session.set_options(options.training);
  session.seed();  // as if no dry steps had drawn numbers
}

}  // namespace whisper
