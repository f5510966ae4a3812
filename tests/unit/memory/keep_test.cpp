// SPDX-License-Identifier: MIT
// Selective recomputation: what `keep` holds on to is not computed again, and no bit changes.
// Runs on every device.
// Tests memory/recompute: kept_call
#include <looptorch/memory/keep.hpp>

#include "unit/memory/recompute/support/scenarios.hpp"

using namespace checkpointed;

namespace {

/// Attention of one head with dropout around and within what is kept.
template <bool kKeep>
auto attention(int& calls) {
  return [&calls](const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor h = torch::dropout(x.matmul(weight), 0.3, true);
    const auto scores = [&calls](const at::Tensor& q, const at::Tensor& k) {
      ++calls;
      return torch::dropout(torch::softmax(q.matmul(k.t()), 1), 0.3, true);
    };
    const at::Tensor q = h.slice(1, 0, 4).exp(), k = h.slice(1, 4, 8);
    const at::Tensor kept = kKeep ? lt::keep(scores, q, k) : scores(q, k);
    return torch::dropout(kept.matmul(h).sin(), 0.3, true).exp();
  };
}

}  // namespace

TEMPLATE_TEST_CASE(
    "a kept result: the same bits, with dropout before, within and after it, and no second call", "", float,
    double) {
  check_same_bits(here<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    constexpr bool recomputes = std::decay_t<decltype(call)>::recomputes;
    const at::Tensor x = input(options), weight = torch::randn({kWidth, kWidth}, options).requires_grad_();
    int calls = 0;
    const at::Tensor y = call(attention<recomputes>(calls), x, weight);
    y.sum().backward({}, /*keep_graph=*/true);
    y.sum().backward();
    CHECK(calls == 1);
    return Tensors{y, x.grad(), weight.grad()};
  });
}

TEST_CASE("without keep it is called again") {
  int calls = 0;
  const at::Tensor x = input(here<float>());
  lt::checkpoint(attention<false>(calls), x, torch::eye(kWidth, here<float>())).sum().backward();
  CHECK(calls == 2);
}

TEST_CASE("outside of a block keep is a plain call") {
  const at::Tensor x = input(here<float>());
  const at::Tensor y = lt::keep([](const at::Tensor& x) { return x.exp(); }, x);
  y.sum().backward();
  CHECK(same_bits(x.grad(), y));
}

TEST_CASE("kept results of any kind, with parameters, in-place operations and views inside") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = on(FeedForward(), options);
    const auto f = [block](const at::Tensor& x, double scale) {
      at::Tensor h = block(x) * scale;
      h.sigmoid_();
      return std::make_tuple(h.t(), std::vector<at::Tensor>{h.detach(), at::Tensor(), h.slice(0, 0, 2)}, 7);
    };
    const auto outer = [f](const at::Tensor& x) {
      const auto [a, list, seven] = lt::keep(f, x.sin(), 0.5);
      CHECK(seven == 7);
      CHECK_FALSE(list[1].defined());
      CHECK_FALSE(list[0].requires_grad());
      return a.exp().sum(1) * list[2].sum() * list[0].sum();
    };
    const at::Tensor x = input(options);
    const at::Tensor y = call(outer, x);
    y.sum().backward();
    CHECK(block->runs == 1);
    Tensors results{y, x.grad()};
    return append(results, gradients(block));
  });
}

TEST_CASE("keep in nested blocks, and blocks and keep within keep") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    std::vector<FeedForward> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(on(FeedForward(), options));
    const auto inner = [blocks](const at::Tensor& x) { return lt::keep(blocks[0], x.sin()).exp(); };
    const auto kept = [call, blocks](const at::Tensor& x) {
      return call(blocks[1], lt::keep([](const at::Tensor& x) { return x.cos(); }, x * 2));
    };
    const auto outer = [call, blocks, inner, kept](const at::Tensor& x) {
      return blocks[2](lt::keep(kept, call(inner, x * 2)).sin());
    };
    const at::Tensor x = input(options);
    const at::Tensor y = call(outer, x);
    y.pow(2).mean().backward();
    Tensors results{y, x.grad()};
    for (const auto& block : blocks) append(results, gradients(block));
    return results;
  });
}

TEST_CASE("keep of a function that returns what it is given, or a parameter") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor weight = torch::randn({kWidth, kWidth}, options).requires_grad_();
    const auto same = [](const at::Tensor& h) { return h; };
    const auto parameter = [weight] { return weight; };
    const auto both = [weight](const at::Tensor& h) { return std::make_pair(h, weight); };
    const auto block = [=](const at::Tensor& x) {
      const at::Tensor h = lt::keep(same, x.exp()).sin();
      const auto [k, w] = lt::keep(both, h * 2);
      return (lt::keep(same, x) * k.matmul(w).tanh() * h.matmul(lt::keep(parameter)).cos()).exp();
    };
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    y.sum().backward({}, /*keep_graph=*/true);
    y.sum().backward();
    return Tensors{y, x.grad(), weight.grad()};
  });
}

