// SPDX-License-Identifier: MIT
// Computes the cross-entropy of a linear layer's scores (logits) for a part of the vocabulary at a time: the
// scores are never all in memory. Use it for large vocabularies: otherwise the scores, their log-softmax and
// its gradient are the largest temporaries of a small model, for Whisper three tensors of 51,864 numbers per
// token. Backward computes the scores again, which costs one more matmul of hidden states and weights.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/matmul_type.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/memory/gradient_in_place.hpp>
#include <looptorch/memory/score_chunks.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace looptorch {

/// Options of at::cross_entropy_loss under its names, the output layer's bias, and the size of a chunk.
struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  ///< Labels of this value count neither in the loss nor in its mean.
  double label_smoothing = 0;        ///< The part of the target spread over all classes, from 0 to 1.
  at::Tensor bias = {};              ///< [V], added to the scores; undefined: none.
  at::Tensor class_weights = {};     ///< [V], as in at::cross_entropy_loss; undefined: all count alike.
  /// The most bytes of scores at once, at least those of one class. 0: 4 MB, or 1024 classes if more.
  std::int64_t chunk_bytes = 0;
};

namespace detail {

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

/// The tensors that forward saves for backward. Tensors that are not needed are undefined, also in backward.
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

/// The sums over all classes that a row's loss consists of.
struct RowSums {
  at::Tensor log_sum_N, label_score_N;
  at::Tensor all_scores_N;  ///< Weighted by class; only with label smoothing.

  RowSums(const ChunkedScores& scores, const at::Tensor& labels_N, bool smooths,
          const at::Tensor& class_weights_V) {
    const auto rows = scores.hidden_ND().options().dtype(scores.wide_type());
    log_sum_N = at::full({labels_N.size(0)}, -std::numeric_limits<double>::infinity(), rows);
    label_score_N = at::zeros({labels_N.size(0)}, rows);
    scores.for_each([&](const ScoreChunk& chunk) {
      log_sum_N = at::logaddexp(log_sum_N, chunk.scores_NC.logsumexp(1));
      const LabelColumns labels(labels_N, chunk);
      label_score_N += chunk.scores_NC.gather(1, labels.columns_N1)
                           .squeeze(1)
                           .masked_fill_(labels.here_N.logical_not(), 0);
      if (!smooths) return;
      const at::Tensor weighted_NC =
          class_weights_V.defined() ? chunk.scores_NC * part_of(class_weights_V, chunk) : chunk.scores_NC;
      const at::Tensor sum_N = weighted_NC.sum(1);
      all_scores_N = all_scores_N.defined() ? all_scores_N + sum_N : sum_N;
    });
  }
};

/// Turns a chunk's scores into the gradient of the loss with respect to these scores.
class ScoreSlopes {
 public:
  /// `gradient` is the gradient of the loss, a scalar.
  ScoreSlopes(const SavedForBackward& saved, const at::Tensor& gradient) : saved_(saved) {
    // If no label counts, the loss is NaN and its gradients are zeros, as in at::cross_entropy_loss.
    const at::Tensor scale = gradient / at::where(saved.total.eq(0), 1, saved.total);
    const auto scaled = [&](const at::Tensor& factors_N) { return (factors_N * scale).unsqueeze(1); };
    log_sum_factor_N1_ = scaled(saved.log_sum_factor_N);
    label_factor_N1_ = scaled(saved.label_factor_N);
    if (saved.smoothing_factor_N.defined()) smoothing_factor_N1_ = scaled(saved.smoothing_factor_N);
  }

  /// Returns the gradient, in the memory of the scores.
  [[nodiscard]] at::Tensor of(const ScoreChunk& chunk) const {
    at::Tensor slope_NC = chunk.scores_NC;
    slope_NC.sub_(saved_.log_sum_N.unsqueeze(1)).exp_().mul_(log_sum_factor_N1_);
    const LabelColumns labels(saved_.labels_N, chunk);
    slope_NC.scatter_add_(1, labels.columns_N1, label_factor_N1_.mul(labels.here_N.unsqueeze(1)).neg_());
    if (smoothing_factor_N1_.defined())
      slope_NC.sub_(saved_.class_weights_V.defined()
                        ? smoothing_factor_N1_ *
                              part_of(saved_.class_weights_V, chunk).to(smoothing_factor_N1_.scalar_type())
                        : smoothing_factor_N1_);
    return slope_NC;
  }

