// SPDX-License-Identifier: MIT
// Defines Flops: a number of floating-point operations for each type, such as fp32, TF32 and bf16. Types are
// counted separately, since a GPU's peak differs between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace looptorch {

/// The arithmetic of matmuls, convolutions and attention.
enum class Arithmetic {
  fp64,
  fp32,
  tf32,  ///< fp32 inputs in CUDA's tensor cores, if LibTorch allows it
  fp16,
  bf16,
  other,  ///< any other type, such as 8 bits
};
inline constexpr std::size_t kArithmetics = 6;

/// A number of FLOPs of each arithmetic. A multiplication and its addition are two.
struct Flops {
  std::array<std::int64_t, kArithmetics> of{};

  [[nodiscard]] std::int64_t& operator[](Arithmetic arithmetic) {
    return of[static_cast<std::size_t>(arithmetic)];
  }
  [[nodiscard]] std::int64_t operator[](Arithmetic arithmetic) const {
    return of[static_cast<std::size_t>(arithmetic)];
  }
  [[nodiscard]] std::int64_t total() const { return std::accumulate(of.begin(), of.end(), std::int64_t{0}); }

  Flops& operator+=(const Flops& other) {
    for (std::size_t i = 0; i < of.size(); ++i) of[i] += other.of[i];
    return *this;
  }
  friend bool operator==(const Flops&, const Flops&) = default;
};

}  // namespace looptorch
