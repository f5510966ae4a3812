// SPDX-License-Identifier: MIT
// Converts an optimizer's state to state dicts and back: the state of each parameter, and the options of each
// group. Supports optimizers with a function `state_of`, such as looptorch's, and LibTorch's Adam, AdamW,
// SGD, RMSprop and Adagrad. Any other optimizer needs `state_dict` and `load_state_dict`, and is saved as a
// whole. LibTorch's classes are only declared here: include the header of the one that you train with.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/state_comparison.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/optim/interface/any_optimizer.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace torch::optim {
class Adam;
class AdamW;
class SGD;
class RMSprop;
class Adagrad;
struct AdamParamState;
struct AdamWParamState;
struct SGDParamState;
struct RMSpropParamState;
struct AdagradParamState;
struct AdamOptions;
struct AdamWOptions;
struct SGDOptions;
struct RMSpropOptions;
struct AdagradOptions;
}  // namespace torch::optim

namespace looptorch::detail {

template <class OptimizerType, class StateType, class OptionsType>
struct LibTorchClasses {
  using Optimizer = OptimizerType;
  using State = StateType;
  using Options = OptionsType;
};

/// The first of the lists whose optimizer is Optimizer or a base of it; void if there is none.
template <class Optimizer, class... Lists>
struct ClassesOf {
  using type = void;
};
template <class Optimizer, class First, class... Rest>
struct ClassesOf<Optimizer, First, Rest...>
    : std::conditional_t<std::is_base_of_v<typename First::Optimizer, Optimizer>, std::type_identity<First>,
                         ClassesOf<Optimizer, Rest...>> {};

template <class Optimizer>
using libtorch_classes_t = typename ClassesOf<
    Optimizer, LibTorchClasses<torch::optim::Adam, torch::optim::AdamParamState, torch::optim::AdamOptions>,
    LibTorchClasses<torch::optim::AdamW, torch::optim::AdamWParamState, torch::optim::AdamWOptions>,
    LibTorchClasses<torch::optim::SGD, torch::optim::SGDParamState, torch::optim::SGDOptions>,
    LibTorchClasses<torch::optim::RMSprop, torch::optim::RMSpropParamState, torch::optim::RMSpropOptions>,
    LibTorchClasses<torch::optim::Adagrad, torch::optim::AdagradParamState,
                    torch::optim::AdagradOptions>>::type;

/// An optimizer that saves itself as a whole, as a policy does.
template <class Optimizer>
concept SavesWhole = requires(Optimizer& optimizer, const Optimizer& saved, StateDict& out) {
  saved.state_dict(out);
  optimizer.load_state_dict(std::as_const(out));
};

/// An optimizer that saves its state for each parameter.
template <class Optimizer>
concept SavesParameters = requires(Optimizer& optimizer, const Optimizer& saved, const at::Tensor& parameter,
                                   const StateDict& in) {
  { saved.state_of(parameter) } -> std::convertible_to<StateDict>;
  optimizer.load_state_of(parameter, in);
};

template <class Optimizer>
concept LibTorchOptimizer = !std::is_void_v<libtorch_classes_t<Optimizer>>;

/// An optimizer with a state that a snapshot can hold.
template <class Optimizer>
concept SavedOptimizer = SavesWhole<Optimizer> || SavesParameters<Optimizer> || LibTorchOptimizer<Optimizer>;

/// True if each element of a parameter is updated by its own gradient and moments alone: for LibTorch's
/// classes themselves, and for optimizers that declare `updates_by_element`. A class that derives from one
/// may do more.
template <class Optimizer>
[[nodiscard]] constexpr bool updates_by_element() {
  if constexpr (requires { std::bool_constant<Optimizer::updates_by_element>{}; })
    return Optimizer::updates_by_element;
  else if constexpr (LibTorchOptimizer<Optimizer>)
    return std::is_same_v<Optimizer, typename libtorch_classes_t<Optimizer>::Optimizer>;
  else
    return false;
}

// ---- LibTorch's classes: a moment has the same name in all of them ----

/// Calls `visit(name, value)` for each value of a param state.
template <class State, class Visit>
void each_kept(State& state, Visit&& visit) {
  if constexpr (requires { state.step(); }) visit("step", state.step());
  if constexpr (requires { state.exp_avg(); }) visit("exp_avg", state.exp_avg());
  if constexpr (requires { state.exp_avg_sq(); }) visit("exp_avg_sq", state.exp_avg_sq());
  if constexpr (requires { state.max_exp_avg_sq(); }) visit("max_exp_avg_sq", state.max_exp_avg_sq());
  if constexpr (requires { state.momentum_buffer(); }) visit("momentum_buffer", state.momentum_buffer());
  if constexpr (requires { state.square_avg(); }) visit("square_avg", state.square_avg());
  if constexpr (requires { state.grad_avg(); }) visit("grad_avg", state.grad_avg());
  if constexpr (requires { state.sum(); }) visit("sum", state.sum());
}

inline void put(StateDict& out, const char* name, std::int64_t number) { out.set(name, number); }
inline void put(StateDict& out, const char* name, double number) { out.set(name, number); }
inline void put(StateDict& out, const char* name, bool flag) { out.set(name, flag); }
template <class Number>
requires std::is_enum_v<Number> || std::is_same_v<Number, int>
void put(StateDict& out, const char* name, Number number) {
  out.set(name, static_cast<std::int64_t>(number));
}
inline void put(StateDict& out, const char* name, const at::Tensor& tensor) {
  if (tensor.defined()) out.set(name, tensor);
}
template <class Pair>
requires requires(const Pair& pair) { std::get<1>(pair); }
void put(StateDict& out, const char* name, const Pair& pair) {
  int i = 0;
  std::apply([&](const auto&... values) { (out.set(message(name, ".", i++), values), ...); }, pair);
}

/// True if an optimizer with these options keeps `name` for each parameter that has a state.
template <class Options>
[[nodiscard]] bool keeps([[maybe_unused]] const Options& options, std::string_view name) {
  if constexpr (requires { options.amsgrad(); })
    if (name == "max_exp_avg_sq") return options.amsgrad();
  if constexpr (requires { options.momentum(); })
    if (name == "momentum_buffer") return options.momentum() != 0;
  if constexpr (requires { options.centered(); })
    if (name == "grad_avg") return options.centered();
  return true;
}

/// Copies a saved tensor to the parameter's device and dtype; undefined if the state has none.
inline void take(const StateDict& in, const char* name, const at::Tensor& parameter, at::Tensor& tensor) {
  if (!in.contains(name)) return;
  const at::Tensor& saved = in.get<at::Tensor>(name);
  if (!saved.defined()) throw StateError(message("'", name, "' is an undefined tensor"));
  if (saved.sizes() != parameter.sizes())
    throw StateError(message("'", name, "' has the shape ", saved.sizes(), " for a parameter of shape ",
                             parameter.sizes()));
  tensor = at::empty_like(parameter).copy_(saved);
}
inline void take(const StateDict& in, const char* name, const at::Tensor&, std::int64_t& number) {
  if (!in.contains(name)) return;
  number = in.get<std::int64_t>(name);
  if (number < 0) throw StateError(message("'", name, "' counts from 0, and is ", number));
}

/// Reads a param state from `in`. Throws StateError for a value that is missing, surplus or of another shape.
template <class State, class Options>
void take_all(const StateDict& in, const Options& options, const at::Tensor& parameter, State& state) {
  std::set<std::string> surplus;
  for (const auto& item : in.values()) surplus.insert(item.first);
  each_kept(state, [&](const char* name, auto& value) {
    if (surplus.erase(name) == 0 && keeps(options, name))
      throw StateError(message("the optimizer keeps '", name, "' for it, and the snapshot has none"));
    take(in, name, parameter, value);
  });
  if (!surplus.empty())
    throw StateError(
        message("the snapshot has '", *surplus.begin(), "' for it, which the optimizer does not keep"));
}

// ---- Called by snapshots ----

/// Returns the state of one parameter, as handles; empty before its first gradient.
template <class Optimizer>
[[nodiscard]] StateDict parameter_state(const Optimizer& optimizer, const at::Tensor& parameter) {
  if constexpr (SavesParameters<Optimizer>) {
    return optimizer.state_of(parameter);
  } else {
    StateDict out;
    if constexpr (LibTorchOptimizer<Optimizer>) {
      using State = typename libtorch_classes_t<Optimizer>::State;
      if (const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
          found != optimizer.state().end())
        each_kept(static_cast<const State&>(*found->second),
                  [&](const char* name, const auto& value) { put(out, name, value); });
    }
    return out;
  }
}

/// Returns the step that loads the result of `parameter_state` for a parameter of `group`. Throws StateError
/// for what does not fit, as far as that is known beforehand.
template <class Optimizer>
[[nodiscard]] Commit stage_parameter_state(Optimizer& optimizer,
                                           [[maybe_unused]] const torch::optim::OptimizerParamGroup& group,
                                           const at::Tensor& parameter, StateDict in) {
  if constexpr (SavesParameters<Optimizer>) {
    if constexpr (requires { optimizer.check_state_of(parameter, in); })
      optimizer.check_state_of(parameter, in);
    return [&optimizer, parameter, in = std::move(in)] { optimizer.load_state_of(parameter, in); };
  } else {
    using Classes = libtorch_classes_t<Optimizer>;
    using State = typename Classes::State;
    at::NoGradGuard no_gradients;
    std::shared_ptr<State> state;
    if (!in.empty()) {
      state = std::make_shared<State>();
      take_all(in, static_cast<const typename Classes::Options&>(group.options()), parameter, *state);
    }
    return [&optimizer, parameter, state] {
      auto* key = parameter.unsafeGetTensorImpl();
      state ? void(optimizer.state()[key] = std::make_unique<State>(std::move(*state)))
            : void(optimizer.state().erase(key));
    };
  }
}

/// Returns the bytes of the tensors that an optimizer keeps for a parameter of `group` from its first update
/// on, without its step count; 0 for an optimizer that does not declare it.
template <class Optimizer>
[[nodiscard]] std::int64_t state_bytes([[maybe_unused]] const torch::optim::OptimizerParamGroup& group,
                                       [[maybe_unused]] const at::Tensor& parameter) {
  std::int64_t bytes = 0;
  if constexpr (requires { Optimizer::state_bytes(group, parameter); }) {
    bytes = Optimizer::state_bytes(group, parameter);
  } else if constexpr (LibTorchOptimizer<Optimizer>) {
    using Classes = libtorch_classes_t<Optimizer>;
    typename Classes::State state;
    const auto& options = static_cast<const typename Classes::Options&>(group.options());
    each_kept(state, [&](const char* name, const auto& value) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, at::Tensor>)
        if (keeps(options, name)) bytes += static_cast<std::int64_t>(parameter.nbytes());
    });
  }
  return bytes;
}

