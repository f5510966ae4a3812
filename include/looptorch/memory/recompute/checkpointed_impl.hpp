// SPDX-License-Identifier: MIT
// Implements the module `Checkpointed<Layer>`: the layer itself, whose forward is checkpointed.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/memory/recompute/bypass.hpp>
#include <looptorch/memory/recompute/bypass_watch.hpp>
#include <looptorch/memory/recompute/checkpointed_call.hpp>

#include <torch/nn/module.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace looptorch::detail {

/// The implementation, its options, and calls with any arguments that the layer's forward takes.
template <class Layer>
class CheckpointedLayer : public Layer::ContainedType, public Bypassable {
 public:
  using Impl = typename Layer::ContainedType;
  using Impl::Impl;

  CheckpointOptions checkpoint;
  std::atomic<bool> entered = false;  ///< True once its forward was called with gradients.

  [[nodiscard]] bool saves_memory() const override { return checkpoint.mode != CheckpointMode::off; }

  [[nodiscard]] bool saves_most() const override {
    return checkpoint.mode == CheckpointMode::recompute || checkpoint.mode == CheckpointMode::offload;
  }
  [[nodiscard]] std::string policy() const override {
    return message("Checkpointed<", type_name<Layer>(), ">{}");
  }
  void recompute() override { checkpoint.mode = CheckpointMode::recompute; }

  [[nodiscard]] std::unique_ptr<LayerWatch> watch_layers(const torch::nn::Module& model) const override {
    return std::make_unique<BypassWatch>(model);
  }

  [[nodiscard]] std::function<void()> keep_options() override {
    return [this, options = checkpoint] { checkpoint = options; };
  }

  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& = std::nullopt) const override {
    throw UsageError(message("Checkpointed<", type_name<Layer>(),
                             "> cannot be cloned: make a new one and copy its parameters"));
  }

 protected:
  template <class... Arguments>
  decltype(auto) call(Arguments&&... arguments) {
    if (at::GradMode::is_enabled()) entered = true;
    const Call watched(*this);
    return call_checkpointed(
        checkpoint, Callee{this, type_name<Layer>()},
        [this](auto&&... given) noexcept(noexcept(
            std::declval<Impl&>().forward(std::forward<decltype(given)>(given)...))) -> decltype(auto) {
          return this->Impl::forward(std::forward<decltype(given)>(given)...);
        },
        std::forward<Arguments>(arguments)...);
  }
};

/// The signature of a member function; void if it has none, as when it is overloaded.
template <class Member>
struct SignatureOf {
  using type = void;
};
template <class Class, class Result, class... Arguments>
struct SignatureOf<Result (Class::*)(Arguments...)> {
  using type = Result(Arguments...);
};
template <class Class, class Result, class... Arguments>
struct SignatureOf<Result (Class::*)(Arguments...) const> : SignatureOf<Result (Class::*)(Arguments...)> {};
template <class Class, class Result, class... Arguments>
struct SignatureOf<Result (Class::*)(Arguments...) noexcept> : SignatureOf<Result (Class::*)(Arguments...)> {
};
template <class Class, class Result, class... Arguments>
struct SignatureOf<Result (Class::*)(Arguments...) const noexcept>
    : SignatureOf<Result (Class::*)(Arguments...)> {};

template <class Layer>
struct ForwardOf {
  using type = void;
};
template <class Layer>
requires requires { &Layer::ContainedType::forward; }
struct ForwardOf<Layer> : SignatureOf<decltype(&Layer::ContainedType::forward)> {};

/// Declares one `forward` with the layer's own signature, which AnyModule needs.
template <class Layer, class Forward>
class WithForward;
template <class Layer, class Result, class... Arguments>
class WithForward<Layer, Result(Arguments...)> : public CheckpointedLayer<Layer> {
 public:
  using CheckpointedLayer<Layer>::CheckpointedLayer;
  Result forward(Arguments... arguments) { return this->call(std::forward<Arguments>(arguments)...); }
};
/// Declares a generic `forward` if the layer's is overloaded or a template. AnyModule accepts neither.
template <class Layer>
class WithForward<Layer, void> : public CheckpointedLayer<Layer> {
 public:
  using CheckpointedLayer<Layer>::CheckpointedLayer;
  template <class... Arguments>
  decltype(auto) forward(Arguments&&... arguments) {
    return this->call(std::forward<Arguments>(arguments)...);
  }
};

/// The implementation type. It is abstract, so that every object of it is a CheckpointedFace.
template <class Layer>
class CheckpointedImpl : public WithForward<Layer, typename ForwardOf<Layer>::type> {
 public:
  using WithForward<Layer, typename ForwardOf<Layer>::type>::WithForward;

 private:
  virtual void is_a_face() = 0;
};

/// The type behind `layer->`: its `forward` also takes the layer's default arguments.
template <class Layer>
class CheckpointedFace final : public CheckpointedImpl<Layer> {
 public:
  using CheckpointedImpl<Layer>::CheckpointedImpl;
  using CheckpointedImpl<Layer>::forward;  // accepts braced arguments
  template <class... Arguments>
  decltype(auto) forward(Arguments&&... arguments) {
    return this->call(std::forward<Arguments>(arguments)...);
  }

 private:
  void is_a_face() override {}
};

}  // namespace looptorch::detail
