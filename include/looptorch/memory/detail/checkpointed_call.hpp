// SPDX-License-Identifier: MIT
// A call of a block with any arguments, whose tensors are found and saved as autograd saves them.
#pragma once

#include <looptorch/data/batch.hpp>
#include <looptorch/memory/detail/offload.hpp>
#include <looptorch/memory/detail/recomputation.hpp>

#include <ATen/core/grad_mode.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

enum class CheckpointMode {
  recompute,  ///< The block runs again in backward.
  offload,    ///< What it saves moves to pinned host memory and back: no time on a GPU that has copies to
              ///< spare.
  off,        ///< A plain call.
};

struct CheckpointOptions {
  CheckpointMode mode = CheckpointMode::recompute;
  bool random_state = true;  ///< Put the random generators back: false if the block draws no random numbers.
  bool early_stop = true;    ///< End with the last tensor that is needed; false also counts those after it.
  std::vector<at::Tensor> buffers = {};  ///< Further tensors that the block writes to besides its module's.
  std::string name = {};                 ///< In errors; empty: its type.
};

namespace detail {

template <class T>
concept ModuleHolderLike = requires(const T& holder) {
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};

/// The module that is called; null for a function.
template <class F>
[[nodiscard]] torch::nn::Module* module_of(const F& f) {
  if constexpr (ModuleHolderLike<F>)
    return f.ptr().get();
  else
    return nullptr;
}

/// The tensors of arguments that have any to be found.
template <class Tuple, class Visit>
void for_each_argument_tensor(Tuple& arguments, Visit&& visit) {
  const auto of_one = [&](auto& argument) {
    if constexpr (BatchLike<std::remove_cvref_t<decltype(argument)>>)
      for_each_tensor(argument, [&](auto& tensor) {
        if (tensor.defined()) visit(tensor);
      });
  };
  std::apply([&](auto&... argument) { (of_one(argument), ...); }, arguments);
}

template <class F, class... Arguments>
class RecomputedCall final : public Recomputation {
 public:
  using Stored = std::tuple<std::decay_t<Arguments>...>;

  template <class G>
  RecomputedCall(std::string name, bool early_stop, AmbientState ambient, G&& f, Stored arguments)
      : Recomputation(std::move(name), early_stop, std::move(ambient)),
        f_(std::forward<G>(f)),
        arguments_(std::move(arguments)) {}

  /// Takes the tensors out of the arguments.
  Tensors take_inputs() {
    Tensors inputs;
    for_each_argument_tensor(arguments_, [&](at::Tensor& tensor) {
      inputs.push_back(tensor);
      tensor = placeholder();
    });
    return inputs;
  }

 private:
  /// Marks the place of a tensor among those that are undefined.
  static const at::Tensor& placeholder() {
    static const at::Tensor tensor = at::empty({0});
    return tensor;
  }

  void call_again(Tensors inputs) override {
    Stored arguments = arguments_;
    auto next = inputs.begin();
    for_each_argument_tensor(arguments, [&](at::Tensor& tensor) { tensor = std::move(*next++); });
    std::apply([&](auto&... each) { (void)std::invoke(f_, static_cast<Arguments&&>(each)...); }, arguments);
  }

  F f_;
  Stored arguments_;
};

/// What the call may need a gradient for; a function may have parameters of its own.
template <class Tuple>
[[nodiscard]] bool may_need_gradient(const torch::nn::Module* module, const Tuple& arguments) {
  if (!module) return true;
  bool may = false;
  for_each_argument_tensor(arguments, [&](const at::Tensor& tensor) { may |= tensor.requires_grad(); });
  if (may) return true;
  for (const at::Tensor& parameter : module->parameters()) may |= parameter.requires_grad();
  return may;
}

/// All that the block reads besides its arguments, as it is now.
template <class Tuple>
[[nodiscard]] AmbientState ambient_now(const CheckpointOptions& options, torch::nn::Module* module,
                                       const Tuple& arguments) {
  ModuleState state(module, options.buffers);
  DeviceSet devices;
  for_each_argument_tensor(arguments, [&](const at::Tensor& tensor) { devices.add(tensor.device()); });
  for (const auto& [parameter, version] : state.parameters()) devices.add(parameter.device());
  return {std::move(devices), options.random_state, std::move(state)};
}

[[nodiscard]] inline std::string block_name(const CheckpointOptions& options,
                                            const torch::nn::Module* module) {
  if (!options.name.empty()) return options.name;
  return module ? module->name() : "the checkpointed function";
}

/// Runs the block for the first time.
template <class F, class... Arguments>
decltype(auto) call_recomputed(const CheckpointOptions& options, torch::nn::Module* module, F&& f,
                               Arguments&&... arguments) {
  using Call = RecomputedCall<std::decay_t<F>, Arguments...>;
  using Result = std::invoke_result_t<F, Arguments...>;
  install_saved_tensor_engine();
  const auto call = std::make_shared<Call>(block_name(options, module), options.early_stop,
                                           ambient_now(options, module, std::forward_as_tuple(arguments...)),
                                           f, typename Call::Stored(std::as_const(arguments)...));
  const auto inputs = call->take_inputs();
  call->save_inputs(inputs);
  FirstRun run(*call, inputs);
  const KeeperScope keeper(&run);
  const auto invoke = [&]() -> Result {
    return std::invoke(std::forward<F>(f), std::forward<Arguments>(arguments)...);
  };
  const auto finish = [&] {
    run.check_inputs();
    call->ambient().settle();
  };
  if constexpr (std::is_void_v<Result>) {
    invoke();
    finish();
  } else {
    Result result = invoke();
    finish();
    if constexpr (std::is_reference_v<Result>)
      return static_cast<Result>(result);
    else
      return result;
  }
}

template <class F, class... Arguments>
decltype(auto) call_offloaded(F&& f, Arguments&&... arguments) {
  install_saved_tensor_engine();
  Offload offload;
  const KeeperScope keeper(&offload);
  return std::invoke(std::forward<F>(f), std::forward<Arguments>(arguments)...);
}

/// `module` is what is called, or null.
template <class F, class... Arguments>
decltype(auto) call_checkpointed(const CheckpointOptions& options, torch::nn::Module* module, F&& f,
                                 Arguments&&... arguments) {
  static_assert((std::copy_constructible<std::decay_t<Arguments>> && ...),
                "looptorch: a checkpointed block is called again in backward, so that its arguments must be "
                "copyable. See docs/errors.md#checkpoint-arguments");
  if (options.mode == CheckpointMode::off || !at::GradMode::is_enabled() ||
      !may_need_gradient(module, std::forward_as_tuple(arguments...)))
    return std::invoke(std::forward<F>(f), std::forward<Arguments>(arguments)...);
  if (options.mode == CheckpointMode::offload)
    return call_offloaded(std::forward<F>(f), std::forward<Arguments>(arguments)...);
  return call_recomputed(options, module, std::forward<F>(f), std::forward<Arguments>(arguments)...);
}

}  // namespace detail
}  // namespace looptorch
