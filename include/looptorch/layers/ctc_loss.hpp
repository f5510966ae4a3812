// SPDX-License-Identifier: MIT
// Computes the CTC loss (Graves et al. 2006) without a wait for the device, so that a CUDA graph can contain
// it; LibTorch's CTC loss copies the lengths to the host in each forward. On NVIDIA's GPUs, forward and
// backward take one kernel each. For fp64 and on other accelerators they take some tensor operations per
// frame. A CPU runs LibTorch's CTC loss.
//
// Shapes: T frames, N clips, C classes, L labels, S = 2L + 1 states: labels with blanks around each.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/layers/ctc_code.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>

namespace looptorch {

/// The blank's class, and how a clip that is too short for its text counts; as in torch.nn.CTCLoss.
struct CtcOptions {
  std::int64_t blank = 0;      ///< The class of no label.
  bool zero_infinity = false;  ///< A clip too short for its text counts 0, without a gradient.
};

namespace detail {

inline constexpr double kNoPath = -std::numeric_limits<double>::infinity();

/// A batch of clips and their texts, all on one device.
struct CtcBatch {
  at::Tensor log_probs_TNC, targets_NL, input_lengths_N, target_lengths_N;
  CtcOptions options;

  [[nodiscard]] std::int64_t frames() const { return log_probs_TNC.size(0); }
  [[nodiscard]] std::int64_t clips() const { return log_probs_TNC.size(1); }
  [[nodiscard]] std::int64_t states() const { return 2 * targets_NL.size(1) + 1; }
  [[nodiscard]] ReadyKernels kernels() const {
    if (log_probs_TNC.scalar_type() != at::kFloat) return {};
    return ready_kernels(kCtcSource, log_probs_TNC.device());
  }
  [[nodiscard]] at::Tensor empty(at::IntArrayRef sizes) const {
    return at::empty(sizes, log_probs_TNC.options());
  }
};

/// The results of forward: the log-probability of all paths to each state, and each clip's loss.
struct CtcPaths {
  at::Tensor alpha_TNS, losses_N;
};

// ---- By kernels ----

inline CtcTable ctc_table(const CtcBatch& batch, const CtcPaths& paths) {
  return {.log_probs = batch.log_probs_TNC.const_data_ptr<float>(),
          .frame_stride = batch.log_probs_TNC.stride(0),
          .clip_stride = batch.log_probs_TNC.stride(1),
          .targets = batch.targets_NL.const_data_ptr<std::int64_t>(),
          .input_lengths = batch.input_lengths_N.const_data_ptr<std::int64_t>(),
          .target_lengths = batch.target_lengths_N.const_data_ptr<std::int64_t>(),
          .alpha = paths.alpha_TNS.mutable_data_ptr<float>(),
          .losses = paths.losses_N.mutable_data_ptr<float>(),
          .clips = batch.clips(),
          .frames = batch.frames(),
          .labels = batch.targets_NL.size(1),
          .classes = batch.log_probs_TNC.size(2),
          .blank = batch.options.blank,
          .zero_infinity = batch.options.zero_infinity};
}

inline void launch_ctc(const CtcBatch& batch, const ReadyKernels& ready, const char* kernel,
                       const CtcTable& table) {
  alignas(16) std::array<std::byte, KernelRunner::kLargeTable> bytes;
  std::memcpy(bytes.data(), &table, sizeof table);
  if (batch.clips() > 0)
    ready.runner->launch(kCtcSource, kernel, batch.log_probs_TNC.device(),
                         static_cast<unsigned>(batch.clips()), bytes.data());
}

inline at::Tensor ctc_gradient_by_kernel(const CtcBatch& batch, const CtcPaths& paths,
                                         const at::Tensor& slopes_N, const ReadyKernels& ready) {
  at::Tensor gradient_TNC = at::empty_like(batch.log_probs_TNC);
  const at::Tensor rows = batch.empty({batch.clips(), 4, batch.states()}), slopes = slopes_N.contiguous();
  CtcTable table = ctc_table(batch, paths);
  table.rows = rows.mutable_data_ptr<float>();
  table.slopes = slopes.const_data_ptr<float>();
  table.gradient = gradient_TNC.mutable_data_ptr<float>();
  table.gradient_frame_stride = gradient_TNC.stride(0), table.gradient_clip_stride = gradient_TNC.stride(1);
  launch_ctc(batch, ready, "ctc_backward", table);
  return gradient_TNC;
}

// ---- By tensor operations, all clips at once ----

/// Each clip's states.
struct CtcStates {
  at::Tensor labels_NS,
      log_probs_TNS;       ///< Of each state. States that a clip lacks are blanks that no path reaches.
  at::Tensor may_skip_NS;  ///< True if a path may come from the state before last.
  at::Tensor ends_NS;      ///< 0 for the last two states, else no path.
  at::Tensor frames_N1;

