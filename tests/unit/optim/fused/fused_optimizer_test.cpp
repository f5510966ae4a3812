// SPDX-License-Identifier: MIT
// What FusedAdam, FusedAdamW and FusedSGD have in common: folding, skipped steps, groups, lists of several
// kinds, state by parameter, and what they refuse.
// Tests optim/fused: fused_call, fused_update, optimizer_rule
// Tests optim/state: moment_fields
#include "support/precompiled.hpp"

#include <looptorch/loop/update.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/optim/fused_adam.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/fused_sgd.hpp>

#include "unit/optim/recorded.hpp"

namespace lt = looptorch;
using recorded::flat;
using recorded::flat_state;
using recorded::parameters;
using recorded::set_gradients;

namespace {

/// An optimizer with options that leave none of its parts idle.
struct Adam : lt::FusedAdam {
  using FusedAdam::FusedAdam;
  explicit Adam(const std::vector<at::Tensor>& params) : FusedAdam(params, options) {}
  static constexpr lt::FusedAdamOptions options{.lr = 1e-2, .weight_decay = 0.1, .amsgrad = true};
};
struct AdamW : lt::FusedAdamW {
  using FusedAdamW::FusedAdamW;
  explicit AdamW(const std::vector<at::Tensor>& params) : FusedAdamW(params, options) {}
  static constexpr lt::FusedAdamWOptions options{.lr = 1e-2, .weight_decay = 0.1, .amsgrad = true};
};
struct Nesterov : lt::FusedSGD {
  using FusedSGD::FusedSGD;
  explicit Nesterov(const std::vector<at::Tensor>& params) : FusedSGD(params, options) {}
  static constexpr lt::FusedSGDOptions options{
      .lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
};
struct Dampened : lt::FusedSGD {
  using FusedSGD::FusedSGD;
  explicit Dampened(const std::vector<at::Tensor>& params) : FusedSGD(params, options) {}
  static constexpr lt::FusedSGDOptions options{
      .lr = 1e-2, .momentum = 0.9, .dampening = 0.4, .weight_decay = 0.1};
};

static_assert(lt::FoldingOptimizer<lt::FusedAdam>);
static_assert(lt::FoldingOptimizer<lt::FusedAdamW>);
static_assert(lt::FoldingOptimizer<lt::FusedSGD>);

at::Tensor flag(bool value) { return torch::tensor(value ? 1.0f : 0.0f); }

template <class Optimizer>
void step_with_flag(Optimizer& optimizer, std::vector<at::Tensor>& params, int64_t step, bool found) {
  set_gradients(params, step, found ? INFINITY : 1.0);
  optimizer.step({}, flag(found));
}

}  // namespace

#define EVERY_OPTIMIZER "", Adam, AdamW, Nesterov, Dampened

TEMPLATE_TEST_CASE("a pending factor, a number or on the device, equals gradients that were multiplied",
                   EVERY_OPTIMIZER) {
  for (const bool on_device : {false, true}) {
    auto plain = parameters(torch::kFloat), folded = parameters(torch::kFloat);
    TestType one(plain), two(folded);
    for (int64_t step = 0; step < recorded::kSteps; ++step) {
      set_gradients(plain, step, 0.125), set_gradients(folded, step);
      lt::GradientScale scale;
      on_device ? scale.multiply(torch::tensor(0.125)) : scale.multiply(0.125);
      CHECK(two.can_fold(scale));
      one.step();
      two.step(scale, {});
      CHECK(flat(folded).equal(flat(plain)));  // the factor is a power of two
    }
    CHECK(flat_state(two, folded).equal(flat_state(one, plain)));
  }
}

TEMPLATE_TEST_CASE("fp64 parameters do not fold, since the kernel's divisor is fp32", EVERY_OPTIMIZER) {
  TestType optimizer(parameters(torch::kDouble));
  lt::GradientScale scale;
  CHECK(optimizer.can_fold(scale));
  scale.multiply(1.0 / 3);
  CHECK_FALSE(optimizer.can_fold(scale));
}

TEMPLATE_TEST_CASE("an overflowed step, the first or a later one, equals a step that was not made",
                   EVERY_OPTIMIZER) {
  for (const int64_t overflowed : {0, 1, 2, 7}) {
    auto plain = parameters(torch::kFloat), skipped = parameters(torch::kFloat);
    TestType one(plain), two(skipped);
    for (int64_t step = 0; step < recorded::kSteps; ++step) {
      if (step == overflowed) {
        const auto before = flat(skipped).clone();
        step_with_flag(two, skipped, 0, true);
        CHECK(flat(skipped).equal(before));
      }
      set_gradients(plain, step);
      one.step();
      step_with_flag(two, skipped, step, false);
      INFO("overflow before step " << overflowed << ", now " << step);
      REQUIRE(flat(skipped).equal(flat(plain)));
    }
    CHECK(flat_state(two, skipped).equal(flat_state(one, plain)));
  }
}

TEMPLATE_TEST_CASE("parameters of several dtypes in one group step as they would apart", EVERY_OPTIMIZER) {
  auto mixed = parameters(torch::kFloat);
  for (const std::size_t i : {1, 3}) mixed[i] = mixed[i].detach().to(torch::kDouble).requires_grad_();
  std::vector<at::Tensor> floats, doubles;
  for (const std::size_t i : {0, 2}) floats.push_back(mixed[i].detach().clone().requires_grad_());
  for (const std::size_t i : {1, 3}) doubles.push_back(mixed[i].detach().clone().requires_grad_());
  TestType together(mixed), one(floats), two(doubles);
  for (int64_t step = 0; step < recorded::kSteps; ++step) {
    set_gradients(mixed, step);
    for (const std::size_t i : {0, 1}) {
      floats[i].mutable_grad() = mixed[2 * i].grad().defined() ? mixed[2 * i].grad().clone() : at::Tensor();
      doubles[i].mutable_grad() =
          mixed[2 * i + 1].grad().defined() ? mixed[2 * i + 1].grad().clone() : at::Tensor();
    }
    together.step({}, flag(false));
    one.step(), two.step();
    CHECK(flat({mixed[0], mixed[2]}).equal(flat(floats)));
    CHECK(flat({mixed[1], mixed[3]}).equal(flat(doubles)));
  }
  CHECK(flat_state(together, {mixed[0], mixed[2]}).equal(flat_state(one, floats)));
  CHECK(flat_state(together, {mixed[1], mixed[3]}).equal(flat_state(two, doubles)));
}

TEMPLATE_TEST_CASE("a gradient in another memory layout than its parameter is read right", EVERY_OPTIMIZER) {
  for (const bool transposed_parameter : {false, true}) {
    const auto start = torch::rand({5, 6});
    auto plain = start.clone().requires_grad_();
    auto other = (transposed_parameter ? start.t().contiguous().t() : start.clone()).requires_grad_();
    TestType one({plain}), two({other});
    for (int64_t step = 0; step < 3; ++step) {
      const auto gradient = torch::rand({5, 6});
      plain.mutable_grad() = gradient.clone();
      other.mutable_grad() = transposed_parameter ? gradient.clone() : gradient.t().contiguous().t();
      one.step(), two.step();
    }
    CHECK(torch::allclose(other, plain, 1e-5, 1e-6));
    CHECK_FALSE(plain.equal(start));
  }
}

TEMPLATE_TEST_CASE("a gradient in another dtype than its parameter is read right", EVERY_OPTIMIZER,
                   lt::AdamWBf16) {
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    auto plain = parameters(type), other = parameters(type);
    TestType one(plain), two(other);
    for (int64_t step = 0; step < 3; ++step) {
      set_gradients(plain, step), set_gradients(other, step);
      for (std::size_t i = 0; i < other.size(); ++i)
        if (plain[i].grad().defined())
          other[i].mutable_grad() = plain[i].grad().to(i % 2 == 0 ? torch::kDouble : torch::kFloat);
      one.step(), two.step();
    }
    CHECK(flat(other).equal(flat(plain)));
  }
}

