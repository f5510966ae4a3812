// SPDX-License-Identifier: MIT
// expect: for a stream that is not const
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include <optional>

struct Clips {
  std::optional<at::Tensor> next() { return {}; }
};

#ifdef LOOPTORCH_TWIN
inline void use(Clips& clips) {
#else
inline void use(const Clips& clips) {
#endif
  looptorch::PinnedPrefetchLoader loader(clips, {.batch_size = 2});
  for (auto& batch : loader) (void)batch;
}
