// SPDX-License-Identifier: MIT
// What one choice of --fit needs: dry steps of the run itself on its hardest clips, and a decoding of them
// where validation decodes.
#pragma once

#include <looptorch/app/memory_cap.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/memory/memory_counter.hpp>
#include <looptorch/preflight.hpp>

#include "../recognizer.hpp"
#include "fit.hpp"
#include "options.hpp"
#include "training_clips.hpp"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace whisper {

namespace detail {

/// Returns the bytes that the other texts take which are drawn for each of `clips`: keys and values of the
/// decoder's own tokens, twice while they grow. Drawing them would take minutes.
inline std::int64_t drawing_bytes(Recognizer& recognizer, std::int64_t clips) {
  const auto& config = recognizer.model->config();
  const auto tokens = config.max_target_positions / 2;
  const auto of_text = 2 * tokens * config.decoder_layers * config.d_model *
                       static_cast<std::int64_t>(recognizer.options().dtype().itemsize());
  return 2 * clips * (recognizer.decoding.best_of - 1) * of_text;
}

/// Returns the most bytes of tensors while `batch` is transcribed, above those before: in windows of 30 s
/// where the test clips are, and with several texts for each clip where unsure ones are decoded again.
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
  (void)once.hear(mel_BMT, batch.languages);
  return counter.read().peak - before +
         (recognizer.fallback ? drawing_bytes(recognizer, mel_BMT.size(0)) : 0);
}

/// Returns the share of --fit's size that stays free, on a device for its allocator's fragmentation.
inline double fit_margin(at::Device device) { return device.is_cpu() ? 0.02 : 0.1; }

/// Returns the most bytes of tensors that reading clips takes beside a run: batches that wait, and sound that
/// is decoded.
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

/// Measures a run whose clips are `longest` against `cap`, of which the share `margin` is to stay free: its
/// steps, and with `whole_program` also what the program does before, after and beside them. Leaves the model
/// as it was.
template <class Trainer>
[[nodiscard]] FitTrial measure_run(Trainer& trainer, Recognizer& recognizer, const FinetuneOptions& options,
                                   const TrainingClips& longest, std::int64_t cap, double margin,
                                   bool whole_program) {
  const auto device = recognizer.options().device();
  const auto allowed = looptorch::PreflightReport::allowed(cap, margin);
  const auto held = trainer.expected_memory();
  const auto between = held.weights + held.optimizer + held.averages + held.copies;
  const auto least = between + held.gradients;
  if (least > allowed) return {.needed = least, .fits = false, .by_batch = false};

  const looptorch::app::HostCapLifted lifted;  // for the copy of the run that a preflight puts back
  const auto hardest = hardest_batches(longest, options.training.batch_size);
  const auto report =
      looptorch::preflight(trainer, hardest, {.cap = cap, .margin = margin, .try_remedies = false});
  FitTrial trial{.needed = report.needed, .fits = report.fits, .ran_out = report.out_of_memory};
  if (!trial.fits || !whole_program) return trial;
  // The program transcribes before and after training, and within it where validation does.
  const auto beside = options.measures_error_rate() ? between : held.weights;
  for (const Batch& batch : hardest.of_at_most(options.clips_heard()))
    trial.needed =
        std::max(trial.needed,
                 beside + detail::decoding_bytes(recognizer, batch, options.corpus.whole_windows, device));
  constexpr std::int64_t kPictures = 4'000'000;  // of the learning curve, while they are drawn
  if (device.is_cpu())
    trial.needed += kPictures + detail::loading_bytes(longest, options.training.loader_options());
  trial.fits = trial.needed <= allowed;
  return trial;
}

}  // namespace whisper