TEMPLATE_TEST_CASE("state moves to another optimizer by parameter, and the run continues bit for bit",
                   EVERY_OPTIMIZER) {
  for (const int64_t saved_at : {0, 1, 4, 8}) {
    auto params = parameters(torch::kFloat), resumed = parameters(torch::kFloat);
    TestType optimizer(params);
    recorded::run(optimizer, params, 0, saved_at);
    TestType other(resumed);
    for (std::size_t i = params.size(); i-- > 0;) {
      resumed[i].detach().copy_(params[i]);
      lt::StateDict copied;
      const auto state = optimizer.state_of(params[i]);
      for (const auto& [key, value] : state.values())
        copied.set(key, value.template get_if<at::Tensor>()->clone());
      other.load_state_of(resumed[i], copied);
    }
    CHECK(flat_state(other, resumed).equal(flat_state(optimizer, params)));
    recorded::run(optimizer, params, saved_at, recorded::kSteps);
    if (saved_at > 6) other.param_groups()[0].options().set_lr(TestType::options.lr * 0.5);
    recorded::run(other, resumed, saved_at, recorded::kSteps);
    CHECK(flat(resumed).equal(flat(params)));
  }
}

TEMPLATE_TEST_CASE("a state that is not this optimizer's is refused, and nothing changes", EVERY_OPTIMIZER) {
  auto params = parameters(torch::kFloat);
  TestType optimizer(params);
  recorded::run(optimizer, params, 0, 3);
  const auto before = flat_state(optimizer, params).clone();
  auto state = optimizer.state_of(params[0]);
  CHECK_THROWS_WITH(optimizer.load_state_of(params[1], state),
                    Catch::Contains("of shape [3, 7] for a parameter of shape [7]"));
  state.set("bogus", torch::ones({}));
  CHECK_THROWS_WITH(optimizer.load_state_of(params[0], state), Catch::Contains("nothing named 'bogus'"));
  CHECK_THROWS_AS(optimizer.load_state_of(params[0], state), lt::StateError);
  CHECK_THROWS_AS((void)optimizer.state_of(torch::ones({2})), lt::UsageError);
  CHECK(flat_state(optimizer, params).equal(before));
  optimizer.load_state_of(params[0], {});
  CHECK(optimizer.state_of(params[0]).empty());
}

