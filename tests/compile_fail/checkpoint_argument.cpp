// SPDX-License-Identifier: MIT
// expect: looptorch: a checkpointed block is called again in backward, so that its arguments must be
// copyable.
#include <looptorch/memory/checkpoint.hpp>

#include <memory>
#include <utility>

inline at::Tensor use(const at::Tensor& x) {
#ifdef LOOPTORCH_TWIN
  return looptorch::checkpoint([](const at::Tensor& x, std::shared_ptr<int>) { return x; }, x,
                               std::make_shared<int>(1));
#else
  return looptorch::checkpoint([](const at::Tensor& x, std::unique_ptr<int>) { return x; }, x,
                               std::make_unique<int>(1));
#endif
}
