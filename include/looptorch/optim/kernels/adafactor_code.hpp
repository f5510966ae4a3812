// SPDX-License-Identifier: MIT
// Holds the first half of Adafactor's step as CUDA C++ source: sums of squared gradients over tiles of 128
// rows and at most 1024 columns, then the moments of rows and columns. Sums have a fixed order, without
// atomics, so that a step repeats bit by bit. Also defines the table that the kernels get as their argument
// (kernel_table.hpp).
#pragma once

#include <looptorch/base/device/kernel_source.hpp>

namespace looptorch::detail {

// clang-format off
LOOPTORCH_DETAIL_KERNEL_STRUCTS(kAdafactorStructs,

/// The numbers and addresses that a launch needs for all its parameters.
struct AdafactorHeader {
  double lr = 0;
  double least_square = 0;           ///< Added to each squared gradient.
  double least_size = 0;             ///< The least root mean square of a parameter, if `scaled`.
  double clip = 0;                   ///< The largest root mean square of an update, before the rate.
  double decay = 0;                  ///< A second moment keeps 1 - step^decay.
  double beta1 = 0;                  ///< What a first moment keeps.
  double weight_decay = 0;           ///< Parameters shrink by the rate x weight_decay.
  const double* rate = nullptr;      ///< In place of `lr`; null: `lr`.
  const float* divisor = nullptr;    ///< Of gradients; null: 1.
  const float* found_inf = nullptr;  ///< Not 0: the launch changes nothing; null: 0.
  u32 relative = 0;                  ///< 1: the rate is at most 1 / root(step).
  u32 scaled = 0;                    ///< 1: the rate is multiplied by the parameter's root mean square.
  u32 count = 0;                     ///< The number of parameters.
  u32 padding = 0;                   ///< To a multiple of 8 bytes.
};

/// One parameter: `matrices` of `height` x `width` elements, each cut into `row_tiles` x `strips` tiles.
struct AdafactorEntry {
  void* weights = nullptr;
  const void* gradients = nullptr;
  float* rows = nullptr;             ///< Second moments of rows; null for fewer than two dimensions.
  float* columns = nullptr;          ///< Second moments of columns; of all elements if `rows` is null.
  float* first = nullptr;            ///< First moments; null without beta1.
  const float* step = nullptr;       ///< The updates made, this one included.
  i64 matrices = 1;
  i64 height = 1;                    ///< Rows of a matrix.
  i64 width = 1;                     ///< Columns of a matrix.
  i64 part = 1;                      ///< Elements of a part, whose rounding has a seed of its own.
  i64 part_begin = 1;                ///< By how much the seed's salt grows from part to part.
  float* row_partials = nullptr;     ///< `[strips][matrices * height]`, sums of squares over a tile's columns.
  float* column_partials = nullptr;  ///< `[matrices][row_tiles][width]`, sums of squares over a tile's rows.
  float* means = nullptr;            ///< `[matrices]`, means of the rows' moments.
  double* sums = nullptr;            ///< `[tiles][2]`, sums of the update's squares and of the weights'.
  float* rates = nullptr;            ///< `[2]`, the rates of the update and of weight decay.
  u32 strips = 1;                    ///< Tiles across a matrix.
  u32 row_tiles = 1;                 ///< Tiles down a matrix.
  u32 strip_width = 4;               ///< Columns of a tile.
  u32 aligned = 0;                   ///< 1: four elements are read at once.
};
)
// clang-format on

/// The kernels `adafactor_squares_*`, with a thread block for each tile, and `adafactor_moments`, with one
/// for the rows of each matrix and one for every 64 of its columns.
inline constexpr const char* kAdafactorSumsCode = R"cuda(
typedef AdafactorEntry Entry;

struct Table : AdafactorHeader {
  u32 begins[LT_TENSORS];         // the first tile of each tensor
  u32 moment_begins[LT_TENSORS];  // the first thread block of each tensor in adafactor_moments
  Entry entries[LT_TENSORS];
};

constexpr u32 kRows = 128, kGroup = 64;

LT_INLINE bool overflowed(const Table& table) { return table.found_inf && *table.found_inf != 0.0f; }
LT_INLINE float gradient_factor(const Table& table) {
  return table.divisor ? (float)(1.0 / (double)*table.divisor) : 1.0f;
}

// How much a second moment keeps, and how much of the new squares it takes, computed by one thread of a block.
struct Shares {
  float kept, added;
};
LT_INLINE Shares shares_of(const Table& table, const Entry& entry) {
  __shared__ Shares shared;
  if (threadIdx.x == 0) {
    const double kept = 1.0 - pow((double)*entry.step, table.decay);
    shared.kept = (float)kept, shared.added = (float)(1.0 - kept);
  }
  __syncthreads();
  return shared;
}

// A thread has up to four columns of each of a tile's rows.
struct Tile {
  u32 index, row_tile, strip;
  i64 matrix, row, rows, column;
  int count;  // this thread's columns, none if below 1
  i64 at;     // the first element's place

