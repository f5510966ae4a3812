// SPDX-License-Identifier: MIT
// Holds preflight to account: for the 60 runs of support/memory_runs.hpp, the peak that it predicts beside
// the peak of the fit that follows, whose one hard batch stands among easier ones. Then the fit runs once
// more, held to a cap for which the preflight said that it fits. One thread.
//
//   memory_prediction
//       prints a JSON object a run, on the CPU; fails if a prediction is off by more than 5 %, half of them
//       by more than 2 %, or if what was said to fit ran out of memory
//   memory_prediction_on_sim
//       the same on the simulated accelerator, whose allocator divides memory as CUDA's does: what tensors
//       take, and what it reserves for them; and by shapes, without an accelerator
#include <looptorch/policies.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include "support/memory_runs.hpp"
#include "support/predicted_memory.hpp"

#ifdef LOOPTORCH_ON_SIM
#include "support/accelerator/accelerator.hpp"
#endif

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

namespace lt = looptorch;
using namespace looptorch_bench;

std::vector<double> errors;
bool kept_word = true;

void print(const std::string& name, std::int64_t predicted, std::int64_t measured) {
  std::printf(
      "{\"name\": \"%s\", \"value\": %.6f, \"unit\": \"MB\", \"peer\": \"measured\", \"peer_value\": %.6f}\n",
      name.c_str(), static_cast<double>(predicted) / 1e6, static_cast<double>(measured) / 1e6);
  std::fflush(stdout);
}

void note(const std::string& name, std::int64_t predicted, std::int64_t measured, bool ran_out) {
  errors.push_back(std::abs(static_cast<double>(predicted) / static_cast<double>(measured) - 1));
  kept_word &= !ran_out;
  if (ran_out) std::fprintf(stderr, "%s: was said to fit, and ran out of memory\n", name.c_str());
}

#ifdef LOOPTORCH_ON_SIM
template <class Make>
void compare(const std::string& name, const Make& make) {
  namespace sim = looptorch_test::accelerator;
  const auto memory = fp16_scale(make, sim::device(), [](std::int64_t bytes) {
    return sim::With({.cap_bytes = static_cast<std::size_t>(bytes)});
  });
  print(name + ", tensors", memory.by_steps.tensors, memory.measured.tensors);
  print(name + ", reserved", memory.by_steps.reserved, memory.measured.reserved);
  print(name + ", tensors by shapes", memory.by_shapes.tensors, memory.measured.tensors);
  print(name + ", reserved by shapes", memory.by_shapes.reserved, memory.measured.reserved);
  note(name, memory.by_steps.tensors, memory.measured.tensors, memory.ran_out);
}
#else
template <class Make>
void compare(const std::string& name, const Make& make) {
  make(at::kCPU, [&](auto& trainer, const auto& batches) {
    const auto report = dry_steps(trainer, batches);
    trainer.fit(batches, {.epochs = 3});
    const auto measured = trainer.template policy<lt::WatchMemory>().peak().bytes;

    const std::int64_t cap = std::llround(static_cast<double>(report.needed) / 0.9) + 1;
    auto& memory = lt::HostMemory::counted();
    bool ran_out = false;
    if (dry_steps(trainer, batches, cap).fits) {
      memory.set_limit(cap);  // of what is counted, with all that stands beside the run
      try {
        trainer.fit(batches);
      } catch (const c10::OutOfMemoryError&) {
        ran_out = true;
      }
      memory.set_limit(lt::HostMemory::kNoLimit);
    }
    print(name, report.needed, measured);
    note(name, report.needed, measured, ran_out);
  });
}
#endif

}  // namespace

int main() {
  at::set_num_threads(1);
  torch::manual_seed(1);
  lt::HostMemory::counted();
  all_runs([](const std::string& name, const auto& make) { compare(name, make); });
  std::sort(errors.begin(), errors.end());
  const double median = errors[errors.size() / 2], worst = errors.back();
  std::fprintf(stderr, "%zu configurations: off by %.2f %% in the median, %.2f %% at worst\n", errors.size(),
               100 * median, 100 * worst);
  return kept_word && median <= 0.02 && worst <= 0.05 ? 0 : 1;
}
