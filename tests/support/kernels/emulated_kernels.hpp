// SPDX-License-Identifier: MIT
// Runs looptorch's CUDA kernels on the CPU's tensors, so that tests need no GPU: the host's compiler compiles
// the very text that NVRTC gets, after threads.inc.
#pragma once

#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>

#include "support/kernels/guarded_memory.hpp"
#include "support/temporary_folder.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <list>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::testing {

/// Thrown for a kernel that touches what is not its own, or waits for threads that never come.
struct EmulatedFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A seeded bug: a text that must stand once in the source, and another in its place.
struct SeededBug {
  std::string before, after;
};

class EmulatedKernels final : public detail::KernelRunner {
 public:
  /// `table_bytes` is the limit of a kernel's arguments; the order of threads follows from `seed`.
  explicit EmulatedKernels(std::size_t table_bytes = kLargeTable, std::uint64_t seed = 1, SeededBug bug = {})
      : table_bytes_(table_bytes), seed_(seed), bug_(std::move(bug)) {}

  std::size_t prepare(const detail::KernelSource& source, c10::Device) override {
    (void)library_of(source);
    return table_bytes_;
  }

  void launch(const detail::KernelSource& source, const char* kernel, c10::Device, unsigned blocks,
              const void* table) override {
    using Kernel = void(const void*);
    using Launch = const char*(Kernel*, unsigned, unsigned, const void*, std::uint64_t);
    void* const library = library_of(source);
    auto* const function = reinterpret_cast<Kernel*>(::dlsym(library, kernel));
    auto* const run = reinterpret_cast<Launch*>(::dlsym(library, "lt_launch"));
    if (!function || !run) throw std::runtime_error(std::string("no kernel ") + kernel);
    const GuardedCopy arguments(table, table_bytes_);
    ++launches_;
    if (const char* const fault = run(function, blocks, detail::kKernelThreads, arguments.data(), seed_++))
      throw EmulatedFault(std::string(kernel) + ": " + fault);
  }

  [[nodiscard]] int launches() const { return launches_; }

 private:
  /// Returns the compiled source. A text is compiled once a process.
  void* library_of(const detail::KernelSource& source) {
    static auto& compiled = *new std::map<std::string, void*>;
    std::string text = source.text();
    if (!bug_.before.empty()) seed_bug(text);
    std::string options = bug_.before.empty() ? "-O1" : "-O0";  // what runs once or twice compiles fast
    options +=
        " -std=c++17 -w -fPIC -shared -ffp-contract=off -fno-strict-aliasing "
        "-fsanitize=alignment,bounds -fsanitize-undefined-trap-on-error -U_FORTIFY_SOURCE";
    for (const std::string& option : source.options(table_bytes_))
      if (option.starts_with("-D")) options += " " + option;
    void*& library = compiled[options + text];
    if (!library) library = compile(text, options);
    return library;
  }

  void seed_bug(std::string& text) const {
    const auto at = text.find(bug_.before);
    if (at == text.npos) return;  // of another source
    if (text.find(bug_.before, at + 1) != text.npos) throw std::runtime_error("stands twice: " + bug_.before);
    text.replace(at, bug_.before.size(), bug_.after);
  }

  static void* compile(const std::string& text, const std::string& options) {
    // Libraries stay on disk to the end: dlopen takes a file for one that it has opened if their inodes
    // agree.
    static std::list<TemporaryFolder> folders;
    const TemporaryFolder& folder = folders.emplace_back();
    const std::string source = folder / "kernels.cpp", library = folder / "kernels.so", log = folder / "log";
    std::ofstream(source) << "#include \"" LOOPTORCH_SOURCE_DIR "/tests/support/kernels/threads.inc\"\n"
                          << text;
    const char* const chosen = std::getenv("CXX");
    const std::string command =
        std::string(chosen ? chosen : "c++") + " " + options + " " + source + " -o " + library + " 2> " + log;
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command + " failed:\n" + read_file(log));
    void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::runtime_error(::dlerror());
    return handle;
  }

  std::size_t table_bytes_;
  std::uint64_t seed_;
  SeededBug bug_;
  int launches_ = 0;
};

/// Lets a runner update the CPU's tensors while it lives.
class KernelsOnCpu {
 public:
  explicit KernelsOnCpu(detail::KernelRunner& runner) { detail::own_kernel_runner(c10::kCPU) = &runner; }
  ~KernelsOnCpu() { detail::own_kernel_runner(c10::kCPU) = nullptr; }
  KernelsOnCpu(const KernelsOnCpu&) = delete;
  KernelsOnCpu& operator=(const KernelsOnCpu&) = delete;
};

}  // namespace looptorch::testing
