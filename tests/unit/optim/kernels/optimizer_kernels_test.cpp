// SPDX-License-Identifier: MIT
// The optimizers' kernels and that of sums in bf16, emulated on CPU threads, beside the CPU's loops.
// Tests optim/kernels: adamw_8bit_kernels, adamw_bf16_kernels, adamw_table, block_code, kernel_table
// Tests optim/kernels: adafactor_code, adafactor_update_code, adafactor_kernels, rounded_sum_kernels
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/optim/narrow/rounded_sum.hpp>

#include "support/kernels/compared_steps.hpp"

#include <functional>

namespace lt = looptorch;
using namespace looptorch::testing;

namespace {

template <class Optimizer>
void check(const ComparedLists& lists, const typename Optimizer::Options& options, EmulatedKernels& kernels) {
  const Differences found = compare_steps<Optimizer>(lists, options, kernels);
  CAPTURE(lists.type, lists.misaligned, lists.non_finite);
  INFO(found.first << ": " << found.wrong << " wrong, " << found.rounded << " of " << found.narrow
                   << " rounded otherwise");
  CHECK(found.none());
  CHECK(kernels.launches() > 0);
}

/// Calls `compare(lists)` for what tensors of each dtype are like.
template <class Compare>
void for_all_lists(const std::vector<Shape>& shapes, Compare&& compare) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    compare(ComparedLists{.shapes = shapes, .type = type});
    compare(ComparedLists{.shapes = shapes, .type = type, .misaligned = true});
    const auto nan_of_gpus = double(std::bit_cast<float>(0x7FFFFFFFu));
    for (const double number : {double(NAN), nan_of_gpus, double(INFINITY), -double(INFINITY)})
      compare(ComparedLists{
          .shapes = {{300}, {7, 100}, {1}, {2, 9, 33}, {4100}, {513}}, .type = type, .non_finite = number});
  }
}

[[maybe_unused]] const auto& kCounted = lt::HostMemory::counted();  // GuardedTensors put back what was there

const std::vector<Shape> kOddShapes = {{1},    {255},   {256},     {257}, {100, 96},
                                       {4095}, {16385}, {3, 5, 7}, {0},   {33000}};
/// Several strips, tiles and parts; a width of fewer than four columns; one row; one column.
const std::vector<Shape> kMatrices = {{1},       {257},     {0, 5},   {130, 40}, {20, 1031}, {3, 130, 40},
                                      {9, 2052}, {8, 4, 3}, {1, 300}, {300, 1},  {2, 1, 5},  {5000}};

}  // namespace

TEST_CASE("AdamW8bit's kernel updates as the CPU's loop does") {
  for_all_lists(kOddShapes, [](const ComparedLists& lists) {
    for (const std::int64_t min_size : {1, 4096}) {
      EmulatedKernels kernels;
      check<lt::AdamW8bit>(lists, {.lr = 1e-2, .min_size = min_size}, kernels);
    }
  });
}

TEST_CASE("AdamW8bit's kernel keeps 8 bits more of a bf16 weight") {
  for (const bool misaligned : {false, true}) {
    for (const std::int64_t min_size : {1, 100000}) {
      EmulatedKernels kernels;
      check<lt::AdamW8bit>({.shapes = kOddShapes, .type = at::kBFloat16, .misaligned = misaligned},
                           {.lr = 1e-4, .min_size = min_size, .corrected = true}, kernels);
    }
  }
}

TEST_CASE("parameters with step counts of their own share a table, up to eight counts") {
  std::vector<at::Tensor> plain, emulated;
  for (int i = 0; i < 12; ++i) {
    plain.push_back(at::randn({300}).set_requires_grad(true));
    emulated.push_back(plain.back().detach().clone().set_requires_grad(true));
  }
  lt::AdamW8bit reference(plain, {.min_size = 1}), tested(emulated, {.min_size = 1});
  EmulatedKernels kernels;
  for (std::size_t step = 0; step < 12; ++step) {  // parameter i begins in step i
    for (std::size_t i = 0; i <= step; ++i) {
      plain[i].mutable_grad() = at::randn({300});
      emulated[i].mutable_grad() = plain[i].grad().clone();
    }
    reference.step();
    const KernelsOnCpu on(kernels);
    tested.step();
  }
  CHECK(kernels.launches() == 8 + 4 * 2);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(at::allclose(plain[i], emulated[i], 1e-4, 1e-5));
}

