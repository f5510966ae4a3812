// SPDX-License-Identifier: MIT
// The node of autograd for linear layers: at::linear's bits, heads' layouts, and when at::linear computes.
// Runs on every device.
// Tests layers: row_matmul
#include "support/precompiled.hpp"

#include <looptorch/layers/linear_node.hpp>
#include <looptorch/policies/autocast.hpp>

#include "support/place.hpp"

#include <optional>
#include <vector>

namespace lt = looptorch;
using lt::testing::place, lt::testing::placed;

namespace {

constexpr std::int64_t kHeads = 2;

enum class Way { ours, split, merged };

/// Gradients are asked for by letters: input x, weight w, bias b.
struct Case {
  std::vector<std::int64_t> sizes;
  std::string trained = "xwb";
  bool has_bias = true, casts = false;
};

at::Tensor split(const at::Tensor& x_BTD) {
  return x_BTD.unflatten(-1, {kHeads, x_BTD.size(-1) / kHeads}).transpose(1, 2);
}

/// Returns the output, and gradients of what is trained.
std::vector<at::Tensor> results(const Case& of, Way way, bool by_node) {
  torch::manual_seed(1);
  const auto leaf = [&](at::IntArrayRef sizes, char letter) {
    return placed(at::randn(sizes)).set_requires_grad(of.trained.find(letter) != std::string::npos);
  };
  const at::Tensor x = leaf(of.sizes, 'x'), w = leaf({6, 4}, 'w');
  const at::Tensor b = of.has_bias ? leaf({6}, 'b') : at::Tensor();
  at::Tensor y;
  {
    std::optional<lt::AutocastScope> autocast;
    if (of.casts) autocast.emplace(place().type(), at::kBFloat16);
    if (way == Way::merged) {
      y = by_node ? lt::detail::try_linear_node(x, w, b, {.is_merged = true})
                  : at::linear(x.transpose(1, 2).flatten(2), w, b);
    } else if (way == Way::split) {
      y = by_node ? lt::detail::try_linear_node(x, w, b, {.split = kHeads}) : split(at::linear(x, w, b));
    } else {
      y = by_node ? lt::detail::try_linear_node(x, w, b) : at::linear(x, w, b);
    }
    REQUIRE(y.defined());
  }
  CHECK((y.grad_fn()->name() == "LinearBackward") == by_node);
  y.square().sum().backward();
  return {y, x.grad(), w.grad(), b.defined() ? b.grad() : b};
}

void check_equal(const Case& of, Way way) {
  CAPTURE(of.sizes, of.trained, of.has_bias, of.casts);
  const auto found = results(of, way, true), expected = results(of, way, false);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (!found[i].defined()) continue;
    CHECK(found[i].scalar_type() == expected[i].scalar_type());
    CHECK(found[i].sizes() == expected[i].sizes());
    CHECK(at::equal(found[i], expected[i]));
  }
}

bool is_node(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor output = lt::linear_node(x, w, {});
  CHECK(at::allclose(output, at::linear(x, w)));
  return output.grad_fn() && output.grad_fn()->name() == "LinearBackward";
}

}  // namespace

TEST_CASE("A linear layer by one node has at::linear's bits, whatever is trained, and under autocast") {
  for (const bool casts : {false, true}) {
    for (const bool has_bias : {false, true}) {
      for (const char* trained : {"xwb", "x", "w", "wb"}) {
        check_equal({{3, 4}, trained, has_bias, casts}, Way::ours);
        check_equal({{2, 3, 4}, trained, has_bias, casts}, Way::ours);
        check_equal({{2, 3, 4}, trained, has_bias, casts}, Way::split);
        check_equal({{2, kHeads, 3, 2}, trained, has_bias, casts}, Way::merged);
      }
    }
  }
  check_equal({{2, 3, 4}, "b"}, Way::ours);
}

TEST_CASE("at::linear computes without gradients, for a vector, gaps between rows, and other types") {
  const at::Tensor w = placed(at::randn({6, 4})).set_requires_grad(true), x = placed(at::randn({2, 3, 4}));
  CHECK(is_node(x, w));
  CHECK_FALSE(is_node(x, w.detach()));
  CHECK_FALSE(is_node(x[0][0], w));
  CHECK_FALSE(is_node(placed(at::randn({2, 4, 3})).transpose(1, 2), w));
  CHECK_FALSE(is_node(x.unsqueeze(0), w));
  CHECK_FALSE(is_node(x.slice(0, 0, 0), w));
  CHECK_THROWS(lt::linear_node(x.to(at::kDouble), w, {}));
  CHECK_THROWS(lt::linear_node(x.slice(2, 0, 3), w, {}));
  CHECK_THROWS(lt::linear_node(x, w, placed(at::randn({5}))));
  CHECK_FALSE(is_node(x, placed(at::randn({0, 4})).set_requires_grad(true)));
  {
    const c10::InferenceMode inference;
    const at::AutoGradMode with_gradients(true);
    CHECK_FALSE(is_node(x, w));
  }
  const at::NoGradGuard no_gradients;
  CHECK_FALSE(is_node(x, w));
}

TEST_CASE(
    "Weights whose casts autocast keeps from a forward without gradients have no node that drops them") {
  const at::Tensor w = placed(at::randn({6, 4})).set_requires_grad(true), x = placed(at::randn({2, 3, 4}));
  const lt::AutocastScope autocast(place().type(), at::kBFloat16);
  {
    const at::NoGradGuard no_gradients;
    (void)lt::linear_node(x, w, {});
  }
  CHECK(lt::linear_node(x, w, {}).requires_grad() == at::linear(x, w).requires_grad());
}

TEST_CASE("The node refuses a second backward, and a weight that changed before backward") {
  const at::Tensor w = placed(at::randn({6, 4})).set_requires_grad(true);
  const at::Tensor x = placed(at::randn({3, 4})).set_requires_grad(true);
  at::Tensor loss = lt::linear_node(x, w, {}).sum();
  loss.backward();
  CHECK_THROWS(loss.backward());
  loss = lt::linear_node(x, w, {}).sum();
  {
    const at::NoGradGuard no_gradients;
    w.add_(1);
  }
  CHECK_THROWS(loss.backward());
}

TEST_CASE("The node can be differentiated twice") {
  const auto second = [](bool by_node) {
    torch::manual_seed(1);
    const at::Tensor w = placed(at::randn({6, 4})).set_requires_grad(true);
    const at::Tensor x = placed(at::randn({3, 4})).set_requires_grad(true);
    const at::Tensor y = by_node ? lt::linear_node(x, w, {}) : at::linear(x, w);
    const auto first = torch::autograd::grad({y.pow(3).sum()}, {x, w}, {}, {}, /*create_graph=*/true);
    (first[0].square().sum() + first[1].square().sum()).backward();
    return std::vector{x.grad(), w.grad()};
  };
  const auto found = second(true), expected = second(false);
  for (std::size_t i = 0; i < 2; ++i) CHECK(at::allclose(found[i], expected[i], 1e-4, 1e-4));
}
