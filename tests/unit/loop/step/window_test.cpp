// SPDX-License-Identifier: MIT
// A window's gradients are its own: what code of the program has left in the parameters before is dropped.
#include "support/precompiled.hpp"

#include <looptorch/loop/step/window.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <vector>

namespace lt = looptorch;

namespace {

torch::optim::SGD sgd(toy::Net& net) { return torch::optim::SGD(net->parameters(), 0.1); }

/// Leaves a gradient in every parameter, as a loss of the program's own does.
void leave_gradients(toy::Net& net, const toy::Batch& batch) {
  (100 * toy::objective(net, batch).value).backward();
}

}  // namespace

TEST_CASE("gradients that the program left between two steps of its own loop are dropped") {
  const auto data = toy::batches(6);
  const auto train = [&](bool leaves) {
    auto net = toy::net();
    auto optimizer = sgd(net);
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{});
    for (const auto& batch : data)
      if (trainer.step(batch).window_ended && leaves) leave_gradients(net, data[0]);
    trainer.finish();
    return net;
  };
  auto with = train(true), without = train(false);
  CHECK(toy::distance(with, without) == 0.0);
}

TEST_CASE("gradients that a hook left after a window of a fit are dropped") {
  const auto data = toy::batches(6);
  const auto train = [&](bool leaves) {
    auto net = toy::net();
    auto optimizer = sgd(net), other = sgd(net);
    const auto hook = [&](lt::WindowContext&) {
      if (leaves) leave_gradients(net, data[0]);
    };
    lt::Trainer trainer(net, lt::Update{optimizer, toy::objective, {.name = "first"}},
                        lt::Update{other, toy::objective, {.name = "second", .every = 2}},
                        lt::On{lt::kObserve, hook});
    trainer.fit(data);
    return net;
  };
  auto with = train(true), without = train(false);
  CHECK(toy::distance(with, without) == 0.0);
}
