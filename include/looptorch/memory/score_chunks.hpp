// SPDX-License-Identifier: MIT
// Computes a linear layer's scores for a few classes at a time. Serves losses that need only sums over the
// classes (chunked_cross_entropy.hpp).
//
// Suffixes of names: N rows, V classes, C classes of a chunk, D hidden size.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace looptorch::detail {

/// The scores of a range of classes.
struct ScoreChunk {
  std::int64_t first, classes;
  at::Tensor scores_NC;  ///< In fp32 at least.
};

/// Computes scores chunk by chunk, with matmuls in `type`, the one that autocast chooses.
class ChunkedScores {
 public:
  ChunkedScores(const at::Tensor& hidden_ND, const at::Tensor& weight_VD, const at::Tensor& bias_V,
                at::ScalarType type, std::int64_t chunk_bytes)
      : hidden_ND_(hidden_ND.to(type)),
        weight_VD_(weight_VD),
        bias_V_(bias_V),
        wide_type_(at::promote_types(type, at::kFloat)) {
    const std::int64_t bytes = std::max<std::int64_t>(hidden_ND.size(0), 1) *
                               static_cast<std::int64_t>(c10::elementSize(wide_type_));
    constexpr std::int64_t kBytes = 4'000'000, kClasses = 1024;
    const std::int64_t classes = chunk_bytes > 0 ? chunk_bytes / bytes : std::max(kBytes / bytes, kClasses);
    classes_ = std::clamp<std::int64_t>(classes, 1, weight_VD.size(0));
  }

  template <class Take>
  void for_each(const Take& take) const {
    for (std::int64_t first = 0; first < weight_VD_.size(0); first += classes_) {
      const std::int64_t classes = std::min(classes_, weight_VD_.size(0) - first);
      at::Tensor scores_NC = at::mm(hidden_ND_, weights_of(first, classes).t()).to(wide_type_);
      if (bias_V_.defined()) scores_NC.add_(bias_V_.narrow(0, first, classes));
      take(ScoreChunk{first, classes, std::move(scores_NC)});
    }
  }

  [[nodiscard]] at::Tensor weights_of(std::int64_t first, std::int64_t classes) const {
    return weight_VD_.narrow(0, first, classes).to(hidden_ND_.scalar_type());
  }
  [[nodiscard]] const at::Tensor& hidden_ND() const { return hidden_ND_; }
  [[nodiscard]] at::ScalarType wide_type() const { return wide_type_; }

 private:
  at::Tensor hidden_ND_, weight_VD_, bias_V_;
  at::ScalarType wide_type_;
  std::int64_t classes_ = 0;
};

/// For each row, whether its label lies in the chunk, and the label's column there; column 0 if it does not.
struct LabelColumns {
  LabelColumns(const at::Tensor& labels_N, const ScoreChunk& chunk) {
    const at::Tensor columns_N = labels_N - chunk.first;
    here_N = columns_N.ge(0).logical_and_(columns_N.lt(chunk.classes));
    columns_N1 = columns_N.where(here_N, 0).unsqueeze(1);
  }
  at::Tensor here_N, columns_N1;
};

/// Returns the chunk's part of a [V] tensor.
[[nodiscard]] inline at::Tensor part_of(const at::Tensor& values_V, const ScoreChunk& chunk) {
  return values_V.narrow(0, chunk.first, chunk.classes);
}

}  // namespace looptorch::detail
