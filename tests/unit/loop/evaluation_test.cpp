// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/loop/evaluation.hpp>

#include <stdexcept>

using looptorch::EvalScope;

TEST_CASE("EvalScope puts all modules into eval mode, and gives each its own mode back") {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Dropout(0.5), torch::nn::Linear(2, 1));
  net[1]->eval();  // as a frozen part is
  {
    const EvalScope eval_scope(*net);
    for (const auto& module : net->modules()) CHECK_FALSE(module->is_training());
  }
  CHECK(net->is_training());
  CHECK(net[0]->is_training());
  CHECK_FALSE(net[1]->is_training());
  CHECK(net[2]->is_training());
}

TEST_CASE("EvalScope gives modes back after an exception") {
  torch::nn::Linear net(2, 2);
  const auto evaluate = [&] {
    const EvalScope eval_scope(*net);
    throw std::runtime_error("no memory");
  };
  CHECK_THROWS_WITH(evaluate(), "no memory");
  CHECK(net->is_training());
}
