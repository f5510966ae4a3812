// SPDX-License-Identifier: MIT
// expect: looptorch: a checkpointed function is called again in backward, so that it must be copyable with
// all that it captures.
#include <looptorch/memory/checkpoint.hpp>

#include <memory>
#include <utility>

inline at::Tensor use(const at::Tensor& x, std::unique_ptr<double> scale) {
#ifdef LOOPTORCH_TWIN
  return looptorch::checkpoint([scale = *scale](const at::Tensor& x) { return x * scale; }, x);
#else
  return looptorch::checkpoint([scale = std::move(scale)](const at::Tensor& x) { return x * *scale; }, x);
#endif
}
