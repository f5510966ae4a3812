// SPDX-License-Identifier: MIT
// Any number and kind of arguments and results, and what a block does with them: writes in place, takes
// views, needs no gradient, shares them.
// Runs on every device.
#include "unit/memory/recompute/support/scenarios.hpp"

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

using namespace checkpointed;

namespace {

struct Features {
  at::Tensor values;
  std::optional<at::Tensor> mask;
  double scale = 1;
};

/// A type in which no tensors are found.
class Opaque {
 public:
  explicit Opaque(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  const at::Tensor& get() const { return tensor_; }

 private:
  at::Tensor tensor_;
};

}  // namespace

TEMPLATE_TEST_CASE("tuples, optional tensors, vectors, maps, structs, plain and opaque values", "", float,
                   double) {
  check_same_bits(here<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor a = input(options), b = input(options), c = input(options), d = input(options);
    const auto block = [](const Features& features, std::tuple<at::Tensor, int> pair,
                          const std::vector<at::Tensor>& list, const std::map<std::string, at::Tensor>& named,
                          const Opaque& opaque, std::optional<at::Tensor> none, bool twice,
                          const std::string& name, const std::shared_ptr<double>& pointer) {
      at::Tensor h = features.values * features.scale * *features.mask + std::get<0>(pair).exp();
      for (const at::Tensor& each : list) h = h * each.sin();
      h = h * named.at(name).cos() + opaque.get().exp() * *pointer;
      return none ? h : (h * (twice ? 2 : 1)).tanh();
    };
    const at::Tensor y = call(block, Features{a * 1, torch::ones({kWidth}, options), 0.5},
                              std::make_tuple(b * 1, 3), std::vector<at::Tensor>{c, d * 1, at::Tensor(c)},
                              std::map<std::string, at::Tensor>{{"left", a * 1}, {"right", b}}, Opaque(c * 1),
                              std::nullopt, true, std::string("right"), std::make_shared<double>(0.25));
    y.sum().backward();
    return Tensors{y, a.grad(), b.grad(), c.grad(), d.grad()};
  });
}

TEST_CASE("undefined tensors stay undefined") {
  const auto block = [](const at::Tensor& x, const at::Tensor& mask, const std::vector<at::Tensor>& more) {
    CHECK_FALSE(mask.defined());
    CHECK(more[1].defined());
    CHECK_FALSE(more[0].defined());
    return x.exp() * more[1];
  };
  const at::Tensor x = input(here<float>());
  const at::Tensor y = lt::checkpoint(block, x, at::Tensor(), Tensors{at::Tensor(), x * 1});
  y.sum().backward();
  CHECK(torch::allclose(x.grad(), (x + 1) * x.exp()));
}

TEST_CASE("what an argument only refers to may be gone when the block runs again") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto block = [](at::TensorList list, at::IntArrayRef sizes, at::OptionalIntArrayRef dims,
                          std::span<const double> weights, std::string_view name, const char* literal) {
      CHECK(name == "a name that is too long for a short string");
      CHECK(std::string(literal) == "literal");
      const at::Tensor h = at::cat(list, 0).reshape(sizes).exp() * weights[1];
      return h.sum(dims).sin();
    };
    at::Tensor y;
    {
      const std::vector<at::Tensor> list{x * 1, x * 2};
      const std::vector<std::int64_t> sizes{8, 8}, dims{1};
      const std::vector<double> weights{1, 0.5};
      const std::string name = "a name that is too long for a short string";
      y = call(block, at::TensorList(list), at::IntArrayRef(sizes), at::OptionalIntArrayRef(dims),
               std::span<const double>(weights), std::string_view(name), "literal");
    }
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("several results: tuples, vectors, structs, undefined ones") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto block = [](const at::Tensor& x) {
      return std::make_tuple(x.exp(), std::vector<at::Tensor>{x.sin(), at::Tensor(), x > 0},
                             Features{x.tanh(), std::nullopt, 2.0}, 3);
    };
    const auto [a, list, features, number] = call(block, x);
    CHECK(number == 3);
    CHECK_FALSE(list[1].defined());
    (a * list[0] * features.values * features.scale).sum().backward();
    return Tensors{a, list[0], list[2], features.values, x.grad()};
  });
}

TEST_CASE("a block that returns nothing, or a reference") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    at::Tensor y;
    call([&y](const at::Tensor& x) { y = x.exp().sin(); }, x);
    at::Tensor kept = y;
    y = at::Tensor();
    const auto same = [](const at::Tensor& x) -> const at::Tensor& { return x; };
    const at::Tensor& z = call(same, kept);
    CHECK(&z == &kept);
    z.sum().backward();
    return Tensors{kept, x.grad()};
  });
}

TEST_CASE("arguments are given again as they were: by value, by reference, moved") {
  struct Counted {
    Counted() = default;
    Counted(const Counted&) = default;
    Counted& operator=(const Counted&) = default;
  };
  const at::Tensor x = input(here<float>());
  int lvalues = 0, rvalues = 0;
  struct Block {
    int &lvalues, &rvalues;
    at::Tensor operator()(const at::Tensor& x, Counted&) const { return ++lvalues, x.exp(); }
    at::Tensor operator()(const at::Tensor& x, Counted&&) const { return ++rvalues, x.exp(); }
  };
  Counted counted;
  lt::checkpoint(Block{lvalues, rvalues}, x, counted).sum().backward();
  lt::checkpoint(Block{lvalues, rvalues}, x, Counted()).sum().backward();
  CHECK(lvalues == 2);
  CHECK(rvalues == 2);
}

