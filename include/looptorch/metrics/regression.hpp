// SPDX-License-Identifier: MIT
// Measures how well predicted numbers match their targets, over any number of batches: Lin's concordance, R2,
// Pearson's correlation, mean squared error. Subtracts the first batch's means and sums squared deviations in
// double (Chan, Golub and LeVeque 1979), so data far from zero lose no digits. Adding launches about twenty
// small kernels per batch and never waits for the device; reading waits.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/rank_reduction.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace looptorch {

/// Moments of predictions, targets and residuals (target - prediction) over `count` pairs, read back from the
/// device. Variances and covariance are the population's (over `count`). A score that the data leave
/// undefined, such as a correlation with a constant, is NaN.
struct RegressionMoments {
  std::int64_t count = 0;
  double prediction_mean = NAN, target_mean = NAN, residual_mean = NAN;
  double prediction_variance = NAN, target_variance = NAN, residual_variance = NAN;
  double covariance = NAN;

  /// Returns Lin's concordance correlation coefficient (1989), with the population's variances: 1 only if
  /// each prediction equals its target.
  [[nodiscard]] double concordance() const {
    return 2 * covariance / (prediction_variance + target_variance + residual_mean * residual_mean);
  }

  /// Returns Pearson's correlation coefficient.
  [[nodiscard]] double pearson() const {
    return covariance / (std::sqrt(prediction_variance) * std::sqrt(target_variance));
  }

  /// Returns the coefficient of determination: 1 minus the mean squared error over the targets' variance.
  /// Negative if the targets' mean would predict better. NaN or minus infinity for constant targets.
  [[nodiscard]] double r2() const { return 1 - mean_squared_error() / target_variance; }

  [[nodiscard]] double mean_squared_error() const {
    return residual_variance + residual_mean * residual_mean;
  }

  /// Adds other pairs. Loses no digits of data far from zero.
  RegressionMoments& operator+=(const RegressionMoments& other) {
    if (other.count == 0) return *this;
    if (count == 0) return *this = other;
    const double share = static_cast<double>(other.count) / static_cast<double>(count + other.count);
    const double prediction_shift = other.prediction_mean - prediction_mean;
    const double target_shift = other.target_mean - target_mean;
    const double residual_shift = other.residual_mean - residual_mean;
    const auto merge = [share](double& own, double others, double shift, double other_shift) {
      own += share * (others - own + (1 - share) * shift * other_shift);
    };
    merge(prediction_variance, other.prediction_variance, prediction_shift, prediction_shift);
    merge(target_variance, other.target_variance, target_shift, target_shift);
    merge(residual_variance, other.residual_variance, residual_shift, residual_shift);
    merge(covariance, other.covariance, prediction_shift, target_shift);
    prediction_mean += share * prediction_shift;
    target_mean += share * target_shift;
    residual_mean += share * residual_shift;
    count += other.count;
    return *this;
  }
};

/// Accumulates pairs of prediction and target on their device. For several targets, use one for each:
/// `valence.add(predicted.select(1, 0), labels.select(1, 0))`.
class RegressionMetrics {
 public:
  /// Adds each element of two tensors of one shape and device, of any real dtype. Throws UsageError for
  /// different shapes (nothing is broadcast) or devices, complex numbers, or another device than before.
  void add(const at::Tensor& prediction, const at::Tensor& target) {
    check(prediction, target);
    if (prediction.numel() == 0) return;
    at::NoGradGuard no_grad;
    const auto predicted = prediction.detach().to(at::kDouble).flatten();
    const auto wanted = target.detach().to(at::kDouble).flatten();
    auto values_3N = at::stack({predicted, wanted, wanted - predicted});
    if (count_ == 0) origin_3_ = values_3N.mean(1);
    values_3N.sub_(origin_3_.unsqueeze(1));
    const auto mean_3 = values_3N.mean(1);
    const auto centred_3N = values_3N - mean_3.unsqueeze(1);
    merge(prediction.numel(), mean_3, at::mm(centred_3N, centred_3N.t()));
    of_ranks_.clear();
  }

