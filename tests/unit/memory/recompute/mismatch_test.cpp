// SPDX-License-Identifier: MIT
// A block that behaves differently when it runs again, and what it needs changed in place since: noticed, and
// told with the block's name.
// Runs on every device.
// Tests memory/recompute: geometry
#include <looptorch/memory/keep.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/fused_sgd.hpp>

#include "unit/memory/recompute/support/scenarios.hpp"

using namespace checkpointed;

namespace {

/// A block that gets the number of its run, from 1.
template <class F>
auto counted(F f) {
  return [f, run = std::make_shared<int>(0)](const auto&... arguments) { return f(++*run, arguments...); };
}

/// "Float [4, 8] on cpu", and on the device where that is the tests' place.
std::string located(const std::string& kind) { return kind + " on " + lt::testing::place().str(); }

template <class F>
void check_noticed(const lt::CheckpointOptions& options, F f, const std::string& text) {
  const at::Tensor x = input(here<float>());
  const at::Tensor y = lt::checkpoint(options, counted(f), x);
  CHECK_THROWS_AS(y.sum().backward({}, /*keep_graph=*/true), lt::CheckpointError);
  const at::Tensor z = lt::checkpoint(options, counted(f), x);
  CHECK_THROWS_WITH(z.sum().backward(), Catch::Contains(text) && Catch::Contains(options.name));
}

}  // namespace

TEST_CASE("another shape, type, or number of saved tensors") {
  check_noticed(
      {.name = "decoder"},
      [](int run, const at::Tensor& x) { return (run == 1 ? x : x.slice(0, 0, 2)).exp().sum(); },
      "tensor 1 that decoder saves was " + located("Float [4, 8]") + " when it ran and is " +
          located("Float [2, 8]") + " when it runs again: a block must do the same both times");
  check_noticed(
      {.name = "decoder"},
      [](int run, const at::Tensor& x) {
        return x.to(run == 1 ? at::kFloat : at::kDouble).exp().to(at::kFloat);
      },
      "was " + located("Float [4, 8]") + " when it ran and is Double [4, 8]");
  check_noticed(
      {.name = "decoder"},
      [](int run, const at::Tensor& x) {
        const at::Tensor square = x.slice(1, 0, 4) * 1;
        return (run == 1 ? square : square.t().contiguous().t()).exp();
      },
      "was " + located("Float [4, 4]") + " when it ran and is " + located("Float [4, 4]") +
          " with strides [1, 4] when it runs again");
  check_noticed(
      {.name = "encoder"},
      [](int run, const at::Tensor& x) { return run == 1 ? x.exp().sin().cos() : x.exp(); },
      "encoder saved 3 tensors when it ran and 1 when it ran again");
  check_noticed(
      {.early_stop = false, .name = "encoder"},
      [](int run, const at::Tensor& x) { return run == 1 ? x.exp() : x.exp().sin(); },
      "encoder saved 1 tensors when it ran and 2 when it ran again");
  check_noticed(
      {.name = "sampler"},
      [](int run, const at::Tensor& x) {
        const at::Tensor mask = torch::bernoulli(torch::full_like(x, 0.5));
        return (run == 1 ? x * mask : x * torch::bernoulli(mask)).exp();
      },
      "sampler had drawn other random numbers");
  check_noticed(
      {.name = "sampler"},
      [](int run, const at::Tensor& x) { return (run == 1 ? x + torch::rand_like(x) : x * 1).exp(); },
      "sampler had drawn other random numbers");
}

TEST_CASE("as many random numbers, of another seed") {
  const auto block = counted([](int run, const at::Tensor& x) {
    torch::manual_seed(static_cast<std::uint64_t>(run));
    return torch::dropout(x, 0.5, true).exp();
  });
  const at::Tensor x = input(here<float>());
  CHECK_THROWS_WITH(lt::checkpoint(block, x).sum().backward(),
                    Catch::Contains("had drawn other random numbers"));
}

TEST_CASE("another device") {
  if (lt::testing::place().is_cpu()) return;
  check_noticed(
      {.name = "decoder"},
      [](int run, const at::Tensor& x) { return (run == 1 ? x : x.cpu()).exp().to(x.device()); },
      "was " + located("Float [4, 8]") + " when it ran and is Float [4, 8] on cpu when it runs again");
}

