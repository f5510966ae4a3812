// SPDX-License-Identifier: MIT
// Tells whether an exception means that memory ran out, whichever allocator or library threw it: an
// accelerator's, the CPU's, cuBLAS, cuDNN or oneDNN. RetryOnOom reruns a window on such errors, and
// `run_main` adds advice to them.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/what_of.hpp>

#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>
#include <typeinfo>
#include <utility>

namespace looptorch {
namespace detail {

/// True if an error's text reports that memory ran out: the text of an accelerator's allocator, NVIDIA's
/// libraries (CUBLAS_STATUS_ALLOC_FAILED, CUFFT_ALLOC_FAILED), `new`, the system, or LibTorch's CPU
/// allocator, which has no error type of its own.
[[nodiscard]] inline bool says_out_of_memory(std::string_view what) {
  constexpr std::array<std::string_view, 7> kTexts{"out of memory",
                                                   "_ALLOC_FAILED",
                                                   "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                                                   "DefaultCPUAllocator: can't allocate memory",
                                                   "DefaultCPUAllocator: not enough memory",
                                                   "std::bad_alloc",
                                                   "Cannot allocate memory"};
  for (const std::string_view text : kTexts)
    if (what.find(text) != what.npos) return true;
  return false;
}

/// True for oneDNN's error with the status dnnl_out_of_memory. The text, "could not create a primitive", is
/// the same for an unsupported operation, so the status decides. Reads the fields of dnnl::error without
/// <dnnl.hpp>, which is slow to parse.
[[nodiscard]] inline bool is_dnnl_out_of_memory(const std::exception& error) {
  struct Fields {  // those of dnnl::error
    const void* table;
    int status;
    const char* message;  // what() returns it
  };
  constexpr int kOutOfMemory = 1;  // dnnl_out_of_memory, in oneDNN's C interface
  if (std::string_view(typeid(error).name()) != "N4dnnl5errorE") return false;
  Fields fields{};
  std::memcpy(&fields, dynamic_cast<const void*>(&error), sizeof fields);
  return fields.message == error.what() && fields.status == kOutOfMemory;
}

/// True if an exception, or an error that its text quotes, as a LoaderError's does, reports out of memory.
[[nodiscard]] inline bool is_out_of_memory(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const std::system_error& error) {  // whose text is in the program's language
    return error.code() == std::errc::not_enough_memory || says_out_of_memory(what_of(thrown));
  } catch (const std::exception& error) {
    return is_dnnl_out_of_memory(error) || says_out_of_memory(what_of(thrown));
  } catch (...) {
    return says_out_of_memory(what_of(thrown));
  }
}

}  // namespace detail

/// True if the exception that is being handled says that memory ran out in this thread's own work, whichever
/// allocator or library threw it. False for an Error of looptorch, such as one that quotes another rank.
[[nodiscard]] inline bool ran_out_of_memory() {
  try {
    throw;
  } catch (const Error&) {
    return false;
  } catch (...) {
    return detail::is_out_of_memory(std::current_exception());
  }
}

namespace detail {

/// Returns the text of the exception that is being handled if `ran_out_of_memory`; else rethrows it.
[[nodiscard]] inline std::string out_of_memory_text_or_rethrow() {
  if (!ran_out_of_memory()) throw;
  return what_of(std::current_exception());
}

/// Calls `body`. Adds `describe()` as context to an error of LibTorch, unless memory ran out: a retry reads
/// that error's text.
template <class Body, class Describe>
void with_context(Body&& body, const Describe& describe) {
  try {
    std::forward<Body>(body)();
  } catch (c10::Error& error) {
    if (!is_out_of_memory(std::current_exception())) error.add_context(describe());
    throw;
  }
}

}  // namespace detail
}  // namespace looptorch
