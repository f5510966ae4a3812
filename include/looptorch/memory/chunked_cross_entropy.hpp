// SPDX-License-Identifier: MIT
// Cross-entropy of a linear layer's scores, computed for a part of the vocabulary at a time, in forward and
// again in backward. Scores, their log-softmax and its gradient are the largest temporaries of small models
// with large vocabularies: for Whisper three tensors of 51,864 numbers a token. Costs one more product of
// hidden states and weights.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/memory/gradient_in_place.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

namespace looptorch {

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  ///< Labels of this value count neither in the loss nor in its mean.
  double label_smoothing = 0;        ///< The part of the target spread over all classes, from 0 to 1.
  at::Tensor bias = {};              ///< [V], added to the scores; undefined: none.
  at::Tensor class_weights = {};     ///< [V], as in at::cross_entropy_loss; undefined: all count alike.
  /// The most bytes of scores at once, at least those of one class. 0: 4 MB, or 1024 classes if more.
  std::int64_t chunk_bytes = 0;
};

namespace detail {

/// The scores of a range of classes.
struct ScoreChunk {
  std::int64_t first, classes;
  at::Tensor scores_NC;  ///< In fp32 at least.
};

/// Computes scores class by class, in the type that autocast chooses.
class ChunkedScores {
 public:
  ChunkedScores(const at::Tensor& hidden_ND, const at::Tensor& weight_VD, const at::Tensor& bias_V,
                at::ScalarType product_type, std::int64_t chunk_bytes)
      : hidden_ND_(hidden_ND.to(product_type)),
        weight_VD_(weight_VD),
        bias_V_(bias_V),
        wide_type_(at::promote_types(product_type, at::kFloat)) {
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

/// Returns, for each row whose label lies in the chunk, its column there; elsewhere column 0 and false.
struct LabelColumns {
  LabelColumns(const at::Tensor& labels_N, const ScoreChunk& chunk) {
    const at::Tensor columns_N = labels_N - chunk.first;
    here_N = columns_N.ge(0).logical_and_(columns_N.lt(chunk.classes));
    columns_N1 = columns_N.where(here_N, 0).unsqueeze(1);
  }
  at::Tensor here_N, columns_N1;
};

/// The factors of the terms of each row's loss: of the log of the sum, of the label's score, and of the
/// weighted sum of all scores; zeros for rows that do not count. `total` divides the sum of all.
struct RowFactors {
  at::Tensor log_sum_factor_N, label_factor_N, smoothing_factor_N, total;

  RowFactors(const at::Tensor& labels_N, std::int64_t vocabulary, at::ScalarType type,
             const CrossEntropyOptions& options) {
    const at::Tensor counts_N = labels_N.ne(options.ignore_index);
    const at::Tensor& weights_V = options.class_weights;
    at::Tensor weights_N = counts_N.to(type);
    if (weights_V.defined())
      weights_N = weights_V.to(type).index_select(0, labels_N.where(counts_N, 0)).mul_(weights_N);
    total = weights_N.sum();
    log_sum_factor_N = label_factor_N = weights_N * (1 - options.label_smoothing);
    if (options.label_smoothing == 0) return;
    smoothing_factor_N = counts_N.to(type) * (options.label_smoothing / static_cast<double>(vocabulary));
    log_sum_factor_N = weights_V.defined() ? label_factor_N + smoothing_factor_N * weights_V.to(type).sum()
                                           : label_factor_N + smoothing_factor_N * vocabulary;
  }
};

/// The tensors that forward saves for backward. One that is not needed is undefined, and comes back so.
struct SavedForBackward {
  at::Tensor hidden_ND, weight_VD, bias_V, labels_N, log_sum_N;
  at::Tensor log_sum_factor_N, label_factor_N, smoothing_factor_N, class_weights_V, total;

  [[nodiscard]] static SavedForBackward from(const torch::autograd::variable_list& saved) {
    return {saved[0], saved[1], saved[2], saved[3], saved[4],
            saved[5], saved[6], saved[7], saved[8], saved[9]};
  }
  [[nodiscard]] torch::autograd::variable_list tensors() const {
    return {hidden_ND,      weight_VD,          bias_V,          labels_N, log_sum_N, log_sum_factor_N,
            label_factor_N, smoothing_factor_N, class_weights_V, total};
  }
};

struct ChunkedCrossEntropy : torch::autograd::Function<ChunkedCrossEntropy> {
  using Context = torch::autograd::AutogradContext;

  static at::Tensor forward(Context* context, const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                            const std::optional<at::Tensor>& bias, const at::Tensor& labels_N,
                            const CrossEntropyOptions& options) {
    const at::Tensor bias_V = bias.value_or(at::Tensor());
    const auto device = hidden_ND.device().type();
    const auto type = at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                                : hidden_ND.scalar_type();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const ChunkedScores scores(hidden_ND, weight_VD, bias_V, type, options.chunk_bytes);
    const RowFactors factors(labels_N, weight_VD.size(0), scores.wide_type(), options);
    const auto rows = hidden_ND.options().dtype(scores.wide_type());
    at::Tensor log_sum_N = at::full({labels_N.size(0)}, -std::numeric_limits<double>::infinity(), rows);
    at::Tensor label_score_N = at::zeros({labels_N.size(0)}, rows), all_scores_N;
    scores.for_each([&](const ScoreChunk& chunk) {
      log_sum_N = at::logaddexp(log_sum_N, chunk.scores_NC.logsumexp(1));
      const LabelColumns labels(labels_N, chunk);
      label_score_N += chunk.scores_NC.gather(1, labels.columns_N1).squeeze(1).mul_(labels.here_N);
      if (!factors.smoothing_factor_N.defined()) return;
      const at::Tensor sum_N = weighted(chunk, options.class_weights).sum(1);
      all_scores_N = all_scores_N.defined() ? all_scores_N + sum_N : sum_N;
    });
    at::Tensor loss_N = factors.log_sum_factor_N * log_sum_N - factors.label_factor_N * label_score_N;
    if (factors.smoothing_factor_N.defined()) loss_N -= factors.smoothing_factor_N * all_scores_N;

    const SavedForBackward saved{hidden_ND,
                                 weight_VD,
                                 bias_V,
                                 labels_N,
                                 log_sum_N,
                                 factors.log_sum_factor_N,
                                 factors.label_factor_N,
                                 factors.smoothing_factor_N,
                                 options.class_weights,
                                 factors.total};
    context->save_for_backward(saved.tensors());
    context->saved_data["type"] = static_cast<std::int64_t>(type);
    context->saved_data["chunk_bytes"] = options.chunk_bytes;
    return loss_N.masked_fill_(labels_N.eq(options.ignore_index), 0).sum() / factors.total;
  }

  static torch::autograd::variable_list backward(Context* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (at::GradMode::is_enabled())
      throw UsageError(
          "chunked_cross_entropy can be differentiated once: call backward() without create_graph");
    const auto saved = SavedForBackward::from(context->get_saved_variables());
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const ChunkedScores scores(saved.hidden_ND, saved.weight_VD, saved.bias_V, type,
                               context->saved_data["chunk_bytes"].toInt());
    // If no label counts, the loss is NaN and its gradients are zeros, as in at::cross_entropy_loss.
    const at::Tensor scale = gradients[0] / at::where(saved.total.eq(0), 1, saved.total);
    const auto scaled = [&](const at::Tensor& factors_N) { return (factors_N * scale).unsqueeze(1); };
    const at::Tensor log_sum_factor_N1 = scaled(saved.log_sum_factor_N),
                     label_factor_N1 = scaled(saved.label_factor_N);
    const at::Tensor smoothing_factor_N1 =
        saved.smoothing_factor_N.defined() ? scaled(saved.smoothing_factor_N) : at::Tensor();

    const bool of_hidden = context->needs_input_grad(0), of_weight = context->needs_input_grad(1);
    const bool of_bias = saved.bias_V.defined() && context->needs_input_grad(2);
    at::Tensor hidden_gradient_ND, weight_gradient_VD, bias_gradient_V;
    if (of_hidden)
      hidden_gradient_ND =
          at::zeros(saved.hidden_ND.sizes(), saved.hidden_ND.options().dtype(scores.wide_type()));
    const at::Tensor sum_VD = of_weight ? gradient_to_add_to(saved.weight_VD) : at::Tensor();
    if (of_weight && !sum_VD.defined()) weight_gradient_VD = at::empty_like(saved.weight_VD);
    if (of_bias) bias_gradient_V = at::empty_like(saved.bias_V);

    scores.for_each([&](const ScoreChunk& chunk) {
      at::Tensor slope_NC = chunk.scores_NC;
      slope_NC.sub_(saved.log_sum_N.unsqueeze(1)).exp_().mul_(log_sum_factor_N1);
      const LabelColumns labels(saved.labels_N, chunk);
      slope_NC.scatter_add_(1, labels.columns_N1, label_factor_N1.mul(labels.here_N.unsqueeze(1)).neg_());
      if (smoothing_factor_N1.defined())
        slope_NC.sub_(saved.class_weights_V.defined()
                          ? smoothing_factor_N1 * saved.class_weights_V.narrow(0, chunk.first, chunk.classes)
                                                      .to(smoothing_factor_N1.scalar_type())
                          : smoothing_factor_N1);
      if (of_bias) bias_gradient_V.narrow(0, chunk.first, chunk.classes).copy_(slope_NC.sum(0));
      slope_NC = slope_NC.to(type);
      if (of_hidden) add_product(hidden_gradient_ND, slope_NC, scores.weights_of(chunk.first, chunk.classes));
      if (sum_VD.defined())
        add_product(sum_VD.narrow(0, chunk.first, chunk.classes), slope_NC.t(), scores.hidden_ND());
      else if (of_weight)
        set_product(weight_gradient_VD.narrow(0, chunk.first, chunk.classes), slope_NC.t(),
                    scores.hidden_ND());
    });
    if (of_hidden) hidden_gradient_ND = hidden_gradient_ND.to(saved.hidden_ND.scalar_type());
    return {hidden_gradient_ND, weight_gradient_VD, bias_gradient_V, {}, {}};
  }

 private:
  static at::Tensor weighted(const ScoreChunk& chunk, const at::Tensor& weights_V) {
    return weights_V.defined() ? chunk.scores_NC * weights_V.narrow(0, chunk.first, chunk.classes)
                               : chunk.scores_NC;
  }
  static void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
    if (sum.scalar_type() == a.scalar_type())
      sum.addmm_(a, b);
    else
      sum.add_(at::mm(a, b));
  }
  static void set_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
    if (out.scalar_type() == a.scalar_type())
      at::mm_out(const_cast<at::Tensor&>(out), a, b);
    else
      out.copy_(at::mm(a, b));
  }
};

/// Throws UsageError for invalid shapes or options; checks labels if they can be read without a wait.
inline void check_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight_VD,
                                const at::Tensor& labels, const CrossEntropyOptions& options) {
  if (weight_VD.dim() != 2 || hidden.dim() < 1 || hidden.size(-1) != weight_VD.size(1))
    throw UsageError(message("chunked_cross_entropy takes hidden states [..., D] and weights [V, D], got ",
                             hidden.sizes(), " and ", weight_VD.sizes()));
  const auto rows = hidden.sizes().slice(0, static_cast<std::size_t>(hidden.dim() - 1));
  if (labels.scalar_type() != at::kLong || labels.sizes() != rows)
    throw UsageError(
        message("chunked_cross_entropy takes an int64 label for each hidden state: ", hidden.sizes(),
                " need labels of shape ", rows, ", got ", labels.scalar_type(), " of ", labels.sizes()));
  for (const at::Tensor& each : {options.bias, options.class_weights})
    if (each.defined() && (each.dim() != 1 || each.size(0) != weight_VD.size(0)))
      throw UsageError(message("chunked_cross_entropy takes a bias and class weights of shape [",
                               weight_VD.size(0), "], got ", each.sizes()));
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    throw UsageError(message("CrossEntropyOptions::label_smoothing is a share from 0 to 1, got ",
                             options.label_smoothing));
  if (options.chunk_bytes < 0)
    throw UsageError(message("CrossEntropyOptions::chunk_bytes is at least 0, got ", options.chunk_bytes));
  if (!labels.is_cpu()) return;
  const at::Tensor wrong = labels.masked_select(
      labels.ne(options.ignore_index).logical_and_(labels.lt(0).logical_or_(labels.ge(weight_VD.size(0)))));
  if (wrong.numel() > 0)
    throw UsageError(message("chunked_cross_entropy: label ", wrong[0].item<std::int64_t>(),
                             " is none of the ", weight_VD.size(0), " classes, and not ignore_index (",
                             options.ignore_index, ")"));
}

}  // namespace detail

/// Returns the cross-entropy, a scalar in fp32 at least, of the scores `hidden weight_VD^T + bias` against
/// `labels`: the mean over the labels that count, weighted as in at::cross_entropy_loss; NaN if none counts.
/// `hidden` is `[..., D]`, `labels` int64 `[...]`. Loss and gradients equal the plain computation's up to the
/// order of sums. Under autocast computes products in its type and all else in fp32. Adds directly to an
/// existing gradient of `weight_VD`, unless hooks wait for it. Can be differentiated once. Throws UsageError
/// for wrong shapes and options, and on a CPU for labels that name no class.
[[nodiscard]] inline at::Tensor chunked_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight_VD,
                                                      const at::Tensor& labels,
                                                      const CrossEntropyOptions& options = {}) {
  detail::check_cross_entropy(hidden, weight_VD, labels, options);
  const auto bias = options.bias.defined() ? std::optional(options.bias) : std::nullopt;
  return detail::ChunkedCrossEntropy::apply(hidden.reshape({-1, hidden.size(-1)}), weight_VD, bias,
                                            labels.flatten(), options);
}

}  // namespace looptorch