TEMPLATE_TEST_CASE("torch::save is refused, since it would keep nothing", EVERY_OPTIMIZER) {
  auto params = parameters(torch::kFloat);
  TestType optimizer(params);
  std::stringstream stream;
  CHECK_THROWS_WITH(torch::save(optimizer, stream), Catch::Contains("use its state_of"));
  torch::serialize::InputArchive archive;
  CHECK_THROWS_AS(optimizer.load(archive), lt::UsageError);
}

TEST_CASE("a state with a part missing is refused") {
  auto params = parameters(torch::kFloat);
  lt::FusedAdamW optimizer(params);
  recorded::run(optimizer, params, 0, 1);
  lt::StateDict partial;
  partial.set("exp_avg", torch::zeros({3, 7}));
  partial.set("exp_avg_sq", torch::zeros({3, 7}));
  CHECK_THROWS_WITH(optimizer.load_state_of(params[0], partial), Catch::Contains("'step'"));
  CHECK(optimizer.state_of(params[0]).get<at::Tensor>("step").item<double>() == 1);
}

TEMPLATE_TEST_CASE("moments follow parameters that change their dtype", EVERY_OPTIMIZER) {
  auto params = parameters(torch::kFloat);
  TestType optimizer(params);
  recorded::run(optimizer, params, 0, 3);
  for (auto& parameter : params) parameter.set_data(parameter.detach().to(torch::kDouble));
  const auto before = flat(params).clone();
  recorded::run(optimizer, params, 3, 5);
  CHECK_FALSE(flat(params).equal(before));
  const auto state = optimizer.state_of(params[0]);
  for (const auto& [key, value] : state.values())
    CHECK(value.template get_if<at::Tensor>()->scalar_type() ==
          (key == "step" ? torch::kFloat : torch::kDouble));
}

