// SPDX-License-Identifier: MIT
// A CUDA kernel that adds tensors to sums in bf16 with stochastic rounding. UpdateInBackward adds gradients
// to a window's sums with it. Its random bits are those of the CPU's loop (optim/narrow/rounded_sum.hpp).
#pragma once

#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/base/device/kernel_source.hpp>
#include <looptorch/optim/kernels/block_code.hpp>
#include <looptorch/optim/kernels/kernel_table.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace looptorch::detail {

// clang-format off
LOOPTORCH_DETAIL_KERNEL_STRUCTS(kRoundedSumStructs,

struct RoundedSumHeader {
  u64 seed = 0;
  u32 count = 0;    ///< The number of sums.
  u32 padding = 0;  ///< To a multiple of 8 bytes.
};

struct RoundedSumEntry {
  void* sums;
  const void* addends;
  u64 size;     ///< Elements.
  u64 aligned;  ///< 1: both pointers are multiples of 16.
};
)
// clang-format on

inline constexpr const char* kRoundedSumCode = R"cuda(
typedef RoundedSumEntry Entry;

struct Table : RoundedSumHeader {
  u32 begins[LT_TENSORS];
  Entry entries[LT_TENSORS];
};

template <class Addend>
struct SumBlock {
  u16* sums;
  const Addend* addends;
  u64 seed;
  u32 words[8];

  LT_INLINE SumBlock(const Entry& entry, u64 seed, u32 lane)
      : sums((u16*)entry.sums), addends((const Addend*)entry.addends), seed(seed) {
    for (int i = 0; i < 8; ++i) words[i] = element_word<0, 16>(element_of(i, lane));
  }

  template <bool kFull>
  LT_INLINE void update(u64 at, u64 block, u32 lane, int size) const {
    const u32 random = low_bits(block_word(seed, block), 16);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int offset = offset_of(h, lane), count = size - offset;
      float sum[4], addend[4];
      u32 noise[4];
      load<kFull>(sums + at + offset, count, sum), load<kFull>(addends + at + offset, count, addend);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[j] += addend[j], noise[j] = words[h * 4 + j] ^ random;
      store<kFull>(sums + at + offset, count, sum, noise);
    }
  }
};

template <class Addend>
LT_INLINE void rounded_sum(const Table& table) {
  const u32 index = tensor_of(table.begins, table.count, blockIdx.x);
  const Entry& entry = table.entries[index];
  for_blocks_of_warp(SumBlock<Addend>(entry, table.seed, threadIdx.x % kWarp), entry.size, entry.aligned,
                     blockIdx.x - table.begins[index]);
}

extern "C" __global__ void __launch_bounds__(256, 4) rounded_sum_fp32(LT_TABLE(Table) table) {
  rounded_sum<float>(table);
}
extern "C" __global__ void __launch_bounds__(256, 4) rounded_sum_bf16(LT_TABLE(Table) table) {
  rounded_sum<u16>(table);
}
)cuda";

using RoundedSumTable = KernelTable<RoundedSumHeader, RoundedSumEntry, 1>;

inline constexpr KernelSource kRoundedSumSource{"a sum in bf16",
                                                {kBlockCode, kRoundedSumStructs, kRoundedSumCode},
                                                RoundedSumTable::kHeaderBytes,
                                                RoundedSumTable::kEntryBytes};

/// Adds to `sum`, bf16, the numbers of `addend`, fp32 or bf16 with the sum's strides.
inline void add_rounded_by_kernel(const at::Tensor& sum, const at::Tensor& addend, std::uint64_t seed,
                                  const ReadyKernels& ready) {
  const auto size = static_cast<std::uint64_t>(sum.numel());
  if (size == 0) return;
  RoundedSumEntry entry{sum.mutable_data_ptr(), addend.const_data_ptr(), size, 0};
  entry.aligned = are_aligned({entry.sums, entry.addends});
  RoundedSumTable table({seed}, ready.table_bytes);
  table.add(entry, {0});
  ready.runner->launch(kRoundedSumSource,
                       addend.scalar_type() == at::kFloat ? "rounded_sum_fp32" : "rounded_sum_bf16",
                       sum.device(), thread_blocks_of(size), table.data());
}

/// Compiles the kernel for the parameters' devices, so that no step does.
inline void prepare_rounded_sums(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) (void)ready_kernels(kRoundedSumSource, parameter.device());
}

}  // namespace looptorch::detail
