// SPDX-License-Identifier: MIT
// Measures how well predicted classes match their labels, over any number of batches: accuracy, precision,
// recall and F1, by class, macro and micro. Adding launches some ten small kernels per batch and never waits
// for the device; reading waits. For metrics of ranked scores see top_k_accuracy.hpp and auroc.hpp.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/metrics/class_scores.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch {

/// One class against all others, in samples. A score whose denominator is 0 is 0, as in torchmetrics: the
/// precision of a class that was never predicted, the recall of one that never occurs.
struct ClassCounts {
  std::int64_t right = 0;   ///< True positives: of the class, and predicted so.
  std::int64_t wrong = 0;   ///< False positives: predicted so, and of another class.
  std::int64_t missed = 0;  ///< False negatives: of the class, and predicted otherwise.

  [[nodiscard]] bool occurs() const { return right + wrong + missed > 0; }
  [[nodiscard]] double precision() const { return share(right, right + wrong); }
  [[nodiscard]] double recall() const { return share(right, right + missed); }
  [[nodiscard]] double f1() const { return share(2 * right, 2 * right + wrong + missed); }

 private:
  static double share(std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

/// The counts of all classes, read back from the device. Without samples, scores are NaN.
struct ClassificationCounts {
  std::vector<ClassCounts> classes;

  /// Returns the sums over all classes; `right + missed` is the number of samples.
  [[nodiscard]] ClassCounts total() const {
    ClassCounts sum;
    for (const ClassCounts& each : classes)
      sum.right += each.right, sum.wrong += each.wrong, sum.missed += each.missed;
    return sum;
  }
  [[nodiscard]] std::int64_t count() const { return total().right + total().missed; }

  [[nodiscard]] double accuracy() const { return count() == 0 ? NAN : total().recall(); }
  /// Returns the F1 of the sums, which is the accuracy if every sample has a prediction.
  [[nodiscard]] double micro_f1() const { return count() == 0 ? NAN : total().f1(); }
  /// Returns the mean F1 of the classes that occur among labels or predictions, as scikit-learn and
  /// torchmetrics do.
  [[nodiscard]] double macro_f1() const {
    double sum = 0;
    std::int64_t occurring = 0;
    for (const ClassCounts& each : classes) sum += each.f1(), occurring += each.occurs();
    return sum / static_cast<double>(occurring);
  }
};

/// Accumulates predictions and labels on their device.
class ClassificationMetrics {
 public:
  /// Throws UsageError for fewer than two classes.
  explicit ClassificationMetrics(std::int64_t classes) : classes_(classes) {
    if (classes < 2)
      throw UsageError(message("ClassificationMetrics needs two classes or more, got ", classes));
  }

  /// Adds scores, [N, C] of any real type or bool, whose largest is the prediction (of equal ones the first);
  /// or predicted classes, [N] of integers or bool. `labels` are integers, [N]. A sample with a NaN among its
  /// scores has no prediction: it is missed. Throws UsageError for other shapes, types or devices.
  void add(const at::Tensor& predicted, const at::Tensor& labels) {
    at::NoGradGuard no_grad;
    const auto classes_N = predicted_classes(predicted, labels);
    const auto labels_N = labels.to(at::kLong);
    const auto is_label_N = labels_N.ge(0).logical_and(labels_N.lt(classes_));
    // a row of labels, a column of predictions, and after the last column those without one
    const auto column_N = at::where(classes_N.ge(0).logical_and(classes_N.lt(classes_)), classes_N,
                                    at::full_like(classes_N, classes_));
    const auto cell_N = at::where(is_label_N, labels_N * (classes_ + 1) + column_N,
                                  at::full_like(labels_N, cells()));  // the last: labels out of range
    if (!counts_.defined()) counts_ = at::zeros({cells() + 1}, labels_N.options());
    if (counts_.device() != labels.device())
      throw UsageError(message("ClassificationMetrics: a batch on ", labels.device(), " after batches on ",
                               counts_.device()));
    counts_.scatter_add_(0, cell_N, at::ones_like(cell_N));
  }

  /// Returns the confusion matrix, [C, C + 1] on the host: label by prediction, and a last column of samples
  /// without one. Waits for the device, once. Throws UsageError if labels were out of range.
  [[nodiscard]] at::Tensor confusion() const {
    if (!counts_.defined()) return at::zeros({classes_, classes_ + 1}, at::kLong);
    const auto counts = counts_.cpu();
    detail::require_none_outside("ClassificationMetrics", counts[cells()].item<std::int64_t>(), classes_);
    return counts.slice(0, 0, cells()).view({classes_, classes_ + 1});
  }

  /// Returns the counts. Waits for the device, once; throws as `confusion` does.
  [[nodiscard]] ClassificationCounts counts() const {
    const auto confusion_CP = confusion();
    const auto* cell = confusion_CP.const_data_ptr<std::int64_t>();
    ClassificationCounts result{std::vector<ClassCounts>(static_cast<std::size_t>(classes_))};
    for (std::int64_t label = 0; label < classes_; ++label)
      for (std::int64_t predicted = 0; predicted <= classes_; ++predicted) {
        const std::int64_t samples = *cell++;
        ClassCounts& own = result.classes[static_cast<std::size_t>(label)];
        (label == predicted ? own.right : own.missed) += samples;
        if (label != predicted && predicted < classes_)
          result.classes[static_cast<std::size_t>(predicted)].wrong += samples;
      }
    return result;
  }

  /// Returns the score. Each of these reads the counts back; for several scores, call `counts` once.
  [[nodiscard]] double accuracy() const { return counts().accuracy(); }
  [[nodiscard]] double macro_f1() const { return counts().macro_f1(); }
  [[nodiscard]] double micro_f1() const { return counts().micro_f1(); }

  void reset() { counts_ = at::Tensor(); }

 private:
  [[nodiscard]] std::int64_t cells() const { return classes_ * (classes_ + 1); }

  /// Returns the predicted classes, [N]; -1 without a prediction.
  [[nodiscard]] at::Tensor predicted_classes(const at::Tensor& predicted, const at::Tensor& labels) const {
    if (predicted.defined() && predicted.dim() == 1) {
      detail::require_labels("ClassificationMetrics", predicted, labels);
      if (predicted.is_floating_point() || predicted.is_complex())
        throw UsageError(message("ClassificationMetrics: predictions of shape ", predicted.sizes(),
                                 " are classes, of integers or bool, and these are ", predicted.scalar_type(),
                                 ". Give scores of shape [N, C], or `scores > 0.5`"));
      return predicted.to(at::kLong);
    }
    detail::require_scores("ClassificationMetrics", predicted, labels, classes_);
    const at::Tensor scores_NC = predicted.scalar_type() == at::kBool ? predicted.to(at::kByte) : predicted;
    return at::where(scores_NC.isnan().any(1), at::full_like(labels, -1, at::kLong), scores_NC.argmax(1));
  }

  std::int64_t classes_;
  at::Tensor counts_;  // [C * (C + 1) + 1]
};

}  // namespace looptorch
