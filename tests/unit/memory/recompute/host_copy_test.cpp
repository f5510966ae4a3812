// SPDX-License-Identifier: MIT
// Tensors that wait in host memory: they come back with sizes, strides and bits, and on their device there
// are few at a time. The device is the CPU here, whose copies need no streams.
#include <looptorch/memory/recompute/host_copy.hpp>

#include "unit/memory/recompute/support/compare.hpp"
#include "unit/memory/recompute/support/live_bytes.hpp"

#include <future>
#include <limits>

namespace lt = looptorch;
using checkpointed::LiveBytes;
using checkpointed::same_bits;
using lt::detail::HostCopy;
using lt::detail::HostElements;

namespace {

/// Copied to the host and back.
at::Tensor moved(const at::Tensor& tensor) {
  const HostElements elements(tensor);
  const at::Tensor memory = elements.allocate();
  elements.copy_to(memory);
  return elements.view_in(memory);
}

std::int64_t bytes_of_copy(const at::Tensor& tensor) {
  const LiveBytes live;
  const HostElements elements(tensor);
  return live.now();
}

}  // namespace

TEST_CASE("sizes, strides, alignment and bits are those of the tensor") {
  torch::manual_seed(0);
  const at::Tensor base = torch::randn({4, 6, 8}), complex = torch::randn({4, 6}, at::kComplexFloat);
  base[0][0][0] = std::nan("");
  const std::vector<at::Tensor> tensors{
      base,
      base.transpose(0, 2),
      base.permute({1, 2, 0}),
      base.slice(1, 1, 4),
      base.slice(2, 1, 7, 2).transpose(0, 1),
      base.select(2, 3),
      base.select(1, 5).unsqueeze(0).expand({7, 4, 8}),
      base.slice(2, 0, 1).expand({4, 6, 9}),
      base.view({-1}).unfold(0, 5, 2),
      base.chunk(3, 1)[1],
      base.slice(0, 2, 2),
      base[1][2][3],
      base.to(at::kBFloat16).select(0, 1).t().expand({3, 8, 6}).select(0, 1),
      torch::zeros({0, 3}),
      torch::zeros({0}).expand({5, 0}),
      base > 0,
      complex.t().conj(),
      at::imag(complex.conj()),
      torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast),
  };
  for (const at::Tensor& tensor : tensors) {
    INFO(tensor.sizes() << " strides " << tensor.strides() << " at " << tensor.storage_offset());
    const at::Tensor back = moved(tensor);
    CHECK(back.sizes() == tensor.sizes());
    CHECK(back.strides() == tensor.strides());
    CHECK(back.storage_offset() == tensor.storage_offset() % 64);
    CHECK(back.is_conj() == tensor.is_conj());
    CHECK(back.is_neg() == tensor.is_neg());
    CHECK(same_bits(back.resolve_conj().resolve_neg(), tensor.resolve_conj().resolve_neg()));
  }
}

TEST_CASE("the host holds each element once") {
  const at::Tensor mask = torch::randn({1, 1, 64, 64});
  CHECK(bytes_of_copy(mask) == 64 * 64 * 4);
  CHECK(bytes_of_copy(mask.expand({100, 12, 64, 64})) == 64 * 64 * 4);
  CHECK(bytes_of_copy(mask.slice(3, 0, 3)) == 64 * 3 * 4);
  CHECK(bytes_of_copy(mask.slice(3, 0, 3).expand({100, 12, 64, 3})) == 64 * 3 * 4);
  CHECK(bytes_of_copy(mask.view({-1}).unfold(0, 64, 1)) == 64 * 64 * 4);
}

namespace {

constexpr std::int64_t kBytes = 1024;

/// Copies of tensors with no other owner, each of kBytes and filled with its number.
std::vector<std::shared_ptr<HostCopy>> copies(int count) {
  std::vector<std::shared_ptr<HostCopy>> all;
  for (int i = 0; i < count; ++i) all.push_back(HostCopy::make(torch::full({kBytes / 4}, i, at::kFloat)));
  return all;
}

bool is_number(const at::Tensor& tensor, int number) {
  return torch::equal(tensor, torch::full({kBytes / 4}, number, at::kFloat));
}

}  // namespace

