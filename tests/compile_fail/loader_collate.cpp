// SPDX-License-Identifier: MIT
// expect: looptorch: PinnedPrefetchLoader cannot make a batch of these samples.
#include <looptorch/data/pinned_prefetch_loader.hpp>

#include <span>
#include <string>

struct Texts {
  std::int64_t size() const { return 1; }
  std::string get(std::int64_t) const { return {}; }
#ifdef LOOPTORCH_TWIN
  int collate(std::span<std::string>) const { return 0; }
#endif
};

inline void use() {
  looptorch::PinnedPrefetchLoader loader(Texts{}, {.batch_size = 2});
  for (auto& batch : loader) (void)batch;
}