TEST_CASE("other calls of keep") {
  const auto sine = [](const at::Tensor& x) { return x.sin(); };
  check_noticed(
      {.name = "mixer"},
      [&](int run, const at::Tensor& x) { return (run == 1 ? sine(x) : lt::keep(sine, x)).exp().cos(); },
      "mixer calls keep otherwise when it runs again");
  check_noticed(
      {.early_stop = false, .name = "mixer"},
      [&](int run, const at::Tensor& x) {
        return run == 1 ? lt::keep(sine, x).exp()
                        : lt::keep([](const at::Tensor& x) { return std::make_pair(x, x); }, x).first.exp();
      },
      "mixer calls keep otherwise when it runs again");
  check_noticed(
      {.name = "mixer"},
      [&](int run, const at::Tensor& x) { return (run == 1 ? lt::keep(sine, x) : sine(x)).exp().cos(); },
      "mixer");
}

TEST_CASE("a call of keep elsewhere among operations that save tensors of the same kind") {
  const auto sine = [](const at::Tensor& x) { return x.sin(); };
  check_noticed(
      {.name = "mixer"},
      [&](int run, const at::Tensor& x) {
        const at::Tensor early = run == 1 ? at::Tensor() : lt::keep(sine, x * 1);
        const at::Tensor h = x.exp();
        return (h * (run == 1 ? lt::keep(sine, h) : early)).cos();
      },
      "mixer calls keep otherwise when it runs again");
}

TEST_CASE("an input of keep with other strides, of which a view was saved") {
  const auto of_view = [](const at::Tensor& h) { return h.slice(1, 0, 2).sin(); };
  check_noticed(
      {.name = "mixer"},
      [&](int run, const at::Tensor& x) {
        const at::Tensor h = x.slice(1, 0, 4).exp();
        return lt::keep(of_view, run == 1 ? h : h.t().contiguous().t()).cos();
      },
      located("") + " with strides [1, 4] when it runs again");
}

TEST_CASE("the name of a module is that of its type where no other is given") {
  struct FickleImpl : FeedForwardImpl {
    at::Tensor forward(const at::Tensor& x) {
      return FeedForwardImpl::forward(runs == 0 ? x : x.slice(0, 0, 1));
    }
  };
  const auto block = on(Holder<FickleImpl>(std::make_shared<FickleImpl>()), here<float>());
  CHECK_THROWS_WITH(lt::checkpoint(block, input(here<float>())).sum().backward(),
                    Catch::Contains("FickleImpl"));
}

TEST_CASE("an argument changed in place between forward and backward") {
  const at::Tensor x = input(here<float>()), h = x * 1;
  const at::Tensor y = lt::checkpoint(
      {.name = "decoder"}, [](const at::Tensor& h) { return h.exp().sin(); }, h);
  h.add_(1);
  CHECK_THROWS_WITH(y.sum().backward(),
                    Catch::Contains("an argument of decoder that backward needs has been modified by "
                                    "an inplace operation"));
}

TEST_CASE("an argument that backward itself needs, changed in place") {
  const at::Tensor x = input(here<float>()), h = x * 1;
  const at::Tensor y = lt::checkpoint([](const at::Tensor& h) { return h.sin(); }, h);
  h.add_(1);
  CHECK_THROWS_AS(y.sum().backward(), lt::CheckpointError);
}

TEMPLATE_TEST_CASE("a parameter that an optimizer has changed", "", torch::optim::Adam, lt::FusedAdamW,
                   lt::FusedSGD) {
  const auto block = on(FeedForward(), here<float>());
  TestType optimizer(block->parameters());
  const at::Tensor x = input(here<float>());
  lt::checkpoint(block, x).sum().backward();
  const at::Tensor y = lt::checkpoint(block, x);
  optimizer.step();
  CHECK_THROWS_WITH(
      y.sum().backward(),
      Catch::Contains("FeedForwardImpl cannot be recomputed: its parameter 'norm.weight' of shape [8] has "
                      "been changed in place since the forward pass"));
}