TEST_CASE("the caller's tensors are not touched") {
  const at::Tensor x = input(here<float>());
  std::vector<at::Tensor> list{x * 1, x * 2};
  const auto addresses = list;
  const at::Tensor y =
      lt::checkpoint([](const std::vector<at::Tensor>& all) { return all[0].exp() * all[1]; }, list);
  for (std::size_t i = 0; i < list.size(); ++i) CHECK(list[i].is_same(addresses[i]));
  y.sum().backward();
}

TEMPLATE_TEST_CASE("operations in place within a block", "", float, double) {
  check_same_bits(here<TestType>(), scenarios::in_place);
}

TEMPLATE_TEST_CASE("views of arguments and results", "", float, double) {
  check_same_bits(here<TestType>(), scenarios::views);
}

TEMPLATE_TEST_CASE("shared parameters", "", float, double) {
  check_same_bits(here<TestType>(), scenarios::shared_parameters);
}

TEMPLATE_TEST_CASE("frozen blocks and parameters, and inputs that need no gradient", "", float, double) {
  check_same_bits(here<TestType>(), scenarios::frozen);
}

TEMPLATE_TEST_CASE("a result that is changed in place after the block", "", float, double) {
  check_same_bits(here<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = on(FeedForward(), options);
    const at::Tensor x = input(options);
    at::Tensor y = call(block, x);
    y.mul_(2).relu_();
    y = call(block, y);
    y.sum().backward();
    Tensors results{y, x.grad()};
    return append(results, gradients(block));
  });
}

TEST_CASE("a block that returns what it is given") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto same = [](at::Tensor x) { return x; };
    const auto both = [](const at::Tensor& x) { return std::make_pair(x, x.exp()); };
    const auto [a, b] = call(both, call(same, x * 2));
    (a * b).sum().backward();
    return Tensors{a, b, x.grad()};
  });
}

TEST_CASE("writing to an argument is refused in forward") {
  const at::Tensor x = input(here<float>()) * 1;
  const auto to_itself = [](at::Tensor x) { return x.add_(1).exp(); };
  const auto to_a_view = [](at::Tensor x) {
    x.slice(0, 0, 1).zero_();
    return x.exp();
  };
  CHECK_THROWS_AS(lt::checkpoint(to_itself, x), lt::CheckpointError);
  CHECK_THROWS_WITH(
      lt::checkpoint(to_a_view, x),
      "the checkpointed function writes in place to an argument of shape [4, 8], so that it cannot "
      "be recomputed from it: clone the argument first");
  CHECK_NOTHROW(lt::checkpoint({.mode = lt::CheckpointMode::off}, to_itself, x.detach()));
}

TEST_CASE("writing to a parameter is refused in forward") {
  struct ClampedImpl : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", torch::ones({kWidth}));
    at::Tensor forward(const at::Tensor& x) {
      torch::NoGradGuard no_gradients;
      weight.clamp_(-1, 1);
      at::AutoGradMode gradients(true);
      return x * weight;
    }
  };
  const auto block = on(Holder<ClampedImpl>(std::make_shared<ClampedImpl>()), here<float>());
  CHECK_THROWS_WITH(lt::checkpoint(block, input(here<float>())),
                    Catch::Contains("parameter 'weight' of shape [8] is written to in place by its forward"));
}

TEST_CASE("where nothing needs a gradient a block runs once, as it is") {
  const auto block = on(FeedForward(), here<float>());
  {
    const torch::NoGradGuard no_gradients;
    CHECK_FALSE(lt::checkpoint(block, input(here<float>())).requires_grad());
  }
  for (const at::Tensor& parameter : block->parameters()) parameter.set_requires_grad(false);
  CHECK_FALSE(lt::checkpoint(block, input(here<float>(), false)).requires_grad());
  CHECK(block->runs == 2);
}

TEST_CASE("a parameter that a function captures gets its gradient though no argument needs one") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor weight = input(options);
    const at::Tensor y =
        call([weight](const at::Tensor& x) { return (x * weight).exp(); }, input(options, false));
    y.sum().backward();
    return Tensors{y, weight.grad()};
  });
}

TEST_CASE("broadcast, integer, empty and non-contiguous arguments") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor table = input(options), x = torch::randn({8, 4}, options).requires_grad_();
    const auto block = [](const at::Tensor& table, const at::Tensor& index, const at::Tensor& x,
                          const at::Tensor& none) {
      return torch::cat({table.index_select(0, index) * x.t().index_select(0, index), none}).tanh();
    };
    const at::Tensor y = call(block, table, torch::tensor({3, 1, 1}).to(options.device()), x,
                              torch::zeros({0, kWidth}, options).requires_grad_());
    y.sum().backward();
    return Tensors{y, table.grad(), x.grad()};
  });
}