TEMPLATE_TEST_CASE("a parameter that changed its size is refused before the kernel reads past its end",
                   EVERY_OPTIMIZER) {
  auto params = parameters(torch::kFloat);
  TestType optimizer(params);
  recorded::run(optimizer, params, 0, 1);
  params[1].set_data(torch::zeros({70}));
  params[1].mutable_grad() = torch::zeros({70});
  CHECK_THROWS_WITH(optimizer.step(), Catch::Contains("shape [70] had shape [7]"));
}

TEMPLATE_TEST_CASE("a parameter that changed its shape, not its size, is refused: its moments lie otherwise",
                   EVERY_OPTIMIZER) {
  auto params = parameters(torch::kFloat);
  TestType optimizer(params);
  recorded::run(optimizer, params, 0, 1);
  params[0].set_data(params[0].detach().t().contiguous());
  params[0].mutable_grad() = torch::zeros({7, 3});
  CHECK_THROWS_WITH(optimizer.step(), Catch::Contains("shape [7, 3] had shape [3, 7]"));
}

TEMPLATE_TEST_CASE("moments follow parameters that change their memory format", EVERY_OPTIMIZER) {
  auto plain = std::vector{torch::rand({2, 3, 4, 5}).requires_grad_(), torch::rand({6}).requires_grad_()};
  auto changed =
      std::vector{plain[0].detach().clone().requires_grad_(), plain[1].detach().clone().requires_grad_()};
  TestType one(plain), two(changed);
  const auto step = [&](at::MemoryFormat format) {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto gradient = torch::rand_like(plain[i]);
      plain[i].mutable_grad() = gradient;
      changed[i].mutable_grad() = i == 0 ? gradient.contiguous(format) : gradient.clone();
    }
    one.step(), two.step();
  };
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast,
                            at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
    changed[0].set_data(changed[0].detach().contiguous(format));
    step(format), step(format);
    CHECK(torch::allclose(changed[0], plain[0], 1e-6, 1e-7));
    CHECK(torch::allclose(changed[1], plain[1], 1e-6, 1e-7));
  }
  const auto state = two.state_of(changed[0]);
  for (const auto& [key, value] : state.values())
    if (key != "step")
      CHECK(torch::allclose(*value.template get_if<at::Tensor>(),
                            one.state_of(plain[0]).template get<at::Tensor>(key)));
}

TEMPLATE_TEST_CASE("what cannot be updated is refused before anything is moved or counted", EVERY_OPTIMIZER) {
  auto params = parameters(torch::kFloat);
  TestType optimizer({TestType::group({params[0], params[1]}, TestType::options),
                      TestType::group({params[2], params[3]}, TestType::options)});
  for (int64_t step = 0; step < 2; ++step) set_gradients(params, 7), optimizer.step();
  const auto last = params[2].detach().clone();
  set_gradients(params, 7);
  std::string expected;
  SECTION("a sparse gradient") {
    params[2].mutable_grad() = torch::ones_like(params[2]).to_sparse();
    expected = "dense gradients only";
  }
  SECTION("another shape") {
    params[2].set_data(torch::zeros({9}));
    params[2].mutable_grad() = torch::zeros({9});
    expected = "had shape";
  }
  SECTION("a gradient of another shape") {
    params[2].mutable_grad() = torch::zeros({1});
    expected = "gradient of shape [1] for a parameter of shape [2, 2, 2]";
  }
  SECTION("gaps in memory") {
    params[2].set_data(torch::stack({last, last}, -1).select(-1, 0));
    params[2].mutable_grad() = torch::ones_like(last);
    expected = "without gaps";
  }
  SECTION("complex numbers") {
    params[2].set_data(last.to(torch::kComplexFloat));
    params[2].mutable_grad() = torch::ones_like(params[2]);
    expected = "is ComplexFloat";
  }
  const auto before = flat({params[0], params[1], params[3]}).clone();
  const auto states = flat_state(optimizer, {params[0], params[1], params[3]}).clone();
  CHECK_THROWS_WITH(optimizer.step(), Catch::Contains(expected));
  CHECK_THROWS_AS(optimizer.step(), lt::UsageError);
  CHECK(flat({params[0], params[1], params[3]}).equal(before));
  CHECK(flat_state(optimizer, {params[0], params[1], params[3]}).equal(states));
}

