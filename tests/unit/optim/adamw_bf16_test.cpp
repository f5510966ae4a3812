// SPDX-License-Identifier: MIT
// AdamWBf16 against the rule that tests/parity/narrow_optimizers.py computes in numpy.
// Tests optim/narrow: bf16_loop
#include "support/precompiled.hpp"

#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/optim/fused_adamw.hpp>

#include "unit/optim/narrow_recorded.hpp"

namespace lt = looptorch;

namespace {

constexpr lt::AdamWBf16Options kBf16{.lr = 1e-2, .weight_decay = 0.1};
constexpr lt::AdamWBf16Options kExact{.lr = 1e-2, .weight_decay = 0.1, .exact = true};

/// The fp32 weights that `exact` keeps in two parts.
at::Tensor joined(const lt::AdamWBf16& optimizer, const at::Tensor& parameter) {
  const auto& lost = optimizer.moments().at(0).lost.at(0);
  return (parameter.detach().to(torch::kFloat).view(torch::kInt) + lost.to(torch::kInt)).view(torch::kFloat);
}

}  // namespace

TEST_CASE("AdamWBf16 has the numbers of its rule") {
  auto narrow = narrow_recorded::weights(torch::kBFloat16), single = narrow_recorded::weights(torch::kFloat);
  lt::AdamWBf16 a({narrow}, kBf16), b({single}, kBf16);
  narrow_recorded::compare("bf16.narrow", a, narrow, 1e-5);
  narrow_recorded::compare("bf16.single", b, single, 1e-5);
  using narrow_recorded::tensor;
  for (const auto* optimizer : {&a, &b}) {
    const std::string name = optimizer == &a ? "bf16.narrow" : "bf16.single";
    const auto& moments = optimizer->moments().at(0);
    CHECK(moments.first[0].scalar_type() == torch::kBFloat16);
    CHECK(narrow_recorded::share_of_others(moments.first[0].to(torch::kFloat), tensor(name + ".first")) <
          0.02);
    CHECK(narrow_recorded::share_of_others(moments.second[0].to(torch::kFloat), tensor(name + ".second")) <
          0.02);
  }
}

TEST_CASE("AdamWBf16 with exact weights has the numbers of fp32 weights") {
  auto parameter = narrow_recorded::weights(torch::kBFloat16);
  lt::AdamWBf16 optimizer({parameter}, kExact);
  narrow_recorded::run(optimizer, parameter, 0, narrow_recorded::kSteps);
  const auto differences =
      (joined(optimizer, parameter) - narrow_recorded::tensor("bf16.exact.history")[-1]).abs();
  CHECK(differences.gt(1e-5).sum().item<int64_t>() <= 6);
  CHECK(differences.max().item<double>() < 0.02);
  CHECK(narrow_recorded::share_of_others(joined(optimizer, parameter).to(torch::kBFloat16), parameter) <
        0.01);
}

TEST_CASE("AdamWBf16 keeps changes of bf16 weights that rounding to the nearest loses") {
  const auto start = torch::ones({20000}, torch::kBFloat16);
  auto narrow = start.clone().requires_grad_(), plain = start.clone().requires_grad_();
  auto exact = start.clone().requires_grad_();
  lt::AdamWBf16 a({narrow}, {.lr = 1e-4, .weight_decay = 0}),
      b({exact}, {.lr = 1e-4, .weight_decay = 0, .exact = true});
  lt::FusedAdamW c({plain}, {.lr = 1e-4, .weight_decay = 0});
  for (int step = 0; step < 20; ++step) {
    for (auto* parameter : {&narrow, &plain, &exact}) parameter->mutable_grad() = torch::ones_like(start);
    a.step(), b.step(), c.step();
  }
  CHECK(plain.equal(start));
  CHECK(narrow.to(torch::kDouble).mean().item<double>() == Approx(1 - 20e-4).margin(1e-4));
  CHECK(exact.to(torch::kDouble).mean().item<double>() == Approx(1 - 20e-4).margin(2e-3));
  CHECK(joined(b, exact).to(torch::kDouble).mean().item<double>() == Approx(1 - 20e-4).margin(1e-4));
}

