// SPDX-License-Identifier: MIT
// Runs a block as its CheckpointOptions say: recomputed in backward, in parts, offloaded to the host, or
// plainly. Read this header first: `checkpoint` and `Checkpointed` call `call_checkpointed`. For a block that
// will be recomputed, autograd's graph holds a Recomputation until backward.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/memory/recompute/first_run.hpp>
#include <looptorch/memory/recompute/offload.hpp>
#include <looptorch/memory/recompute/recorder.hpp>
#include <looptorch/memory/recompute/recurrent_layers.hpp>
#include <looptorch/memory/recompute/stored_arguments.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

/// The treatment of tensors that a block saves for backward.
enum class CheckpointMode {
  recompute,  ///< The block is recomputed in backward.
  light,      ///< Keeps the results of `keep_product`; recomputes the others, such as element-wise ones.
  offload,    ///< Moves its saved tensors to pinned host memory and back, during the computation.
  off,        ///< A plain call.
};

/// How a block saves memory, and what its second run must restore or keep.
struct CheckpointOptions {
  CheckpointMode mode = CheckpointMode::recompute;
  bool random_state = true;  ///< Restores random generators; false if the block draws no random numbers.
  /// Ends the second run at the last tensor needed; false: runs to the end, and checks the number of tensors.
  bool early_stop = true;
  std::vector<at::Tensor> buffers = {};  ///< Further tensors that the block writes to besides its module's.
  std::string name = {};                 ///< The block's name in errors; empty: its type.
  /// Runs the block on so many parts of its samples in turn, forward and backward, for the memory of one
  /// part. For a block that returns a tensor, and whose samples are independent of each other. The first
  /// dimension of all tensor arguments, but 0-dim ones, must count the samples: others throw CheckpointError.
  /// Let the block hold or capture tensors that are not samples, such as a table or a mask for all of them.
  std::int64_t parts = 1;
};

namespace detail {

template <class T>
concept ModuleHolderLike = requires(const T& holder) {
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};

/// The block that is called.
struct Callee {
  torch::nn::Module* module;  ///< Null for a function.
  std::string_view type;
};
template <class F>
[[nodiscard]] Callee callee_of(const F& f) {
  if constexpr (ModuleHolderLike<F>)
    return {f.ptr().get(), f->name()};
  else
    return {nullptr, "the checkpointed function"};
}

/// A Recomputation of one function and its arguments.
template <class F, class... Arguments>
class RecomputedCall final : public Recomputation {
 public:
  using Stored = std::tuple<stored_t<Arguments>...>;

  template <class G>
  RecomputedCall(BlockName name, const CheckpointOptions& options, bool early_stop, AmbientState ambient,
                 G&& f, Stored arguments)
      : Recomputation(std::move(name), early_stop, options.mode == CheckpointMode::light, std::move(ambient)),
        f_(std::forward<G>(f)),
        arguments_(std::move(arguments)) {}

  /// Moves the tensors out of the arguments.
  Tensors take_inputs() {
    Tensors inputs;
    for_each_argument_tensor(arguments_, [&](at::Tensor& tensor) {
      inputs.push_back(tensor);
      tensor = placeholder();
    });
    return inputs;
  }

 private:
  /// Returns the placeholder of a removed tensor, distinct from an undefined one.
  static const at::Tensor& placeholder() {
    static const at::Tensor tensor = at::empty({0});
    return tensor;
  }

  void call_again(Tensors inputs) override {
    Stored arguments = arguments_;
    auto next = inputs.begin();
    for_each_argument_tensor(arguments, [&](at::Tensor& tensor) { tensor = std::move(*next++); });
    F f = f_;  // each run begins with the function as it was given
    std::apply([&](auto&... each) { (void)std::invoke(f, given<Arguments>(each)...); }, arguments);
  }

