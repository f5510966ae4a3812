// SPDX-License-Identifier: MIT
// What a block reads besides its arguments: random numbers, autocast, and the buffers, modes and flags of its
// module. It runs again as it was, and leaves nothing of it behind.
// Tests memory/ambient: device_generators
// Tests memory/recompute: captured_module
#include "unit/memory/recompute/support/scenarios.hpp"

#include <thread>
#include <utility>

using namespace checkpointed;

TEMPLATE_TEST_CASE("dropout is the same when a block runs again", "", float, double) {
  check_same_bits(cpu<TestType>(), scenarios::dropout);
}

TEMPLATE_TEST_CASE("normally distributed noise is the same when a block runs again", "", float, double) {
  // An odd number of normal variates leaves one cached in the generator.
  check_same_bits(cpu<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = torch::randn({3}, options).requires_grad_();
    const auto noisy = [](const at::Tensor& x) { return (x * torch::randn({3}, x.options())).exp(); };
    const at::Tensor before = torch::randn({5}, options);
    const at::Tensor y = call(noisy, call(noisy, x));
    const at::Tensor between = torch::randn({5}, options);
    y.sum().backward();
    return Tensors{before, y, between, x.grad(), torch::randn({17}, options)};
  });
}

TEST_CASE("without random_state a block that draws is not put back") {
  torch::manual_seed(0);
  const auto block = FeedForward(0.5);
  const at::Tensor x = input(cpu<float>());
  lt::checkpoint({.random_state = false}, block, x).sum().backward();
  const at::Tensor after = torch::rand({2});
  torch::manual_seed(0);
  const auto again = FeedForward(0.5);
  again->forward(input(cpu<float>())).sum().backward();
  CHECK_FALSE(same_bits(after, torch::rand({2})));  // it has drawn twice
}

TEST_CASE("a generator that the block reseeds is put back") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto block = [](const at::Tensor& x) {
      torch::manual_seed(3);
      return torch::dropout(x, 0.5, true).exp();
    };
    const at::Tensor y = call(block, x);
    torch::manual_seed(4);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

namespace {

/// Draws on another thread.
void draw_elsewhere() {
  std::thread([] { (void)torch::rand({5}); }).join();
}

/// Two dropouts, between which another thread draws if `elsewhere` says so.
auto two_dropouts(const bool& elsewhere) {
  return [&elsewhere](const at::Tensor& x) {
    const at::Tensor h = torch::dropout(x, 0.5, true);
    if (elsewhere) draw_elsewhere();
    return torch::dropout(h.exp(), 0.5, true);
  };
}

}  // namespace

TEST_CASE("another thread that draws while a block draws is noticed") {
  torch::manual_seed(0);
  const at::Tensor x = input(cpu<float>());
  bool elsewhere = GENERATE(false, true);
  const at::Tensor y = lt::checkpoint(two_dropouts(elsewhere), x);
  elsewhere = !elsewhere;
  CHECK_THROWS_WITH(y.sum().backward(), Catch::Contains("another thread draws"));
}

TEST_CASE("another thread that draws while a block draws nothing: whose numbers they are is not known") {
  const at::Tensor x = input(cpu<float>());
  bool first = true;
  const auto block = [&first](const at::Tensor& x) {
    if (std::exchange(first, false)) draw_elsewhere();
    return x.exp();
  };
  CHECK_THROWS_WITH(lt::checkpoint(block, x).sum().backward(), Catch::Contains("set random_state = false"));
  first = true;
  lt::checkpoint({.random_state = false}, block, x).sum().backward();
  CHECK(same_bits(x.grad(), x.exp()));
}

TEMPLATE_TEST_CASE("autocast is as it was when a block runs again", "", float, double) {
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  check_same_bits(cpu<TestType>(), scenarios::autocast<false>(type));
}

TEMPLATE_TEST_CASE("backward within autocast's scope gives the same bits", "", float, double) {
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  check_same_bits(cpu<TestType>(), scenarios::autocast<true>(type));
}

