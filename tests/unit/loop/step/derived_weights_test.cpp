// SPDX-License-Identifier: MIT
// Casts of weights under autocast, kept from one micro-batch of a window to the next: as many as there must
// be, with the bits of a cast in each micro-batch, whatever happens within the window.
#include "support/precompiled.hpp"

#include <looptorch/layers/linear.hpp>
#include <looptorch/loop/step/derived_weights.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/trainer.hpp>

#include "support/operators_called.hpp"
#include "support/toy.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace lt = looptorch;

namespace {

struct BlockImpl : torch::nn::Module {
  BlockImpl() { register_module("linear", linear); }
  at::Tensor forward(const at::Tensor& x) { return torch::tanh(linear(x)); }
  lt::Linear linear{32, 32};
};
TORCH_MODULE(Block);

/// Three weights and biases, which autocast casts once in a forward pass; the middle ones may be recomputed.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(lt::CheckpointMode mode = lt::CheckpointMode::off) {
    register_module("first", first), register_module("block", block), register_module("second", second);
    block->checkpoint.mode = mode;
  }
  at::Tensor forward(const at::Tensor& x) { return second(block(torch::tanh(first(x)))); }
  lt::Linear first{4, 32}, second{32, 3};
  lt::Checkpointed<Block> block = lt::Checkpointed<Block>::make();
};
TORCH_MODULE(Net);
constexpr int kWeights = 6;

using Objective = std::function<at::Tensor(Net&, const toy::Batch&)>;

at::Tensor loss_of(Net& net, const toy::Batch& batch) {
  return torch::nn::functional::cross_entropy(net(batch.features).to(at::kFloat), batch.labels);
}
lt::Loss weighed_loss(Net& net, const toy::Batch& batch) {
  return {.value = loss_of(net, batch), .weight = static_cast<double>(batch.labels.size(0))};
}

std::vector<toy::Batch> batches(int64_t count) {
  auto result = toy::batches(count);
  for (auto& batch : result) batch.features = batch.features.to(at::kFloat);
  return result;
}

Net make_net(lt::CheckpointMode mode = lt::CheckpointMode::off) {
  torch::manual_seed(0);
  return Net(mode);
}

/// Has each micro-batch cast its weights again.
struct CastsInEach {
  bool forward_scope(const lt::ForwardContext& context) const {
    if (context.kept) context.kept->reset();
    return true;
  }
};

/// Where the window's micro-batches see each other's casts: in `fit`, or nowhere, in a loop by `step`.
enum class Way { fit, steps };

template <class Type = lt::bf16, class... Policies>
Net train(Way way, const Objective& objective, const std::vector<toy::Batch>& data,
          const Policies&... policies) {
  Net net = make_net();
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.01});
  lt::Trainer trainer(net, adamw, objective, lt::Autocast<Type>{}, policies...);
  if (way == Way::fit) {
    trainer.fit(data);
  } else {
    for (const auto& batch : data) trainer.step(batch);
    trainer.finish_window();
  }
  return net;
}

/// Trains both ways, and compares the weights' bits.
template <class Type = lt::bf16, class... Policies>
void check_bits(const Objective& objective, int64_t micro_batches, const Policies&... policies) {
  const auto data = batches(micro_batches);
  Net fit = train<Type>(Way::fit, objective, data, policies...);
  Net steps = train<Type>(Way::steps, objective, data, policies...);
  CHECK(toy::distance(fit, steps) == 0.0);
  Net untrained = make_net();
  CHECK(toy::distance(fit, untrained) > 0.0);
}

/// Returns how often a fit casts to 16 bits forward and back; the inputs' casts are those of `micro_batches`.
template <class... Policies>
int casts(int64_t micro_batches, lt::CheckpointMode mode, const Policies&... policies) {
  Net net = make_net(mode);
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.01});
  lt::Trainer trainer(net, adamw, weighed_loss, lt::Autocast<lt::bf16>{}, lt::Accumulate<4>{}, policies...);
  const auto data = batches(micro_batches);
  const OperatorsCalled called;
  trainer.fit(data);
  return called.count("aten::_to_copy");
}

