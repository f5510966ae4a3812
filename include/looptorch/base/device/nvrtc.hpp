// SPDX-License-Identifier: MIT
// Compiles CUDA C++ at run time by NVRTC, without a GPU or a driver. Looks for NVRTC in LibTorch, then beside
// the CUDA runtime that LibTorch has loaded (as in wheels), then in the system.
#pragma once

#include <looptorch/base/device/cuda_driver.hpp>
#include <looptorch/base/device/opened_library.hpp>
#include <looptorch/base/error.hpp>

#include <dlfcn.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// `cudaStream_t c10::cuda::CUDAStream::stream() const`, looked up at run time in LibTorch's CUDA, so that
/// nothing of it is linked.
inline constexpr const char* kStreamOfLibTorch = "_ZNK3c104cuda10CUDAStream6streamEv";

/// Machine code or PTX, and what the compiler said.
struct CompiledKernels {
  std::string image, log;
};

/// The functions of nvrtc.h that are used here; 0 is success.
class Nvrtc {
 public:
  /// Opens the first of `names`. Throws KernelError if there is none.
  explicit Nvrtc(const std::vector<std::string>& names = usual_names()) : library_(names) {
    if (!library_) throw KernelError("NVRTC was not found (" + library_.reasons() + ")");
    require("nvrtcVersion", &major_, &minor_);
    int count = 0;
    require("nvrtcGetNumSupportedArchs", &count);
    architectures_.resize(static_cast<std::size_t>(count));
    require("nvrtcGetSupportedArchs", architectures_.data());
  }

  /// Returns NVRTC's version, such as 12060 for 12.6.
  [[nodiscard]] int version() const { return major_ * 1000 + minor_ * 10; }
  /// Returns the name that was opened.
  [[nodiscard]] const std::string& path() const { return library_.name(); }

  /// Returns the option `--gpu-architecture=...` for a compute capability such as 86: machine code for it, or
  /// PTX for the newest lower one that NVRTC knows. Throws KernelError if NVRTC knows only higher ones.
  [[nodiscard]] std::string target(int capability) const {
    int best = 0;
    for (const int known : architectures_)
      if (known <= capability && known > best) best = known;
    if (best == 0)
      throw KernelError(message("NVRTC ", major_, ".", minor_, " (", path(), ") compiles for sm_",
                                architectures_.empty() ? 0 : architectures_.front(),
                                " and newer, and the GPU is sm_", capability));
    return message("--gpu-architecture=", best == capability ? "sm_" : "compute_", best);
  }

  /// Compiles a source. Throws KernelError with the compiler's log.
  [[nodiscard]] CompiledKernels compile(const std::string& source, const std::string& name,
                                        const std::vector<std::string>& options) const {
    Program program(*this, source, name);
    std::vector<const char*> arguments;
    for (const std::string& option : options) arguments.push_back(option.c_str());
    const auto result = library_.call("nvrtcCompileProgram", program.handle,
                                      static_cast<int>(arguments.size()), arguments.data());
    CompiledKernels compiled;
    compiled.log = text_of(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
    if (result != 0)
      throw KernelError(message("NVRTC ", major_, ".", minor_, " cannot compile ", name, ": ",
                                error_text(result.value_or(-1)), "\n", compiled.log));
    compiled.image = text_of(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN");
    if (compiled.image.empty()) compiled.image = text_of(program, "nvrtcGetPTXSize", "nvrtcGetPTX");
    return compiled;
  }

  /// Returns the names by which NVRTC is looked for, in order.
  [[nodiscard]] static std::vector<std::string> usual_names() {
    std::vector<std::string> names, plain = {"libnvrtc.so.13", "libnvrtc.so.12"};
    if (runtime_version() / 1000 == 12) std::swap(plain[0], plain[1]);
    const std::string libtorch = folder_of(loaded_function(kStreamOfLibTorch, "libc10_cuda.so"));
    if (!libtorch.empty()) names.push_back(libtorch + "libcaffe2_nvrtc.so");
    const std::string runtime = folder_of(::dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"));
    for (const std::string& folder : {runtime, runtime + "../../cuda_nvrtc/lib/"})
      for (const std::string& name : plain)
        if (!runtime.empty()) names.push_back(folder + name);
    names.insert(names.end(), plain.begin(), plain.end());
    for (const std::string& name : plain) names.push_back("/usr/local/cuda/lib64/" + name);
    return names;
  }

 private:
  struct Program {
    Program(const Nvrtc& nvrtc, const std::string& source, const std::string& name) : nvrtc_(nvrtc) {
      const char* const* const none = nullptr;
      nvrtc.require("nvrtcCreateProgram", &handle, source.c_str(), name.c_str(), 0, none, none);
    }
    ~Program() { (void)nvrtc_.library_.call("nvrtcDestroyProgram", &handle); }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    void* handle = nullptr;

   private:
    const Nvrtc& nvrtc_;
  };

  template <class... Arguments>
  void require(const char* name, Arguments... arguments) const {
    const auto result = library_.call(name, arguments...);
    if (!result) throw KernelError(message(path(), " has no function ", name));
    if (*result != 0) throw KernelError(message(name, " failed: ", error_text(*result)));
  }

  [[nodiscard]] std::string error_text(int result) const {
    auto* const text = library_.find<const char*(int)>("nvrtcGetErrorString");
    return text ? text(result) : message("error ", result);
  }

  [[nodiscard]] std::string text_of(const Program& program, const char* size_name, const char* name) const {
    std::size_t size = 0;
    if (library_.call(size_name, program.handle, &size) != 0 || size == 0) return {};
    std::string text(size, '\0');
    require(name, program.handle, text.data());
    if (text.back() == '\0' && std::string_view(name) == "nvrtcGetProgramLog") text.pop_back();
    return text;
  }

  /// Returns the folder, with a slash, of the library that has a function; empty for none.
  static std::string folder_of(void* function) {
    Dl_info info{};
    if (!function || !::dladdr(function, &info) || !info.dli_fname) return {};
    const std::string file = info.dli_fname;
    return file.substr(0, file.find_last_of('/') + 1);
  }

  static int runtime_version() {
    int version = 0;
    auto* const ask = reinterpret_cast<int (*)(int*)>(::dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"));
    return ask && ask(&version) == 0 ? version : 0;
  }

  OpenedLibrary library_;
  int major_ = 0, minor_ = 0;
  std::vector<int> architectures_;
};

}  // namespace looptorch::detail
