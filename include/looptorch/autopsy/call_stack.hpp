// SPDX-License-Identifier: MIT
// Takes the program's call stack, to find the module whose forward called an operator: LibTorch has no
// forward hooks in C++. Only functions with exported names are found: those of LibTorch's modules, and the
// program's own if it is linked with -rdynamic (CMake's ENABLE_EXPORTS). Taking a stack costs some 10 us.
#pragma once

#include <c10/util/Type.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define LOOPTORCH_HAS_CALL_STACK 1
#endif

namespace looptorch::detail {

/// The functions that were running when the stack was taken.
class CallStack {
 public:
  /// True where stacks can be taken; elsewhere all stacks are empty.
#ifdef LOOPTORCH_HAS_CALL_STACK
  static constexpr bool kIsKnown = true;
#else
  static constexpr bool kIsKnown = false;
#endif

  /// Takes the stack of this thread.
  static CallStack now() {
    CallStack stack;
#ifdef LOOPTORCH_HAS_CALL_STACK
    std::array<void*, kDepth> frames;
    const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
    stack.frames_.assign(frames.begin(), frames.begin() + count);
#endif
    return stack;
  }

  /// Returns the types whose `forward` was called, as "torch::nn::SoftmaxImpl", the innermost first. Omits
  /// types whose functions have no names here.
  [[nodiscard]] std::vector<std::string> forward_types() const {
    std::vector<std::string> types;
#ifdef LOOPTORCH_HAS_CALL_STACK
    struct Free {
      void operator()(char** symbols) const { std::free(symbols); }
    };
    const std::unique_ptr<char*, Free> symbols(
        ::backtrace_symbols(frames_.data(), static_cast<int>(frames_.size())));
    for (std::size_t i = 0; symbols && i < frames_.size(); ++i)
      if (std::string type = type_of(symbols.get()[i]); !type.empty()) types.push_back(std::move(type));
#endif
    return types;
  }

 private:
  static constexpr std::size_t kDepth = 128;

  /// Returns "T" of "library.so(mangled name of T::forward+0x12) [0x7f...]"; empty for other functions.
  static std::string type_of(std::string_view symbol) {
    const std::size_t begin = symbol.find('('), end = symbol.find('+', begin);
    if (begin == symbol.npos || end == symbol.npos) return {};
    const std::string function =
        c10::demangle(std::string(symbol.substr(begin + 1, end - begin - 1)).c_str());
    const std::size_t forward = function.find("::forward(");
    return forward == function.npos ? std::string() : function.substr(0, forward);
  }

  std::vector<void*> frames_;
};

}  // namespace looptorch::detail