 private:
  const SavedForBackward& saved_;
  at::Tensor log_sum_factor_N1_, label_factor_N1_, smoothing_factor_N1_;
};

/// The gradients of those inputs that need one, filled chunk by chunk.
class ChunkedGradients {
 public:
  ChunkedGradients(const SavedForBackward& saved, const ChunkedScores& scores, bool of_hidden, bool of_weight,
                   bool of_bias)
      : scores_(scores) {
    if (of_hidden)
      hidden_ND_ = at::zeros(saved.hidden_ND.sizes(), saved.hidden_ND.options().dtype(scores.wide_type()));
    if (of_weight) weight_sum_ = GradientToAddTo(saved.weight_VD);
    if (of_weight && !weight_sum_) weight_VD_ = at::empty_like(saved.weight_VD);
    if (of_bias) bias_V_ = at::empty_like(saved.bias_V);
  }

  /// Adds a chunk's contribution, given the gradient of its scores.
  void add(const ScoreChunk& chunk, const at::Tensor& wide_slope_NC) {
    if (bias_V_.defined()) part_of(bias_V_, chunk).copy_(wide_slope_NC.sum(0));
    const at::Tensor& hidden_ND = scores_.hidden_ND();
    const at::Tensor slope_NC = wide_slope_NC.to(hidden_ND.scalar_type());
    if (hidden_ND_.defined())
      add_product(hidden_ND_, slope_NC, scores_.weights_of(chunk.first, chunk.classes));
    if (weight_sum_)
      weight_sum_.update(
          [&](const at::Tensor& sum_VD) { add_product(part_of(sum_VD, chunk), slope_NC.t(), hidden_ND); });
    if (weight_VD_.defined()) set_product(part_of(weight_VD_, chunk), slope_NC.t(), hidden_ND);
  }

  /// Returns the gradient of each argument of forward; undefined for a weight whose gradient was added to.
  [[nodiscard]] torch::autograd::variable_list results(at::ScalarType hidden_type) const {
    return {hidden_ND_.defined() ? hidden_ND_.to(hidden_type) : at::Tensor(), weight_VD_, bias_V_, {}, {}};
  }

 private:
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

  const ChunkedScores& scores_;
  at::Tensor hidden_ND_, weight_VD_, bias_V_;
  GradientToAddTo weight_sum_;  // the weight's own gradient, if chunks are added to it directly
};

struct ChunkedCrossEntropy : torch::autograd::Function<ChunkedCrossEntropy> {
  using Context = torch::autograd::AutogradContext;

  static at::Tensor forward(Context* context, const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                            const std::optional<at::Tensor>& bias, const at::Tensor& labels_N,
                            const CrossEntropyOptions& options) {
    const at::Tensor bias_V = bias.value_or(at::Tensor());
    const at::ScalarType type = matmul_type(hidden_ND);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const ChunkedScores scores(hidden_ND, weight_VD, bias_V, type, options.chunk_bytes);
    const RowFactors factors(labels_N, weight_VD.size(0), scores.wide_type(), options);
    const bool smooths = factors.smoothing_factor_N.defined();
    const RowSums sums(scores, labels_N, smooths, options.class_weights);
    at::Tensor loss_N =
        factors.log_sum_factor_N * sums.log_sum_N - factors.label_factor_N * sums.label_score_N;
    if (smooths) loss_N -= factors.smoothing_factor_N * sums.all_scores_N;

    const SavedForBackward saved{hidden_ND,
                                 weight_VD,
                                 bias_V,
                                 labels_N,
                                 sums.log_sum_N,
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
    const ScoreSlopes slopes(saved, gradients[0]);
    ChunkedGradients sums(saved, scores, context->needs_input_grad(0), context->needs_input_grad(1),
                          saved.bias_V.defined() && context->needs_input_grad(2));
    scores.for_each([&](const ScoreChunk& chunk) { sums.add(chunk, slopes.of(chunk)); });
    return sums.results(saved.hidden_ND.scalar_type());
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
  if (!computes_on_cpu(labels)) return;
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
/// order of sums. Under autocast, matmuls run in its type and all else in fp32; fp64 inputs stay in fp64.
/// Adds directly to an existing gradient of `weight_VD`, unless hooks wait for it. Can be differentiated
/// once. Throws UsageError for wrong shapes and options, and on a CPU for labels that name no class.
[[nodiscard]] inline at::Tensor chunked_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight_VD,
                                                      const at::Tensor& labels,
                                                      const CrossEntropyOptions& options = {}) {
  detail::check_cross_entropy(hidden, weight_VD, labels, options);
  const auto bias = options.bias.defined() ? std::optional(options.bias) : std::nullopt;
  return detail::ChunkedCrossEntropy::apply(hidden.reshape({-1, hidden.size(-1)}), weight_VD, bias,
                                            labels.flatten(), options);
}

}  // namespace looptorch