namespace {

class Autocast {
 public:
  explicit Autocast(bool enabled, at::ScalarType type = at::kBFloat16)
      : enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
        type_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::set_autocast_dtype(at::kCPU, type);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, enabled_);
    at::autocast::set_autocast_dtype(at::kCPU, type_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_;
  at::ScalarType type_;
};

}  // namespace

TEST_CASE("a block that ran without autocast runs again without it") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = FeedForward();
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    const Autocast autocast(true);
    y.sum().backward();
    CHECK(at::autocast::is_autocast_enabled(at::kCPU));
    CHECK(at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16);
    Tensors results{y, x.grad()};
    return append(results, gradients(block));
  });
}

TEST_CASE("autocast switched off within a block is off when it runs again") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const FeedForward outer, inner;
    const at::Tensor x = input(options);
    const auto block = [outer, inner](const at::Tensor& x) {
      const at::Tensor h = outer(x);
      const Autocast off(false);
      return inner(h);
    };
    at::Tensor y;
    {
      const Autocast autocast(true);
      y = call(block, x);
      CHECK(at::autocast::is_autocast_enabled(at::kCPU));
    }
    y.sum().backward();
    Tensors results{y, x.grad()};
    return append(append(results, gradients(outer)), gradients(inner));
  });
}

TEST_CASE("a product in fp32 within autocast stays one when the block runs again outside of it") {
  const at::Tensor weight = torch::randn({kWidth, kWidth}).requires_grad_();
  check_same_bits(cpu<float>(), [&](const auto& call, const at::TensorOptions& options) {
    const FeedForward inner(0.0);
    const at::Tensor x = input(options);
    std::vector<at::ScalarType> types;
    const auto block = [&](const at::Tensor& x) {
      const at::Tensor h = inner(x);
      const at::Tensor low = x.matmul(weight);
      at::autocast::set_autocast_enabled(at::kCPU, false);
      const at::Tensor exact = h.matmul(weight);  // backward needs both factors in fp32
      at::autocast::set_autocast_enabled(at::kCPU, true);
      types.insert(types.end(), {low.scalar_type(), exact.scalar_type()});
      return (exact.sin() * low.to(at::kFloat).cos()).matmul(weight);
    };
    at::Tensor y;
    {
      const Autocast autocast(true);
      y = call(block, x);
    }
    const bool enabled = GENERATE(false, true);  // elsewhere, meanwhile, in another type
    const Autocast other(enabled, at::kHalf);
    y.to(at::kFloat).sum().backward();
    CHECK(at::autocast::is_autocast_enabled(at::kCPU) == enabled);
    CHECK(at::autocast::get_autocast_dtype(at::kCPU) == at::kHalf);
    for (std::size_t i = 0; i < types.size(); ++i) CHECK(types[i] == (i % 2 ? at::kFloat : at::kBFloat16));
    const Tensors results = append({y, x.grad(), weight.grad().clone()}, gradients(inner));
    weight.mutable_grad() = at::Tensor();
    return results;
  });
}

TEST_CASE("what running again casts does not outlive it") {
  const auto block = FeedForward();
  const at::Tensor x = input(cpu<float>());
  at::Tensor y;
  {
    const Autocast autocast(true);
    y = lt::checkpoint(block, x);
  }
  y.sum().backward();
  {
    // A stale copy of the weight in autocast's cache would hide the new one.
    torch::NoGradGuard no_gradients;
    block->expand->weight.zero_();
    block->expand->bias.zero_();
    block->project->bias.zero_();
  }
  block->eval();
  const Autocast autocast(true);
  CHECK(torch::equal(block(x), x));
}

TEMPLATE_TEST_CASE("running statistics are updated once", "", float, double) {
  check_same_bits(cpu<TestType>(), scenarios::batch_norm);
}

