// SPDX-License-Identifier: MIT
// What a checkpointed layer tells of itself: whether it was entered, what it saves, and which nodes of a
// graph its calls have made. Tests memory/recompute: checkpointed_impl
#include <looptorch/memory/recompute/bypass.hpp>
#include <looptorch/policies/checkpointed.hpp>

#include "unit/memory/recompute/support/scenarios.hpp"

#include <thread>

using namespace checkpointed;

using Layer = lt::Checkpointed<torch::nn::Linear>;

TEST_CASE("a layer counts as entered once its forward was called with gradients") {
  Layer layer(kWidth, kWidth);
  {
    const torch::NoGradGuard no_gradients;
    (void)layer(input(cpu<float>()));
  }
  CHECK_FALSE(layer->entered);
  (void)layer(input(cpu<float>()));
  CHECK(layer->entered);
}

TEST_CASE("a layer saves memory in every mode but off, and most where nothing of it stays on the device") {
  Layer layer(kWidth, kWidth);
  using Mode = lt::CheckpointMode;
  for (const auto& [mode, memory, most] :
       {std::tuple(Mode::off, false, false), std::tuple(Mode::light, true, false),
        std::tuple(Mode::offload, true, true), std::tuple(Mode::recompute, true, true)}) {
    layer->checkpoint.mode = mode;
    CHECK(layer->saves_memory() == memory);
    CHECK(layer->saves_most() == most);
    const auto restore = layer->keep_options();
    layer->recompute();
    CHECK(layer->checkpoint.mode == Mode::recompute);
    restore();
    CHECK(layer->checkpoint.mode == mode);
  }
}

TEST_CASE("a watched layer knows the nodes of its own calls, the first and the last of them too") {
  Layer layer(kWidth, kWidth);
  const auto node_of = [](const at::Tensor& tensor) -> const torch::autograd::Node& {
    return *tensor.grad_fn();
  };
  const at::Tensor x = input(cpu<float>());
  (void)layer(x);
  CHECK_FALSE(layer->is_watched());
  layer->watch(true);
  const at::Tensor before = x * 2, inside = layer(before), behind = inside * 2;
  CHECK_FALSE(layer->has_made(node_of(before)));
  CHECK(layer->has_made(node_of(inside)));
  const auto transposed =
      node_of(inside).next_edge(2).function;  // the layer's first operation, on its weight
  REQUIRE(transposed);
  CHECK(layer->has_made(*transposed));
  CHECK_FALSE(layer->has_made(node_of(behind)));

  at::Tensor elsewhere = x * 2;  // threads number their nodes each by itself
  std::thread([&] {
    do elsewhere = x * 2;
    while (node_of(elsewhere).sequence_nr() < node_of(inside).sequence_nr());
  }).join();
  CHECK(node_of(elsewhere).sequence_nr() == node_of(inside).sequence_nr());
  CHECK_FALSE(layer->has_made(node_of(elsewhere)));

  layer->watch(true);  // anew
  CHECK_FALSE(layer->has_made(node_of(inside)));
  const at::Tensor again = layer(x);
  CHECK(layer->has_made(node_of(again)));
  layer->forget_calls();
  CHECK_FALSE(layer->has_made(node_of(again)));
  layer->watch(false);
  CHECK_FALSE(layer->has_made(node_of(layer(x))));
}
