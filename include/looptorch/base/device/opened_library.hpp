// SPDX-License-Identifier: MIT
// Opens a shared library at run time, such as NVIDIA's driver, and finds its functions by name. Nothing of
// the library is needed to compile or to link.
#pragma once

#include <dlfcn.h>

#include <optional>
#include <string>
#include <vector>

namespace looptorch::detail {

/// Returns a function that this process has already loaded: from the libraries whose symbols are global, or
/// from `library`. Null if there is none.
[[nodiscard]] inline void* loaded_function(const char* name, const char* library) {
  if (void* const found = ::dlsym(RTLD_DEFAULT, name)) return found;
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  return handle ? ::dlsym(handle, name) : nullptr;
}

/// The first of several libraries that can be opened. It stays open, since others may use it too.
class OpenedLibrary {
 public:
  explicit OpenedLibrary(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if ((handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))) {
        name_ = name;
        return;
      }
      const char* const reason = ::dlerror();
      reasons_ += (reasons_.empty() ? "" : "; ") + (reason ? std::string(reason) : name);
    }
  }

  [[nodiscard]] explicit operator bool() const { return handle_ != nullptr; }
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Returns why no library was opened: the system's reason for each name, separated by semicolons.
  [[nodiscard]] const std::string& reasons() const { return reasons_; }

  /// Returns a function of the library or of those that it needs; null if there is none.
  template <class Function>
  [[nodiscard]] Function* find(const char* name) const {
    return handle_ ? reinterpret_cast<Function*>(::dlsym(handle_, name)) : nullptr;
  }

  /// Calls a function and returns its result, or nothing if the library lacks it. The arguments must have
  /// exactly the types of the function's parameters.
  template <class... Arguments>
  [[nodiscard]] std::optional<int> call(const char* name, Arguments... arguments) const {
    auto* const function = find<int(Arguments...)>(name);
    return function ? std::optional(function(arguments...)) : std::nullopt;
  }

 private:
  void* handle_ = nullptr;
  std::string name_, reasons_;
};

}  // namespace looptorch::detail