  /// Returns the number of pairs added so far, without a wait.
  [[nodiscard]] std::int64_t count() const { return count_; }

  /// Adds the moments to a reduction. Once that has run, `moments` and the scores cover the pairs of all
  /// ranks, until this rank adds more. All ranks give the same `name`. Waits for the device, once.
  void all_reduce(const std::string& name, RankReduction& reduction) {
    of_ranks_.clear();
    const RegressionMoments own = moments();
    of_ranks_.assign(reinterpret_cast<const char*>(&own), sizeof own);
    reduction.append(name, of_ranks_);
  }

  /// Returns the moments. Waits for the device, once.
  [[nodiscard]] RegressionMoments moments() const {
    if (!of_ranks_.empty()) return sum_of_ranks();
    if (count_ == 0) return {};
    const auto read = at::cat({origin_3_ + mean_3_, scatter_33_.flatten()}).cpu();
    const auto* value = read.const_data_ptr<double>();
    const auto variance = [&](int i, int j) { return value[3 + 3 * i + j] / static_cast<double>(count_); };
    return {.count = count_,
            .prediction_mean = value[0],
            .target_mean = value[1],
            .residual_mean = value[2],
            .prediction_variance = variance(0, 0),
            .target_variance = variance(1, 1),
            .residual_variance = variance(2, 2),
            .covariance = variance(0, 1)};
  }

  /// Returns the score. Each of these reads the moments back; for several scores, call `moments` once.
  [[nodiscard]] double concordance() const { return moments().concordance(); }
  [[nodiscard]] double pearson() const { return moments().pearson(); }
  [[nodiscard]] double r2() const { return moments().r2(); }
  [[nodiscard]] double mean_squared_error() const { return moments().mean_squared_error(); }

  void reset() { *this = RegressionMetrics{}; }

 private:
  void check(const at::Tensor& prediction, const at::Tensor& target) const {
    if (!prediction.defined() || !target.defined())
      throw UsageError("RegressionMetrics: an undefined tensor");
    if (prediction.sizes() != target.sizes())
      throw UsageError(message("RegressionMetrics: predictions of shape ", prediction.sizes(),
                               " and targets of shape ", target.sizes(), "; they must be equal"));
    if (prediction.is_complex() || target.is_complex())
      throw UsageError("RegressionMetrics: complex numbers; they must be real");
    if (prediction.device() != target.device())
      throw UsageError(message("RegressionMetrics: predictions on ", prediction.device(), " and targets on ",
                               target.device(), "; they must be on one device"));
    if (mean_3_.defined() && prediction.device() != mean_3_.device())
      throw UsageError(message("RegressionMetrics: a batch on ", prediction.device(), " after batches on ",
                               mean_3_.device()));
  }

  [[nodiscard]] RegressionMoments sum_of_ranks() const {
    RegressionMoments sum, one;
    for (std::string_view left = of_ranks_; !left.empty(); left.remove_prefix(sizeof one)) {
      std::memcpy(&one, left.data(), sizeof one);
      sum += one;
    }
    return sum;
  }

  /// Merges the moments of another sample into these.
  void merge(std::int64_t count, const at::Tensor& mean_3, const at::Tensor& scatter_33) {
    if (count_ == 0) {
      mean_3_ = mean_3, scatter_33_ = scatter_33;
    } else {
      const double share = static_cast<double>(count) / static_cast<double>(count_ + count);
      const auto shift_3 = mean_3 - mean_3_;
      mean_3_ = mean_3_ + shift_3 * share;
      scatter_33_ =
          scatter_33_ + scatter_33 + at::outer(shift_3, shift_3) * (share * static_cast<double>(count_));
    }
    count_ += count;
  }

  std::int64_t count_ = 0;
  at::Tensor origin_3_;    ///< means of the first batch, from which distances are small
  at::Tensor mean_3_;      ///< of prediction, target and residual, relative to the origin
  at::Tensor scatter_33_;  ///< sums of products of their deviations from the means
  std::string of_ranks_;   ///< After `all_reduce`: the RegressionMoments of all ranks as bytes.
};

}  // namespace looptorch
