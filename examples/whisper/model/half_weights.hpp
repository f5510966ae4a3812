// SPDX-License-Identifier: MIT
// Multiplies by a 16-bit copy of a weight matrix, to decode faster on a CPU: a token takes as long as reading
// all of the decoder's weights from memory, so half the bytes take half the time. Copies a matrix only if
// fp16 can hold each of its values exactly, as is the case for Whisper's published weights. Computes in fp32.
// The matrix itself stays in memory, and the copy adds half its size.
//
// Shapes: M rows, K inputs, N outputs.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace whisper {

namespace detail {

/// FBGEMM's functions behind LibTorch's operators. They depend on LibTorch's build and release and on the
/// processor.
class Fbgemm {
 public:
  /// Returns the functions, or nothing if they are missing or fail.
  static const std::optional<Fbgemm>& get() {
    static const auto found = find();
    return found;
  }

  /// Returns fp32 `weight_NK` in FBGEMM's order and 16 bits.
  [[nodiscard]] at::Tensor pack(const at::Tensor& weight_NK) const {
    const Silence silence;
    return pack_->call(weight_NK);
  }

  /// Returns fp32 `[M, N]`: the result of the matmul with a packed weight, plus the bias.
  [[nodiscard]] at::Tensor multiply(const at::Tensor& x_MK, const at::Tensor& packed,
                                    const at::Tensor& bias_N) const {
    return multiply_ ? multiply_->call(x_MK, packed, bias_N) : multiply_271_->call(x_MK, packed, bias_N);
  }

 private:
  using Pack = at::Tensor(const at::Tensor&);
  using Multiply = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&);
  using Multiply271 = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&);  // before 2.8

  /// Drops this thread's warnings: LibTorch warns that the operators are deprecated.
  class Silence {
   public:
    Silence() : guard_(&handler_) {}

   private:
    struct Handler : c10::WarningHandler {
      void process(const c10::Warning&) override {}
    };
    Handler handler_;
    c10::WarningUtils::WarningHandlerGuard guard_;
  };

  template <class Function>
  static std::optional<c10::TypedOperatorHandle<Function>> operator_named(const char* name) {
    try {
      const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
      if (found) return found->template typed<Function>();
    } catch (const c10::Error&) {  // another release's arguments
    }
    return std::nullopt;
  }

  /// Looks the functions up, calls each once, and drops LibTorch's warnings about them.
  static std::optional<Fbgemm> find() {
    Fbgemm found;
    constexpr auto* kMultiply = "aten::fbgemm_linear_fp16_weight_fp32_activation";
    found.pack_ = operator_named<Pack>("aten::fbgemm_pack_gemm_matrix_fp16");
    found.multiply_ = operator_named<Multiply>(kMultiply);
    if (!found.multiply_) found.multiply_271_ = operator_named<Multiply271>(kMultiply);
    if (!found.pack_ || (!found.multiply_ && !found.multiply_271_)) return std::nullopt;
    try {
      const Silence silence;
      torch::NoGradGuard no_grad;
      const auto weight_NK = at::eye(4), x_MK = at::ones({1, 4});
      if (at::equal(found.multiply(x_MK, found.pack(weight_NK), at::ones({4})), x_MK + 1)) return found;
    } catch (const c10::Error&) {  // built without FBGEMM, or an unsupported processor
    }
    return std::nullopt;
  }

  std::optional<c10::TypedOperatorHandle<Pack>> pack_;
  std::optional<c10::TypedOperatorHandle<Multiply>> multiply_;
  std::optional<c10::TypedOperatorHandle<Multiply271>> multiply_271_;
};

}  // namespace detail

/// A weight and its bias in 16 and 32 bits, as they were when packed. Large matrices are packed in several
/// parts, which threads multiply in parallel.
class HalfWeights {
 public:
  /// Packs fp32 `weight_NK`. Returns nothing if fp16 cannot hold one of its values exactly, if it has another
  /// type or is not on a CPU, and without FBGEMM. `bias_N` may be undefined.
  static std::optional<HalfWeights> pack(const at::Tensor& weight_NK, const at::Tensor& bias_N = {}) {
    torch::NoGradGuard no_grad;
    if (!weight_NK.device().is_cpu() || weight_NK.scalar_type() != at::kFloat || weight_NK.is_inference() ||
        !detail::Fbgemm::get())
      return std::nullopt;
    const bool is_exact = at::equal(weight_NK.to(at::kHalf).to(at::kFloat), weight_NK) &&
                          std::isfinite(weight_NK.sum().item<double>());  // a sum of fp16 numbers is finite
    if (!is_exact) return std::nullopt;
    return HalfWeights(weight_NK.detach(), bias_N);
  }