TEST_CASE("double backward through a kept result") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options), weight = torch::randn({kWidth, kWidth}, options).requires_grad_();
    int calls = 0;
    const at::Tensor y = call(attention<true>(calls), x, weight);
    const at::Tensor gradient = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
    (y.sum() + gradient.pow(2).sum()).backward();
    return Tensors{gradient, x.grad(), weight.grad()};
  });
}

TEST_CASE("keep after a gradient that the block computes itself") {
  const auto f = [](const at::Tensor& x) noexcept {  // which runs to its end when it runs again
    const at::Tensor h = (x * x).exp();
    const at::Tensor slope = torch::autograd::grad({h.sum()}, {x}, {}, true, true)[0];
    const at::Tensor kept = lt::keep([](const at::Tensor& s) { return s.sin() * 2; }, slope);
    return lt::keep([](const at::Tensor& s) { return s.exp(); }, kept) * h;
  };
  check_same_bits(here<double>(), [&](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options) / 4;
    const at::Tensor y = call(f, x);
    return Tensors{y, torch::autograd::grad({y.sum()}, {x})[0]};
  });
}

TEST_CASE("views of what keep is given, from any element on, are recomputed together") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    constexpr bool recomputes = std::decay_t<decltype(call)>::recomputes;
    int runs = 0;
    const auto views = [](const at::Tensor& h) { return h.slice(1, 1, 4).sin() * h.slice(1, 5, 8).cos(); };
    const auto block = [&](const at::Tensor& x) {
      ++runs;
      const at::Tensor h = x.exp();
      return (recomputes ? lt::keep(views, h) : views(h)).tanh();
    };
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    y.sum().backward();
    CHECK(runs == (recomputes ? 2 : 1));
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("what lies around a view that keep is given is held as it is") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    constexpr bool recomputes = std::decay_t<decltype(call)>::recomputes;
    const auto block = [](const at::Tensor& x) {
      const at::Tensor h = x.exp();
      const auto around = [h](const at::Tensor& part) {
        return h.sin().sum() + h.slice(0, 0, 2).cos().sum() + h.slice(0, 2, 4).tanh().sum() + part.sin();
      };
      const at::Tensor part = h.slice(0, 1, 3);
      return (recomputes ? lt::keep(around, part) : around(part)).exp();
    };
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("a view in another type of what keep is given is held as it is") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    constexpr bool recomputes = std::decay_t<decltype(call)>::recomputes;
    const auto parts = [](const at::Tensor& h) {
      return torch::view_as_real(h).select(-1, 0).slice(0, 0, 1).sin();  // few enough to lie within `h`
    };
    const auto block = [&](const at::Tensor& x) {
      const at::Tensor h = torch::complex(x, x * 2) * 3;
      return (recomputes ? lt::keep(parts, h) : parts(h)).exp();
    };
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("a kept result that is changed in place is noticed") {
  const at::Tensor x = input(here<float>());
  const auto sine = [](const at::Tensor& x) { return x.sin(); };
  const auto block = [&](const at::Tensor& x) { return lt::keep(sine, x.exp()).add_(1).exp().cos(); };
  CHECK_THROWS_AS(lt::checkpoint(block, x).sum().backward(), lt::CheckpointError);
}

TEST_CASE("an input of keep that is changed in place is noticed") {
  const at::Tensor x = input(here<float>());
  const auto sine = [](const at::Tensor& x) { return x.sin(); };
  const auto block = [&](const at::Tensor& x) {
    at::Tensor h = x.exp();
    const at::Tensor y = lt::keep(sine, h);
    h.add_(1);
    return (y * 2).exp().cos();
  };
  CHECK_THROWS_AS(lt::checkpoint(block, x).sum().backward(), lt::CheckpointError);
}

TEST_CASE("a kept result that a later call of keep saved is changed in place: LibTorch notices") {
  const at::Tensor x = input(here<float>());
  const auto sine = [](const at::Tensor& x) { return x.sin(); };
  const auto square = [](const at::Tensor& x) { return x * x; };
  const auto block = [&](const at::Tensor& x) {
    at::Tensor kept = lt::keep(sine, x);
    const at::Tensor y = lt::keep(square, kept);
    kept.add_(1);
    return (y * 2).exp().cos();
  };
  CHECK_THROWS_WITH(lt::checkpoint(block, x).sum().backward(), Catch::Contains("inplace operation"));
}

TEST_CASE("a call whose inputs are all kept has the bits of the plain run") {
  const auto sine = [](const at::Tensor& x) { return x.sin(); };
  const auto square = [](const at::Tensor& x) { return x * x; };
  check_same_bits(here<float>(), [&](const auto& call, const at::TensorOptions& options) {
    const auto block = [&](const at::Tensor& x) { return lt::keep(square, lt::keep(sine, x.exp())).cos(); };
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("scaled dot product attention is kept") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    const auto attend = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return at::scaled_dot_product_attention(q, k, v);
    };
    const auto block = [attend](const at::Tensor& x) {
      const at::Tensor h = x.view({1, 2, 2, kWidth});
      return lt::keep(attend, h.exp(), h.sin(), h.cos()).sin();
    };
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}