  F f_;
  Stored arguments_;
};

/// Returns the devices on which the block may draw random numbers. A function may use layers on any
/// accelerator that the process uses.
template <class Tuple>
[[nodiscard]] DeviceSet devices_of(const Callee& callee, const CapturedModule& module,
                                   const Tuple& arguments) {
  DeviceSet devices;
  for_each_argument_tensor(arguments, [&](const at::Tensor& tensor) { devices.add(tensor.device()); });
  module.for_each_parameter([&](const at::Tensor& parameter) { devices.add(parameter.device()); });
  if (!callee.module)
    for (const at::Device& device : accelerators_in_use()) devices.add(device);
  return devices;
}

/// True if the call may need gradients. A function may have parameters of its own.
template <class Tuple>
[[nodiscard]] bool may_need_gradient(const Callee& callee, const CapturedModule& module,
                                     const Tuple& arguments) {
  bool may = !callee.module || module.has_trained_parameters();
  for_each_argument_tensor(arguments, [&](const at::Tensor& tensor) { may |= tensor.requires_grad(); });
  return may;
}

/// Runs the block for the first time, with a keeper that notes where each saved tensor came from.
template <class F, class... Arguments>
decltype(auto) call_recomputed(const CheckpointOptions& options, const Callee& callee, F&& f,
                               Arguments&&... arguments) {
  using Call = RecomputedCall<std::decay_t<F>, Arguments...>;
  using Result = std::invoke_result_t<F, Arguments...>;
  const auto given = std::forward_as_tuple(arguments...);
  CapturedModule module(callee.module, options.buffers);
  if (!may_need_gradient(callee, module, given))
    return std::invoke(std::forward<F>(f), std::forward<Arguments>(arguments)...);
  install_saved_tensor_engine();
  override_recurrent_layers();
  DeviceSet devices = devices_of(callee, module, given);
  const auto call =
      std::make_shared<Call>(BlockName{options.name, callee.type}, options,
                             options.early_stop && !std::is_nothrow_invocable_v<F, Arguments...>,
                             AmbientState(std::move(devices), options.random_state, std::move(module)), f,
                             typename Call::Stored(store<Arguments>(arguments)...));
  const auto inputs = call->take_inputs();
  call->save_inputs(inputs);
  FirstRun run(*call, inputs);
  const KeeperScope keeper(&run);
  const auto invoke = [&]() -> Result {
    return std::invoke(std::forward<F>(f), std::forward<Arguments>(arguments)...);
  };
  const auto finish = [&] {
    run.check_inputs();
    call->finish_first_run();
  };
  if constexpr (std::is_void_v<Result>) {
    invoke();
    finish();
  } else {
    Result result = invoke();
    finish();
    const auto results = std::tie(result);
    for_each_argument_tensor(results, [&](const at::Tensor& tensor) { run.rerun_before(tensor); });
    if constexpr (std::is_reference_v<Result>)
      return static_cast<Result>(result);
    else
      return result;
  }
}

/// Returns the arguments of each part. Throws CheckpointError for tensors with different numbers of samples.
template <class Stored>
[[nodiscard]] std::vector<Stored> cut_into_parts(const Stored& whole, std::int64_t parts,
                                                 std::string_view block) {
  Stored some = whole;
  std::vector<std::vector<at::Tensor>> pieces;
  std::int64_t samples = -1;
  for_each_argument_tensor(some, [&](const at::Tensor& tensor) {
    if (samples < 0 && tensor.dim() > 0) samples = tensor.size(0);
    if (tensor.dim() > 0 && tensor.size(0) != samples)
      throw CheckpointError(message(
          "CheckpointOptions::parts: an argument of ", block, " is ", tensor.sizes(), " beside ", samples,
          " samples. All tensors are cut along their first dimension, which must count the samples: let "
          "the block capture or hold this one, or expand it to ",
          samples, " samples. See docs/checkpointing.md#one-part-after-the-other"));
    pieces.push_back(tensor.dim() > 0 ? tensor.chunk(parts) : std::vector<at::Tensor>{tensor});
  });
  std::size_t most = 1;
  for (const auto& each : pieces) most = std::max(most, each.size());
  std::vector<Stored> cut(most, whole);
  for (std::size_t part = 0; part < most; ++part) {
    auto next = pieces.begin();
    for_each_argument_tensor(cut[part], [&](at::Tensor& tensor) {
      const auto& of_tensor = *next++;
      tensor = of_tensor[of_tensor.size() > 1 ? part : 0];
    });
  }
  return cut;
}

/// Runs the block on the parts of its samples in turn.
template <class F, class... Arguments>
[[nodiscard]] at::Tensor call_in_parts(const CheckpointOptions& options, const Callee& callee, F&& f,
                                       Arguments&&... arguments) {
  const BlockName block{options.name, callee.type};
  std::vector<at::Tensor> results;
  for (auto& part : cut_into_parts(std::tuple<stored_t<Arguments>...>(store<Arguments>(arguments)...),
                                   options.parts, block.view()))
    results.push_back(std::apply(
        [&](auto&... each) -> at::Tensor {
          return call_recomputed(options, callee, f, given<Arguments>(each)...);
        },
        part));
  return results.size() == 1 ? results[0] : at::cat(results);
}

template <class F, class... Arguments>
decltype(auto) call_offloaded(const CheckpointOptions& options, const Callee& callee, F&& f,
                              Arguments&&... arguments) {
  install_saved_tensor_engine();
  Offload offload(BlockName{options.name, callee.type}, callee.module);
  const KeeperScope keeper(&offload);
  return std::invoke(std::forward<F>(f), std::forward<Arguments>(arguments)...);
}

/// Throws UsageError for options that no block can follow.
inline void check(const CheckpointOptions& options) {
  if (options.parts < 1)
    throw UsageError(message("CheckpointOptions::parts is at least 1, got ", options.parts));
  if (options.parts > 1 && options.mode == CheckpointMode::offload)
    throw UsageError(
        message("CheckpointOptions::parts is for recomputed blocks; CheckpointMode::offload runs a "
                "block whole, got ",
                options.parts, " parts"));
}

/// Throws UsageError if the options ask for parts of a block that cannot be cut.
inline void refuse_parts(const CheckpointOptions& options, const Callee& callee) {
  if (options.parts > 1)
    throw UsageError(message("CheckpointOptions::parts: ", callee.type,
                             " does not return a tensor, whose parts could ", "be joined"));
}

template <class F, class... Arguments>
decltype(auto) call_checkpointed(const CheckpointOptions& options, const Callee& callee, F&& f,
                                 Arguments&&... arguments) {
  constexpr bool copyable = (std::is_copy_constructible_v<stored_t<Arguments>> && ...);
  static_assert(copyable,
                "looptorch: a checkpointed block is called again in backward, so that its arguments must be "
                "copyable. See docs/errors.md#checkpoint-arguments");
  constexpr bool callable_again = std::is_copy_constructible_v<std::decay_t<F>>;
  static_assert(
      callable_again,
      "looptorch: a checkpointed function is called again in backward, so that it must be copyable with "
      "all that it captures. See docs/errors.md#checkpoint-arguments");
  if constexpr (copyable && callable_again) {
    check(options);
    if (options.mode == CheckpointMode::offload && at::GradMode::is_enabled())
      return call_offloaded(options, callee, std::forward<F>(f), std::forward<Arguments>(arguments)...);
    if (options.mode != CheckpointMode::off && at::GradMode::is_enabled()) {
      if constexpr (std::is_same_v<std::invoke_result_t<F, Arguments...>, at::Tensor>)
        if (options.parts > 1)
          return call_in_parts(options, callee, std::forward<F>(f), std::forward<Arguments>(arguments)...);
      refuse_parts(options, callee);
      return call_recomputed(options, callee, std::forward<F>(f), std::forward<Arguments>(arguments)...);
    }
  }
  return std::invoke(std::forward<F>(f), std::forward<Arguments>(arguments)...);
}

}  // namespace detail
}  // namespace looptorch