  explicit CtcStates(const CtcBatch& batch) {
    const at::Tensor targets_NL = batch.targets_NL,
                     state_S = at::arange(batch.states(), targets_NL.options());
    const at::Tensor count_N1 =
        batch.target_lengths_N.clamp(0, targets_NL.size(1)).mul(2).add(1).unsqueeze(1);
    const at::Tensor exists_NS = state_S.unsqueeze(0) < count_N1;
    labels_NS = at::full({batch.clips(), batch.states()}, batch.options.blank, targets_NL.options());
    labels_NS.slice(1, 1, {}, 2).copy_(targets_NL);
    labels_NS = labels_NS.masked_fill(exists_NS.logical_not(), batch.options.blank);
    const at::Tensor before_NS = earlier(labels_NS, 2, static_cast<double>(batch.options.blank));
    may_skip_NS = state_S.remainder(2).eq(1).unsqueeze(0) & labels_NS.ne(before_NS);
    log_probs_TNS = batch.log_probs_TNC.gather(2, labels_NS.unsqueeze(0).expand({batch.frames(), -1, -1}))
                        .masked_fill(exists_NS.logical_not(), kNoPath);
    ends_NS = at::zeros_like(log_probs_TNS.select(0, 0))
                  .masked_fill((state_S.unsqueeze(0) < count_N1 - 2) | exists_NS.logical_not(), kNoPath);
    frames_N1 = batch.input_lengths_N.clamp(0, batch.frames()).unsqueeze(1);
  }