TEST_CASE("AdamWBf16 keeps changes of fp16 weights that rounding to the nearest loses") {
  auto narrow = torch::ones({20000}, torch::kHalf).requires_grad_();
  lt::AdamWBf16 optimizer({narrow}, {.lr = 1e-5, .weight_decay = 0});
  for (int step = 0; step < 20; ++step) narrow.mutable_grad() = torch::ones_like(narrow), optimizer.step();
  CHECK(narrow.to(torch::kDouble).mean().item<double>() == Approx(1 - 20e-5).margin(2e-5));
  CHECK_THROWS_WITH(
      lt::AdamWBf16({narrow}, {.exact = true}),
      Catch::Contains("AdamWBf16's .exact keeps the bits that a bf16 weight lacks of fp32, and a parameter "
                      "of shape [20000] is in fp16"));
}

TEST_CASE("AdamWBf16 says what it keeps") {
  const auto narrow = torch::zeros({100}, torch::kBFloat16), single = torch::zeros({100});
  const lt::AdamWBf16 rounded({narrow, single}), exact({narrow, single}, {.exact = true});
  CHECK(lt::AdamWBf16::state_bytes(rounded.param_groups()[0], narrow) == 400);
  CHECK(lt::AdamWBf16::state_bytes(exact.param_groups()[0], narrow) == 600);
  CHECK(lt::AdamWBf16::state_bytes(exact.param_groups()[0], single) == 400);
}

TEST_CASE("AdamWBf16 continues from its saved state, bit for bit") {
  for (const auto& options : {kBf16, kExact}) {
    auto straight = narrow_recorded::weights(torch::kBFloat16),
         first = narrow_recorded::weights(torch::kBFloat16);
    lt::AdamWBf16 a({straight}, options), b({first}, options);
    narrow_recorded::run(a, straight, 0, 10), narrow_recorded::run(b, first, 0, 4);
    auto second = first.detach().clone().requires_grad_();
    lt::AdamWBf16 c({second}, options);
    c.load_state_of(second, b.state_of(first));
    narrow_recorded::run(c, second, 4, 10);
    CHECK(straight.equal(second));
    CHECK(a.moments()[0].first[0].equal(c.moments()[0].first[0]));
    CHECK(a.moments()[0].second[0].equal(c.moments()[0].second[0]));
    if (options.exact) CHECK(a.moments()[0].lost[0].equal(c.moments()[0].lost[0]));
  }
}

TEST_CASE("an overflow leaves weights and moments of AdamWBf16 as they were") {
  auto parameter = narrow_recorded::weights(torch::kBFloat16);
  lt::AdamWBf16 optimizer({parameter}, kExact);
  narrow_recorded::run(optimizer, parameter, 0, 3);
  const auto weight = parameter.detach().clone(), mean = optimizer.moments()[0].first[0].clone();
  parameter.mutable_grad() = torch::full_like(parameter, NAN);
  optimizer.step({}, torch::ones({}));
  CHECK(parameter.equal(weight));
  CHECK(optimizer.moments()[0].first[0].equal(mean));
  CHECK(optimizer.moments()[0].steps[0].item<double>() == 3);
}

TEST_CASE("AdamWBf16 updates strided weights and those of other dtypes") {
  auto plain = torch::randn({4, 6}).requires_grad_();
  auto turned = plain.detach().t().contiguous().t().requires_grad_();
  lt::AdamWBf16 a({plain}), b({turned});
  auto wide = plain.detach().to(torch::kDouble).requires_grad_();
  lt::AdamWBf16 c({wide});
  const auto gradient = torch::randn({4, 6});
  plain.mutable_grad() = gradient, turned.mutable_grad() = gradient.clone();
  wide.mutable_grad() = gradient.to(torch::kDouble);
  a.step(), b.step(), c.step();
  CHECK(torch::allclose(plain, turned));
  CHECK(wide.equal(plain.to(torch::kDouble)));
}

TEST_CASE("AdamWBf16 refuses options out of range, with their values") {
  const auto make = [](lt::AdamWBf16Options options) {
    lt::AdamWBf16({narrow_recorded::weights(torch::kFloat)}, options);
  };
  CHECK_THROWS_WITH(make({.lr = -1}), Catch::Contains("AdamWBf16 needs") && Catch::Contains("lr -1"));
}