TEST_CASE("AdamWBf16's kernel updates as the CPU's loop does") {
  for_all_lists(kOddShapes, [](const ComparedLists& lists) {
    for (const bool exact : {false, true}) {
      if (exact && lists.type == at::kHalf) continue;
      EmulatedKernels kernels;
      check<lt::AdamWBf16>(lists, {.lr = 1e-2, .exact = exact}, kernels);
    }
  });
}

namespace {

/// Makes two steps without beta1, the gradient of the first a billion times larger, and returns the first
/// moment.
template <class Optimizer>
at::Tensor first_moment(typename Optimizer::Options options, const at::Tensor& gradient, const char* key) {
  options.betas[0] = 0;
  auto weight = at::zeros_like(gradient).set_requires_grad(true);
  Optimizer optimizer({weight}, options);
  for (const double factor : {1e9, 1.0}) weight.mutable_grad() = gradient * factor, optimizer.step();
  return optimizer.state_of(weight).template get<at::Tensor>(key).to(at::kFloat).clone();
}

}  // namespace

TEST_CASE("without beta1 the first moment is the gradient, however large the last one was") {
  at::manual_seed(6);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor gradient = at::randn({700}).to(at::kBFloat16).to(type), wide = gradient.to(at::kFloat);
    const at::Tensor largest =
        at::stack({wide.slice(0, 0, 256).abs().max(), wide.slice(0, 256, 512).abs().max(),
                   wide.slice(0, 512).abs().max()});
    const auto check = [&] {
      CHECK(first_moment<lt::AdamW8bit>({.min_size = 1}, gradient, "exp_avg_scale").equal(largest));
      CHECK(first_moment<lt::AdamW8bit>({.coded = false}, gradient, "exp_avg").equal(wide));
      CHECK(first_moment<lt::AdamWBf16>({}, gradient, "exp_avg").equal(wide));
    };
    check();
    EmulatedKernels kernels;
    const KernelsOnCpu on(kernels);
    check();
    CHECK(kernels.launches() == 6);
  }
}

TEST_CASE("kernels and the CPU's loops agree on a beta1 of any size") {
  const ComparedLists lists{.shapes = {{257}, {130, 40}},
                            .type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf)};
  for (const double beta1 : {0.0, 0.3, 0.5, 0.7}) {
    CAPTURE(beta1);
    EmulatedKernels kernels;
    check<lt::AdamW8bit>(lists, {.lr = 1e-2, .betas = {beta1, 0.99}, .min_size = 300}, kernels);
    check<lt::AdamWBf16>(lists, {.lr = 1e-2, .betas = {beta1, 0.99}}, kernels);
  }
}

TEST_CASE("Adafactor's kernels update as the CPU's operations do") {
  for_all_lists(kMatrices, [](const ComparedLists& lists) {
    EmulatedKernels kernels;
    check<lt::Adafactor>(lists, {}, kernels);
  });
}

TEST_CASE("Adafactor's kernels know its options") {
  const ComparedLists lists{.shapes = {{257}, {130, 40}, {3, 20, 7}},
                            .type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf)};
  for (const lt::AdafactorOptions& options :
       {lt::AdafactorOptions{.beta1 = 0.9, .weight_decay = 0.01},
        lt::AdafactorOptions{
            .lr = 1e-3, .relative_step = false, .scale_parameter = false, .weight_decay = 0.1},
        lt::AdafactorOptions{.eps = {1e-3, 1e-1}, .clip_threshold = 0.1, .decay = -0.5}}) {
    EmulatedKernels kernels;
    check<lt::Adafactor>(lists, options, kernels);
  }
}

