// SPDX-License-Identifier: MIT
// expect: looptorch: CachedDataset must know what a sample is made from.
#include <looptorch/data/cache/cached_dataset.hpp>

#include <string>

struct Clips {
  std::int64_t size() const { return 1; }
  at::Tensor get(std::int64_t) const { return {}; }
#ifdef LOOPTORCH_TWIN
  std::string identity(std::int64_t) const { return {}; }
#endif
};

inline void use() {
  looptorch::CachedDataset cached(Clips{}, {.folder = "cache", .settings = "clips"});
  (void)cached.get(0);
}