/// True if nothing of autocast is left on this thread.
bool is_over() {
  const bool over = at::autocast::increment_nesting() == 1;
  at::autocast::decrement_nesting();
  return over;
}

}  // namespace

TEST_CASE("weights are cast once a window, and in each micro-batch where a layer is recomputed") {
  using Mode = lt::CheckpointMode;
  const auto in_each = [](int64_t micro_batches, Mode mode) {
    return casts(micro_batches, mode, CastsInEach{});
  };
  CHECK(casts(8, Mode::off) == in_each(8, Mode::off) - 6 * kWeights);
  CHECK(casts(7, Mode::off) == in_each(7, Mode::off) - 5 * kWeights);  // the last window is shorter
  CHECK(casts(8, Mode::off, lt::RetryOnOom{}) == in_each(8, Mode::off) - 6 * kWeights);
  CHECK(casts(8, Mode::recompute) == in_each(8, Mode::recompute));
  CHECK(casts(8, Mode::offload) == in_each(8, Mode::offload));
  CHECK(is_over());
}

TEST_CASE("weights that are cast once a window give the bits of a cast in each micro-batch") {
  check_bits(loss_of, 11, lt::Accumulate<4>{});
  check_bits<lt::fp16>(loss_of, 11, lt::Accumulate<4>{}, lt::ClipGradNorm{0.5});
  check_bits(loss_of, 11, lt::Accumulate<4>{}, lt::UpdateInBackward<lt::SumsInBf16>{});
  // Twice in one forward, and once more without gradients before or after.
  check_bits(
      [](Net& net, const toy::Batch& batch) {
        {
          const at::NoGradGuard none;
          (void)net(batch.features);
        }
        const at::Tensor loss = loss_of(net, batch) + 0.5 * loss_of(net, batch);
        {
          const at::NoGradGuard none;
          (void)net(batch.features);
        }
        return loss;
      },
      11, lt::Accumulate<4>{});
}

TEST_CASE("casts that are kept add no memory where layers recompute, and else at most their own") {
  using Mode = lt::CheckpointMode;
  std::vector<toy::Batch> data;
  for (int i = 0; i < 8; ++i) data.push_back({at::randn({64, 4}), at::randint(3, {64}, at::kLong)});
  auto& memory = lt::HostMemory::counted();
  for (const Mode mode : {Mode::off, Mode::recompute}) {
    const auto peak = [&](const auto&... policies) {
      Net net = make_net(mode);
      lt::FusedAdamW adamw(net->parameters(), {.lr = 0.01});
      lt::Trainer trainer(net, adamw, weighed_loss, lt::Autocast<lt::bf16>{}, lt::Accumulate<4>{},
                          policies...);
      trainer.fit(data);
      const std::int64_t before = memory.allocated_bytes();
      memory.reset_peak();
      trainer.fit(data, {.epochs = 2});
      return memory.peak_bytes() - before;
    };
    const std::int64_t more = peak() - peak(CastsInEach{});
    CHECK(more <= (mode == Mode::off ? 2 * (4 + 1 + 32 + 1 + 3) * 32 + 2 * 3 : 0));
  }
}

TEST_CASE("a pass without gradients in one micro-batch takes none from the next") {
  auto calls = std::make_shared<int>(0);
  check_bits(
      [calls](Net& net, const toy::Batch& batch) {
        const at::AutoGradMode gradients(++*calls % 4 != 1);
        const at::Tensor middle = net->block(torch::tanh(net->first(batch.features)));
        const at::AutoGradMode with_gradients(true);
        return torch::nn::functional::cross_entropy(net->second(middle).to(at::kFloat), batch.labels);
      },
      8, lt::Accumulate<4>{});
}

