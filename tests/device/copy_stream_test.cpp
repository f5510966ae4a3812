// SPDX-License-Identifier: MIT
// Batches that move to a device: copies beside the computation, from pinned memory, which the computation
// waits for.
// Tests data/batch: copy_stream
#include "support/precompiled.hpp"

#include <looptorch/data/batch/batch.hpp>

#include "device/support/work.hpp"
#include "support/device.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lt = looptorch;
using namespace looptorch::testing;

TEST_CASE("the computation waits for its batch, whose memory is not reused before it has been read") {
  if (!has_device()) return;
  const Work work;
  const std::int64_t size = is_simulated() ? 1 << 10 : 1 << 20;
  for (const bool pin : {true, false}) {
    std::vector<at::Tensor> sums;
    for (int i = 0; i < 8; ++i) {
      std::vector<at::Tensor> batch{torch::full({size}, 2 * i), torch::full({size}, 2 * i + 1)};
      if (pin)
        for (at::Tensor& tensor : batch) tensor = tensor.pin_memory();
      work(4);  // the device is behind the host, which drops all tensors before they are read
      lt::move_to(batch, test_device());
      work(4);
      for (const at::Tensor& tensor : batch) sums.push_back(tensor.sum());
    }
    CHECK(torch::equal(at::stack(sums).cpu(), torch::arange(16) * size));
  }
  if (is_simulated()) CHECK(looptorch_test::accelerator::take_violations() == std::vector<std::string>{});
}

TEST_CASE("a batch goes through pinned memory, and is copied beside the computation") {
  if (!has_device() || !is_simulated()) return;
  const Work work;
  for (const bool pin : {true, false}) {
    std::vector<at::Tensor> batch{torch::ones({8}), torch::arange(4)};
    if (pin)
      for (at::Tensor& tensor : batch) tensor = tensor.pin_memory();
    work(1);
    const looptorch_test::accelerator::CountWaits counted;
    lt::move_to(batch, test_device());
    CHECK(counted.counts().uploads == 2);
    CHECK(counted.counts().pageable_uploads == 0);
    CHECK(counted.counts().copies_beside == 2);
    CHECK(counted.counts().host_waits == 0);
  }
}
