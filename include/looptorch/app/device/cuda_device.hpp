// SPDX-License-Identifier: MIT
// Decides whether LibTorch can compute on a CUDA device. LibTorch must have kernels for the GPU, and the
// driver must be no older than LibTorch's CUDA. Without this check a program fails at its first kernel with
// "no kernel image is available", or silently computes on the CPU. The functions are pure: cuda_query.hpp
// provides their arguments.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace looptorch::app {

/// Compute capability of a GPU, such as 8.6.
struct Capability {
  int major = 0, minor = 0;
  auto operator<=>(const Capability&) const = default;
};

/// Kernels in a library: machine code, which runs on later GPUs of the same major version, machine code for
/// one capability alone (sm_90a), or PTX, which runs on every later GPU.
struct CudaKernels {
  enum class Kind { machine, exact, ptx };
  Capability capability;
  Kind kind = Kind::machine;

  [[nodiscard]] bool run_on(Capability gpu) const {
    if (kind == Kind::exact) return gpu == capability;
    return gpu >= capability && (kind == Kind::ptx || gpu.major == capability.major);
  }
};

/// The CUDA that a LibTorch was built with. CUDA's versions are written as its own headers do: 12040 is 12.4.
struct CudaBuild {
  std::string libtorch;              ///< as "2.11.0"
  int cuda = 0;                      ///< version
  std::vector<CudaKernels> kernels;  ///< empty if unknown

  [[nodiscard]] bool has_kernels_for(Capability gpu) const {
    return kernels.empty() ||
           std::any_of(kernels.begin(), kernels.end(), [gpu](const auto& some) { return some.run_on(gpu); });
  }
  /// True if a driver for CUDA `driver` suffices: CUDA runs on drivers of its own major version.
  [[nodiscard]] bool runs_on_driver(int driver) const { return driver / 1000 >= cuda / 1000; }
};

/// A machine's driver and the GPUs that this process may use, in CUDA's order.
struct CudaMachine {
  struct Gpu {
    std::string name;
    Capability capability;
  };
  int driver = 0;  ///< the newest CUDA that it supports
  std::vector<Gpu> gpus;
};

