// SPDX-License-Identifier: MIT
// AdamW8bit against the rule that tests/parity/narrow_optimizers.py computes in numpy.
#include "support/precompiled.hpp"

#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/fused_adamw.hpp>

#include "unit/optim/narrow_recorded.hpp"

namespace lt = looptorch;

namespace {

constexpr lt::AdamW8bitOptions kCoded8bit{.lr = 1e-2, .weight_decay = 0.1, .min_size = 1};

std::vector<at::Tensor> values_of_8bit(const lt::AdamW8bit& optimizer, const at::Tensor& parameter) {
  std::vector<at::Tensor> result{parameter.detach().clone()};
  const auto state = optimizer.state_of(parameter);
  for (const auto& [key, value] : state.values()) result.push_back(value.get_if<at::Tensor>()->clone());
  return result;
}

bool same_8bit(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) { return x.equal(y); });
}

}  // namespace

TEST_CASE("AdamW8bit has the numbers of its rule") {
  auto parameter = narrow_recorded::weights(torch::kFloat);
  lt::AdamW8bit optimizer({parameter}, kCoded8bit);
  narrow_recorded::compare("eight_bit", optimizer, parameter, 1e-5);
  const auto& moments = optimizer.moments().at(0);
  using narrow_recorded::tensor;
  CHECK(narrow_recorded::share_of_others(moments.first_codes[0], tensor("eight_bit.first_codes")) < 0.02);
  CHECK(narrow_recorded::share_of_others(moments.root_codes[0], tensor("eight_bit.root_codes")) < 0.02);
  CHECK(torch::allclose(moments.first_scales[0], tensor("eight_bit.first_scales"), 0.05));
  CHECK(torch::allclose(moments.root_scales[0], tensor("eight_bit.root_scales"), 0.05));
  CHECK(moments.steps[0].item<double>() == narrow_recorded::kSteps);
}

TEST_CASE("AdamW8bit follows AdamW") {
  auto coded = narrow_recorded::weights(torch::kFloat), plain = narrow_recorded::weights(torch::kFloat);
  lt::AdamW8bit optimizer({coded}, kCoded8bit);
  lt::FusedAdamW reference({plain}, {.lr = 1e-2, .weight_decay = 0.1});
  narrow_recorded::run(optimizer, coded, 0, 200), narrow_recorded::run(reference, plain, 0, 200);
  const auto moved = (plain - narrow_recorded::weights(torch::kFloat)).detach();
  CHECK((coded - plain).norm().item<double>() < 0.15 * moved.norm().item<double>());
}

