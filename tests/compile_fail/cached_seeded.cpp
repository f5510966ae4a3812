// SPDX-License-Identifier: MIT
// expect: looptorch: CachedDataset would freeze what this dataset draws.
#include <looptorch/data/cache/cached_dataset.hpp>

#include <string>

struct Clips {
  std::int64_t size() const { return 1; }
  std::string identity(std::int64_t) const { return {}; }
#ifdef LOOPTORCH_TWIN
  at::Tensor get(std::int64_t) const { return {}; }
#else
  at::Tensor get(std::int64_t, const looptorch::SampleContext&) const { return {}; }
#endif
};

inline void use() {
  looptorch::CachedDataset cached(Clips{}, {.folder = "cache", .settings = "clips"});
  (void)cached.get(0);
}
