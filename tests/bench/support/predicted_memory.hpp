// SPDX-License-Identifier: MIT
// Compares the memory that preflight and ShapesOnly predict for a run (memory_runs.hpp) with what the fit
// takes.
#pragma once

#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/policies/watch_memory.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/shapes_only/shapes_only.hpp>

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <vector>

namespace looptorch_bench {

/// Peaks in bytes.
struct PeakBytes {
  std::int64_t tensors = 0, reserved = 0;
};

struct PredictedMemory {
  PeakBytes by_steps, by_shapes, measured;
  bool ran_out = false;  ///< Held to what was predicted by steps.
};

inline PeakBytes peak_of(const looptorch::PreflightReport& report) {
  return {report.phases.peak().bytes, report.phases.peak_reserved()};
}

/// Predicts by dry steps, with all the memory that there is.
template <class Trainer, class Batch>
looptorch::PreflightReport dry_steps(Trainer& trainer, const std::vector<Batch>& batches,
                                     std::int64_t cap = 100'000'000'000, double margin = 0.1) {
  return looptorch::preflight(trainer, std::vector{batches.back()},
                              {.cap = cap, .margin = margin, .evaluate = false});
}

/// Predicts for an accelerator, without one. Attention is fused on CUDA; elsewhere it is by products and a
/// softmax, as on the simulated one.
template <class Make>
PeakBytes by_shapes(const Make& make, at::Device device) {
  const looptorch::ShapesOnly shapes_only(looptorch::shapes_of(device));
  const bool flash = at::globalContext().userEnabledFlashSDP();
  at::globalContext().setSDPUseFlash(device.is_cuda());
  PeakBytes peak;
  make(at::kCPU, [&](auto& trainer, const auto& batches) { peak = peak_of(dry_steps(trainer, batches)); });
  at::globalContext().setSDPUseFlash(flash);
  return peak;
}

/// Compares on an accelerator. `held_to(bytes)` caps it while what it returns lives.
template <class Make, class HeldTo>
PredictedMemory fp16_scale(const Make& make, at::Device device, const HeldTo& held_to) {
  PredictedMemory memory{.by_shapes = by_shapes(make, device)};
  looptorch::empty_cache(device);  // of the runs before it
  make(device, [&](auto& trainer, const auto& batches) {
    const auto report = dry_steps(trainer, batches);
    memory.by_steps = peak_of(report);
    looptorch::empty_cache(device);
    trainer.fit(batches, {.epochs = 3});
    const auto& watch = trainer.template policy<looptorch::WatchMemory>();
    memory.measured = {watch.peak().bytes, watch.peak_reserved()};
    if (!dry_steps(trainer, batches, report.needed, /*margin=*/0).fits) return;
    const auto held = held_to(report.needed);
    try {
      trainer.fit(batches);
    } catch (const c10::OutOfMemoryError&) {
      memory.ran_out = true;
    }
  });
  return memory;
}

}  // namespace looptorch_bench
