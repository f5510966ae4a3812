// SPDX-License-Identifier: MIT
// Deduces a Trainer's type from its constructor's arguments. For wrong arguments gives an error of one
// sentence. Programs include trainer.hpp or loop.hpp instead.
#pragma once

#include <looptorch/loop/compose/parts.hpp>
#include <looptorch/loop/update.hpp>

#include <memory>

namespace looptorch {

template <class Model, class... Parts>
class Trainer;

/// The type that is deduced from arguments that fit neither form.
template <class... Arguments>
class Trainer<detail::Misused, Arguments...> {
  static_assert(sizeof...(Arguments) < 0,
                "looptorch: these are not a Trainer's arguments. Write Trainer(model, optimizer, "
                "objective, policies...) or Trainer(model, Update{optimizer, objective}, ..., "
                "policies...), with an optimizer that has a name. See docs/errors.md#trainer-arguments");

 public:
  explicit Trainer(const Arguments&...) {}
};

// clang-format off
template <class Model, OptimizerLike Optimizer, class Objective, class... Policies>
  requires detail::ModelHandle<Model> && (!detail::is_update<Objective>)
Trainer(Model, Optimizer&, Objective, Policies...) -> Trainer<Model, Update<Optimizer, Objective>, Policies...>;
template <class Model, OptimizerLike Optimizer, class Objective, class... Policies>
  requires detail::ModelHandle<Model>
Trainer(Model, std::shared_ptr<Optimizer>, Objective, Policies...)
    -> Trainer<Model, Update<Optimizer, Objective>, Policies...>;
template <class Model, class First, class... Parts>
  requires detail::ModelHandle<Model> && detail::is_update<First>
Trainer(Model, First, Parts...) -> Trainer<Model, First, Parts...>;
template <class... Arguments>
Trainer(Arguments...) -> Trainer<detail::Misused, Arguments...>;
// clang-format on

}  // namespace looptorch