TEST_CASE("Adafactor's kernels reach parameters in another memory format by a copy") {
  const ComparedLists lists{.shapes = {{4, 6, 3, 5}, {30, 8}}, .channels_last = true};
  EmulatedKernels kernels;
  check<lt::Adafactor>(lists, {.beta1 = 0.9}, kernels);
}

TEST_CASE("kernels update random shapes as the CPU does, in any order of threads") {
  const ComparedLists lists{
      .shapes = random_shapes(24, 3000, 5), .type = GENERATE(at::kFloat, at::kBFloat16), .steps = 2};
  for (const std::uint64_t seed : {11, 23}) {
    CAPTURE(seed);
    EmulatedKernels kernels(EmulatedKernels::kLargeTable, seed * 1000);
    check<lt::AdamW8bit>(lists, {.min_size = 600}, kernels);
    check<lt::AdamWBf16>(lists, {.exact = true}, kernels);
    check<lt::Adafactor>(lists, {}, kernels);
  }
}

TEST_CASE("a list that no table holds takes more launches") {
  std::vector<Shape> shapes;
  for (std::int64_t i = 0; i < 130; ++i) shapes.push_back({1 + i % 40});
  const ComparedLists lists{.shapes = shapes, .steps = 2};
  const int steps = lists.steps + 1;  // one is skipped
  EmulatedKernels adamw(EmulatedKernels::kSmallTable), adafactor(EmulatedKernels::kSmallTable), large;
  check<lt::AdamW8bit>(lists, {}, adamw);
  CHECK(adamw.launches() == steps * 3);  // of 58 tensors
  check<lt::Adafactor>(lists, {}, adafactor);
  CHECK(adafactor.launches() == steps * 5 * 4);  // of 26, without matrices
  check<lt::AdamW8bit>(lists, {}, large);
  CHECK(large.launches() == steps);
}

TEST_CASE("a large table holds 479 parameters") {
  const ComparedLists lists{.shapes = std::vector<Shape>(500, Shape{3}), .steps = 1};
  EmulatedKernels kernels;
  check<lt::AdamWBf16>(lists, {}, kernels);
  CHECK(kernels.launches() == 2);
}

TEST_CASE("Adafactor's kernels round each part of a large parameter by a seed of its own, as the CPU does") {
  const ComparedLists lists{.shapes = {{1100, 1000}}, .type = GENERATE(at::kBFloat16, at::kHalf), .steps = 1};
  EmulatedKernels kernels;
  check<lt::Adafactor>(lists, {}, kernels);
}

TEST_CASE("Adafactor's workspace is below a hundredth of many parameters") {
  struct Launches final : lt::detail::KernelRunner {  // leaves the parameters untouched
    std::size_t prepare(const lt::detail::KernelSource&, c10::Device) override { return kLargeTable; }
    void launch(const lt::detail::KernelSource&, const char*, c10::Device, unsigned, const void*) override {
      ++count;
    }
    int count = 0;
  };
  const auto [type, most_launches] =
      GENERATE(table<at::ScalarType, int>({{at::kFloat, 10}, {at::kBFloat16, 15}}));
  CAPTURE(type);
  std::vector<at::Tensor> parameters;  // 132 million elements
  std::int64_t bytes = 0;
  for (int i = 0; i < 168; ++i) {
    parameters.push_back(at::empty({i % 3 ? 768 : 1536, 768}, type).set_requires_grad(true));
    parameters.back().mutable_grad() = at::empty_like(parameters.back());
    bytes += static_cast<std::int64_t>(parameters.back().nbytes());
  }
  Launches launches;
  const KernelsOnCpu on(launches);
  lt::Adafactor adafactor(parameters);
  adafactor.step();
  const lt::MemoryCounter memory(at::kCPU);
  const std::int64_t before = memory.take().allocated;
  launches.count = 0;
  adafactor.step();
  CHECK(memory.read().peak - before < bytes / 100);
  CHECK(memory.read().peak > before);
  CHECK(launches.count <= most_launches);
}

