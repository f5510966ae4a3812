// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>

#if __has_include(<dnnl.hpp>)
#include <dnnl.hpp>
#endif

using looptorch::detail::is_out_of_memory;

namespace {

bool runs_out(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    return is_out_of_memory(std::current_exception());
  }
  FAIL("nothing was thrown");
  return false;
}

/// The system's errors, as they read in a program that has set a German locale.
struct German : std::error_category {
  const char* name() const noexcept override { return "german"; }
  std::string message(int) const override { return "Nicht genügend Hauptspeicher verfügbar"; }
  std::error_condition default_error_condition(int code) const noexcept override {
    return std::generic_category().default_error_condition(code);
  }
};

}  // namespace

TEST_CASE("out of memory: the errors of all allocators, also within others' text, and no other error") {
  CHECK(runs_out([] { (void)at::empty({std::int64_t{1} << 58}); }));  // LibTorch's own for the CPU
  CHECK(runs_out([] { (void)std::string(std::string().max_size() / 2, 'x'); }));
  CHECK(runs_out([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "no room"); }));
  CHECK(runs_out([] { TORCH_CHECK(false, "CUDA error: out of memory"); }));
  CHECK(runs_out(
      [] { TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"); }));
  CHECK(runs_out([] { TORCH_CHECK(false, "cuFFT error: CUFFT_ALLOC_FAILED"); }));
  CHECK(runs_out([] { TORCH_CHECK(false, "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling"); }));
  CHECK_FALSE(runs_out([] { TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED"); }));
  CHECK(runs_out([] { throw std::system_error(ENOMEM, std::generic_category(), "mmap"); }));
  static const German german;
  CHECK(runs_out([] { throw std::system_error(ENOMEM, german, "mmap"); }));
  CHECK_FALSE(runs_out([] { throw std::system_error(ENOENT, german, "open"); }));
  CHECK(runs_out(
      [] { throw looptorch::Error("sample 3: DefaultCPUAllocator: not enough memory: you tried"); }));
  CHECK_FALSE(runs_out([] { TORCH_CHECK(false, "CUDA error: an illegal memory access was encountered"); }));
  CHECK_FALSE(runs_out([] { throw std::runtime_error("memory"); }));
  CHECK_FALSE(runs_out([] { throw 3; }));
}

#if __has_include(<dnnl.hpp>)

TEST_CASE("out of memory: oneDNN's errors by their status, since others have the same text") {
  const char* const text = "could not create a primitive";
  CHECK(runs_out([text] { throw dnnl::error(dnnl_out_of_memory, text); }));
  CHECK(runs_out([] { throw dnnl::error(dnnl_out_of_memory, "could not create a memory object"); }));
  CHECK_FALSE(runs_out([text] { throw dnnl::error(dnnl_unimplemented, text); }));
  CHECK_FALSE(runs_out([text] { throw dnnl::error(dnnl_invalid_arguments, text); }));
  CHECK_FALSE(runs_out([text] { throw std::runtime_error(text); }));
  CHECK_FALSE(runs_out([text] { throw looptorch::Error(text); }));
}

#endif
