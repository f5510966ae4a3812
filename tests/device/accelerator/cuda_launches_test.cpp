// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/accelerator/accelerator.hpp"
#include "support/accelerator/operator_calls.hpp"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_norm.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sim = looptorch_test::accelerator;

namespace {

const at::TensorOptions kHere = at::TensorOptions().device(sim::device(0));

std::vector<at::Tensor> tensors(std::int64_t count, std::int64_t size = 4) {
  std::vector<at::Tensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) tensors.push_back(at::ones({size}, kHere));
  return tensors;
}

at::Tensor few_of(int device) { return at::ones({4}, at::TensorOptions().device(sim::device(device))); }

std::int64_t launches(const std::function<void()>& call) {
  const sim::CountWaits count;
  call();
  return count.counts().cuda_launches;
}

}  // namespace

TEST_CASE("sim: an operator on lists counts the launches of CUDA's kernels") {
  const auto few = tensors(8), many = tensors(480), others = tensors(480);
  CHECK(launches([&] { at::_foreach_add_(few, 1); }) == 1);
  CHECK(launches([&] { at::_foreach_add_(many, 1); }) == 5);       // of 110
  CHECK(launches([&] { at::_foreach_add_(many, others); }) == 8);  // of 64
  CHECK(launches([&] { (void)at::_foreach_add(many, 1); }) == 8);  // which writes a second list
  CHECK(launches([&] { (void)at::_foreach_norm(many); }) == 1 + 5 + 1);
  CHECK(launches([&] { (void)at::cat(many); }) == 4);  // of 128
}

TEST_CASE("sim: large tensors take launches by their chunks, tensors of two types or devices one each") {
  constexpr std::int64_t kChunk = 65536;
  CHECK(launches([large = tensors(1, 320 * kChunk)] { at::_foreach_add_(large, 1); }) == 1);
  CHECK(launches([large = tensors(1, 320 * kChunk + 1)] { at::_foreach_add_(large, 1); }) == 2);
  auto mixed = tensors(8);
  mixed.front() = mixed.front().to(at::kDouble);
  CHECK(launches([&] { at::_foreach_add_(mixed, 1); }) == 8);
  const std::vector<at::Tensor> apart{few_of(0), few_of(1), few_of(0)};
  CHECK(launches([&] { at::_foreach_add_(apart, 1); }) == 3);
  CHECK(apart[1].sum().item<double>() == 8);
}

TEST_CASE("sim: kernels and copies are a launch each, views and empty tensors none") {
  const at::Tensor a = at::ones({3, 4}, kHere);
  CHECK(launches([&] { (void)(a * 2 + 1); }) == 2);
  CHECK(launches([&] { (void)a.t().select(0, 1).view({3, 1}); }) == 0);
  CHECK(launches([&] { (void)at::empty({3}, kHere); }) == 0);
  CHECK(launches([&] { (void)a.to(at::kHalf); }) == 1);
  CHECK(launches([&] { (void)a.cpu(); }) == 1);
}

TEST_CASE("sim: operator calls are those of CUDA, composite operators with what they call") {
  if (!sim::CountOperatorCalls::is_supported()) return;
  const auto few = tensors(3);
  const sim::CountOperatorCalls calls;
  at::_foreach_add_(few, 1);  // a loop here, a kernel there
  (void)at::stack({few[0].sum(), few[1].sum()});
  CHECK(calls.by_name() == std::map<std::string, std::int64_t>{{"aten::_foreach_add_.Scalar", 1},
                                                               {"aten::as_strided", 2},
                                                               {"aten::cat", 1},
                                                               {"aten::stack", 1},
                                                               {"aten::sum", 2},
                                                               {"aten::sum.dim_IntList", 2},
                                                               {"aten::unsqueeze", 2}});
  CHECK(calls.total() == 11);
}