TEMPLATE_TEST_CASE("kernels read a rate that is kept on the device as they run", "", lt::AdamW8bit,
                   lt::AdamWBf16, lt::Adafactor) {
  struct ChangesBefore final : lt::detail::KernelRunner {
    std::size_t prepare(const lt::detail::KernelSource& source, c10::Device device) override {
      return kernels.prepare(source, device);
    }
    void launch(const lt::detail::KernelSource& source, const char* kernel, c10::Device device,
                unsigned blocks, const void* table) override {
      change();
      kernels.launch(source, kernel, device, blocks, table);
    }
    EmulatedKernels kernels;
    std::function<void()> change = [] {};
  };
  std::vector<at::Tensor> plain{at::randn({300}).set_requires_grad(true),
                                at::randn({20, 9}).set_requires_grad(true)};
  std::vector<at::Tensor> kept;
  for (const at::Tensor& parameter : plain)
    kept.push_back(parameter.detach().clone().set_requires_grad(true));
  TestType reference(plain, {.lr = 0.004}), tested(kept, {.lr = 0.004});
  tested.keep_rates_on_devices();
  const auto set_rate = [](TestType& optimizer, double rate) {
    optimizer.param_groups()[0].options().set_lr(rate);
  };
  ChangesBefore runner;
  const KernelsOnCpu on(runner);
  for (const double rate : {0.001, 0.002, 0.003}) {
    for (std::size_t i = 0; i < plain.size(); ++i)
      kept[i].mutable_grad() = plain[i].mutable_grad() = at::randn(plain[i].sizes());
    set_rate(reference, rate), set_rate(tested, 0.1);
    runner.change = [] {};
    reference.step();
    runner.change = [&] { set_rate(tested, rate), tested.send_rates(); };
    tested.step();
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(plain[i].equal(kept[i]));
  }
}

TEST_CASE("five steps end near the CPU's") {
  const ComparedLists lists{.shapes = {{257}, {5000}, {130, 40}},
                            .type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf),
                            .steps = 5};
  const auto far_apart = [](const Differences& found) {
    return found.wrong + found.rounded > (found.narrow + 100) / 100;
  };
  EmulatedKernels kernels;
  CHECK_FALSE(far_apart(compare_steps<lt::AdamW8bit>(lists, {}, kernels, /*lock_step=*/false)));
  CHECK_FALSE(far_apart(compare_steps<lt::AdamWBf16>(lists, {}, kernels, /*lock_step=*/false)));
  CHECK_FALSE(far_apart(compare_steps<lt::Adafactor>(lists, {}, kernels, /*lock_step=*/false)));
}

TEST_CASE("a sum in bf16 has the CPU's bits") {
  const GuardedTensors guarded;
  for (const std::int64_t size : {0, 1, 255, 256, 257, 1000, 40000}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const bool misaligned : {false, true}) {
        CAPTURE(size, type, misaligned);
        const ComparedLists lists{.misaligned = misaligned};
        const at::Tensor start = at::randn({size}).to(at::kBFloat16);
        const at::Tensor addend = (at::randn({size}) * 0.01).to(type);
        const at::Tensor here = start.clone(), there = compared::placed(start, lists);
        lt::detail::add_rounded(here, addend, 29);
        EmulatedKernels kernels;
        {
          const KernelsOnCpu on(kernels);
          lt::detail::add_rounded(there, compared::placed(addend, lists), 29);
        }
        CHECK(here.equal(there));
        CHECK(kernels.launches() == (size > 0));
        CHECK((size == 0 || !here.equal(start)));
      }
    }
  }
}

TEST_CASE("a sum in bf16 takes an addend in another dtype or memory format") {
  const at::Tensor here = at::zeros({3, 4}).to(at::kBFloat16), there = here.clone();
  const at::Tensor addend = at::randn({4, 3}, at::kDouble).t();
  lt::detail::add_rounded(here, addend, 5);
  EmulatedKernels kernels;
  const KernelsOnCpu on(kernels);
  lt::detail::add_rounded(there, addend, 5);
  CHECK(here.equal(there));
}
