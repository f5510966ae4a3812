// SPDX-License-Identifier: MIT
// The optimizer of docs/writing_an_optimizer.md: its numbers, and its kernel beside its tensor operations.
// Tests optim/fused: fused_optimizer
#include "support/precompiled.hpp"

#include <looptorch/optim/fused/fused_optimizer.hpp>
#include <looptorch/optim/kernels/adamw_table.hpp>
#include <looptorch/optim/kernels/block_code.hpp>

#include "support/kernels/compared_steps.hpp"

namespace lion_test {

namespace lt = looptorch;
using namespace looptorch::testing;

#include "lion.hpp"  // extracted from the page

TEST_CASE("Lion moves each weight by the rate against the sign of its mean gradient") {
  auto weight = at::tensor({1.0, 1.0, 1.0}, at::kDouble).set_requires_grad(true);
  Lion lion({weight}, {.lr = 0.1, .betas = {0.5, 0.75}, .weight_decay = 0.2});
  for (const double second : {1.0, -2.0}) {
    weight.mutable_grad() = at::tensor({3.0, second, 0.0}, at::kDouble);
    lion.step();
  }
  // Means after one step: 0.75, 0.25, 0; mixed with the second gradients: 1.875, -0.875, 0.
  const double down = 1 - 0.1 * (1 + 0.2), kept = 1 - 0.1 * 0.2;
  CHECK(at::allclose(weight, at::tensor({down * kept - 0.1, down * kept + 0.1, kept * kept}, at::kDouble)));
  CHECK(at::allclose(lion.state_of(weight).get<at::Tensor>("exp_avg"),
                     at::tensor({0.75 * 0.75 + 0.75, 0.75 * 0.25 - 0.5, 0.0}, at::kDouble)));
  CHECK_THROWS_AS(Lion({weight}, {.lr = -1}), lt::UsageError);
}

TEST_CASE("Lion's kernel updates as its tensor operations do") {
  for (const bool misaligned : {false, true}) {
    EmulatedKernels kernels;
    const Differences found = compare_steps<Lion>(
        {.shapes = {{1}, {255}, {257}, {100, 96}, {0}, {16385}}, .misaligned = misaligned},
        {.lr = 1e-2, .weight_decay = 0.1}, kernels);
    CAPTURE(misaligned, found.first, found.wrong);
    CHECK(found.none());
    CHECK(kernels.launches() == 4);  // three steps, and one that is forbidden
  }
}

TEST_CASE("seeded bugs in Lion's kernel are caught") {
  for (const SeededBug& bug :
       {SeededBug{"mean[j] += (slope - mean[j]) * learnt", "mean[j] += (slope - mean[j]) * mixed"},
        SeededBug{"sign + decay * weight[j]", "sign - decay * weight[j]"},
        SeededBug{"lion_fp32(LT_TABLE(Table) table) {\n  if (overflowed(table)) return;",
                  "lion_fp32(LT_TABLE(Table) table) {"},
        SeededBug{"1.0f / *table.divisor", "*table.divisor"}}) {
    EmulatedKernels kernels(EmulatedKernels::kLargeTable, 1, bug);
    const Differences found =
        compare_steps<Lion>({.shapes = {{257}, {1000}}, .steps = 2}, {.weight_decay = 0.1}, kernels);
    CAPTURE(bug.before);
    CHECK_FALSE(found.none());
  }
}

}  // namespace lion_test