/// Returns the options of a parameter group without its rate, which a schedule changes; empty for an
/// optimizer that saves itself as a whole.
template <class Optimizer>
[[nodiscard]] StateDict group_options_of([[maybe_unused]] const Optimizer& optimizer,
                                         const torch::optim::OptimizerParamGroup& group) {
  StateDict out;
  if constexpr (LibTorchOptimizer<Optimizer>) {
    const auto visit = [&](const char* name, const auto& value) { put(out, name, value); };
    const auto& options =
        static_cast<const typename libtorch_classes_t<Optimizer>::Options&>(group.options());
    if constexpr (requires { options.betas(); }) visit("betas", options.betas());
    if constexpr (requires { options.eps(); }) visit("eps", options.eps());
    if constexpr (requires { options.weight_decay(); }) visit("weight_decay", options.weight_decay());
    if constexpr (requires { options.amsgrad(); }) visit("amsgrad", options.amsgrad());
    if constexpr (requires { options.momentum(); }) visit("momentum", options.momentum());
    if constexpr (requires { options.dampening(); }) visit("dampening", options.dampening());
    if constexpr (requires { options.nesterov(); }) visit("nesterov", options.nesterov());
    if constexpr (requires { options.alpha(); }) visit("alpha", options.alpha());
    if constexpr (requires { options.centered(); }) visit("centered", options.centered());
    if constexpr (requires { options.lr_decay(); }) visit("lr_decay", options.lr_decay());
  } else if constexpr (std::is_base_of_v<AnyOptimizer, Optimizer>) {
    out = optimizer.options_state(group);
  }
  return out;
}

// ---- The same for an optimizer whose type is known only at run time ----

template <class Optimizer>
[[nodiscard]] std::int64_t state_bytes_of([[maybe_unused]] const Optimizer& optimizer,
                                          const torch::optim::OptimizerParamGroup& group,
                                          const at::Tensor& parameter) {
  if constexpr (std::is_same_v<Optimizer, AnyOptimizer>)
    return optimizer.moment_bytes(group, parameter);
  else
    return state_bytes<Optimizer>(group, parameter);
}

template <class Optimizer>
[[nodiscard]] std::string type_of([[maybe_unused]] const Optimizer& optimizer) {
  if constexpr (std::is_same_v<Optimizer, AnyOptimizer>)
    return optimizer.class_name();
  else
    return std::string(type_name<Optimizer>());
}

}  // namespace looptorch::detail
