// SPDX-License-Identifier: MIT
// Makes the sinusoids that encode positions in the encoder and the decoder. Also makes the masks of a padded
// batch, which are true up to each clip's length.
//
// Shapes: B batch, T frames or characters, D width, P = 2T - 1 distances.
#pragma once

#include <torch/torch.h>

#include <cmath>

namespace konkanivani {

/// Returns sines in the even channels and cosines in the odd ones for each of `positions_T` (any real
/// numbers): `[T, D]` in fp32 (Vaswani et al. 2017).
inline at::Tensor sinusoids(const at::Tensor& positions_T, int64_t width) {
  const auto rates =
      at::exp(at::arange(0, width, 2, positions_T.options().dtype(at::kFloat)) * (-std::log(1e4) / width));
  const auto angles = positions_T.to(at::kFloat).unsqueeze(1) * rates;
  return at::stack({angles.sin(), angles.cos()}, 2).flatten(1);
}

/// Returns the table of positions 0 to `length` - 1.
inline at::Tensor position_table(int64_t length, int64_t width, const at::TensorOptions& options) {
  return sinusoids(at::arange(length, options.dtype(at::kFloat)), width).to(options);
}

/// Returns the table of distances `length` - 1 down to 1 - `length` between a query and a key: `[P, D]`.
inline at::Tensor distance_table(int64_t length, int64_t width, const at::TensorOptions& options) {
  return sinusoids(at::arange(length - 1, -length, -1, options.dtype(at::kFloat)), width).to(options);
}

/// Returns a mask, bool `[B, T]`: true for the first `lengths_B` (int64) of `length` positions. It lies on
/// the device of `lengths_B`.
inline at::Tensor valid_places(const at::Tensor& lengths_B, int64_t length) {
  return at::arange(length, lengths_B.options()).unsqueeze(0) < lengths_B.unsqueeze(1);
}

}  // namespace konkanivani
