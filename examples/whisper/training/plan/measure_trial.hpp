// SPDX-License-Identifier: MIT
// Measures how much memory a run needs with one choice of `--fit`: by dry steps on its hardest clips and, if
// validation decodes, by decoding them. At first these steps compute shapes alone (looptorch/shapes_only),
// which takes no memory and a fraction of a second. On a GPU the chosen run is then measured again, by real
// steps.
#pragma once

#include <looptorch/app/device/memory_cap.hpp>
#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/preflight.hpp>

#include "../../decoding/recognizer.hpp"
#include "../options.hpp"
#include "../training_clips.hpp"
#include "memory_plan.hpp"
#include "memory_size.hpp"

#include <ATen/ops/constant_pad_nd.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace whisper {

namespace detail {

/// Returns the bytes of the additional texts sampled for each of `clips`: keys and values of the decoder's
/// own tokens, twice, since they are copied as they grow. Estimated, since sampling would take minutes.
inline std::int64_t drawing_bytes(Recognizer& recognizer, std::int64_t clips) {
  const auto& config = recognizer.model->config();
  const auto tokens = config.max_target_positions / 2;
  const auto of_text = 2 * tokens * config.decoder_layers * config.d_model *
                       static_cast<std::int64_t>(recognizer.options().dtype().itemsize());
  return 2 * clips * (recognizer.decoding.best_of - 1) * of_text;
}

/// Returns the peak bytes of tensors while `batch` is transcribed, beyond those held before. Pads clips to 30
/// s if the test clips are, and adds the sampled texts if unsure ones are retried.
inline std::int64_t decoding_bytes(Recognizer& recognizer, const Batch& batch, bool whole_windows,
                                   at::Device device) {
  const std::int64_t frames = 2 * recognizer.model->config().max_source_positions;
  const auto missing = whole_windows ? std::max<std::int64_t>(frames - batch.mel_BMT.size(2), 0) : 0;
  const looptorch::MemoryCounter counter(device);
  const auto before = counter.read().allocated;
  counter.reset_peak();
  const auto silence = batch.mel_BMT.min();
  const auto mel_BMT = at::constant_pad_nd(batch.mel_BMT, {0, missing}, silence.item());
  auto once = recognizer;
  once.fallback.reset();
  (void)once.decode(mel_BMT, batch.languages);
  return counter.read().peak - before +
         (recognizer.fallback ? drawing_bytes(recognizer, mel_BMT.size(0)) : 0);
}

/// Returns the peak bytes of tensors for reading clips in a run: waiting batches, and decoded sound.
inline std::int64_t loading_bytes(const TrainingClips& clips, const looptorch::LoaderOptions& options) {
  const looptorch::MemoryCounter counter(at::kCPU);
  const auto before = counter.read().allocated;
  counter.reset_peak();
  looptorch::PinnedPrefetchLoader batches(clips, options);
  for (std::int64_t read = 0; [[maybe_unused]] auto& batch : batches)
    if (++read > options.prefetch + options.workers) break;
  return counter.read().peak - before;
}

}  // namespace detail

/// The memory that a run is to fit into.
struct MemoryBudget {
  at::Device device;
  std::int64_t cap = 0;     ///< Bytes that the process may take of the device.
  std::int64_t beside = 0;  ///< Bytes of `cap` that the device's context and libraries take.
  double margin = 0;        ///< The share of the remaining bytes that stays free.
  bool is_free = false;     ///< `cap` is the device's free memory, not a given size.

  /// Returns the most bytes that tensors may take.
  [[nodiscard]] std::int64_t tensors() const { return cap - beside; }
  [[nodiscard]] std::int64_t allowed() const {
    return looptorch::PreflightReport::allowed(tensors(), margin);
  }

  /// Returns "--fit 4 GB: 900 MB of it are the device's context, and 5 % of the rest stay free".
  [[nodiscard]] std::string words() const {
    using looptorch::app::bytes_text;
    return looptorch::message(
        "--fit ", bytes_text(cap), ": ",
        is_free ? looptorch::message("what ", device.str(), " has free",
                                     device.is_cpu() ? ", of the host's memory; " : "; ")
                : "",
        beside > 0 ? bytes_text(beside) + " of it are the device's context, and " : "",
        std::lround(100 * margin), beside > 0 ? " % of the rest" : " % of it", " stay free");
  }
};

