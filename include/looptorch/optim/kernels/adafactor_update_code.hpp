// SPDX-License-Identifier: MIT
// Holds the second half of Adafactor's step as CUDA C++ source: the size of the update, the rates, and the
// weights. 16-bit weights are rounded with the same random bits as on a CPU.
#pragma once

namespace looptorch::detail {

/// The kernels `adafactor_sizes_*` and `adafactor_weights_*`, with a thread block for each tile, and
/// `adafactor_rates`, with one for each tensor.
inline constexpr const char* kAdafactorUpdateCode = R"cuda(
// What a tile's gradients are multiplied by: factors of its rows, in shared memory, and of this thread's columns.
struct Factors {
  float* rows;
  float columns[4];

  LT_INLINE Factors(const Entry& entry, const Tile& tile) {
    __shared__ float shared[kRows];
    rows = shared;
    if (threadIdx.x < tile.rows)
      shared[threadIdx.x] =
          entry.rows ? 1.0f / sqrtf(entry.rows[tile.matrix * entry.height + tile.row + threadIdx.x] /
                                    entry.means[tile.matrix])
                     : 1.0f;
    const float* of_columns = entry.columns + tile.matrix * entry.width + tile.column;
#pragma unroll
    for (int j = 0; j < 4; ++j) columns[j] = j < tile.count ? 1.0f / sqrtf(of_columns[j]) : 0.0f;
    __syncthreads();
  }
};

// ---- The update's size ----

template <class Stored, bool kFull>
LT_INLINE void sum_update(const Table& table, const Entry& entry, u32 index) {
  const Tile tile(entry, index);
  const Factors factors(entry, tile);
  const float factor = gradient_factor(table);
  const Stored* gradients = (const Stored*)entry.gradients + tile.at;
  float sum = 0;
  if (tile.count > 0) {
#pragma unroll 4
    for (u32 i = 0; i < tile.rows; ++i) {
      float gradient[4];
      load<kFull>(gradients + i * entry.width, tile.count, gradient);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float change = gradient[j] * factor * factors.rows[i] * factors.columns[j];
        sum += change * change;
      }
    }
  }
  const double total = block_sum((double)sum);
  if (threadIdx.x == 0) entry.sums[tile.index * 2] = total;
}

template <class Stored>
LT_INLINE void sum_update(const Table& table) {
  for_tile(table, [&](const Entry& entry, u32 tile) {
    if (entry.aligned) sum_update<Stored, true>(table, entry, tile);
    else sum_update<Stored, false>(table, entry, tile);
  });
}

extern "C" __global__ void __launch_bounds__(256, 4) adafactor_sizes_fp32(LT_TABLE(Table) table) {
  sum_update<float>(table);
}
extern "C" __global__ void __launch_bounds__(256, 4) adafactor_sizes_bf16(LT_TABLE(Table) table) {
  sum_update<u16>(table);
}
extern "C" __global__ void __launch_bounds__(256, 4) adafactor_sizes_fp16(LT_TABLE(Table) table) {
  sum_update<Half>(table);
}

// ---- Rates ----

extern "C" __global__ void __launch_bounds__(256) adafactor_rates(LT_TABLE(Table) table) {
  if (overflowed(table)) return;
  const Entry& entry = table.entries[blockIdx.x];
  const i64 tiles = entry.matrices * entry.row_tiles * entry.strips;
  double change = 0, norm = 0;
  for (i64 i = threadIdx.x; i < tiles; i += kThreads) change += entry.sums[i * 2], norm += entry.sums[i * 2 + 1];
  change = block_sum(change), norm = block_sum(norm);
  if (threadIdx.x != 0) return;
  const double size = (double)(entry.matrices * entry.height * entry.width);
  double rate = table.rate ? *table.rate : table.lr;
  if (table.relative) {
    const double falling = 1.0 / sqrt((double)*entry.step);
    rate = falling < rate ? falling : rate;
  }
  if (table.scaled) {
    const double root = sqrt(norm / size);
    rate *= root < table.least_size ? table.least_size : root;
  }
  double excess = sqrt(change / size) / table.clip;
  excess = excess < 1.0 ? 1.0 : excess;
  entry.rates[0] = (float)(rate / excess), entry.rates[1] = (float)(rate * table.weight_decay);
}