TEMPLATE_TEST_CASE("complex parameters are refused as they are listed", EVERY_OPTIMIZER) {
  const auto complex = torch::zeros({2, 3}, torch::kComplexDouble).requires_grad_();
  CHECK_THROWS_WITH(TestType({complex}), Catch::Contains("one of shape [2, 3] is ComplexDouble"));
}

TEMPLATE_TEST_CASE("a frozen parameter costs no memory", EVERY_OPTIMIZER) {
  auto params = parameters(torch::kFloat);
  TestType optimizer(params);
  for (int64_t step = 0; step < 2; ++step) {
    set_gradients(params, step);
    params[0].mutable_grad() = at::Tensor();
    optimizer.step();
  }
  CHECK(optimizer.state_of(params[0]).empty());
  CHECK_FALSE(optimizer.state_of(params[1]).empty());
}

TEMPLATE_TEST_CASE("no gradient outlives the step, nor a step that failed", EVERY_OPTIMIZER) {
  auto params = parameters(torch::kFloat);
  TestType optimizer(params);
  set_gradients(params, 4);
  const c10::weak_intrusive_ptr<at::TensorImpl> gradient(params[0].grad().getIntrusivePtr());
  params[1].mutable_grad() = at::Tensor();  // so that the lists are gathered
  SECTION("that went well") { optimizer.step(); }
  SECTION("that failed") {
    params[3].mutable_grad() = torch::ones({}).to_sparse();
    CHECK_THROWS_AS(optimizer.step(), lt::UsageError);
  }
  for (auto& parameter : params) parameter.mutable_grad() = at::Tensor();
  CHECK(gradient.expired());
}

TEMPLATE_TEST_CASE("tied parameters step once", EVERY_OPTIMIZER) {
  auto single = parameters(torch::kFloat), tied = parameters(torch::kFloat);
  TestType one(single), two({tied[0], tied[1], tied[0], tied[2], tied[3]});
  recorded::run(one, single, 0, 3), recorded::run(two, tied, 0, 3);
  CHECK(flat(tied).equal(flat(single)));
  CHECK(two.param_groups()[0].params().size() == 4);
}

TEST_CASE("a parameter in two groups is refused, at once or when the second is added") {
  auto params = parameters(torch::kFloat);
  using lt::FusedSGD;
  CHECK_THROWS_WITH(FusedSGD({FusedSGD::group({params[0]}, {}), FusedSGD::group({params[1], params[0]}, {})}),
                    Catch::Contains("shape [3, 7] in two parameter groups"));
  FusedSGD optimizer({params[0]});
  optimizer.add_param_group(FusedSGD::group({params[1], params[0]}, {}));
  CHECK_THROWS_AS(optimizer.step(), lt::UsageError);
}

TEST_CASE("another optimizer's group options, sparse gradients and gaps in memory are refused") {
  auto params = parameters(torch::kFloat);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(params, std::make_unique<torch::optim::SGDOptions>(0.1));
  CHECK_THROWS_WITH(lt::FusedSGD(groups), Catch::Contains("make it by FusedSGD::group"));

  lt::FusedAdam optimizer(params);
  params[0].mutable_grad() = torch::ones({3, 7}).to_sparse();
  CHECK_THROWS_WITH(optimizer.step(),
                    Catch::Contains("dense gradients only; that of a parameter of shape [3, 7] is Sparse"));

  const auto gappy = torch::ones({4, 6}).narrow(1, 0, 3).requires_grad_();
  CHECK_THROWS_WITH(lt::FusedAdamW({gappy}), Catch::Contains("[4, 3] has strides [6, 1]"));
}

TEST_CASE("groups have rates of their own, and schedules reach them") {
  auto params = parameters(torch::kDouble);
  lt::FusedAdamW optimizer({lt::FusedAdamW::group({params[0]}, {.lr = 0.0, .weight_decay = 0.0}),
                            lt::FusedAdamW::group({params[1], params[2]}, {.lr = 0.1})});
  const auto first = params[0].clone(), second = params[1].clone();
  set_gradients(params, 0);
  optimizer.step();
  CHECK(params[0].equal(first));
  CHECK_FALSE(params[1].equal(second));
  optimizer.param_groups()[0].options().set_lr(0.5);
  CHECK(optimizer.param_groups()[0].options().get_lr() == 0.5);
  set_gradients(params, 1);
  optimizer.step();
  CHECK_FALSE(params[0].equal(first));
}

