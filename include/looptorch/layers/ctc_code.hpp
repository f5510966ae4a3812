// SPDX-License-Identifier: MIT
// Holds the CUDA C++ source of CTC's forward and backward recursions. One thread block computes one clip, and
// its threads share the clip's states: the text's labels, with a blank before, between and after them. Sums
// have a fixed order, without atomics, so a repeated step gives the same bits.
#pragma once

#include <looptorch/base/device/kernel_source.hpp>

#include <cstdint>

namespace looptorch::detail {

// clang-format off
LOOPTORCH_DETAIL_KERNEL_STRUCTS(kCtcStructs,

/// A launch's arguments.
struct CtcTable {
  const float* log_probs = nullptr;
  i64 frame_stride = 0, clip_stride = 0;
  const i64* targets = nullptr;
  const i64* input_lengths = nullptr;
  const i64* target_lengths = nullptr;
  float* alpha = nullptr;         ///< `[frames][clips][states]`
  float* losses = nullptr;        ///< `[clips]`
  float* rows = nullptr;          ///< `[clips][4][states]`
  const float* slopes = nullptr;  ///< `[clips]`, gradients of the losses.
  float* gradient = nullptr;
  i64 gradient_frame_stride = 0, gradient_clip_stride = 0;
  i64 clips = 0, frames = 0, labels = 0, classes = 0, blank = 0;
  u32 zero_infinity = 0, padding = 0;
};
)
// clang-format on

/// Kernels `ctc_forward` and `ctc_backward`, for log-probabilities in fp32.
inline constexpr const char* kCtcCode = R"cuda(
typedef CtcTable Table;

constexpr u32 kThreads = 256;

LT_INLINE float infinity() { return __uint_as_float(0x7F800000u); }

// Returns log(exp(a) + exp(b) + exp(c)); NaN if one is.
LT_INLINE float log_sum(float a, float b, float c) {
  float most = a > b ? a : b;
  most = most > c ? most : c;
  if (most == -infinity()) most = 0;
  return most + logf(expf(a - most) + expf(b - most) + expf(c - most));
}

LT_INLINE i64 within(i64 length, i64 most) { return length < 0 ? 0 : length > most ? most : length; }

struct Clip {
  const Table& table;
  i64 index, frames, labels, states;
  const i64* text;

  LT_INLINE Clip(const Table& all)
      : table(all), index(blockIdx.x), frames(within(all.input_lengths[index], all.frames)),
        labels(within(all.target_lengths[index], all.labels)), states(2 * labels + 1),
        text(all.targets + index * all.labels) {}

  LT_INLINE i64 label(i64 state) const { return state % 2 ? text[state / 2] : table.blank; }
  // True if a path may go to this state from the one before last, over no blank.
  LT_INLINE bool skips_to(i64 state) const {
    return state % 2 && state > 1 && state < states && text[state / 2] != text[state / 2 - 1];
  }
  LT_INLINE const float* log_probs(i64 frame) const {
    return table.log_probs + frame * table.frame_stride + index * table.clip_stride;
  }
  LT_INLINE float* alpha(i64 frame) const {
    return table.alpha + (frame * table.clips + index) * (2 * table.labels + 1);
  }
  LT_INLINE float* row(i64 number) const {
    return table.rows + (index * 4 + number) * (2 * table.labels + 1);
  }
};

// alpha: log-probability of all paths to a state, its frame included.
extern "C" __global__ void __launch_bounds__(256) ctc_forward(LT_TABLE(Table) table) {
  const Clip clip(table);
  for (i64 frame = 0; frame < clip.frames; ++frame) {
    const float* const log_probs = clip.log_probs(frame);
    const float* const before = clip.alpha(frame - 1);
    float* const alpha = clip.alpha(frame);
    for (i64 s = threadIdx.x; s < clip.states; s += kThreads) {
      float reached = s < 2 ? 0.0f : -infinity();
      if (frame > 0)
        reached = log_sum(before[s], s > 0 ? before[s - 1] : -infinity(),
                          clip.skips_to(s) ? before[s - 2] : -infinity());
      alpha[s] = reached + log_probs[clip.label(s)];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  float loss = clip.labels > 0 ? infinity() : 0.0f;
  if (clip.frames > 0) {
    const float* const last = clip.alpha(clip.frames - 1) + clip.states - 1;
    loss = -log_sum(*last, clip.labels > 0 ? *(last - 1) : -infinity(), -infinity());
  }
  table.losses[clip.index] = loss;
}

// beta: log-probability of all paths from a state to the end, its frame left out. Two rows hold beta with the
// frame, and two each state's share of the paths: of either pair one is read while the other is written.
extern "C" __global__ void __launch_bounds__(256) ctc_backward(LT_TABLE(Table) table) {
  const Clip clip(table);
  const float loss = table.losses[clip.index], slope = table.slopes[clip.index];
  const i64 frames = table.zero_infinity && loss == infinity() ? 0 : clip.frames;
  for (i64 frame = table.frames - 1; frame >= 0; --frame) {
    float* const gradient =
        table.gradient + frame * table.gradient_frame_stride + clip.index * table.gradient_clip_stride;
    if (frame >= frames) {
      for (i64 c = threadIdx.x; c < table.classes; c += kThreads) gradient[c] = 0;
      continue;
    }
    const float *const log_probs = clip.log_probs(frame), *const alpha = clip.alpha(frame);
    const float* const later = clip.row((frame + 1) % 2);
    float *const beta = clip.row(frame % 2), *const shares = clip.row(2 + frame % 2);
    for (i64 s = threadIdx.x; s < clip.states; s += kThreads) {
      float leaving = s + 2 < clip.states ? -infinity() : 0.0f;
      if (frame + 1 < frames)
        leaving = log_sum(later[s], s + 1 < clip.states ? later[s + 1] : -infinity(),
                          clip.skips_to(s + 2) ? later[s + 2] : -infinity());
      beta[s] = leaving + log_probs[clip.label(s)];
      shares[s] = expf(alpha[s] + leaving + loss);
    }
    __syncthreads();
    for (i64 c = threadIdx.x; c < table.classes; c += kThreads) {
      float share = 0;
      if (c == table.blank) {
        for (i64 s = 0; s < clip.states; s += 2) share += shares[s];
      } else {
        for (i64 i = 0; i < clip.labels; ++i)
          if (clip.text[i] == c) share += shares[2 * i + 1];
      }
      gradient[c] = (expf(log_probs[c]) - share) * slope;
    }
  }
}
)cuda";

inline constexpr KernelSource kCtcSource{"CTC", {kCtcStructs, kCtcCode}, sizeof(CtcTable), 1};

}  // namespace looptorch::detail
