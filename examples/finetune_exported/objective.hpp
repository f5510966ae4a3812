// SPDX-License-Identifier: MIT
// The objective of finetune_exported: runs the exported model on a batch and returns the loss. Takes the
// model's own output `loss`, or computes a loss from its scores (logits) and the labels.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/layers/ctc_loss.hpp>
#include <looptorch/objective/loss.hpp>

#include "columns.hpp"
#include "samples.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace finetune_exported {

/// The flags --loss, --labels, --scores, --blank and --count-labels.
struct LossOptions {
  /// "own", "cross-entropy", "ctc" or "mse"; empty: "own" if the model has an output "loss".
  std::string kind = {};
  std::string labels = "labels";
  std::string scores = "logits";
  std::int64_t blank = 0;
  bool count_labels = false;  ///< weights a batch by its labels instead of its samples
};

/// Computes the loss of a batch, and the accuracy if each sample has one score per class.
class Objective {
 public:
  /// `inputs` are the columns of the model's inputs. Throws UsageError if the model lacks outputs that the
  /// options name, and for options that would do nothing.
  Objective(LossOptions options, const lt::ExportedModelImpl& model, const std::vector<Column>& inputs)
      : options_(std::move(options)) {
    const auto& outputs = model.output_names();
    const bool has_loss = std::ranges::find(outputs, "loss") != outputs.end();
    if (options_.kind.empty()) {
      if (!has_loss)
        throw lt::UsageError("the model has no output \"loss\": say by --loss how it is computed");
      options_.kind = "own";
    }
    if (is_own()) loss_ = model.output("loss");
    const bool has_scores = std::ranges::find(outputs, options_.scores) != outputs.end();
    try {
      if (has_scores || !is_own()) scores_ = model.output(options_.scores);
    } catch (const lt::UsageError& error) {
      throw lt::UsageError(lt::message(error.what(), ": give the one to use as --scores"));
    }
    inputs_ = inputs.size();
    for (const auto& input : inputs) names_.push_back(input.name);
    const auto found = std::ranges::find(inputs, options_.labels, &Column::name);
    labels_ = static_cast<std::size_t>(found - inputs.begin());
    has_labels_ = found != inputs.end() || label_column();
    require_used();
  }

  /// Returns the column of the labels, which follows those of the inputs in the data. Returns nothing if the
  /// labels are an input, or if the model computes its loss itself.
  [[nodiscard]] std::optional<Column> label_column() const {
    if (labels_ < inputs_ || is_own()) return std::nullopt;
    const bool are_classes = options_.kind != "mse";
    return Column{.name = options_.labels,
                  .dtype = are_classes ? at::kLong : at::kFloat,
                  .padding = are_classes ? static_cast<double>(kIgnoredLabel) : 0.0};
  }

  lt::Loss operator()(lt::ExportedModel& model, const Row& batch) const {
    const std::vector<at::Tensor> inputs(batch.tensors.begin(),
                                         batch.tensors.begin() + static_cast<std::ptrdiff_t>(inputs_));
    const auto outputs = naming_columns(batch, [&] { return model->forward(inputs); });
    const at::Tensor labels = has_labels_ ? batch.tensors[labels_] : at::Tensor();
    const auto computed = [&] { return loss_of_scores(outputs[*scores_], labels); };
    const at::Tensor value = is_own() ? outputs[*loss_] : naming_columns(batch, computed);
    const bool has_accuracy = scores_ && has_labels_ && are_classes_of(labels, outputs[*scores_]);
    const at::Tensor count = options_.count_labels || has_accuracy ? counted(labels) : at::Tensor();
    lt::Loss loss = options_.count_labels ? weighed_by(count, value)
                                          : lt::Loss{.value = value, .weight = batch.tensors.front().size(0)};
    if (has_accuracy) loss.metrics.push_back(accuracy(labels, outputs[*scores_], count));
    return loss;
  }

  [[nodiscard]] const LossOptions& options() const { return options_; }

 private:
  [[nodiscard]] bool is_own() const { return options_.kind == "own"; }

