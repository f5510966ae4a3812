// SPDX-License-Identifier: MIT
// Sets LibTorch's process-wide switches for a run, and restores them after it: TF32, cuDNN's search for the
// fastest algorithm, deterministic algorithms, and the kernels of attention. Use it for speed or for
// reproducible results. Costs nothing per step by itself; docs/policies/precision.md says what the switches
// cost or save.
#pragma once

#include <looptorch/base/device/older_libtorch.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

namespace looptorch {
namespace detail {

/// The switches of TF32 for fp32 matmuls, convolutions and recurrent layers on CUDA, as they were when this
/// object was made. Since 2.9 LibTorch has two interfaces and throws if they disagree: both are set together.
class Tf32Settings {
 public:
  static void allow(bool tf32) {
    if (is_medium()) at::globalContext().setFloat32MatmulPrecision(tf32 ? "high" : "highest");
    set_older(tf32, tf32);
    Float32Switches::allow(tf32);
  }

  void restore() const {
    set_older(switches_.matmuls(), switches_.convolutions());
    if (is_medium_) at::globalContext().setFloat32MatmulPrecision("medium");
    switches_.restore();
  }

 private:
  static void set_older(bool products, bool convolutions) {
    at::globalContext().setAllowTF32CuBLAS(products);
    at::globalContext().setAllowTF32CuDNN(convolutions);
  }

  /// True if the older interface is set to "medium", which covers the CPU's bf16 matmuls too.
  static bool is_medium() {
    try {
      return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM;
    } catch (const c10::Error&) {  // the interfaces disagree already: the newer one counts
      return false;
    }
  }

  Float32Switches switches_;
  bool is_medium_ = is_medium();
};

}  // namespace detail

/// The kernels that `scaled_dot_product_attention` may choose. A CPU has `flash` and `plain`.
struct AttentionKernels {
  bool flash = true;      ///< FlashAttention: fp16 and bf16 on CUDA.
  bool efficient = true;  ///< xFormers' memory-efficient attention: fp32, too.
  bool cudnn = true;      ///< cuDNN's, which builds a plan for each new shape: for inputs of few shapes.
  bool plain = true;      ///< Products and a softmax, with the whole matrix of weights in memory.

  bool operator==(const AttentionKernels&) const = default;
};

namespace detail {

[[nodiscard]] inline AttentionKernels attention_kernels() {
  const at::Context& context = at::globalContext();
  return {context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(), context.userEnabledCuDNNSDP(),
          context.userEnabledMathSDP()};
}
inline void set_attention_kernels(const AttentionKernels& allowed) {
  at::Context& context = at::globalContext();
  context.setSDPUseFlash(allowed.flash), context.setSDPUseMemEfficient(allowed.efficient);
  context.setSDPUseCuDNN(allowed.cudnn), context.setSDPUseMath(allowed.plain);
}

/// Records whether only deterministic algorithms may run, as it was when this was made.
struct DeterministicSetting {
  bool on = at::globalContext().deterministicAlgorithms();
  bool warns = at::globalContext().deterministicAlgorithmsWarnOnly();
};

}  // namespace detail

struct BackendFlags;

/// Sets the switches while it lives, then restores the former settings: BackendFlags without a Trainer.
class BackendScope {
 public:
  /// Throws UsageError for flags that contradict each other.
  explicit BackendScope(const BackendFlags& flags);
  ~BackendScope() {
    if (tf32_) tf32_->restore();
    if (benchmark_) at::globalContext().setBenchmarkCuDNN(*benchmark_);
    if (deterministic_)
      at::globalContext().setDeterministicAlgorithms(deterministic_->on, deterministic_->warns);
    if (attention_) detail::set_attention_kernels(*attention_);
  }
  BackendScope(BackendScope&& other) noexcept
      : tf32_(std::exchange(other.tf32_, std::nullopt)),
        benchmark_(std::exchange(other.benchmark_, std::nullopt)),
        deterministic_(std::exchange(other.deterministic_, std::nullopt)),
        attention_(std::exchange(other.attention_, std::nullopt)) {}
  BackendScope& operator=(BackendScope&&) = delete;

 private:
  // The former settings; empty for a switch left alone.
  std::optional<detail::Tf32Settings> tf32_;
  std::optional<bool> benchmark_;
  std::optional<detail::DeterministicSetting> deterministic_;
  std::optional<AttentionKernels> attention_;
};

/// Sets the switches from the beginning of fit to its end (with `step`, until `finish` or the Trainer's
/// destruction) and in `evaluate`. Leaves an empty switch alone.
struct BackendFlags {
  std::optional<bool> tf32 = {};             ///< fp32 matmuls, convolutions and recurrent layers on CUDA.
  std::optional<bool> cudnn_benchmark = {};  ///< cuDNN times its algorithms for each new shape.
  std::optional<bool> deterministic = {};    ///< An operation without a deterministic algorithm throws.
  std::optional<AttentionKernels> attention = {};  ///< The kernels that attention may use; at least one.

  struct State {
    std::optional<BackendScope> scope;  ///< While the switches are set.
  };

  /// Throws UsageError for flags that contradict each other, and if deterministic matmuls on CUDA
  /// need an environment variable that is not set.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (deterministic == true && fit.run.device().is_cuda()) check_workspace();
    if (!state.scope) state.scope.emplace(*this);
  }
  void on_fit_end(FitContext&, State& state) const { state.scope.reset(); }

  BackendScope evaluation_scope(const EvaluationContext&, State&) const { return BackendScope(*this); }

 private:
  /// Throws UsageError if the variable is not set. cuBLAS reads it when it starts, so it cannot be set here.
  static void check_workspace() {
    const char* variable = std::getenv("CUBLAS_WORKSPACE_CONFIG");
    const std::string_view value = variable ? variable : "";
    if (value != ":4096:8" && value != ":16:8")
      throw UsageError(message(
          "BackendFlags{.deterministic = true} on CUDA needs the environment variable "
          "CUBLAS_WORKSPACE_CONFIG=:4096:8 (or :16:8, slower and smaller) before the program starts; it is ",
          variable ? message("'", value, "'") : "not set"));
  }
};

inline BackendScope::BackendScope(const BackendFlags& flags) {
  if (flags.deterministic == true && flags.cudnn_benchmark == true)
    throw UsageError(
        "BackendFlags: deterministic and cudnn_benchmark contradict each other, since the algorithm that is "
        "fastest differs from run to run; set one of them");
  if (flags.attention == AttentionKernels{false, false, false, false})
    throw UsageError(
        "BackendFlags: attention needs a kernel; allow at least one of flash, efficient, cudnn, plain");
  if (flags.tf32) {
    tf32_.emplace();
    detail::Tf32Settings::allow(*flags.tf32);
  }
  if (flags.cudnn_benchmark) {
    benchmark_ = at::globalContext().benchmarkCuDNN();
    at::globalContext().setBenchmarkCuDNN(*flags.cudnn_benchmark);
  }
  if (flags.deterministic) {
    deterministic_.emplace();
    at::globalContext().setDeterministicAlgorithms(*flags.deterministic, /*warn_only=*/false);
  }
  if (flags.attention) {
    attention_ = detail::attention_kernels();
    detail::set_attention_kernels(*flags.attention);
  }
}

}  // namespace looptorch
