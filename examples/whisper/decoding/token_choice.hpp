// SPDX-License-Identifier: MIT
// Chooses the next token of each text (for a beam, the best few) on the device, by the rules of
// score_rules.hpp. The host sends a few numbers per text and gets the chosen tokens back. In between nothing
// depends on the host, so a CUDA graph can hold this step.
//
// Shapes: R rows (texts under way), V vocabulary, K candidates of a row.
#pragma once

#include "decoding_options.hpp"
#include "score_rules.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace whisper {

/// The numbers that the host sends for one step of a row.
struct RowInputs {
  int64_t token = 0;   ///< The row's last token.
  int64_t parent = 0;  ///< The row that this one continues.
  int64_t position = 0;
  FirstAllowed first{};    ///< Used only with timestamps.
  double number = 0;       ///< Random number from 0 to 1 that draws the token.
  double temperature = 1;  ///< Temperature at which the token is drawn.
};

/// The inputs of a step's rows in one int64 tensor, a row each; it holds the bits of fp64 numbers.
struct StepInputs {
  static constexpr int64_t kFields = 7;
  static_assert(sizeof(RowInputs) == kFields * sizeof(int64_t));

  at::Tensor rows_R7;

  /// Returns the memory of `rows` as a tensor.
  static at::Tensor view(std::vector<RowInputs>& rows) {
    return at::from_blob(rows.data(), {std::ssize(rows), kFields}, at::kLong);
  }

  [[nodiscard]] at::Tensor tokens_R1() const { return rows_R7.narrow(1, 0, 1); }
  [[nodiscard]] at::Tensor parents_R() const { return rows_R7.select(1, 1); }
  /// Returns the position of the first row.
  [[nodiscard]] at::Tensor position_1() const { return rows_R7.select(0, 0).narrow(0, 2, 1); }
  [[nodiscard]] at::Tensor first_R2() const { return rows_R7.narrow(1, 3, 2); }
  [[nodiscard]] at::Tensor numbers_R1() const { return rows_R7.view(at::kDouble).narrow(1, 5, 1); }
  [[nodiscard]] at::Tensor temperatures_R1() const { return rows_R7.view(at::kDouble).narrow(1, 6, 1); }
};

/// Applies the rules of suppression, then chooses each row's tokens: the best few for a beam, else one, which
/// is the best or, at a temperature above 0, drawn at random. Made for one device.
class TokenChoice {
 public:
  TokenChoice(const DecodingOptions& options, at::Device device)
      : rules_(options, device),
        draws_(options.temperature > 0),
        count_(options.uses_beam() ? options.beam_size + 1 + std::ssize(options.other_ends) : 1),
        key_{draws_, count_, options.without_timestamps ? -1 : options.special.first_timestamp()} {
    key_.insert(key_.end(), options.suppress.begin(), options.suppress.end());
  }

  [[nodiscard]] const ScoreRules& rules() const { return rules_; }

  /// Returns a key: choices with equal keys run the same operators, except for a text's first token.
  [[nodiscard]] const std::vector<int64_t>& key() const { return key_; }

  /// Returns the candidates of each row, `[R, 2 K]` in fp32: log-probabilities, best first, then their
  /// tokens, whose ids fp32 holds exactly. Overwrites the scores, which are fp32. `begins` is true for a
  /// text's first token.
  [[nodiscard]] at::Tensor operator()(at::Tensor scores_RV, const StepInputs& inputs,
                                      bool begins = false) const {
    rules_.apply(scores_RV, inputs.first_R2(), begins);
    const auto log_probs_RV = at::log_softmax(scores_RV, 1);
    at::Tensor log_probs_RK, tokens_RK;
    if (count_ > 1) {
      std::tie(log_probs_RK, tokens_RK) = at::topk(log_probs_RV, std::min(count_, scores_RV.size(1)), 1);
    } else {
      tokens_RK = draws_ ? drawn(scores_RV, inputs) : log_probs_RV.argmax(1, /*keepdim=*/true);
      log_probs_RK = log_probs_RV.gather(1, tokens_RK);
    }
    return at::cat({log_probs_RK, tokens_RK}, 1);  // in fp32
  }

 private:
  /// Draws a token of each row by the inverse of its distribution.
  static at::Tensor drawn(const at::Tensor& scores_RV, const StepInputs& inputs) {
    const auto sums_RV = at::softmax(scores_RV.to(at::kDouble) / inputs.temperatures_R1(), 1).cumsum(1);
    return at::searchsorted(sums_RV, inputs.numbers_R1() * sums_RV.slice(1, -1), /*out_int32=*/false,
                            /*right=*/true)
        .clamp_max(scores_RV.size(1) - 1);
  }

  ScoreRules rules_;
  bool draws_;
  int64_t count_;
  std::vector<int64_t> key_;
};

}  // namespace whisper