TEST_CASE("a frozen norm in a block that trains runs again frozen, in whatever mode the model is then") {
  const bool trains = GENERATE(false, true);  // the block between its two runs
  check_same_bits(cpu<float>(), [&](const auto& call, const at::TensorOptions& options) {
    struct PartlyFrozenImpl : torch::nn::Module {
      PartlyFrozenImpl() { register_module("frozen", frozen), register_module("trained", trained); }
      at::Tensor forward(const at::Tensor& x) {
        return trained(torch::dropout(frozen(x), 0.5, is_training()));
      }
      Normalized frozen, trained;
    };
    const auto block = Holder<PartlyFrozenImpl>(std::make_shared<PartlyFrozenImpl>());
    block->frozen->eval();
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, call(block, x));
    block->train(trains);
    y.pow(2).sum().backward();
    for (const auto& module : block->modules()) CHECK(module->is_training() == trains);
    return append(append({y, x.grad()}, gradients(block)), buffers(block));
  });
}

TEMPLATE_TEST_CASE("a block that depends on a buffer that it changes runs again on the old one", "", float,
                   double) {
  check_same_bits(cpu<TestType>(), scenarios::spectral_norm);
}

TEST_CASE("a block that runs again leaves what autocast keeps for other threads alone") {
  const auto inner = FeedForward(0.0), block = FeedForward(0.0);
  const auto both = [inner, block](const at::Tensor& x) {
    at::Tensor h;
    {
      const Autocast off(false);  // its end must not clear what is kept, although none is around it
      h = inner(x);
    }
    return block(h);
  };
  at::Tensor y;
  {
    const Autocast autocast(true);
    y = lt::checkpoint(both, input(cpu<float>()));
  }
  const at::Tensor weight = input(cpu<float>());
  const Autocast autocast(true);
  const auto cast = [&] { return at::autocast::cached_cast(at::kBFloat16, weight, at::kCPU); };
  const at::Tensor before = cast();
  std::thread([&] { y.sum().backward(); }).join();
  CHECK(block->runs == 2);
  CHECK(cast().is_same(before));
  CHECK(at::autocast::is_autocast_cache_enabled());
}

TEST_CASE("autocast's cache stays as it is, on or off") {
  const bool enabled = GENERATE(true, false);
  const at::Tensor y = lt::checkpoint(FeedForward(), input(cpu<float>()));
  at::autocast::set_autocast_cache_enabled(enabled);
  y.sum().backward();
  CHECK(at::autocast::is_autocast_cache_enabled() == enabled);
  at::autocast::set_autocast_cache_enabled(true);
}

TEST_CASE("running statistics count one run") {
  const auto block = Normalized();
  lt::checkpoint(block, input(cpu<float>())).sum().backward();
  CHECK(block->runs == 2);
  CHECK(block->norm->num_batches_tracked.item<std::int64_t>() == 1);
}

TEST_CASE("a module that is in the block twice has its buffers put back") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    struct TwiceImpl : torch::nn::Module {
      TwiceImpl() : first(register_module("first", Spectral())), second(register_module("second", first)) {}
      at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
      Spectral first, second;
    };
    const auto block = Holder<TwiceImpl>(std::make_shared<TwiceImpl>());
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, call(block, x));
    const void* const storage = block->first->u.data_ptr();
    y.sum().backward();
    CHECK(block->first->u.data_ptr() == storage);
    Tensors results{y, x.grad()};
    return append(append(results, gradients(block)), buffers(block));
  });
}

TEST_CASE("a buffer keeps its identity and its version") {
  const auto block = Spectral();
  const at::Tensor x = input(cpu<float>());
  const at::Tensor y = lt::checkpoint(block, lt::checkpoint(block, x));
  const auto version = block->u._version();
  const at::Tensor before = block->u.clone();
  const at::Tensor view = block->u.view({2, -1});
  y.sum().backward();
  CHECK(block->u._version() == version);
  CHECK(same_bits(block->u, before));
  block->u.zero_();
  CHECK(view.sum().item<double>() == 0);  // the same memory still
}