TEST_CASE(
    "the last few are still there, the others on the host alone; backward finds the next ones fetched") {
  constexpr int kCount = 12, kNear = HostCopy::kNear;
  const LiveBytes live;
  auto all = copies(kCount);
  CHECK(live.now() == (kCount + kNear) * kBytes);
  std::int64_t most = 0;
  while (!all.empty()) {
    const int number = static_cast<int>(all.size()) - 1;
    const at::Tensor back = all.back()->fetch_back("a block");
    most = std::max(most, live.now() - kBytes * (number + 1));  // besides the host's
    CHECK(is_number(back, number));
    all.pop_back();
  }
  CHECK(most <= (2 * kNear + 1) * kBytes);
  CHECK(live.now() == 0);
}

TEST_CASE("in any order, twice, and from nodes that save two tensors") {
  const LiveBytes live;
  {
    const auto all = copies(20);
    for (int pass = 0; pass < 2; ++pass) {
      for (int i = 18; i >= 0; i -= 2) {
        CHECK(is_number(all[i]->fetch_back("a block"), i));
        CHECK(is_number(all[i + 1]->fetch_back("a block"), i + 1));
      }
      for (int i = 0; i < 20; ++i) CHECK(is_number(all[i]->fetch_back("a block"), i));
    }
    CHECK(live.now() <= (20 + 2 * static_cast<int>(HostCopy::kNear)) * kBytes);
  }
  CHECK(live.now() == 0);
}

TEST_CASE("what cannot be fetched ahead is fetched when it is asked for") {
  LiveBytes live;
  auto all = copies(12);
  live.limit(live.now());  // four have not left yet: there is no room for a fifth
  at::Tensor back = all[11]->fetch_back("a block");
  CHECK(live.now() == (12 + static_cast<int>(HostCopy::kNear)) * kBytes);
  for (int number = 10; number >= 0; --number) {
    all.pop_back();
    back = at::Tensor();
    live.limit(live.now() + kBytes);  // of one tensor
    back = all.back()->fetch_back("a block");
    live.limit(std::numeric_limits<std::int64_t>::max());
    CHECK(is_number(back, number));
  }
}

TEST_CASE("what was fetched ahead makes room for what is needed; without any, memory has run out") {
  LiveBytes live;
  const auto all = copies(12);
  live.limit(live.now());
  at::Tensor back = all[0]->fetch_back("a block");
  CHECK(live.now() == (12 + 1) * kBytes);
  live.limit(live.now());
  CHECK_THROWS_AS(all[1]->fetch_back("a block"), c10::OutOfMemoryError);
  live.limit(std::numeric_limits<std::int64_t>::max());
  CHECK(is_number(back, 0));
  CHECK(is_number(all[1]->fetch_back("a block"), 1));
}

TEST_CASE("a tensor that was changed in place since is noticed, wherever it is") {
  for (const int later : {0, 10}) {
    const at::Tensor tensor = torch::ones({3, 2});
    const auto copy = HostCopy::make(tensor);
    const auto others = copies(later);
    CHECK(torch::equal(copy->fetch_back("decoder"), tensor));
    tensor.add_(1);
    CHECK_THROWS_AS(copy->fetch_back("decoder"), lt::CheckpointError);
    CHECK_THROWS_WITH(copy->fetch_back("decoder"),
                      Catch::Contains("a tensor of shape [3, 2] that backward through decoder needs has been "
                                      "modified by an inplace operation: it is at version 1"));
  }
}

TEST_CASE("two threads that copy and fetch at once") {
  const auto work = [] {
    for (int round = 0; round < 50; ++round) {
      auto all = copies(10);
      for (int i = 9; i >= 0; --i)
        if (!is_number(all[static_cast<std::size_t>(i)]->fetch_back("a block"), i)) return false;
    }
    return true;
  };
  auto elsewhere = std::async(std::launch::async, work);
  CHECK(work());
  CHECK(elsewhere.get());
}