  /// Returns for each state the value of the state `by` places before it; `fill` where there is none.
  static at::Tensor earlier(const at::Tensor& row_NS, std::int64_t by, double fill = kNoPath) {
    if (by >= row_NS.size(1) || -by >= row_NS.size(1)) return at::full_like(row_NS, fill);
    return at::constant_pad_nd(row_NS, {by, -by}, fill);
  }
  [[nodiscard]] at::Tensor reached_from(const at::Tensor& before_NS) const {
    const at::Tensor skipped_NS = earlier(before_NS, 2).masked_fill(may_skip_NS.logical_not(), kNoPath);
    return at::logsumexp(at::stack({before_NS, earlier(before_NS, 1), skipped_NS}), 0);
  }
  [[nodiscard]] at::Tensor leaving_to(const at::Tensor& later_NS) const {
    const at::Tensor skipped_NS = later_NS.masked_fill(may_skip_NS.logical_not(), kNoPath);
    return at::logsumexp(at::stack({later_NS, earlier(later_NS, -1), earlier(skipped_NS, -2)}), 0);
  }
};

inline CtcPaths ctc_paths_by_operations(const CtcBatch& batch) {
  const CtcStates states(batch);
  CtcPaths paths{.alpha_TNS = batch.empty({batch.frames(), batch.clips(), batch.states()}), .losses_N = {}};
  at::Tensor row_NS = states.log_probs_TNS.select(0, 0).clone();
  row_NS.slice(1, 2).fill_(kNoPath);
  for (std::int64_t frame = 0; frame < batch.frames(); ++frame) {
    if (frame > 0) row_NS = states.reached_from(row_NS) + states.log_probs_TNS.select(0, frame);
    paths.alpha_TNS.select(0, frame).copy_(row_NS);
  }
  const at::Tensor last_1NS =
      (states.frames_N1 - 1).clamp_min(0).unsqueeze(0).expand({1, batch.clips(), batch.states()});
  const at::Tensor losses_N =
      -at::logsumexp(paths.alpha_TNS.gather(0, last_1NS).squeeze(0) + states.ends_NS, 1);
  const at::Tensor without_frames_N =
      at::zeros_like(losses_N).masked_fill(batch.target_lengths_N > 0, -kNoPath);
  paths.losses_N = at::where(states.frames_N1.squeeze(1) > 0, losses_N, without_frames_N);
  return paths;
}

inline at::Tensor ctc_gradient_by_operations(const CtcBatch& batch, const CtcPaths& paths,
                                             const at::Tensor& slopes_N) {
  const CtcStates states(batch);
  const at::Tensor losses_N1 = paths.losses_N.unsqueeze(1), shares_TNS = at::empty_like(paths.alpha_TNS);
  at::Tensor beta_NS = at::full_like(states.ends_NS, kNoPath);
  for (std::int64_t frame = batch.frames() - 1; frame >= 0; --frame) {
    const at::Tensor leaving_NS =
        at::where(states.frames_N1 == frame + 1, states.ends_NS, states.leaving_to(beta_NS));
    beta_NS = leaving_NS + states.log_probs_TNS.select(0, frame);
    shares_TNS.select(0, frame).copy_((paths.alpha_TNS.select(0, frame) + leaving_NS + losses_N1).exp_());
  }
  const at::Tensor labels_TNS = states.labels_NS.unsqueeze(0).expand_as(shares_TNS);
  const at::Tensor gradient_TNC = at::exp(batch.log_probs_TNC) -
                                  at::zeros_like(batch.log_probs_TNC).scatter_add_(2, labels_TNS, shares_TNS);
  const at::Tensor frame_T = at::arange(batch.frames(), states.frames_N1.options());
  at::Tensor silent_TN = frame_T.unsqueeze(1) >= states.frames_N1.squeeze(1).unsqueeze(0);
  if (batch.options.zero_infinity) silent_TN = silent_TN | paths.losses_N.eq(-kNoPath).unsqueeze(0);
  return (gradient_TNC * slopes_N.unsqueeze(1)).masked_fill(silent_TN.unsqueeze(2), 0);
}

// ---- Autograd ----

struct CtcFunction : torch::autograd::Function<CtcFunction> {
  using Context = torch::autograd::AutogradContext;

  static at::Tensor forward(Context* context, const at::Tensor& log_probs_TNC, const at::Tensor& targets_NL,
                            const at::Tensor& input_lengths_N, const at::Tensor& target_lengths_N,
                            std::int64_t blank, bool zero_infinity) {
    const CtcBatch batch{
        log_probs_TNC, targets_NL, input_lengths_N, target_lengths_N, {blank, zero_infinity}};
    CtcPaths paths;
    if (const ReadyKernels ready = batch.kernels()) {
      paths = {batch.empty({batch.frames(), batch.clips(), batch.states()}), batch.empty({batch.clips()})};
      launch_ctc(batch, ready, "ctc_forward", ctc_table(batch, paths));
    } else {
      paths = ctc_paths_by_operations(batch);
    }
    context->save_for_backward(
        {log_probs_TNC, targets_NL, input_lengths_N, target_lengths_N, paths.alpha_TNS, paths.losses_N});
    context->saved_data["blank"] = blank, context->saved_data["zero_infinity"] = zero_infinity;
    if (!zero_infinity) return paths.losses_N.clone();
    return paths.losses_N.masked_fill(paths.losses_N.eq(-kNoPath), 0);
  }

