// SPDX-License-Identifier: MIT
// Several passes of backward: through parts of the graph, twice through all of it, through itself.
#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;
using torch::autograd::grad;

namespace {

/// Three blocks in a row, and what came out of each.
template <class Call>
struct Chain {
  std::vector<FeedForward> blocks;
  at::Tensor x;
  Tensors results;

  Chain(const Call& call, const at::TensorOptions& options) : x(input(options)) {
    at::Tensor y = x;
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(on(FeedForward(), options));
      results.push_back(y = call(blocks.back(), y));
    }
  }
  [[nodiscard]] Tensors all_gradients() const {
    Tensors all{x.grad()};
    for (const auto& block : blocks) append(all, gradients(block));
    return all;
  }
};

}  // namespace

TEMPLATE_TEST_CASE("retain_graph, twice and a last time", "", float, double) {
  check_same_bits(cpu<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const Chain chain(call, options);
    const at::Tensor loss = chain.results.back().pow(2).mean();
    Tensors results;
    for (const bool keep_graph : {true, true, false}) {
      loss.backward({}, keep_graph);
      for (const at::Tensor& gradient : chain.all_gradients()) results.push_back(gradient.clone());
    }
    return results;
  });
}

TEMPLATE_TEST_CASE("backward through parts of the graph, one after the other", "", float, double) {
  check_same_bits(cpu<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const Chain chain(call, options);
    chain.results[0].pow(2).mean().backward({}, /*keep_graph=*/true);
    chain.results[1].sum().backward({}, /*keep_graph=*/true);
    chain.results[2].pow(3).mean().backward();
    return chain.all_gradients();
  });
}

TEMPLATE_TEST_CASE("two results of one block differentiated apart", "", float, double) {
  check_same_bits(cpu<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options), y = input(options);
    const auto block = [](const at::Tensor& x, const at::Tensor& y) {
      return std::make_pair(torch::dropout(x, 0.5, true).exp().sin(),
                            torch::dropout(y, 0.5, true).exp().cos());
    };
    const auto [a, b] = call(block, x, y);
    a.sum().backward();  // frees its part of the graph only
    b.sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEMPLATE_TEST_CASE("gradients of a subset", "", float, double) {
  check_same_bits(cpu<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const Chain chain(call, options);
    const at::Tensor loss = chain.results.back().pow(2).mean();
    Tensors results = grad({loss}, {chain.blocks[1]->expand->weight}, {}, /*retain_graph=*/true);
    append(results, grad({loss}, {chain.results[0]}, {}, /*retain_graph=*/true));
    append(results, grad({loss}, {chain.x, chain.blocks[2]->norm->bias}));
    return append(results, chain.all_gradients());
  });
}

TEMPLATE_TEST_CASE("double backward", "", float, double) {
  check_same_bits(cpu<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const Chain chain(call, options);
    const at::Tensor loss = chain.results.back().pow(2).mean();
    const Tensors first = grad({loss}, {chain.x, chain.blocks[0]->expand->weight}, {}, /*retain_graph=*/true,
                               /*create_graph=*/true);
    const at::Tensor penalty = first[0].pow(2).sum() + first[1].pow(2).sum();
    (loss + penalty).backward();
    return append(append(Tensors{penalty}, first), chain.all_gradients());
  });
}

TEST_CASE("triple backward") {
  check_same_bits(cpu<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const at::Tensor y = call([](const at::Tensor& x) { return x.sin().exp(); }, x);
    const at::Tensor one = grad({y.sum()}, {x}, {}, true, true)[0];
    const at::Tensor two = grad({one.sum()}, {x}, {}, true, true)[0];
    two.sum().backward();
    return Tensors{one, two, x.grad()};
  });
}

TEST_CASE("a second backward without retain_graph fails as LibTorch's does, and the block is as before") {
  const auto block = FeedForward();
  const at::Tensor x = input(cpu<float>());
  const at::Tensor loss = lt::checkpoint(block, x).sum();
  loss.backward();
  CHECK_THROWS_WITH(loss.backward(), Catch::Contains("backward through the graph a second time"));
  lt::checkpoint(block, x).sum().backward();
  CHECK(block->runs == 4);
}

TEST_CASE("after a pass through a part nothing stays recorded") {
  const at::Tensor x = input(cpu<float>());
  c10::weak_intrusive_ptr<c10::StorageImpl> middle(c10::intrusive_ptr<c10::StorageImpl>{});
  const auto block = [&](const at::Tensor& x) {
    const at::Tensor h = x.exp();
    middle = c10::weak_intrusive_ptr<c10::StorageImpl>(h.storage().getWeakStorageImpl());
    return std::make_pair(h.sin(), x.cos());
  };
  const auto [a, b] = lt::checkpoint(block, x);
  CHECK(middle.expired());
  b.sum().backward({}, /*keep_graph=*/true);  // runs the block; nobody asks for `h`
  CHECK(middle.expired());
  a.sum().backward();
  CHECK(middle.expired());
}

TEST_CASE("a pass that fails elsewhere leaves a graph that can be differentiated") {
  struct Fails : torch::autograd::Function<Fails> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 1; }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::tensor_list gradients) {
      if (std::exchange(once(), false)) throw std::runtime_error("once");
      return gradients;
    }
    static bool& once() {
      static bool value = true;
      return value;
    }
  };
  const auto block = FeedForward(0.0);
  const at::Tensor x = input(cpu<float>());
  const at::Tensor loss = lt::checkpoint(block, Fails::apply(x)).sum();
  CHECK_THROWS_WITH(loss.backward({}, /*keep_graph=*/true), "once");
  for (at::Tensor parameter : block->parameters()) parameter.mutable_grad() = at::Tensor();
  loss.backward();
  const Tensors recomputed = append(gradients(block), {x.grad().clone()});
  x.mutable_grad() = at::Tensor();
  for (at::Tensor parameter : block->parameters()) parameter.mutable_grad() = at::Tensor();
  block(x).sum().backward();
  check_same(append(gradients(block), {x.grad()}), recomputed);
}

TEST_CASE("each pass runs a block again once for itself and once for what it ran, whatever is retained") {
  for (const bool keep_graph : {false, true}) {
    int outer = 0, inner = 0;
    const auto within = [&inner](const at::Tensor& t) { return ++inner, at::gelu(t).mul(t) * t.sin(); };
    const auto around = [&](const at::Tensor& t) {
      ++outer;
      const at::Tensor h = at::gelu(t);
      return lt::checkpoint(within, h) * h.cos();
    };
    const at::Tensor loss = lt::checkpoint(around, input(cpu<float>())).sum();
    CHECK((outer == 1 && inner == 1));
    for (int pass = 1; pass <= (keep_graph ? 2 : 1); ++pass) {
      loss.backward({}, keep_graph);
      CHECK(outer == 1 + pass);
      CHECK(inner == 1 + 2 * pass);  // in the outer block's second run, and for its own places
    }
  }
}
