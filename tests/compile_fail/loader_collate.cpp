// SPDX-License-Identifier: MIT
// expect: looptorch: PinnedPrefetchLoader cannot make a batch of these samples.
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include <memory>
#include <string>

struct Text {
#ifdef LOOPTORCH_TWIN
  std::string text;
#else
  std::unique_ptr<std::string> text;
#endif
};

struct Texts {
  std::int64_t size() const { return 1; }
  Text get(std::int64_t) const { return {}; }
};

inline void use() {
  looptorch::PinnedPrefetchLoader loader(Texts{}, {.batch_size = 2});
  for (auto& batch : loader) (void)batch;
}
