// SPDX-License-Identifier: MIT
// expect: looptorch: OnDevice's transform cannot be called with this batch.
#include <looptorch/data/loader/on_device.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include <vector>

struct Clips {
  std::int64_t size() const { return 1; }
  at::Tensor get(std::int64_t) const { return {}; }
};

#ifdef LOOPTORCH_TWIN
inline at::Tensor features(const at::Tensor& batch) { return batch; }
#else
inline at::Tensor features(const std::vector<at::Tensor>& batch) { return batch[0]; }
#endif

inline void use() {
  looptorch::OnDevice mels(looptorch::PinnedPrefetchLoader(Clips{}, {.batch_size = 2}), at::kCPU, features);
  for (auto& batch : mels) (void)batch;
}