// ---- Weights ----

// The rounding's bits for rows of a tile, from the first on. A part of the parameter has a seed of its own, and
// blocks of 256 elements; it has whole rows.
struct RowNoise {
  const Entry& entry;
  u64 update, seed;
  i64 part, offset;  // this thread's first element: its part, and its place there

  LT_INLINE RowNoise(const Entry& of, const Tile& tile) : entry(of), update((u64)*of.step) {
    part = tile.at / entry.part, offset = tile.at - part * entry.part;
    seed = derive_seed(update, (u64)(part * entry.part_begin));
  }

  // With kFull a row begins at a multiple of 4, so that four elements lie in one block.
  template <bool kFull>
  LT_INLINE void draw(const u32* words, u32 (&noise)[4]) {
    if (offset >= entry.part) {
      part += offset / entry.part, offset %= entry.part;
      seed = derive_seed(update, (u64)(part * entry.part_begin));
    }
    u32 random = low_bits(block_word(seed, (u64)offset / kBlockElements), 16);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const u32 element = (u32)(offset + j) % kBlockElements;
      if (!kFull && j > 0 && element == 0) random = low_bits(block_word(seed, (u64)(offset + j) / kBlockElements), 16);
      noise[j] = words[element] ^ random;
    }
    offset += entry.width;
  }
};

template <class Stored, bool kFull>
LT_INLINE void move_weights(const Table& table, const Entry& entry, u32 index) {
  constexpr bool kNarrow = sizeof(Stored) == 2;
  __shared__ u32 words[kBlockElements];
  if (kNarrow) words[threadIdx.x] = element_word<0, 16>(threadIdx.x);
  const Tile tile(entry, index);
  const Factors factors(entry, tile);  // ends with __syncthreads
  if (tile.count <= 0) return;
  const float factor = gradient_factor(table), rate = entry.rates[0], decay = entry.rates[1];
  const float kept = (float)table.beta1, added = (float)(1.0 - table.beta1);
  const Stored* gradients = (const Stored*)entry.gradients + tile.at;
  Stored* weights = (Stored*)entry.weights + tile.at;
  float* first = entry.first ? entry.first + tile.at : nullptr;
  RowNoise rows(entry, tile);
#pragma unroll 4
  for (u32 i = 0; i < tile.rows; ++i) {
    float gradient[4], weight[4], mean[4] = {0, 0, 0, 0};
    u32 noise[4] = {0, 0, 0, 0};
    load<kFull>(gradients + i * entry.width, tile.count, gradient);
    load<kFull>(weights + i * entry.width, tile.count, weight);
    if (first) load<kFull>(first + i * entry.width, tile.count, mean);
    if (kNarrow) rows.template draw<kFull>(words, noise);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float change = gradient[j] * factor * factors.rows[i] * factors.columns[j] * rate;
      if (first) change = mean[j] * kept + change * added, mean[j] = change;
      if (table.weight_decay != 0.0) change += weight[j] * decay;
      weight[j] -= change;
    }
    if (first) store<kFull>(first + i * entry.width, tile.count, mean, noise);
    store<kFull>(weights + i * entry.width, tile.count, weight, noise);
  }
}

template <class Stored>
LT_INLINE void move_weights(const Table& table) {
  for_tile(table, [&](const Entry& entry, u32 tile) {
    if (entry.aligned) move_weights<Stored, true>(table, entry, tile);
    else move_weights<Stored, false>(table, entry, tile);
  });
}

extern "C" __global__ void __launch_bounds__(256, 3) adafactor_weights_fp32(LT_TABLE(Table) table) {
  move_weights<float>(table);
}
extern "C" __global__ void __launch_bounds__(256, 3) adafactor_weights_bf16(LT_TABLE(Table) table) {
  move_weights<u16>(table);
}
extern "C" __global__ void __launch_bounds__(256, 3) adafactor_weights_fp16(LT_TABLE(Table) table) {
  move_weights<Half>(table);
}
)cuda";

}  // namespace looptorch::detail