TEST_CASE("a group or parameter added later takes the defaults, and can be given its state first") {
  auto params = parameters(torch::kDouble);
  lt::FusedAdamW optimizer(std::vector<at::Tensor>{params[0]}, {.lr = 0.25});
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({params[1]}));
  for (const auto i : {2, 0}) optimizer.param_groups()[0].params().push_back(params[i]);
  CHECK(optimizer.state_of(params[1]).empty());
  lt::StateDict state;
  for (const auto* key : {"exp_avg", "exp_avg_sq"}) state.set(key, torch::ones({7}, torch::kDouble));
  state.set("step", torch::tensor(41.0f));
  optimizer.load_state_of(params[1], state);
  const auto before = params[1].clone();
  set_gradients(params, 2);
  optimizer.step();
  CHECK(optimizer.param_groups()[0].params().size() == 2);
  CHECK(optimizer.state_of(params[2]).get<at::Tensor>("step").item<double>() == 1);
  CHECK(optimizer.param_groups()[1].options().get_lr() == 0.25);
  CHECK_FALSE(params[1].equal(before));
  CHECK(optimizer.state_of(params[1]).get<at::Tensor>("step").item<double>() == 42);
  CHECK(optimizer.state_of(params[0]).get<at::Tensor>("step").item<double>() == 1);
}

TEST_CASE("a group added later keeps its options, and is refused with another optimizer's") {
  auto params = parameters(torch::kFloat);
  lt::FusedAdamW optimizer(std::vector<at::Tensor>{params[0]}, {.lr = 0.25});
  const auto rate = [&] { return lt::FusedAdamW::options_of(optimizer.param_groups().back()).lr; };
  const auto before = params[1].clone();
  optimizer.add_param_group(lt::FusedAdamW::group({params[1]}, {.lr = 0.0, .weight_decay = 0.0}));
  CHECK(rate() == 0.0);
  set_gradients(params, 0);
  optimizer.step();
  CHECK(params[1].equal(before));
  CHECK(rate() == 0.0);

  optimizer.add_param_group(torch::optim::OptimizerParamGroup({params[2]}));
  CHECK(rate() == 0.25);
  const torch::optim::OptimizerParamGroup foreign({params[3]},
                                                  std::make_unique<torch::optim::SGDOptions>(0.1));
  CHECK_THROWS_WITH(optimizer.add_param_group(foreign), Catch::Contains("make it by FusedAdamW::group"));
  CHECK_THROWS_AS(optimizer.add_param_group(foreign), lt::UsageError);
  CHECK(optimizer.param_groups().size() == 3);
}

TEMPLATE_TEST_CASE("a closure is evaluated with gradients, and its loss returned", EVERY_OPTIMIZER) {
  auto params = parameters(torch::kDouble);
  TestType optimizer(params);
  const auto before = params[0].clone();
  torch::NoGradGuard no_grad;
  const at::Tensor loss = static_cast<torch::optim::Optimizer&>(optimizer).step([&] {
    auto loss = params[0].pow(2).sum();
    loss.backward();
    return loss;
  });
  CHECK(loss.item<double>() == Approx(before.pow(2).sum().item<double>()));
  CHECK_FALSE(params[0].equal(before));
}

TEST_CASE("options that are changed hold from the next step on") {
  const lt::FusedAdamWOptions wanted{.lr = 0.5, .weight_decay = 1.0};
  auto params = parameters(torch::kDouble), others = parameters(torch::kDouble);
  lt::FusedAdamW changed(params), made_so(others, wanted);
  lt::FusedAdamW::options_of(changed.param_groups()[0]) = wanted;
  set_gradients(params, 2), set_gradients(others, 2);
  changed.step(), made_so.step();
  CHECK(torch::equal(flat(params), flat(others)));
  CHECK_THROWS_AS(lt::FusedSGD::options_of(changed.param_groups()[0]), lt::UsageError);
}
