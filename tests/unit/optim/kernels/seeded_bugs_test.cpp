// SPDX-License-Identifier: MIT
// Bugs that are seeded in the kernels' sources, each of which the comparison with the CPU must catch.
// Tests optim/kernels: adamw_8bit_kernels, adamw_bf16_kernels, adafactor_kernels
#include "support/precompiled.hpp"

#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>

#include "support/kernels/compared_steps.hpp"

namespace lt = looptorch;
using namespace looptorch::testing;

namespace {

/// True unless an option keeps what bf16 cuts off fp32.
template <class Options>
bool takes_fp16(const Options& options) {
  if constexpr (requires { options.exact; }) return !options.exact;
  if constexpr (requires { options.corrected; }) return !options.corrected;
  return true;
}

/// Returns how one of `options` noticed a bug; empty if none did.
template <class Optimizer>
std::string caught(const SeededBug& bug, const std::vector<typename Optimizer::Options>& options,
                   const std::vector<Shape>& shapes) {
  std::uint64_t order = 0;  // of threads: some races show in one of four
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kFloat, at::kBFloat16}) {
    for (const bool misaligned : {false, true}) {
      order += 1000;
      for (const auto& of : options) {
        if (type == at::kHalf && !takes_fp16(of)) continue;
        EmulatedKernels kernels(EmulatedKernels::kLargeTable, order, bug);
        try {
          const ComparedLists lists{.shapes = shapes, .type = type, .misaligned = misaligned, .steps = 2};
          const Differences found = compare_steps<Optimizer>(lists, of, kernels);
          if (!found.none())
            return lt::message(found.first, ": ", found.wrong, " wrong, ", found.rounded,
                               " rounded otherwise");
        } catch (const EmulatedFault& fault) {
          return fault.what();
        }
      }
    }
  }
  return {};
}

const std::vector<lt::AdamW8bitOptions> kAdamW8bit = {{.lr = 1e-2, .min_size = 300},
                                                      {.lr = 1e-4, .min_size = 100000, .corrected = true}};
void check_8bit(const SeededBug& bug) {
  const std::string how = caught<lt::AdamW8bit>(bug, kAdamW8bit, {{257}, {1}, {17000}, {700}});
  INFO(bug.before << " -> " << bug.after << ": " << how);
  CHECK_FALSE(how.empty());
}

const std::vector<lt::AdamWBf16Options> kAdamWBf16 = {{.lr = 1e-2, .exact = true}, {.lr = 1e-2}};
void check_bf16(const SeededBug& bug) {
  const std::string how = caught<lt::AdamWBf16>(bug, kAdamWBf16, {{257}, {1}, {17000}});
  INFO(bug.before << " -> " << bug.after << ": " << how);
  CHECK_FALSE(how.empty());
}

// Updates are clipped, so that their size counts, or not; a matrix has more tiles than a warp has threads.
const std::vector<lt::AdafactorOptions> kAdafactor = {
    {.clip_threshold = 0.1, .beta1 = 0.9, .weight_decay = 0.1},
    {.clip_threshold = 100, .beta1 = 0.9, .weight_decay = 0.1}};
const std::vector<Shape> kMatrices = {{257}, {130, 40}, {3, 5, 7}, {40, 2, 3}, {300, 33}};
void check_adafactor(const SeededBug& bug, const std::vector<Shape>& shapes = kMatrices) {
  const std::string how = caught<lt::Adafactor>(bug, kAdafactor, shapes);
  INFO(bug.before << " -> " << bug.after << ": " << how);
  CHECK_FALSE(how.empty());
}

}  // namespace

TEST_CASE("without a bug nothing is caught") {
  const SeededBug none{"kBlockElements = 256;", "kBlockElements = 256u;"};
  CHECK(caught<lt::AdamW8bit>(none, kAdamW8bit, {{257}, {1}, {17000}, {700}}) == "");
  CHECK(caught<lt::AdamWBf16>(none, kAdamWBf16, {{257}, {1}, {17000}}) == "");
  CHECK(caught<lt::Adafactor>(none, kAdafactor, kMatrices) == "");
}

TEST_CASE("seeded bugs in AdamW8bit's kernel are caught") {
  check_8bit({"element_word<1, RootCode::kDropped>", "element_word<0, RootCode::kDropped>"});
  check_8bit({"if (aligned && left >= kBlockElements)", "if (aligned)"});
  check_8bit({"if (aligned && left >= kBlockElements)", "if (left >= kBlockElements)"});
  check_8bit({"  if (threadIdx.x == 0) numbers = numbers_of(table, (double)step);\n  __syncthreads();",
              "  if (threadIdx.x == 0) numbers = numbers_of(table, (double)step);"});
  check_8bit({"if (overflowed(table)) return;", ""});
  check_8bit({"end = begin + kBlocks < all ? begin + kBlocks : all;", "end = all;"});
  check_8bit({"largest_root = larger(largest_root, bits_of(scale));", "largest_root = bits_of(scale);"});
  check_8bit({"if (lane == 0) first_scales[block]", "if (lane == 40) first_scales[block]"});
  check_8bit(
      {"narrow = (bits + 0x8000u) & 0xFFFF0000u;\n    lost |=", "narrow = bits & 0xFFFF0000u;\n    lost |="});
  check_8bit({"(int)(lost << (24 - 8 * j)) >> 24", "lost >> 8 * j & 0xFFu"});
  check_8bit({"1.0 - pow(table.beta1, step)", "1.0 - pow(table.beta1, step - 1.0)"});
}

TEST_CASE("seeded bugs in AdamWBf16's kernel are caught") {
  check_bf16({"(bits + 0x8000u) & 0xFFFF0000u", "bits & 0xFFFF0000u"});
  check_bf16({"(u32)((int)bits_of(rest) >> 16)", "bits_of(rest) >> 16"});
  check_bf16({"for_second[j] = noise >> 16;", "for_second[j] = noise & 0xFFFFu;"});
  check_bf16({"if (begins[middle] <= thread_block)", "if (begins[middle] < thread_block)"});
}

TEST_CASE("seeded bugs in the rounding to fp16 are caught") {
  check_8bit({"(size < 0x400u ? tiny : normal) | sign", "normal | sign"});
  check_bf16({"random = noise >> 3;", "random = 0;"});
  check_adafactor({"size < 0x38800000u ? tiny : normal < 0x7C00u", "normal < 0x7C00u"});
}

TEST_CASE("seeded bugs in Adafactor's kernels are caught") {
  check_adafactor({"value = warp_sum(value);\n  __syncthreads();", "value = warp_sum(value);"});
  check_adafactor({"rows = entry.height - row < kRows ? entry.height - row : kRows;", "rows = kRows;"});
  check_adafactor({"tile < entry.row_tiles; tile += kThreads / kGroup", "tile < entry.row_tiles; ++tile"});
  check_adafactor({"if (!kFull && j > 0 && element == 0) random", "if (false) random"});
  check_adafactor({"  partial[part][lane] = sum;\n  __syncthreads();", "  partial[part][lane] = sum;"});
  check_adafactor({"excess = excess < 1.0 ? 1.0 : excess;", ""});
  check_adafactor({"if (offset >= entry.part)", "if (false)"}, {{1100, 1000}});
}