  LT_INLINE Tile(const Entry& entry, u32 tile) : index(tile) {
    strip = tile % entry.strips;
    row_tile = tile / entry.strips % entry.row_tiles;
    matrix = tile / entry.strips / entry.row_tiles;
    row = (i64)row_tile * kRows;
    rows = entry.height - row < kRows ? entry.height - row : kRows;
    column = (i64)strip * entry.strip_width + (i64)threadIdx.x * 4;
    const i64 end = (i64)(strip + 1) * entry.strip_width;
    const i64 left = (end < entry.width ? end : entry.width) - column;
    count = left > 4 ? 4 : (int)(left < 0 ? 0 : left);
    at = (matrix * entry.height + row) * entry.width + column;
  }
};

// Calls `work(entry, tile)` for the tile of this thread block, unless gradients have overflowed.
template <class Work>
LT_INLINE void for_tile(const Table& table, const Work& work) {
  if (overflowed(table)) return;
  const u32 index = tensor_of(table.begins, table.count, blockIdx.x);
  work(table.entries[index], blockIdx.x - table.begins[index]);
}

// ---- Sums of squares ----

template <class Stored, bool kFull>
LT_INLINE void sum_squares(const Table& table, const Entry& entry, u32 index, Shares shares) {
  __shared__ float of_rows[kRows][kThreads / kWarp];
  const Tile tile(entry, index);
  const float factor = gradient_factor(table), least = (float)table.least_square;
  const Stored* gradients = (const Stored*)entry.gradients + tile.at;
  const Stored* weights = (const Stored*)entry.weights + tile.at;
  const bool factored = entry.rows != nullptr;
  float columns[4] = {0, 0, 0, 0}, norm = 0;
#pragma unroll 4
  for (u32 i = 0; i < tile.rows; ++i) {
    float gradient[4] = {0, 0, 0, 0}, weight[4] = {0, 0, 0, 0}, sum = 0;
    if (tile.count > 0) {
      load<kFull>(gradients + i * entry.width, tile.count, gradient);
      if (table.scaled) load<kFull>(weights + i * entry.width, tile.count, weight);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float slope = gradient[j] * factor, square = j < tile.count ? slope * slope + least : 0.0f;
      columns[j] += square, sum += square, norm += weight[j] * weight[j];
    }
    if (factored) {
      sum = warp_sum(sum);
      if (threadIdx.x % kWarp == 0) of_rows[i][threadIdx.x / kWarp] = sum;
    }
  }
  if (factored) {
    float* const sums = entry.column_partials + (tile.matrix * entry.row_tiles + tile.row_tile) * entry.width;
    for (int j = 0; j < 4; ++j)
      if (j < tile.count) sums[tile.column + j] = columns[j];
    __syncthreads();
    if (threadIdx.x < tile.rows) {
      float sum = 0;
      for (u32 i = 0; i < kThreads / kWarp; ++i) sum += of_rows[threadIdx.x][i];
      const i64 row = tile.matrix * entry.height + tile.row + threadIdx.x;
      entry.row_partials[tile.strip * entry.matrices * entry.height + row] = sum;
    }
  } else {
    for (int j = 0; j < 4; ++j) {
      if (j >= tile.count) continue;
      float& moment = entry.columns[tile.column + j];
      moment = moment * shares.kept + columns[j] * shares.added;
    }
  }
  const double total = block_sum((double)norm);
  if (threadIdx.x == 0) entry.sums[tile.index * 2 + 1] = total;
}

template <class Stored>
LT_INLINE void sum_squares(const Table& table) {
  for_tile(table, [&](const Entry& entry, u32 tile) {
    Shares shares = {0, 0};
    if (!entry.rows) shares = shares_of(table, entry);
    if (entry.aligned) sum_squares<Stored, true>(table, entry, tile, shares);
    else sum_squares<Stored, false>(table, entry, tile, shares);
  });
}

extern "C" __global__ void __launch_bounds__(256, 4) adafactor_squares_fp32(LT_TABLE(Table) table) {
  sum_squares<float>(table);
}
extern "C" __global__ void __launch_bounds__(256, 4) adafactor_squares_bf16(LT_TABLE(Table) table) {
  sum_squares<u16>(table);
}
extern "C" __global__ void __launch_bounds__(256, 4) adafactor_squares_fp16(LT_TABLE(Table) table) {
  sum_squares<Half>(table);
}

// ---- Moments of rows and columns ----

LT_INLINE void average_rows(const Entry& entry, i64 matrix, Shares shares) {
  double sum = 0;
#pragma unroll 4
  for (i64 i = threadIdx.x; i < entry.height; i += kThreads) {
    float row = 0;
    for (u32 strip = 0; strip < entry.strips; ++strip)
      row += entry.row_partials[(strip * entry.matrices + matrix) * entry.height + i];
    float& moment = entry.rows[matrix * entry.height + i];
    moment = moment * shares.kept + row / (float)entry.width * shares.added;
    sum += (double)moment;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) entry.means[matrix] = (float)(sum / (double)entry.height);
}

// Four threads add up a column's tiles.
LT_INLINE void average_columns(const Entry& entry, i64 matrix, u32 group, Shares shares) {
  __shared__ float partial[kThreads / kGroup][kGroup];
  const u32 lane = threadIdx.x % kGroup, part = threadIdx.x / kGroup;
  const i64 column = (i64)group * kGroup + lane;
  float sum = 0;
  if (column < entry.width) {
#pragma unroll 8
    for (u32 tile = part; tile < entry.row_tiles; tile += kThreads / kGroup)
      sum += entry.column_partials[(matrix * entry.row_tiles + tile) * entry.width + column];
  }
  partial[part][lane] = sum;
  __syncthreads();
  if (part != 0 || column >= entry.width) return;
  sum = (partial[0][lane] + partial[1][lane]) + (partial[2][lane] + partial[3][lane]);
  float& moment = entry.columns[matrix * entry.width + column];
  moment = moment * shares.kept + sum / (float)entry.height * shares.added;
}

extern "C" __global__ void __launch_bounds__(256) adafactor_moments(LT_TABLE(Table) table) {
  if (overflowed(table)) return;
  const u32 index = tensor_of(table.moment_begins, table.count, blockIdx.x);
  const Entry& entry = table.entries[index];
  const Shares shares = shares_of(table, entry);
  const u32 groups = (u32)((entry.width + kGroup - 1) / kGroup), local = blockIdx.x - table.moment_begins[index];
  const i64 matrix = local / (groups + 1);
  const u32 group = local % (groups + 1);
  if (group == groups) average_rows(entry, matrix, shares);
  else average_columns(entry, matrix, group, shares);
}
)cuda";

}  // namespace looptorch::detail
