// SPDX-License-Identifier: MIT
// Passes of backward: how much of a block runs again in each, several through parts of the graph or all of
// it, and those of the block itself.
// Runs on every device.
// Tests memory: checkpoint
// Tests memory/recompute: first_run, recorder, saved_tensor_holder, saved_tensors
#include "unit/memory/recompute/support/scenarios.hpp"

#include <memory>
#include <stdexcept>

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
  check_same_bits(here<TestType>(), [](const auto& call, const at::TensorOptions& options) {
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
  check_same_bits(here<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const Chain chain(call, options);
    chain.results[0].pow(2).mean().backward({}, /*keep_graph=*/true);
    chain.results[1].sum().backward({}, /*keep_graph=*/true);
    chain.results[2].pow(3).mean().backward();
    return chain.all_gradients();
  });
}

TEMPLATE_TEST_CASE("two results of one block differentiated apart", "", float, double) {
  check_same_bits(here<TestType>(), [](const auto& call, const at::TensorOptions& options) {
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
  check_same_bits(here<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const Chain chain(call, options);
    const at::Tensor loss = chain.results.back().pow(2).mean();
    Tensors results = grad({loss}, {chain.blocks[1]->expand->weight}, {}, /*retain_graph=*/true);
    append(results, grad({loss}, {chain.results[0]}, {}, /*retain_graph=*/true));
    append(results, grad({loss}, {chain.x, chain.blocks[2]->norm->bias}));
    return append(results, chain.all_gradients());
  });
}

TEMPLATE_TEST_CASE("double backward", "", float, double) {
  check_same_bits(here<TestType>(), scenarios::double_backward);
}

TEST_CASE("triple backward") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const at::Tensor y = call([](const at::Tensor& x) { return x.sin().exp(); }, x);
    const at::Tensor one = grad({y.sum()}, {x}, {}, true, true)[0];
    const at::Tensor two = grad({one.sum()}, {x}, {}, true, true)[0];
    two.sum().backward();
    return Tensors{one, two, x.grad()};
  });
}

TEST_CASE("a second backward without retain_graph fails as LibTorch's does, and the block is as before") {
  const auto block = on(FeedForward(), here<float>());
  const at::Tensor x = input(here<float>());
  const at::Tensor loss = lt::checkpoint(block, x).sum();
  loss.backward();
  CHECK_THROWS_WITH(loss.backward(), Catch::Contains("backward through the graph a second time"));
  lt::checkpoint(block, x).sum().backward();
  CHECK(block->runs == 4);
}

TEST_CASE("after a pass through a part nothing stays recorded") {
  const at::Tensor x = input(here<float>());
  c10::weak_intrusive_ptr<c10::StorageImpl> middle(c10::intrusive_ptr<c10::StorageImpl>{});
  const auto block = [&](const at::Tensor& x) {
    const at::Tensor h = x.exp();
    middle = c10::weak_intrusive_ptr<c10::StorageImpl>(h.storage().getWeakStorageImpl());
    return std::make_pair(h.sin(), x.cos());
  };
  const auto is_gone = [&] {
    (void)x.detach().sum().item<float>();  // waits for a device that still uses it
    return middle.expired();
  };
  const auto [a, b] = lt::checkpoint(block, x);
  CHECK(is_gone());
  b.sum().backward({}, /*keep_graph=*/true);  // runs the block without requesting `h`
  CHECK(is_gone());
  a.sum().backward();
  CHECK(is_gone());
}

TEST_CASE("what a node has used is forgotten within the pass, though the graph is retained") {
  const at::Tensor x = input(here<float>());
  c10::weak_intrusive_ptr<c10::StorageImpl> late(c10::intrusive_ptr<c10::StorageImpl>{});
  const auto block = [&](const at::Tensor& x) {
    const at::Tensor h = x.exp() * 1;
    late = c10::weak_intrusive_ptr<c10::StorageImpl>(h.storage().getWeakStorageImpl());
    return h.sin();
  };
  bool was_forgotten = false;
  x.register_hook([&](const at::Tensor& gradient) {
    (void)gradient.sum().item<float>();  // waits for a device that still uses it
    was_forgotten = late.expired();
  });
  lt::checkpoint(block, x).sum().backward({}, /*keep_graph=*/true);
  CHECK(was_forgotten);
}

TEST_CASE("what a run recorded that failed is forgotten") {
  const at::Tensor x = input(here<float>());
  c10::weak_intrusive_ptr<c10::StorageImpl> middle(c10::intrusive_ptr<c10::StorageImpl>{});
  int run = 0;
  const auto block = [&](const at::Tensor& x) {
    const at::Tensor h = x.exp();
    middle = c10::weak_intrusive_ptr<c10::StorageImpl>(h.storage().getWeakStorageImpl());
    const at::Tensor y = h.sin();
    if (++run == 2) throw std::runtime_error("once");
    return y.cos();
  };
  const at::Tensor y = lt::checkpoint(block, x);
  CHECK_THROWS_WITH(y.sum().backward({}, /*keep_graph=*/true), "once");
  (void)x.detach().sum().item<float>();
  CHECK(middle.expired());
}

TEST_CASE("an argument that the block's result changes in place does not keep the block alive") {
  const auto token = std::make_shared<int>(0);
  const auto block = [token](const at::Tensor& x) { return x.exp().sin(); };
  {
    at::Tensor h = input(here<float>()) * 1;
    const at::Tensor y = lt::checkpoint(block, h);
    CHECK(token.use_count() > 2);
    h.add_(y);
  }
  CHECK(token.use_count() == 2);
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
  const auto block = on(FeedForward(0.0), here<float>());
  const at::Tensor x = input(here<float>());
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
    const at::Tensor loss = lt::checkpoint(around, input(here<float>())).sum();
    CHECK((outer == 1 && inner == 1));
    for (int pass = 1; pass <= (keep_graph ? 2 : 1); ++pass) {
      loss.backward({}, keep_graph);
      CHECK(outer == 1 + pass);
      CHECK(inner == 1 + 2 * pass);  // in the outer block's second run, and for its own places
    }
  }
}