/// Returns the budget that --fit names; without a size it is the device's free memory. Throws
/// app::CommandLineError for a malformed size, and if the device cannot report its free memory.
[[nodiscard]] inline MemoryBudget memory_budget(const std::string& text, at::Device device) {
  // A CPU's prediction is exact. A GPU's counts what the allocator holds for the hardest batches; other
  // batches can fragment it more. Free memory changes.
  constexpr double kOfCpu = 0.02, kOfDevice = 0.05, kOfFree = 0.1;
  MemoryBudget budget{.device = device,
                      .beside = device.is_cpu() ? 0 : looptorch::app::kContextBytes,
                      .margin = device.is_cpu() ? kOfCpu : kOfDevice};
  if (text != kFitFree) {
    budget.cap = parse_bytes(text);
    return budget;
  }
  const auto capacity = looptorch::memory_capacity(device);
  if (!capacity)
    throw looptorch::app::CommandLineError(looptorch::message(
        "--fit: what ", device.str(), " has free cannot be told here: give a size, as --fit 4GB"));
  budget.cap = capacity->available + budget.beside;  // the context is there already
  budget.margin = kOfFree, budget.is_free = true;
  return budget;
}

/// How a run is measured: by shapes, always on the CPU, or by real steps.
enum class PlanBy { shapes, steps };

/// Returns a text of the settings that decide how many bytes a choice holds between steps. Batch size,
/// recomputation and precision of matmuls do not.
[[nodiscard]] inline std::string held_by(const FinetuneOptions& options) {
  const auto& memory = options.memory;
  return looptorch::message(
      memory.optimizer, memory.bf16_weights ? ", bf16, " : ", ", memory.update_in_backward, ", ", memory.lora,
      memory.int8_base ? ", int8" : "",
      memory.in_backward() && options.training.gradient_accumulation == 1 ? ", at once" : "");
}

/// Measures a run on its `hardest` batches against a budget: its steps, and with `whole_program` also the
/// transcription before, after and within it. Leaves the model unchanged.
template <class Trainer>
[[nodiscard]] PlanTrial measure_run(Trainer& trainer, Recognizer& recognizer, const FinetuneOptions& options,
                                    const std::vector<Batch>& hardest, const MemoryBudget& budget, PlanBy by,
                                    bool whole_program) {
  constexpr std::int64_t kNoCap = 1'000'000'000'000'000;
  const auto held = trainer.expected_memory();
  const bool elsewhere =
      by == PlanBy::shapes && !budget.device.is_cpu();  // memory on the host does not count
  const auto between = held.weights + held.optimizer + held.averages + (elsewhere ? 0 : held.copies);
  const auto least = between + held.gradients;
  if (least > budget.allowed()) return {.needed = least, .fits = false, .smaller_batch_helps = false};

  const looptorch::app::HostCapLifted lifted;  // for the copy of the run that a preflight restores
  const auto report = looptorch::preflight(trainer, hardest,
                                           {.cap = by == PlanBy::shapes ? kNoCap : budget.tensors(),
                                            .margin = budget.margin,
                                            .stop_beyond = by == PlanBy::shapes ? budget.allowed() : 0,
                                            .try_remedies = false});
  PlanTrial trial{.needed = report.needed, .ran_out = report.out_of_memory, .stopped = report.stopped};
  if (budget.device.is_cpu()) trial.best_weights = held.copies, trial.snapshot = report.snapshot;
  // The program transcribes before and after training, and within it if validation does.
  const auto beside = options.measures_error_rate() ? between : held.weights;
  if (whole_program && !trial.ran_out && trial.needed <= budget.allowed()) {
    try {
      for (const Batch& batch : hardest) {
        const auto needed = beside + detail::decoding_bytes(recognizer, batch, options.corpus.whole_windows,
                                                            recognizer.options().device());
        trial.transcribes |= needed > trial.needed;
        trial.needed = std::max(trial.needed, needed);
      }
    } catch (...) {
      if (!looptorch::ran_out_of_memory()) throw;  // smaller batches may fit
      trial.ran_out = trial.transcribes = true, trial.needed = budget.tensors();
    }
  }
  trial.fits = !trial.ran_out && trial.needed <= budget.allowed();
  return trial;
}

/// Returns `measure`'s result, or a trial that says that memory ran out or a library lacks a kernel.
template <class Measure>
[[nodiscard]] PlanTrial with_refusals(const MemoryBudget& budget, Measure&& measure) {
  try {
    return measure();
  } catch (const std::exception& error) {
    if (looptorch::ran_out_of_memory())  // for the weights alone
      return {.needed = budget.tensors(), .smaller_batch_helps = false, .ran_out = true};
    if (!dynamic_cast<const c10::Error*>(&error)) throw;
    const auto status = unsupported_status(error.what());
    if (status.empty()) throw;
    return {.needed = budget.tensors(), .smaller_batch_helps = false, .refused = status};
  }
}

/// Adds the program's other memory to a prediction for a CPU that fits: waiting batches, decoded sound, and
/// the pictures of the learning curve.
inline void add_loading(PlanTrial& trial, const TrainingClips& clips, const FinetuneOptions& options,
                        const MemoryBudget& budget) {
  constexpr std::int64_t kPictures = 4'000'000;
  if (!trial.fits || !budget.device.is_cpu()) return;
  trial.loading = kPictures + detail::loading_bytes(clips, options.training.loader_options());
  trial.needed += trial.loading;
  trial.fits = trial.needed <= budget.allowed();
}

}  // namespace whisper