  /// True if this can compute the matmul of `x` and `weight_NK`: the weight is unchanged, the rows are few
  /// (fp32's matmuls are as fast from some hundred on), and no gradients are needed.
  [[nodiscard]] bool serves(const at::Tensor& x, const at::Tensor& weight_NK) const {
    constexpr std::int64_t kMaxRows = 256;
    return !at::GradMode::is_enabled() && x.device().is_cpu() && x.scalar_type() == at::kFloat &&
           x.numel() > 0 && x.numel() <= kMaxRows * x.size(-1) && x.size(-1) == inputs_ &&
           weight_NK.const_data_ptr() == weight_NK_.const_data_ptr() && weight_NK_._version() == version_;
  }

  /// Returns `x` `[..., K]` times the weight, plus the bias: `[..., N]`.
  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
    const auto rows = x.numel() / inputs_;
    const auto tasks_of_rows = std::clamp<std::int64_t>(rows / kRowsOfTask, 1, at::get_num_threads());
    const auto tasks = tasks_of_rows * std::ssize(parts_);
    if (tasks == 1) return detail::Fbgemm::get()->multiply(x, parts_[0].packed, parts_[0].bias);
    const auto x_MK = x.reshape({rows, inputs_}).contiguous();
    auto shape = x.sizes().vec();
    shape.back() = outputs_;
    auto result = at::empty(shape, x.options());
    auto* to = result.mutable_data_ptr<float>();
    at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto task = begin; task < end; ++task) {
        const auto row = task % tasks_of_rows;
        const auto first = row * rows / tasks_of_rows, last = (row + 1) * rows / tasks_of_rows;
        multiply(x_MK, first, last, parts_[static_cast<std::size_t>(task / tasks_of_rows)], to);
      }
    });
    return result;
  }

 private:
  static constexpr std::int64_t kRowsOfTask = 32;
  static constexpr std::int64_t kValuesOfPart = std::int64_t{1} << 20, kMaxParts = 8;

  struct Part {
    at::Tensor packed, bias;
    std::int64_t begin, size;  ///< Among the outputs.
  };

  HalfWeights(at::Tensor weight_NK, const at::Tensor& bias_N)
      : weight_NK_(std::move(weight_NK)),
        version_(weight_NK_._version()),
        outputs_(weight_NK_.size(0)),
        inputs_(weight_NK_.size(1)) {
    const auto all_N = bias_N.defined() ? bias_N.detach() : at::zeros({outputs_}, weight_NK_.options());
    const auto parts = std::clamp<std::int64_t>(weight_NK_.numel() / kValuesOfPart, 1, kMaxParts);
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto begin = part * outputs_ / parts, size = (part + 1) * outputs_ / parts - begin;
      parts_.push_back({detail::Fbgemm::get()->pack(weight_NK_.narrow(0, begin, size).contiguous()),
                        all_N.narrow(0, begin, size), begin, size});
    }
  }

  /// Writes the rows from `first` to `last` of a part's outputs. Copies by hand: a thread of the pool knows
  /// nothing of the caller's gradient or inference mode.
  void multiply(const at::Tensor& x_MK, std::int64_t first, std::int64_t last, const Part& part,
                float* to) const {
    torch::NoGradGuard no_grad;
    const auto product =
        detail::Fbgemm::get()->multiply(x_MK.narrow(0, first, last - first), part.packed, part.bias);
    const auto* from = product.const_data_ptr<float>();
    for (auto row = first; row < last; ++row, from += part.size)
      std::memcpy(to + row * outputs_ + part.begin, from,
                  static_cast<std::size_t>(part.size) * sizeof(float));
  }

  at::Tensor weight_NK_;
  std::uint32_t version_;
  std::int64_t outputs_, inputs_;
  std::vector<Part> parts_;
};

}  // namespace whisper
