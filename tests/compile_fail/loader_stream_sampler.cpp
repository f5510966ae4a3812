// SPDX-License-Identifier: MIT
// expect: a stream takes a ShuffleBuffer, and a dataset does not
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include <optional>

struct Clips {
  std::optional<at::Tensor> next() { return {}; }
};

inline void use() {
#ifdef LOOPTORCH_TWIN
  looptorch::PinnedPrefetchLoader loader(Clips{}, {}, looptorch::ShuffleBuffer{.size = 10});
#else
  looptorch::PinnedPrefetchLoader loader(Clips{}, {}, looptorch::RandomSampler{.seed = 10});
#endif
  for (auto& batch : loader) (void)batch;
}
