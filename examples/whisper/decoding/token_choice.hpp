// SPDX-License-Identifier: MIT
// Chooses the next tokens of each text on the device, by the search and the rules of score_rules.hpp. The
// host sends a few numbers per text and gets the chosen tokens back. Nothing in between depends on the host,
// so a CUDA graph can hold this step.
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
  int64_t token = 0;   ///< The last one.
  int64_t parent = 0;  ///< The row that this one continues.
  int64_t position = 0;
  FirstAllowed first{};    ///< With timestamps.
  double number = 0;       ///< Draws the token, from 0 to 1.
  double temperature = 1;  ///< Of a drawn token.
};

/// The inputs of a step's rows, one after another, in a tensor of int64; fp64 by its bits.
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

/// The rules of suppression and the choice of a search: the best tokens of each row for a beam, else one, the
/// best or, at a temperature above 0, a drawn one. Made for one device.
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

  /// Returns a list that two choices share only if the same calls compute both, first tokens aside.
  [[nodiscard]] const std::vector<int64_t>& key() const { return key_; }

  /// Returns the candidates of each row, `[R, 2 K]` in fp32: log-probabilities, best first, then their
  /// tokens, which are exact in it. Overwrites the scores, which are fp32. `begins` is true for a text's
  /// first token.
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