namespace detail {

inline std::string text_of(Capability capability) {
  return std::to_string(capability.major) + "." + std::to_string(capability.minor);
}
inline std::string cuda_text(int version) { return text_of({version / 1000, version % 1000 / 10}); }

/// Returns the architectures that begin with `prefix` in a value such as "sm_75" or "[compute_90,sm_90a]".
inline std::vector<CudaKernels> kernels_of(std::string_view value, std::string_view prefix) {
  using Kind = CudaKernels::Kind;
  std::vector<CudaKernels> found;
  for (auto at = value.find(prefix); at != value.npos; at = value.find(prefix, at + 1)) {
    const char* const begin = value.data() + at + prefix.size();
    const char* const end = value.data() + value.size();
    int number = 0;
    const auto [rest, error] = std::from_chars(begin, end, number);
    if (error != std::errc()) continue;
    const bool has_letter = rest != end && *rest >= 'a' && *rest <= 'z';
    found.push_back({{number / 10, number % 10},
                     has_letter        ? Kind::exact
                     : prefix == "sm_" ? Kind::machine
                                       : Kind::ptx});
  }
  return found;
}

/// Returns the kernels that nvcc's flags ask for: "-gencode;arch=compute_75,code=sm_75;...".
inline std::vector<CudaKernels> parse_nvcc_flags(std::string_view flags) {
  constexpr std::string_view kCode = "code=";
  std::vector<CudaKernels> all;
  for (auto at = flags.find(kCode); at != flags.npos; at = flags.find(kCode, at + 1)) {
    std::string_view value = flags.substr(at + kCode.size());
    if (value.starts_with('[')) value = value.substr(0, value.find(']'));
    value = value.substr(0, value.find_first_of("; \n"));
    for (const std::string_view prefix : {"sm_", "compute_"})
      for (const CudaKernels& some : kernels_of(value, prefix)) all.push_back(some);
  }
  return all;
}

/// The LibTorch releases that packaging/setup.sh installs, the default first.
inline const std::vector<CudaBuild>& installable_builds() {
  static const std::vector<CudaBuild> builds{
      {"2.11.0", 13000, {{{7, 5}}, {{8, 0}}, {{8, 6}}, {{9, 0}}, {{10, 0}}, {{12, 0}}}},
      {"2.15.0", 13020, {{{7, 5}}, {{8, 0}}, {{8, 6}}, {{9, 0}}, {{10, 0}}, {{12, 0}}}},
      {"2.7.1", 12060, {{{5, 0}}, {{6, 0}}, {{7, 0}}, {{7, 5}}, {{8, 0}}, {{8, 6}}, {{9, 0}}}},
  };
  return builds;
}

/// Returns the first release that runs on a GPU with a driver, or null.
inline const CudaBuild* installable_for(Capability gpu, int driver) {
  for (const CudaBuild& build : installable_builds())
    if (build.runs_on_driver(driver) && build.has_kernels_for(gpu)) return &build;
  return nullptr;
}

/// Returns "install LibTorch ..., or " for a release that runs on a GPU with a driver, or an empty text. For
/// CUDA 12.6 it adds that newer builds work, too: PyTorch offers them up to 2.14, outside of PyPI.
inline std::string install_release(Capability gpu, int driver) {
  const CudaBuild* const build = installable_for(gpu, driver);
  if (!build) return {};
  constexpr int kCuda126 = 12060;
  return "install LibTorch " + build->libtorch + " (packaging/setup.sh --libtorch " + build->libtorch +
         (build->cuda == kCuda126 ? ") or a newer one built for CUDA 12.6, up to 2.14, or " : "), or ");
}

/// Returns the remedy for a GPU without kernels: a release that has them, if need be with a newer driver.
inline std::string find_kernels(Capability gpu, int driver) {
  constexpr int kNewest = std::numeric_limits<int>::max();
  if (const std::string found = install_release(gpu, driver); !found.empty()) return found;
  if (const std::string found = install_release(gpu, kNewest); !found.empty())
    return "update the driver and " + found;
  return "no LibTorch that looptorch knows has any; ";
}

/// Returns "cuda:0 (GTX 980)".
inline std::string gpu_text(const CudaMachine& machine, std::size_t index) {
  return message("cuda:", index, " (", machine.gpus[index].name, ")");
}
/// Returns "cuda:0 (GTX 980) has compute capability 5.2, ".
inline std::string capability_text(const CudaMachine& machine, std::size_t index) {
  return message(gpu_text(machine, index), " has compute capability ",
                 text_of(machine.gpus[index].capability), ", ");
}

}  // namespace detail

/// Returns why `build` cannot use GPU `index` of the machine, and which LibTorch can; empty if it can or if
/// there is no such GPU.
inline std::string why_unusable(const CudaBuild& build, const CudaMachine& machine, std::size_t index) {
  if (index >= machine.gpus.size()) return {};
  const Capability capability = machine.gpus[index].capability;
  constexpr const char* kEnding = "choose --device cpu; see docs/errors.md#cuda-device";
  if (!build.has_kernels_for(capability)) {
    std::string known;
    for (const CudaKernels& some : build.kernels)
      known += (known.empty() ? "" : ", ") + detail::text_of(some.capability);
    return message(detail::capability_text(machine, index), "for which LibTorch ", build.libtorch,
                   " has no kernels (it has ", known, "): ", detail::find_kernels(capability, machine.driver),
                   kEnding);
  }
  if (build.runs_on_driver(machine.driver)) return {};
  return message("the NVIDIA driver supports CUDA ", detail::cuda_text(machine.driver),
                 " at most, and LibTorch ", build.libtorch, " needs CUDA ", detail::cuda_text(build.cuda),
                 " for ", detail::gpu_text(machine, index), ": update the driver, or ",
                 detail::install_release(capability, machine.driver), kEnding);
}

/// True for GPUs that compute bf16 themselves: Ampere and later.
inline bool computes_bf16(Capability capability) { return capability >= Capability{8, 0}; }

/// Returns which GPU computes no bf16, "cuda:0 (GTX 1080) has compute capability 6.1, and bf16 needs 8.0";
/// empty for a GPU that does, or if there is no such GPU. Without such hardware LibTorch emulates bf16, more
/// slowly than fp32.
inline std::string why_no_bf16(const CudaMachine& machine, std::size_t index) {
  if (index >= machine.gpus.size() || computes_bf16(machine.gpus[index].capability)) return {};
  return message(detail::capability_text(machine, index), "and bf16 needs 8.0");
}

}  // namespace looptorch::app
