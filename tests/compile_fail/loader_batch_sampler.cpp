// SPDX-License-Identifier: MIT
// expect: `batches` with the same arguments returning looptorch::BatchPlan and `batch_count(std::int64_t
// size) const`
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include <cstdint>
#include <vector>

struct Clips {
  std::int64_t size() const { return 4; }
  at::Tensor get(std::int64_t) const { return {}; }
};

struct Pairs {
#ifdef LOOPTORCH_TWIN
  looptorch::BatchPlan batches(std::int64_t, std::int64_t) const { return {{0, 1, 2, 3}, {2, 4}}; }
#else
  std::vector<std::vector<std::int64_t>> batches(std::int64_t, std::int64_t) const {
    return {{0, 1}, {2, 3}};
  }
#endif
  std::int64_t batch_count(std::int64_t) const { return 2; }
};

inline void use() {
  looptorch::PinnedPrefetchLoader loader(Clips{}, {}, Pairs{});
  for (auto& batch : loader) (void)batch;
}