  static torch::autograd::variable_list backward(Context* context,
                                                 const torch::autograd::variable_list& slopes) {
    if (at::GradMode::is_enabled()) throw UsageError("ctc_loss has no second derivative");
    const auto saved = context->get_saved_variables();
    const CtcBatch batch{
        saved[0],
        saved[1],
        saved[2],
        saved[3],
        {context->saved_data["blank"].toInt(), context->saved_data["zero_infinity"].toBool()}};
    const CtcPaths paths{saved[4], saved[5]};
    const ReadyKernels ready = batch.kernels();
    return {ready ? ctc_gradient_by_kernel(batch, paths, slopes[0], ready)
                  : ctc_gradient_by_operations(batch, paths, slopes[0]),
            {},
            {},
            {},
            {},
            {}};
  }
};

inline void check_ctc(const CtcBatch& batch) {
  const at::Tensor &scores = batch.log_probs_TNC, &targets = batch.targets_NL;
  const auto refuse = [](const auto&... why) { throw UsageError(message("ctc_loss: ", why...)); };
  if (scores.dim() != 3 || scores.size(0) == 0 || !scores.is_floating_point())
    refuse("log_probs must be numbers [T, N, C] of at least a frame, got ", scores.scalar_type(), " ",
           scores.sizes());
  if (targets.dim() != 2 || targets.size(0) != scores.size(1))
    refuse("targets must be [N, L], got ", targets.sizes(), " for log_probs ", scores.sizes());
  for (const at::Tensor& lengths : {batch.input_lengths_N, batch.target_lengths_N})
    if (lengths.sizes() != scores.sizes().slice(1, 1))
      refuse("a length is needed for each of ", scores.size(1), " clips, got ", lengths.sizes());
  for (const at::Tensor& numbers : {targets, batch.input_lengths_N, batch.target_lengths_N})
    if (numbers.scalar_type() != at::kLong || numbers.device() != scores.device())
      refuse("targets and lengths must be int64 on ", scores.device(), ", got ", numbers.scalar_type(),
             " on ", numbers.device());
  if (batch.options.blank < 0 || batch.options.blank >= scores.size(2))
    refuse("the blank is ", batch.options.blank, ", and there are ", scores.size(2), " classes");
}

/// Throws UsageError for a label without a class; at::ctc_loss would read past the scores. On a CPU only.
inline void check_labels(const CtcBatch& batch) {
  const at::Tensor targets_NL = batch.targets_NL.contiguous(),
                   lengths_N = batch.target_lengths_N.contiguous();
  const std::int64_t classes = batch.log_probs_TNC.size(2), width = targets_NL.size(1);
  for (std::int64_t clip = 0; clip < targets_NL.size(0); ++clip) {
    const std::int64_t* const labels = targets_NL.const_data_ptr<std::int64_t>() + clip * width;
    const std::int64_t length = std::min(lengths_N.const_data_ptr<std::int64_t>()[clip], width);
    for (std::int64_t i = 0; i < length; ++i)
      if (labels[i] < 0 || labels[i] >= classes)
        throw UsageError(message("ctc_loss: label ", i, " of clip ", clip, " is ", labels[i],
                                 ", and there are ", classes, " classes"));
  }
}

}  // namespace detail

/// Returns -log p(text | clip) of each clip, `[N]`, with the gradient of at::ctc_loss. Takes
/// log-probabilities `[T, N, C]`, targets `[N, L]`, of which the first `target_lengths_N` are a clip's text,
/// and each clip's number of frames; targets and lengths are int64, all on one device. Returns fp32, or fp64
/// for fp64. Lengths beyond the tensors' are clamped on an accelerator, and throw on a CPU. A label without a
/// class is undefined behaviour on an accelerator. Never waits for the device. Throws UsageError for wrong
/// shapes or types, and on a CPU for such a label.
[[nodiscard]] inline at::Tensor ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets_NL,
                                         const at::Tensor& input_lengths_N,
                                         const at::Tensor& target_lengths_N, CtcOptions options = {}) {
  detail::CtcBatch batch{log_probs, targets_NL, input_lengths_N, target_lengths_N, options};
  detail::check_ctc(batch);
  at::Tensor& log_probs_TNC = batch.log_probs_TNC;
  if (log_probs_TNC.element_size() < 4) log_probs_TNC = log_probs_TNC.to(at::kFloat);
  if (computes_on_cpu(log_probs_TNC) && !batch.kernels()) {
    detail::check_labels(batch);
    const at::Tensor losses_N = std::get<0>(at::_ctc_loss(
        log_probs_TNC, targets_NL, input_lengths_N, target_lengths_N, options.blank, options.zero_infinity));
    return options.zero_infinity ? losses_N.masked_fill(losses_N.eq(-detail::kNoPath), 0) : losses_N;
  }
  return detail::CtcFunction::apply(log_probs_TNC.stride(2) == 1 ? log_probs_TNC : log_probs_TNC.contiguous(),
                                    targets_NL.contiguous(), input_lengths_N.contiguous(),
                                    target_lengths_N.contiguous(), options.blank, options.zero_infinity);
}

}  // namespace looptorch
