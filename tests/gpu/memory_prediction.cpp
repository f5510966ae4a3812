// SPDX-License-Identifier: MIT
// Holds preflight and ShapesOnly to account on a device: for the 60 runs of tests/bench, what each predicts
// of a fit's memory beside what the fit takes, in tensors and in what the allocator reserves for them. Then
// the fit runs once more, held to what was predicted.
//
//   memory_prediction DEVICE
//
// Fails if a prediction by dry steps is off by more than 2 %, or if what was said to fit ran out of memory.
#include <looptorch/app/device/memory_cap.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include "support/device_run.hpp"
#include "support/memory_runs.hpp"
#include "support/predicted_memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace looptorch_bench;

class MemoryCap {
 public:
  MemoryCap(at::Device device, std::int64_t bytes) : device_(device) {
    lt::empty_cache(device);
    lt::app::set_memory_cap(device, bytes);
  }
  ~MemoryCap() { lt::app::set_memory_cap(device_, std::numeric_limits<std::int64_t>::max()); }
  MemoryCap(const MemoryCap&) = delete;
  MemoryCap& operator=(const MemoryCap&) = delete;

 private:
  at::Device device_;
};

/// How far predictions are from what was measured, as shares.
class Errors {
 public:
  void add(std::int64_t predicted, std::int64_t measured) {
    shares_.push_back(std::abs(static_cast<double>(predicted) / static_cast<double>(measured) - 1));
  }
  [[nodiscard]] double worst() const { return *std::max_element(shares_.begin(), shares_.end()); }
  void print(const char* name) const {
    bench::print_row(std::string("memory of 60 runs, ") + name + ": off in the median",
                     100 * bench::median(shares_), "%");
    bench::print_row(std::string("memory of 60 runs, ") + name + ": off at worst", 100 * worst(), "%");
  }

 private:
  std::vector<double> shares_;
};

void print_run(const std::string& name, const PredictedMemory& memory) {
  std::fprintf(
      stderr, "%-60s tensors %9.3f steps %9.3f shapes %9.3f; reserved %9.3f steps %9.3f shapes %9.3f%s\n",
      name.c_str(), static_cast<double>(memory.measured.tensors) / 1e6,
      static_cast<double>(memory.by_steps.tensors) / 1e6, static_cast<double>(memory.by_shapes.tensors) / 1e6,
      static_cast<double>(memory.measured.reserved) / 1e6,
      static_cast<double>(memory.by_steps.reserved) / 1e6,
      static_cast<double>(memory.by_shapes.reserved) / 1e6,
      memory.ran_out ? "  was said to fit, and ran out of memory" : "");
}

}  // namespace

int main(int count, char** words) {
  const bench::DeviceRun run = bench::DeviceRun::of(count, words);
  torch::manual_seed(1);
  Errors steps, steps_reserved, shapes, shapes_reserved;
  std::int64_t ran_out = 0;
  const auto compare = [&](const std::string& name, const auto& make) {
    const auto memory =
        fp16_scale(make, run.device, [&](std::int64_t bytes) { return MemoryCap(run.device, bytes); });
    steps.add(memory.by_steps.tensors, memory.measured.tensors);
    steps_reserved.add(memory.by_steps.reserved, memory.measured.reserved);
    shapes.add(memory.by_shapes.tensors, memory.measured.tensors);
    shapes_reserved.add(memory.by_shapes.reserved, memory.measured.reserved);
    ran_out += memory.ran_out;
    print_run(name, memory);
  };
  all_runs(compare);
  steps.print("tensors by dry steps");
  steps_reserved.print("reserved by dry steps");
  shapes.print("tensors by shapes");
  shapes_reserved.print("reserved by shapes");
  bench::print_row("memory of 60 runs: said to fit, and ran out", static_cast<double>(ran_out), "runs");
  return ran_out == 0 && steps.worst() <= 0.02 && steps_reserved.worst() <= 0.02 ? 0 : 1;
}