TEST_CASE("an objective that writes to a weight, or replaces it, trains what it has written") {
  const auto writes = [](bool replaces) {
    return [replaces](Net& net, const toy::Batch& batch) {
      {
        const at::NoGradGuard none;
        at::Tensor weight = net->second->weight;
        replaces ? weight.set_data(weight * 1.25) : void(weight.mul_(1.25));
      }
      return loss_of(net, batch);
    };
  };
  const auto data = batches(8);
  for (const bool replaces : {false, true}) {
    Net fit = train(Way::fit, writes(replaces), data, lt::Accumulate<4>{});
    Net steps = train(Way::steps, writes(replaces), data, lt::Accumulate<4>{});
    CHECK(toy::distance(fit, steps) == 0.0);
  }
}

TEST_CASE("layers that are unfrozen, and several updates, see the casts of their own windows") {
  const auto data = batches(9);
  const auto unfrozen = [&](const auto&... policies) {
    Net net = make_net();
    lt::FusedAdamW adamw(net->parameters(), {.lr = 0.01});
    lt::Trainer trainer(net, adamw, weighed_loss, lt::Autocast<lt::bf16>{}, lt::Accumulate<4>{},
                        lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}}}, policies...);
    trainer.fit(data, {.epochs = 3});
    return net;
  };
  Net once = unfrozen(), in_each = unfrozen(CastsInEach{});
  CHECK(toy::distance(once, in_each) == 0.0);
  const auto trained = [&](Way way) {
    Net net = make_net();
    lt::FusedAdamW first(net->first->parameters(), {.lr = 0.01}), second(net->second->parameters());
    lt::Trainer trainer(net, lt::Update{first, loss_of}, lt::Update{second, loss_of},
                        lt::Autocast<lt::bf16>{}, lt::Accumulate<4>{});
    if (way == Way::fit) return trainer.fit(data), net;
    for (const auto& batch : data) trainer.step(batch);
    return trainer.finish_window(), net;
  };
  Net fit = trained(Way::fit), steps = trained(Way::steps);
  CHECK(toy::distance(fit, steps) == 0.0);
}

TEST_CASE("an exception within a window leaves no cast behind, in forward or backward") {
  for (const bool in_backward : {false, true}) {
    Net net = make_net(), fresh = make_net();
    lt::FusedAdamW adamw(net->parameters(), {.lr = 0.01}), b(fresh->parameters(), {.lr = 0.01});
    int calls = 0;
    lt::Trainer trainer(
        net, adamw,
        [&](Net& of, const toy::Batch& batch) {
          const at::Tensor loss = loss_of(of, batch);
          if (++calls != 3) return loss;
          if (!in_backward) throw std::runtime_error("stop");
          loss.register_hook([](const at::Tensor& gradient) -> at::Tensor {
            throw std::runtime_error("stop");
            return gradient;
          });
          return loss;
        },
        lt::Autocast<lt::bf16>{}, lt::Accumulate<4>{});
    const auto data = batches(4);
    CHECK_THROWS_WITH(trainer.fit(data), Catch::Contains("stop"));
    CHECK(is_over());
    {
      const at::NoGradGuard none;
      for (at::Tensor& parameter : net->parameters()) parameter.mul_(0.5);
      for (at::Tensor& parameter : fresh->parameters()) parameter.mul_(0.5);
    }
    trainer.fit(data);
    lt::Trainer again(fresh, b, loss_of, lt::Autocast<lt::bf16>{}, lt::Accumulate<4>{});
    again.fit(data);
    CHECK(toy::distance(net, fresh) == 0.0);
  }
}

TEST_CASE("what is derived from weights goes as one of them is written to, replaced or listed no more") {
  lt::detail::DerivedWeights derived;
  std::vector<at::Tensor> weights{at::ones({3}), at::ones({2})};
  const auto keep = [&] { *derived.place(weights) = std::make_shared<int>(1); };
  const auto is_kept = [&] { return derived.drop_if_changed(weights), *derived.place(weights) != nullptr; };
  keep();
  CHECK(is_kept());
  weights[1].add_(1);
  CHECK(!is_kept());
  keep();
  weights[0].set_data(at::zeros({3}));
  CHECK(!is_kept());
  keep();
  weights.pop_back();
  CHECK(!is_kept());
  keep();
  derived.drop();
  CHECK(!is_kept());
}