TEST_CASE("running statistics of a module that does not count are updated once") {
  struct BareImpl : torch::nn::Module {
    at::Tensor mean = register_buffer("mean", torch::zeros({kWidth}));
    at::Tensor variance = register_buffer("variance", torch::ones({kWidth}));
    at::Tensor forward(const at::Tensor& x) {
      return at::batch_norm(x, {}, {}, mean, variance, /*training=*/true, 0.1, 1e-5, false).exp();
    }
  };
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = Holder<BareImpl>(std::make_shared<BareImpl>());
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    y.sum().backward();
    return append(buffers(block), {y, x.grad()});
  });
}

TEST_CASE(
    "a buffer that is written to beside one that is only read, and statistics that are read as they change") {
  struct FollowingImpl : torch::nn::Module {
    at::Tensor count = register_buffer("count", torch::ones({kWidth}, at::kDouble));
    at::Tensor mask = register_buffer("mask", torch::full({kWidth}, 2, at::kDouble));
    torch::nn::BatchNorm1d norm{kWidth};
    FollowingImpl() { register_module("norm", norm); }
    at::Tensor forward(const at::Tensor& x) {
      count.mul_(1.5);
      return (norm(x).sin() * norm->running_mean.clone() * count.clone() * mask).exp();
    }
  };
  check_same_bits(cpu<double>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = on(Holder<FollowingImpl>(std::make_shared<FollowingImpl>()), options);
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, call(block, x));
    y.sum().backward();
    return append(append(buffers(block), {y, x.grad()}), gradients(block));
  });
}

TEST_CASE("a buffer that a block only reads stays where it is while it runs again") {
  struct MaskedImpl : torch::nn::Module {
    at::Tensor mask = register_buffer("mask", torch::ones({kWidth}));
    std::vector<const void*> places;
    at::Tensor forward(const at::Tensor& x) {
      places.push_back(mask.const_data_ptr());
      return x.exp() * mask;
    }
  };
  const auto block = Holder<MaskedImpl>(std::make_shared<MaskedImpl>());
  lt::checkpoint(block, input(cpu<float>())).sum().backward();
  REQUIRE(block->places.size() == 2);
  CHECK(block->places[0] == block->places[1]);
}

TEST_CASE("buffers that are no module's are put back if they are listed") {
  check_same_bits(cpu<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor count = torch::ones({}, options), x = input(options);
    const auto block = [count](const at::Tensor& x) {
      count.mul_(2);
      return (x * count.clone()).sin();
    };
    if constexpr (std::decay_t<decltype(call)>::recomputes) {
      const at::Tensor y = lt::checkpoint({.buffers = {count}}, block, x);
      y.sum().backward();
      return Tensors{y, x.grad(), count};
    } else {
      const at::Tensor y = block(x);
      y.sum().backward();
      return Tensors{y, x.grad(), count};
    }
  });
}

TEST_CASE("eval between forward and backward does not change what runs again") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = FeedForward(0.5);
    const auto norm = Normalized();
    const at::Tensor x = input(options);
    const at::Tensor y = call(norm, call(block, x));
    block->eval();
    norm->norm->eval();
    y.sum().backward();
    CHECK_FALSE(block->dropout->is_training());
    CHECK_FALSE(norm->norm->is_training());
    CHECK(norm->is_training());
    Tensors results{y, x.grad()};
    append(append(results, gradients(block)), buffers(norm));
    return append(results, gradients(norm));
  });
}

TEST_CASE("a child in another mode than its parent stays so") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = Normalized();
    block->norm->eval();
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    block->train();
    y.sum().backward();
    CHECK(block->norm->is_training());
    Tensors results{y, x.grad()};
    return append(append(results, gradients(block)), buffers(block));
  });
}

TEST_CASE(
    "parameters frozen or thawed between forward and backward are as they were while a block runs again") {
  const bool trained = GENERATE(false, true);
  const auto block = FeedForward();
  block->expand->weight.set_requires_grad(trained);
  const at::Tensor x = input(cpu<float>());
  const at::Tensor y = lt::checkpoint(block, x);
  block->expand->weight.set_requires_grad(!trained);
  y.sum().backward();
  CHECK(block->runs == 2);
  CHECK(block->expand->weight.requires_grad() == !trained);
}
