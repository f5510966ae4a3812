// SPDX-License-Identifier: MIT
// expect: looptorch: keep(f, inputs...) holds on to what f returns: a tensor, or a type that tensors can be
// found in.
#include <looptorch/memory/keep.hpp>

#include <memory>

inline void use(const at::Tensor& x) {
#ifdef LOOPTORCH_TWIN
  (void)looptorch::keep([](const at::Tensor& x) { return x; }, x);
#else
  (void)looptorch::keep([](const at::Tensor& x) { return std::make_shared<at::Tensor>(x); }, x);
#endif
}
