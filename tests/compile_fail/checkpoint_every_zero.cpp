// SPDX-License-Identifier: MIT
// expect: looptorch: checkpoint_every<K> recomputes one layer of every K: K must be at least 1
#include <looptorch/memory/checkpoint.hpp>

#include <vector>

inline at::Tensor use(at::Tensor (*layers[2])(at::Tensor), const at::Tensor& x) {
#ifdef LOOPTORCH_TWIN
  return looptorch::checkpoint_every<1>(std::vector(layers, layers + 2), x);
#else
  return looptorch::checkpoint_every<0>(std::vector(layers, layers + 2), x);
#endif
}