namespace {

/// The result is a gradient, so that the last tensors are saved by the inner pass.
const auto slope = [](const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor y = (x * w).tanh().sum();
  return torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true).front();
};

Tensors gradients_of(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w) {
  y.pow(2).sum().backward();
  return {y, x.grad(), w.grad()};
}

}  // namespace

TEMPLATE_TEST_CASE("a block whose result is a gradient, in more passes than the engine nests", "", float,
                   double) {
  check_same_bits(here<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    Tensors results;
    for (int step = 0; step < 100; ++step) {
      const at::Tensor x = input(options), w = input(options);
      append(results, gradients_of(call(slope, x, w), x, w));
    }
    return results;
  });
}

TEST_CASE("a result that continues after the inner pass") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options), w = input(options);
    const auto f = [](const at::Tensor& x, const at::Tensor& w) {
      const at::Tensor h = (x * w).exp();
      return torch::autograd::grad({h.sum()}, {x}, {}, true, true).front().sin() * h;
    };
    return gradients_of(call(f, x, w), x, w);
  });
}

TEST_CASE("a noexcept block that differentiates within itself") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options), w = input(options);
    const auto f = [](const at::Tensor& x, const at::Tensor& w) noexcept { return slope(x, w).sin() * 2; };
    return gradients_of(call(f, x, w), x, w);
  });
}

TEST_CASE("without early stop the pass that asks before the first run is over is no mismatch") {
  const at::Tensor x = input(here<double>()), w = input(here<double>());
  const at::Tensor plain_x = x.detach().clone().requires_grad_(),
                   plain_w = w.detach().clone().requires_grad_();
  const at::Tensor y = lt::checkpoint(lt::CheckpointOptions{.early_stop = false}, slope, x, w);
  check_same(gradients_of(slope(plain_x, plain_w), plain_x, plain_w), gradients_of(y, x, w));
}

namespace {

/// Counts the operations that began and that ended; saves its input.
struct Tick : torch::autograd::Function<Tick> {
  static inline int begun = 0;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    ++begun;
    context->save_for_backward({x});
    return x.exp();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    return {gradients[0] * context->get_saved_variables()[0].exp()};
  }
};

/// Counts, and saves nothing.
at::Tensor count(int& runs, const at::Tensor& x) { return ++runs, x * 2; }

}  // namespace

TEST_CASE("nothing runs after the last saved tensor") {
  const at::Tensor x = input(here<float>());
  int before = 0, after = 0;
  const auto block = [&](const at::Tensor& x) { return count(after, (count(before, x) * 1).sin()); };
  const bool early_stop = GENERATE(true, false);
  lt::checkpoint({.early_stop = early_stop}, block, x).sum().backward();
  CHECK(before == 2);
  CHECK(after == (early_stop ? 1 : 2));
}

TEST_CASE("a block whose backward needs nothing does not run again") {
  const at::Tensor x = input(here<float>());
  int runs = 0;
  lt::checkpoint([&](const at::Tensor& x) { return count(runs, x) + 1; }, x).sum().backward();
  CHECK(runs == 1);
  CHECK(torch::equal(x.grad(), torch::full_like(x, 2)));
}

TEST_CASE("a block whose backward needs only its argument, or a parameter, does not run again") {
  const at::Tensor x = input(here<float>()), weight = input(here<float>());
  int runs = 0;
  const auto block = [&](const at::Tensor& x) { return count(runs, x.sin() + x * weight); };
  lt::checkpoint(block, x).sum().backward();
  CHECK(runs == 1);
  CHECK(torch::allclose(x.grad(), 2 * (x.cos() + weight)));
}

TEST_CASE("what is no longer needed is not waited for") {
  const at::Tensor x = input(here<float>());
  int middle = 0;
  const auto block = [&](const at::Tensor& x) {
    const at::Tensor first = Tick::apply(x * 1);
    return std::make_pair(first, Tick::apply(count(middle, first)));
  };
  Tick::begun = 0;
  auto [first, second] = lt::checkpoint(block, x);
  second = at::Tensor();  // its nodes go, and with them what they needed
  first.sum().backward();
  CHECK(middle == 1);
  CHECK(Tick::begun == 3);
}

TEST_CASE("one pass runs a block once, whatever asks for its tensors") {
  const auto block = on(FeedForward(), here<float>());
  const at::Tensor x = input(here<float>());
  const at::Tensor y = lt::checkpoint(block, x);
  y.sum().backward({}, /*keep_graph=*/true);
  CHECK(block->runs == 2);
  y.sum().backward();
  CHECK(block->runs == 3);
}

TEST_CASE("a custom function that asks twice for what it saved") {
  struct Twice : torch::autograd::Function<Twice> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
      context->save_for_backward({x});
      return x.sin();
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::tensor_list gradients) {
      const at::Tensor once = context->get_saved_variables()[0], again = context->get_saved_variables()[0];
      CHECK(torch::equal(once, again));
      return {gradients[0] * again.cos()};
    }
  };
  const bool keep_graph = GENERATE(false, true);
  const at::Tensor x = input(here<double>());
  const auto block = [](const at::Tensor& x) { return Twice::apply(x.exp()).sin(); };
  lt::checkpoint(block, x).sum().backward({}, keep_graph);
  CHECK(torch::allclose(x.grad(), x.exp() * x.exp().cos() * x.exp().sin().cos()));
}
