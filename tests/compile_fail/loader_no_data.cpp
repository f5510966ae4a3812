// SPDX-License-Identifier: MIT
// expect: looptorch: PinnedPrefetchLoader needs a dataset.
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include <optional>

struct Clips {
#ifdef LOOPTORCH_TWIN
  std::optional<at::Tensor> next() { return {}; }
#else
  std::optional<at::Tensor> next(int) { return {}; }
#endif
};

inline void use() {
  looptorch::PinnedPrefetchLoader loader(Clips{}, {.batch_size = 2});
  for (auto& batch : loader) (void)batch;
}