TEST_CASE("a tensor that the block changes in place after it was saved, as in the plain run") {
  const at::Tensor x = input(here<float>());
  const auto block = [](const at::Tensor& x) {
    const at::Tensor h = x.exp();
    const at::Tensor y = h.sin();
    h.add_(1);
    return y.cos();
  };
  CHECK_THROWS_WITH(block(x).sum().backward(), Catch::Contains("modified by an inplace operation"));
  CHECK_THROWS_WITH(
      lt::checkpoint({.name = "decoder"}, block, x).sum().backward(),
      Catch::Contains("backward through decoder needs has been modified by an inplace operation"));
}

TEST_CASE("a parameter of a function, changed in place") {
  const at::Tensor x = input(here<float>()), weight = input(here<float>());
  const at::Tensor y = lt::checkpoint([weight](const at::Tensor& x) { return x * weight; }, x);
  {
    const torch::NoGradGuard no_gradients;
    weight.mul_(2);
  }
  CHECK_THROWS_WITH(y.sum().backward(), Catch::Contains("modified by an inplace operation"));
}

namespace {

struct ScaledImpl : torch::nn::Module {
  ScaledImpl() : scale(register_buffer("scale", torch::ones({kWidth}))) {}
  at::Tensor forward(const at::Tensor& x) { return x.exp() * scale; }
  at::Tensor scale;
};
using Scaled = Holder<ScaledImpl>;

}  // namespace

TEST_CASE("a buffer that was changed is noticed, one that was not is read") {
  const auto block = on(Scaled(), here<float>());
  const at::Tensor x = input(here<float>());
  lt::checkpoint(block, x).sum().backward();
  const at::Tensor y = lt::checkpoint(block, x);
  block->scale.mul_(2);
  CHECK_THROWS_WITH(y.sum().backward(),
                    Catch::Contains("a buffer of shape [8] that it reads has been changed"));
}

TEST_CASE("a tensor that a function captures, without a gradient") {
  const at::Tensor x = input(here<float>()), mask = torch::ones({kWidth}, here<float>());
  const auto block = [mask](const at::Tensor& x) { return x.exp() * mask; };
  lt::checkpoint(block, x).sum().backward();
  const at::Tensor y = lt::checkpoint(block, x);
  mask.mul_(2);
  CHECK_THROWS_WITH(y.sum().backward(), Catch::Contains("has been modified by an inplace operation"));
}

TEST_CASE("what keep calls must not write to its inputs") {
  const auto writes = [](const at::Tensor& h) { return h.relu_() + 0; };
  CHECK_THROWS_AS(
      lt::checkpoint([&](const at::Tensor& x) { return lt::keep(writes, x * 2); }, input(here<float>())),
      lt::CheckpointError);
}

TEST_CASE("a function that counts begins anew each time it runs again") {
  const at::Tensor x = torch::ones({}, here<float>()).requires_grad_();
  auto counts = [run = 0](const at::Tensor& x) mutable { return (x * ++run).sin(); };
  const at::Tensor y = lt::checkpoint(counts, x);
  y.backward({}, /*keep_graph=*/true);
  const double first = x.grad().item<double>();
  y.backward();
  CHECK(x.grad().item<double>() == 2 * first);
}

TEST_CASE("optional views are stored as what they refer to") {
  const at::Tensor x = input(here<float>());
  const auto block = [](const at::Tensor& x, std::optional<at::IntArrayRef> shape,
                        std::optional<std::string_view> name) {
    return x.exp().reshape(shape.value()) * static_cast<double>(name->size());
  };
  at::Tensor y;
  {
    const std::vector<std::int64_t> shape{x.numel()};
    const std::string name(40, 'n');
    y = lt::checkpoint(block, x, std::optional<at::IntArrayRef>(shape),
                       std::optional<std::string_view>(name));
  }
  y.sum().backward();
  CHECK(same_bits(x.grad(), (x.exp() * 40).detach()));
}

TEST_CASE(
    "a block that throws what is no exception when it runs again: an error, and the next pass is right") {
  const at::Tensor x = input(here<float>());
  const auto throws = [run = std::make_shared<int>(0)](const at::Tensor& x) {
    if (++*run == 2) throw 1;
    return x.exp().sin();
  };
  CHECK_THROWS_AS(lt::checkpoint(throws, x).sum().backward(), lt::CheckpointError);
  lt::checkpoint([](const at::Tensor& x) { return x.exp(); }, x).sum().backward();
  CHECK(same_bits(x.grad(), x.exp().detach()));
}
