// SPDX-License-Identifier: MIT
// NVRTC compiles every kernel for GPUs that LibTorch's wheels serve, which needs no GPU, and says how many
// registers each takes: by default for one without and one with the warp reductions that sm_80 brought, for
// all of them where LOOPTORCH_ALL_GPUS is set (`ctest -C long`).
// Tests base/device: nvrtc, kernel_source
// Tests layers: ctc_code
// Tests optim/kernels: adamw_8bit_kernels, adamw_bf16_kernels, adafactor_kernels, rounded_sum_kernels
#include "support/precompiled.hpp"

#include <looptorch/base/device/cuda_kernels.hpp>
#include <looptorch/layers/ctc_code.hpp>
#include <looptorch/optim/kernels/adafactor_kernels.hpp>
#include <looptorch/optim/kernels/adamw_8bit_kernels.hpp>
#include <looptorch/optim/kernels/adamw_bf16_kernels.hpp>
#include <looptorch/optim/kernels/rounded_sum_kernels.hpp>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <regex>

namespace lt = looptorch;

namespace {

using lt::detail::KernelSource;
using lt::detail::Nvrtc;

std::optional<Nvrtc> opened(const std::vector<std::string>& names) {
  try {
    return Nvrtc(names);
  } catch (const lt::detail::KernelError& error) {
    std::cerr << "skipped: " << error.what() << "\n";
    return std::nullopt;
  }
}

struct Usage {
  std::string kernel;
  int registers = 0, spilled = 0, stack = 0;
};

/// Reads the assembler's report: a kernel's properties are after its name, others' between them.
std::vector<Usage> usages_in(const std::string& log) {
  static const std::regex entry(R"(Compiling entry function '(\w+)')"),
      properties(R"(Function properties for (\w+))"),
      stack(R"((\d+) bytes stack frame, (\d+) bytes spill stores)"), registers(R"(Used (\d+) registers)");
  std::vector<Usage> all;
  std::istringstream lines(log);
  std::smatch found;
  std::string function;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, found, entry)) all.push_back({found[1]});
    if (std::regex_search(line, found, properties)) function = found[1];
    if (all.empty()) continue;
    if (std::regex_search(line, found, stack) && function == all.back().kernel)
      all.back().stack = std::stoi(found[1]), all.back().spilled = std::stoi(found[2]);
    if (std::regex_search(line, found, registers)) all.back().registers = std::stoi(found[1]);
  }
  return all;
}

/// Compiles a source as CudaKernels does, and prints what it takes.
void check_compiled(const Nvrtc& nvrtc, const KernelSource& source, int capability) {
  std::vector<std::string> options =
      source.options(lt::detail::table_bytes_of(capability, nvrtc.version(), nvrtc.version()));
  options.push_back(nvrtc.target(capability));
  options.push_back("--ptxas-options=-v");
  const auto compiled = nvrtc.compile(source.text(), source.name, options);
  CAPTURE(source.name, capability, compiled.log);
  CHECK(compiled.image.substr(0, 4) == "\177ELF");
  const std::vector<Usage> usages = usages_in(compiled.log);
  CHECK_FALSE(usages.empty());
  for (const Usage& usage : usages) {
    std::cout << "NVRTC " << nvrtc.version() << " sm_" << capability << " " << usage.kernel << ": "
              << usage.registers << " registers, " << usage.spilled << " bytes spilled, " << usage.stack
              << " bytes of stack\n";
    CHECK(usage.registers > 0);
    CHECK(usage.registers <= 85);  // three thread blocks a multiprocessor
    CHECK(usage.spilled <= 128);  // a thread, once in its life: two in a thousand of what it reads and writes
  }
}

void check_all(const std::vector<std::string>& names, const std::vector<int>& capabilities) {
  const auto nvrtc = opened(names);
  if (!nvrtc) return;
  for (const int capability : capabilities)
    for (const KernelSource* source :
         {&lt::detail::kAdamW8bitSource, &lt::detail::kAdamWBf16Source, &lt::detail::kAdafactorSource,
          &lt::detail::kRoundedSumSource, &lt::detail::kCtcSource})
      check_compiled(*nvrtc, *source, capability);
}

}  // namespace

TEST_CASE("kernels compile for all GPUs from Turing on") {
  const bool all = std::getenv("LOOPTORCH_ALL_GPUS") != nullptr;
  check_all(Nvrtc::usual_names(), all ? std::vector{75, 80, 86, 90, 100, 120} : std::vector{75, 90});
}

TEST_CASE("kernels compile for older GPUs by NVRTC 12") {
  const char* const library = std::getenv("LOOPTORCH_NVRTC_12");
  if (!library) {
    std::cerr << "skipped: LOOPTORCH_NVRTC_12 names no libnvrtc.so.12\n";
    return;
  }
  check_all({library}, {52, 61, 70});
}
