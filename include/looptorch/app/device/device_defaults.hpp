// SPDX-License-Identifier: MIT
// Chooses the flags that a training program turns on by default on an NVIDIA GPU: mixed precision in the type
// that the GPU computes fast, TF32, cuDNN's search for the fastest algorithms (if all batches have one
// shape), and retries when memory runs out (in a run of one process). Also sets the number of workers by the
// number of cores. On a CPU or another accelerator it changes nothing. The functions are pure: their
// arguments describe the GPU.
#pragma once

#include <looptorch/app/device/cuda_device.hpp>
#include <looptorch/app/device/cuda_query.hpp>
#include <looptorch/base/process/rank_environment.hpp>

#include <c10/core/Device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace looptorch::app {

/// A device and its host, as far as defaults depend on them. A device without a capability, such as a CPU,
/// gets no defaults.
struct DeviceFacts {
  std::string name = {};                      ///< as "cuda:0 (Tesla T4)"
  std::optional<Capability> capability = {};  ///< of an NVIDIA GPU
  std::int64_t cores = 1;                     ///< of the host, divided by its processes of the run
  std::int64_t processes = 1;                 ///< of the run
};

/// The settings left to choose: the program has their flags, and the command line does not give them.
struct OpenSettings {
  bool precision = false, tf32 = false, cudnn_benchmark = false, workers = false, retry_on_oom = false;
  bool fp16 = true;                ///< the program's other flags allow fp16, which scales losses
  bool fixed_shapes = false;       ///< all batches have one shape, so that cuDNN searches once
  std::int64_t usual_workers = 2;  ///< the number if no default is set
};

/// The device's defaults that a program's own flags exclude.
struct NotByDefault {
  bool precision = false;     ///< the program computes in a type of its own
  bool fp16 = false;          ///< losses cannot be scaled
  bool retry_on_oom = false;  ///< a window cannot be retried
};

/// A flag that is set as if it had been given; `value` is empty for one that takes none.
struct DeviceDefault {
  std::string flag, value, opposite;
};

/// Returns the flags for a GPU. Precision is bf16 from Ampere on and fp16 before; TF32 is turned on only
/// together with bf16, so that a precision which the user gave is kept. Workers are one less than the cores,
/// at most 6 and never fewer than usual. RetryOnOom is turned on for one process only: with it, several
/// would sum gradients after backward instead of during it.
[[nodiscard]] inline std::vector<DeviceDefault> device_defaults(const DeviceFacts& device,
                                                                const OpenSettings& open) {
  constexpr std::int64_t kMaxWorkers = 6;
  std::vector<DeviceDefault> flags;
  if (!device.capability) return flags;
  const bool has_bf16 = computes_bf16(*device.capability);
  if (open.precision && (has_bf16 || open.fp16)) flags.push_back({has_bf16 ? "bf16" : "fp16", "", "fp32"});
  if (open.precision && has_bf16 && open.tf32) flags.push_back({"tf32", "", "no-tf32"});
  if (open.cudnn_benchmark && open.fixed_shapes)
    flags.push_back({"cudnn-benchmark", "", "no-cudnn-benchmark"});
  const auto workers = std::min(kMaxWorkers, device.cores - 1);
  if (open.workers && workers > open.usual_workers) flags.push_back({"workers", std::to_string(workers), ""});
  if (open.retry_on_oom && device.processes == 1) flags.push_back({"retry-on-oom", "", "no-retry-on-oom"});
  return flags;
}

/// Returns "on by default on cuda:0 (Tesla T4): --fp16 (off: --fp32), --workers 6"; empty for no flags.
[[nodiscard]] inline std::string describe_defaults(const DeviceFacts& device,
                                                   const std::vector<DeviceDefault>& flags) {
  std::string text;
  for (const auto& [flag, value, opposite] : flags) {
    text += text.empty() ? "on by default on " + device.name + ": --" : ", --";
    text += flag + (value.empty() ? "" : " " + value);
    if (!opposite.empty()) text += " (off: --" + opposite + ")";
  }
  return text;
}

/// Returns the facts of a device, for a process on a host of `cores`, which it shares with others of its run.
[[nodiscard]] inline DeviceFacts facts_of(at::Device device, std::int64_t cores, const RankEnvironment& here,
                                          const CudaQuery& query = query_cuda) {
  DeviceFacts facts{.cores = std::max<std::int64_t>(1, cores / here.local_size), .processes = here.size};
  if (!device.is_cuda()) return facts;
  const auto machine = query().machine;
  const auto index = static_cast<std::size_t>(std::max<int>(device.index(), 0));
  if (!machine || index >= machine->gpus.size()) return facts;
  facts.name = detail::gpu_text(*machine, index);
  facts.capability = machine->gpus[index].capability;
  return facts;
}

}  // namespace looptorch::app