  /// Throws UsageError for an option that would do nothing.
  void require_used() const {
    const LossOptions unset;
    const std::string own = ": the model computes its own loss, ", quoted = " \"" + options_.labels + "\"";
    if (options_.count_labels && !has_labels_)
      throw lt::UsageError("--count-labels: the data has no" + quoted);
    if (options_.kind != "ctc" && options_.blank != unset.blank)
      throw lt::UsageError("--blank is of --loss ctc, and the loss is " + options_.kind);
    if (options_.labels != unset.labels && !has_labels_)
      throw lt::UsageError("--labels" + quoted + own + "and has no input of that name");
    if (is_own() && options_.scores != unset.scores && !scores_)
      throw lt::UsageError("--scores \"" + options_.scores + "\"" + own + "and has no such output");
    if (is_own() && options_.scores != unset.scores && !has_labels_)
      throw lt::UsageError("--scores \"" + options_.scores + "\"" + own + "and has no input" + quoted +
                           " to compare them with");
  }

  /// Calls `compute`. If it throws an error of an index, adds the range of numbers in each integer column:
  /// the error does not name the column with a token or label that the model does not know.
  template <class Compute>
  std::invoke_result_t<Compute> naming_columns(const Row& batch, Compute&& compute) const {
    try {
      return std::forward<Compute>(compute)();
    } catch (const c10::IndexError& error) {
      std::string what = error.msg();
      if (what.ends_with('.')) what.pop_back();
      C10_THROW_ERROR(IndexError, what + numbers_text(batch));
    }
  }
  [[nodiscard]] std::string numbers_text(const Row& batch) const {
    std::string text;
    for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
      const at::Tensor& column = batch.tensors[i];
      if (!at::isIntegralType(column.scalar_type(), /*includeBool=*/false) || column.numel() == 0) continue;
      const std::string& name = i < inputs_ ? names_[i] : options_.labels;
      text += lt::message(text.empty() ? ": the numbers are " : ", ", column.min().item<std::int64_t>(),
                          " to ", column.max().item<std::int64_t>(), " of \"", name, "\"");
    }
    return text;
  }

  [[nodiscard]] static bool are_classes_of(const at::Tensor& labels, const at::Tensor& scores) {
    return !labels.is_floating_point() && labels.dim() == 1 && scores.dim() == 2 &&
           scores.size(0) == labels.size(0);
  }
  /// Returns the share of right predictions. Its weight is the `count` of labels, whatever the weight of the
  /// loss.
  [[nodiscard]] static lt::Metric accuracy(const at::Tensor& labels, const at::Tensor& scores,
                                           const at::Tensor& count) {
    const at::Tensor right = scores.argmax(1).eq(labels).sum().to(at::kDouble);
    return {"accuracy", right / count.clamp_min(1), count};
  }
  /// Returns the number of labels that are not ignored, 0-dim.
  [[nodiscard]] static at::Tensor counted(const at::Tensor& labels) { return labels.ne(kIgnoredLabel).sum(); }

  /// Returns the loss, with the weight `count`. If that is 0 the loss is 0, where a mean would be NaN.
  [[nodiscard]] lt::Loss weighed_by(const at::Tensor& count, const at::Tensor& value) const {
    if (is_sum()) return {.weight = count, .sum = value};
    return {.value = at::where(count.eq(0), at::zeros_like(value), value), .weight = count};
  }
  /// True if `loss_of_scores` returns the sum over the labels instead of their mean.
  [[nodiscard]] bool is_sum() const { return options_.count_labels && options_.kind == "cross-entropy"; }

  [[nodiscard]] at::Tensor loss_of_scores(const at::Tensor& scores, const at::Tensor& labels) const {
    if (options_.kind == "mse") return mse(scores, labels);
    if (options_.kind == "ctc") return ctc(scores, labels);
    require(has_one_more(scores, labels), scores, labels, "[samples, ..., classes] and [samples, ...]");
    return at::cross_entropy_loss(scores.flatten(0, -2).to(at::kFloat), labels.flatten(), /*weight=*/{},
                                  is_sum() ? at::Reduction::Sum : at::Reduction::Mean, kIgnoredLabel);
  }

  /// True for sizes `[samples, ..., classes]` and `[samples, ...]`.
  [[nodiscard]] static bool has_one_more(const at::Tensor& scores, const at::Tensor& labels) {
    return scores.dim() == labels.dim() + 1 &&
           scores.sizes().slice(0, static_cast<std::size_t>(labels.dim())) == labels.sizes();
  }

  [[nodiscard]] at::Tensor mse(const at::Tensor& scores, const at::Tensor& labels) const {
    const bool is_column = has_one_more(scores, labels) && scores.size(-1) == 1;
    require(is_column || scores.sizes() == labels.sizes(), scores, labels, "the same sizes");
    const auto type = labels.is_floating_point() ? labels.scalar_type() : at::kFloat;
    return at::mse_loss(scores.to(type).view_as(labels), labels.to(type));
  }

  /// Returns the CTC loss. A sample's text is its labels that are not ignored, in their order.
  [[nodiscard]] at::Tensor ctc(const at::Tensor& scores, const at::Tensor& labels) const {
    require(scores.dim() == 3 && labels.dim() == 2 && scores.size(0) == labels.size(0), scores, labels,
            "[samples, frames, classes] and [samples, labels]");
    require_classes(labels, scores.size(2));
    const at::Tensor ignored = labels.eq(kIgnoredLabel);
    const at::Tensor kept_first = labels.gather(1, ignored.to(at::kByte).argsort(/*stable=*/true, /*dim=*/1));
    const at::Tensor lengths = ignored.logical_not().sum(1);
    if (scores.requires_grad()) require_frames(kept_first, lengths, scores.size(1));
    const at::Tensor frames = at::full_like(lengths, scores.size(1));
    const at::Tensor losses =
        lt::ctc_loss(scores.to(at::kFloat).log_softmax(-1).transpose(0, 1), kept_first.clamp_min(0), frames,
                     lengths, {.blank = options_.blank});
    return (losses / lengths.clamp_min(1)).mean();  // as torch.nn.functional.ctc_loss does
  }

  void require(bool fits, const at::Tensor& scores, const at::Tensor& labels, const char* wanted) const {
    if (!fits)
      throw lt::UsageError(lt::message("--loss ", options_.kind, ": \"", options_.scores, "\" has sizes ",
                                       scores.sizes(), " and \"", options_.labels, "\" ", labels.sizes(),
                                       "; they must have ", wanted));
  }

  /// Throws UsageError for a label without a score, which would make kernels access memory out of bounds.
  /// Waits for the device.
  void require_classes(const at::Tensor& labels, std::int64_t classes) const {
    const at::Tensor wrong =
        labels.ne(kIgnoredLabel) & (labels.lt(0) | labels.ge(classes) | labels.eq(options_.blank));
    if (wrong.any().item<bool>())
      throw lt::UsageError(lt::message("--loss ctc: the label ",
                                       labels.masked_select(wrong)[0].item<std::int64_t>(), " of \"",
                                       options_.labels, "\" is none of the ", classes,
                                       " classes but the blank, which is ", options_.blank));
  }

  /// Throws c10::ValueError, to which a run adds its place, if a sample has fewer frames than its labels
  /// need: its loss would be infinite. Waits for the device if labels of this width may need more.
  static void require_frames(const at::Tensor& kept_first, const at::Tensor& lengths, std::int64_t frames) {
    if (2 * kept_first.size(1) - 1 <= frames) return;
    const at::Tensor next = kept_first.slice(1, 1);
    const at::Tensor repeats = (next.eq(kept_first.slice(1, 0, -1)) & next.ne(kIgnoredLabel)).sum(1);
    const auto needed = (lengths + repeats).max().item<std::int64_t>();
    TORCH_CHECK_VALUE(needed <= frames, "--loss ctc: the labels of a sample need ", needed,
                      " frames, one each and one more between equal ones, and the batch has ", frames);
  }

  LossOptions options_;
  std::vector<std::string> names_;  // names of the inputs
  std::optional<std::size_t> loss_, scores_;
  std::size_t inputs_ = 0, labels_ = 0;
  bool has_labels_ = false;
};

}  // namespace finetune_exported