TEST_CASE("small parameters, and those on request, have FusedAdamW's numbers under AdamW8bit") {
  std::vector<at::Tensor> a, b;
  for (auto* list : {&a, &b})
    for (int i = 0; i < 3; ++i) list->push_back(narrow_recorded::weights(torch::kFloat));
  lt::AdamW8bit optimizer({lt::AdamW8bit::group({a[0]}, {.lr = 1e-2, .min_size = 601}),
                           lt::AdamW8bit::group({a[1], a[2]}, {.lr = 1e-2, .min_size = 1, .coded = false})});
  lt::FusedAdamW reference(b, {.lr = 1e-2});
  for (int64_t step = 1; step <= 5; ++step) {
    for (auto* list : {&a, &b})
      for (auto& parameter : *list) parameter.mutable_grad() = narrow_recorded::gradient(step, torch::kFloat);
    optimizer.step(), reference.step();
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(a[i].equal(b[i]));
  CHECK(optimizer.state_of(a[0]).contains("exp_avg"));
  CHECK_FALSE(optimizer.state_of(a[0]).contains("exp_avg_code"));
}

TEST_CASE("AdamW8bit keeps two bytes a parameter, and says so beforehand") {
  auto parameter = torch::zeros({64, 256}).requires_grad_();
  const lt::AdamW8bit optimizer({parameter});
  CHECK(lt::AdamW8bit::state_bytes(optimizer.param_groups()[0], parameter) == 2 * 64 * 256 + 2 * 64 * 4);
  const auto small = torch::zeros({100});
  CHECK(lt::AdamW8bit::state_bytes(optimizer.param_groups()[0], small) == 800);
}

TEST_CASE("AdamW8bit continues from its saved state, bit for bit") {
  auto straight = narrow_recorded::weights(torch::kFloat), first = narrow_recorded::weights(torch::kFloat);
  lt::AdamW8bit a({straight}, kCoded8bit), b({first}, kCoded8bit);
  narrow_recorded::run(a, straight, 0, 10), narrow_recorded::run(b, first, 0, 4);
  auto second = first.detach().clone().requires_grad_();
  lt::AdamW8bit c({second}, kCoded8bit);
  c.load_state_of(second, b.state_of(first));
  narrow_recorded::run(c, second, 4, 10);
  CHECK(same_8bit(values_of_8bit(a, straight), values_of_8bit(c, second)));
}

TEST_CASE("AdamW8bit refuses the state of other moments") {
  auto parameter = narrow_recorded::weights(torch::kFloat);
  lt::AdamW8bit coded({parameter}, kCoded8bit), plain({parameter}, {.coded = false});
  narrow_recorded::run(coded, parameter, 0, 1), narrow_recorded::run(plain, parameter, 0, 1);
  CHECK_THROWS_AS(plain.load_state_of(parameter, coded.state_of(parameter)), lt::StateError);
  CHECK_THROWS_AS(coded.load_state_of(parameter, plain.state_of(parameter)), lt::StateError);
}

TEST_CASE("an overflow leaves everything of AdamW8bit as it was") {
  auto parameter = narrow_recorded::weights(torch::kFloat);
  lt::AdamW8bit optimizer({parameter}, kCoded8bit);
  narrow_recorded::run(optimizer, parameter, 0, 3);
  const auto before = values_of_8bit(optimizer, parameter);
  parameter.mutable_grad() = torch::full_like(parameter, NAN);
  optimizer.step({}, torch::ones({}));
  CHECK(same_8bit(before, values_of_8bit(optimizer, parameter)));
  optimizer.step({}, torch::zeros({}));
  CHECK(parameter.isnan().all().item<bool>());
}

TEST_CASE("AdamW8bit updates weights of other dtypes through fp32") {
  auto single = narrow_recorded::weights(torch::kFloat), wide = narrow_recorded::weights(torch::kDouble);
  wide.set_data(single.detach().to(torch::kDouble));
  lt::AdamW8bit a({single}, kCoded8bit), b({wide}, kCoded8bit);
  for (int64_t step = 1; step <= 5; ++step) {
    single.mutable_grad() = narrow_recorded::gradient(step, torch::kFloat);
    wide.mutable_grad() = single.grad().to(torch::kDouble);
    a.step(), b.step();
  }
  CHECK(wide.equal(single.to(torch::kDouble)));
}

TEST_CASE("a block of zeros stays zero under AdamW8bit") {
  auto parameter = torch::zeros({512}).requires_grad_();
  lt::AdamW8bit optimizer({parameter}, {.min_size = 1});
  auto gradient = torch::zeros({512});
  gradient.narrow(0, 0, 256).normal_();
  for (int i = 0; i < 3; ++i) {
    parameter.mutable_grad() = gradient;
    optimizer.step();
  }
  CHECK(parameter.narrow(0, 256, 256).eq(0).all().item<bool>());
  CHECK(parameter.narrow(0, 0, 256).isfinite().all().item<bool>());
}

TEST_CASE("AdamW8bit needs coded parameters to stay contiguous") {
  auto parameter = torch::randn({8, 8, 4, 4}).requires_grad_();
  lt::AdamW8bit optimizer({parameter}, {.min_size = 1});
  parameter.mutable_grad() = torch::randn({8, 8, 4, 4});
  optimizer.step();
  parameter.set_data(parameter.detach().to(at::MemoryFormat::ChannelsLast));
  CHECK_THROWS_WITH(optimizer.step(), Catch::Contains("was contiguous when the optimizer first updated it"));
  auto other = torch::randn({8, 8, 4, 4}).to(at::MemoryFormat::ChannelsLast).requires_grad_();
  lt::AdamW8bit plain({other}, {.min_size = 1});
  other.mutable_grad() = torch::ones_like(other);
  plain.step();
  CHECK(plain.state_of(other).contains("exp_avg"));
}

TEST_CASE("AdamW8bit keeps changes of bf16 weights that rounding to the nearest loses") {
  const auto start = torch::ones({20000}, torch::kBFloat16);
  for (const int64_t min_size : {4096, 1 << 20}) {
    auto narrow = start.clone().requires_grad_();
    lt::AdamW8bit optimizer({narrow}, {.lr = 1e-4, .weight_decay = 0, .min_size = min_size});
    for (int step = 0; step < 20; ++step) narrow.mutable_grad() = torch::ones_like(start), optimizer.step();
    CHECK(narrow.to(torch::kDouble).mean().item<double>() == Approx(1 - 20e-4).margin(1e-4));
    CHECK(lt::AdamW8bit::state_bytes(optimizer.param_groups()[0], narrow) ==
          (min_size == 4096 ? 2 * 20000 + 8 * 79 : 8 * 20000));
  }
}

TEST_CASE("AdamW8bit keeps changes of fp16 weights that rounding to the nearest loses") {
  const auto start = torch::ones({20000}, torch::kHalf);
  for (const int64_t min_size : {4096, 1 << 20}) {
    auto narrow = start.clone().requires_grad_();
    lt::AdamW8bit optimizer({narrow}, {.lr = 1e-5, .weight_decay = 0, .min_size = min_size});
    for (int step = 0; step < 20; ++step) narrow.mutable_grad() = torch::ones_like(start), optimizer.step();
    CHECK(narrow.to(torch::kDouble).mean().item<double>() == Approx(1 - 20e-5).margin(2e-5));
    CHECK(lt::AdamW8bit::state_bytes(optimizer.param_groups()[0], narrow) ==
          (min_size == 4096 ? 2 * 20000 + 8 * 79 : 8 * 20000));
  }
  CHECK_THROWS_WITH(lt::AdamW8bit({start}, {.corrected = true}),
                    Catch::Contains("AdamW8bit's .corrected keeps the bits that a bf16 weight lacks"));
}

TEST_CASE("AdamW8bit moves bf16 weights as fp32 ones, but for rounding") {
  torch::manual_seed(4);
  auto wide = torch::randn({9000}).to(torch::kBFloat16).to(torch::kFloat).requires_grad_();
  auto narrow = wide.detach().to(torch::kBFloat16).requires_grad_();
  lt::AdamW8bit a({wide}, {.lr = 1e-2}), b({narrow}, {.lr = 1e-2});
  for (int step = 0; step < 10; ++step) {
    narrow.mutable_grad() = torch::randn({9000}).to(torch::kBFloat16);
    wide.mutable_grad() = narrow.grad().to(torch::kFloat);
    a.step(), b.step();
  }
  const auto difference = (wide - narrow).detach().abs();
  CHECK(difference.max().item<double>() < 0.2);
  CHECK((wide - narrow).detach().mean().abs().item<double>() < 1e-3);
}

TEST_CASE("AdamW8bit refuses options out of range, with their values") {
  const auto make = [](lt::AdamW8bitOptions options) {
    lt::AdamW8bit({narrow_recorded::weights(torch::kFloat)}, options);
  };
  CHECK_THROWS_WITH(make({.lr = -1}), Catch::Contains("AdamW8bit needs") && Catch::Contains("lr -1"));
  CHECK_THROWS_WITH(make({.min_size = 0}), Catch::Contains("min_size is at least 1, and is 0"));
}

TEST_CASE("AdamW8bit keeps 8 bits more of bf16 weights on request, and follows fp32 weights") {
  for (const std::int64_t min_size : {1, 100000}) {
    CAPTURE(min_size);
    const auto start = narrow_recorded::weights(torch::kBFloat16).detach();
    auto corrected = start.clone().requires_grad_(), wide = start.to(torch::kFloat).requires_grad_();
    auto rounded = start.clone().requires_grad_();
    // Updates of 1e-6 of a weight of 1, which is a four thousandth of a bf16 step.
    const lt::AdamW8bitOptions options{.lr = 1e-6, .weight_decay = 0, .min_size = min_size};
    auto keeping = options;
    keeping.corrected = true;
    lt::AdamW8bit one({corrected}, keeping), two({wide}, options), three({rounded}, options);
    for (int step = 0; step < 30; ++step) {
      wide.mutable_grad() = torch::ones_like(wide);
      corrected.mutable_grad() = torch::ones_like(corrected),
      rounded.mutable_grad() = torch::ones_like(rounded);
      one.step(), two.step(), three.step();
    }
    const auto lost = one.state_of(corrected).get<at::Tensor>("lost_bits");
    CHECK(lost.scalar_type() == torch::kChar);
    CHECK_FALSE(three.state_of(rounded).contains("lost_bits"));
    const auto joined = lt::detail::corrected_weight(corrected.detach().to(torch::kFloat), lost);
    const auto moved = (start.to(torch::kFloat) - wide.detach()).mean().item<double>();
    CHECK(moved == Approx(3e-5).epsilon(0.05));
    CHECK((start.to(torch::kFloat) - joined).mean().item<double>() == Approx(moved).epsilon(0.1));
    CHECK((joined - wide.detach()).abs().max().item<double>() < 1e-4);
    CHECK((rounded.detach().to(torch::kFloat) - wide.detach()).abs().max().item<double>() > 5e-4);
  }
}

TEST_CASE("a state with the bits of corrected weights is loaded, and needed") {
  auto from = narrow_recorded::weights(torch::kBFloat16), to = narrow_recorded::weights(torch::kBFloat16);
  const lt::AdamW8bitOptions options{.min_size = 1, .corrected = true};
  lt::AdamW8bit one({from}, options), two({to}, options);
  narrow_recorded::run(one, from, 0, 3);
  to.detach().copy_(from.detach());
  two.load_state_of(to, one.state_of(from));
  narrow_recorded::run(one, from, 3, 6), narrow_recorded::run(two, to, 3, 6);
  CHECK(same_8bit(values_of_8bit(one, from), values_of_8bit(two, to)));
  lt::AdamW8bit plain({narrow_recorded::weights(torch::kBFloat16)}, {.min_size = 1});
  CHECK(lt::AdamW8bit::state_bytes(plain.param_groups()[0], from) + 600 ==
        lt::AdamW8bit::state_bytes(one.param_groups()[0], from));
}
