// SPDX-License-Identifier: MIT
// Autocast<fp16>: the loss scale of torch.amp.GradScaler, number for number, and what an overflow leaves
// alone. Autocast<bf16>: the loop by hand under autocast.
// Tests loop: loss_scale
#include "support/precompiled.hpp"

#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/toy.hpp"

#include <algorithm>
#include <array>

namespace lt = looptorch;
using Half = lt::Autocast<lt::fp16>;

namespace {

constexpr int kSteps = 40;
const std::vector<int64_t> kOne{0, 1, 7, 8, 9, 20, 33}, kA{2, 3, 15}, kB{3, 21, 22};  // as in grad_scaler.py
const Half kOptions{.initial_scale = 1024, .growth_interval = 3};

/// grad_scaler.py's players: two parameters, of which each objective sees one.
struct PlayersImpl : torch::nn::Module {
  at::Tensor first = register_parameter("first", reference::wave({3, 5}, 0.5, at::kFloat));
  at::Tensor second = register_parameter("second", reference::wave({3, 5}, 1.5, at::kFloat));
};
TORCH_MODULE(Players);

struct Turn {
  at::Tensor x;  // [3, 5]
  int64_t step;
};

std::vector<Turn> turns() {
  std::vector<Turn> result;
  for (int64_t step = 0; step < kSteps; ++step)
    result.push_back({reference::wave({3, 5}, static_cast<double>(step), at::kFloat), step});
  return result;
}

auto objective_of(at::Tensor PlayersImpl::*weight, std::vector<int64_t> overflows) {
  return [weight, overflows](Players& players, const Turn& turn) {
    const bool overflow = std::count(overflows.begin(), overflows.end(), turn.step) > 0;
    const at::Tensor w = (*players).*weight;
    return (w * w * turn.x * (overflow ? std::numeric_limits<double>::infinity() : 1.0)).sum();
  };
}

/// Steps through all turns and compares the scale after each with what GradScaler had.
template <class Trainer>
void check_scales(Trainer& trainer, const std::string& name) {
  const auto& recorded = reference::tensors("grad_scaler");
  for (const Turn& turn : turns()) {
    trainer.step(turn);
    INFO(name << " step " << turn.step);
    const auto& state = trainer.template policy<Half>();
    CHECK(state.scale.template item<double>() ==
          recorded.at(name + ".scale")[turn.step].template item<double>());
    CHECK(state.growth_tracker.template item<int64_t>() ==
          recorded.at(name + ".tracker")[turn.step].template item<int64_t>());
  }
  trainer.finish_window();
}

/// fp32 data through linear layers, which autocast to fp16.
struct MlpImpl : torch::nn::Module {
  MlpImpl() { register_module("first", first), register_module("second", second); }
  at::Tensor forward(const at::Tensor& x) {
    product = first(x).scalar_type();
    return second(torch::relu(first(x)));
  }
  torch::nn::Linear first{4, 8}, second{8, 3};
  at::ScalarType product = at::kFloat;
};
TORCH_MODULE(Mlp);

Mlp mlp() {
  torch::manual_seed(0);
  return Mlp();
}

at::Tensor loss_of(Mlp& net, const toy::Batch& batch) {
  return torch::nn::functional::cross_entropy(net(batch.features).to(at::kFloat), batch.labels);
}

std::vector<toy::Batch> batches(int64_t count) {
  auto result = toy::batches(count);
  for (auto& batch : result) batch.features = batch.features.to(at::kFloat);
  return result;
}

/// Makes the loss of the batches with these numbers infinite.
auto overflowing_in(std::vector<int64_t> numbers) {
  return [numbers, number = int64_t{0}](auto& net, const toy::Batch& batch) mutable {
    const bool overflow = std::count(numbers.begin(), numbers.end(), number++) > 0;
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        net(batch.features).to(batch.features.scalar_type()), batch.labels);
    return overflow ? loss * std::numeric_limits<double>::infinity() : loss;
  };
}

}  // namespace

TEST_CASE("the loss scale equals GradScaler's after every step, and so do the parameters") {
  const auto& recorded = reference::tensors("grad_scaler");
  {
    Players players;
    torch::optim::SGD sgd({players->first}, torch::optim::SGDOptions(0.125).momentum(0.9));
    lt::Trainer trainer(players, sgd, objective_of(&PlayersImpl::first, kOne), kOptions);
    check_scales(trainer, "sgd");
    CHECK(reference::difference(players->first, recorded.at("sgd.weight")) < 1e-6);
    CHECK(trainer.progress().skipped == 7);
  }
  {
    Players players;
    lt::FusedAdamW adamw({players->first}, {.lr = 0.01});
    lt::Trainer trainer(players, adamw, objective_of(&PlayersImpl::first, kOne), kOptions);
    check_scales(trainer, "adamw");
    CHECK(reference::difference(players->first, recorded.at("adamw.weight")) < 1e-6);
    CHECK(trainer.progress().skipped == 7);
    CHECK(trainer.updates()[0].applied == kSteps - 7);
  }
}

TEST_CASE("one over a loss scale has the same bits in fp32 as rounded from fp64") {
  torch::manual_seed(3);
  const at::Tensor scales = torch::cat({torch::rand({20000}) * 65536, torch::rand({20000}).reciprocal(),
                                        torch::rand({1000}) * 3e38, torch::rand({1000}) * 1e-38});
  CHECK(scales.reciprocal().equal(scales.to(at::kDouble).reciprocal().to(at::kFloat)));
}

TEST_CASE("two updates share the scale, and each is skipped by its own overflow") {
  const auto& recorded = reference::tensors("grad_scaler");
  Players players;
  torch::optim::SGD sgd({players->first}, torch::optim::SGDOptions(0.125).momentum(0.9));
  lt::FusedAdamW adamw({players->second}, {.lr = 0.01});
  lt::Trainer trainer(players, lt::Update{sgd, objective_of(&PlayersImpl::first, kA)},
                      lt::Update{adamw, objective_of(&PlayersImpl::second, kB)}, kOptions);
  check_scales(trainer, "two");
  CHECK(reference::difference(players->first, recorded.at("two.first")) < 1e-6);
  CHECK(reference::difference(players->second, recorded.at("two.second")) < 1e-6);
  CHECK(trainer.updates()[0].skipped == 3);
  CHECK(trainer.updates()[1].skipped == 3);
  CHECK(trainer.progress().skipped == 5);  // step 3 skipped both
}

TEST_CASE("Autocast<fp16> with accumulation and clipping is the loop by hand, bit for bit") {
  const auto data = batches(8);
  auto ours = mlp(), theirs = mlp();
  lt::FusedAdamW a(ours->parameters(), {.lr = 0.01}), b(theirs->parameters(), {.lr = 0.01});
  lt::Trainer trainer(ours, a, loss_of, Half{}, lt::Accumulate<2>{}, lt::ClipGradNorm{0.5});
  trainer.fit(data);
  CHECK(ours->product == at::kHalf);

  for (std::size_t i = 0; i < data.size(); i += 2) {
    for (std::size_t j = i; j < i + 2; ++j) {
      at::Tensor loss;
      {
        const lt::AutocastScope fp16(at::kCPU, at::kHalf);
        loss = loss_of(theirs, data[j]);
      }
      (loss * 65536.0).backward();
    }
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : theirs->parameters()) gradients.push_back(parameter.grad());
    at::_foreach_mul_(gradients, 0.5 / 65536.0);
    const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
    lt::GradientScale clip;
    clip.multiply((0.5 / (norm + 1e-6)).clamp_max(1.0));
    b.step(clip, at::Tensor());
    b.zero_grad();
  }
  CHECK(toy::distance(ours, theirs) == 0.0);
}

TEST_CASE("loss scaling leaves accumulation exact, to 1e-12 in fp64") {
  const auto data = toy::batches(7);
  auto ours = toy::net(), theirs = toy::net();
  torch::optim::SGD a(ours->parameters(), 0.5), b(theirs->parameters(), 0.5);
  lt::Trainer trainer(ours, a, toy::objective, Half{}, lt::Accumulate<4>{});
  trainer.fit(data, {.epochs = 3});
  toy::train_by_hand(theirs, b, data, 4, 3);
  CHECK(toy::distance(ours, theirs) < 1e-12);
}

TEST_CASE("loss scaling takes weights that only the device knows, and windows of weight 0") {
  const auto data = toy::batches(9);
  const auto trained = [&](bool unread, bool masks) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.5);
    int64_t calls = 0;
    const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
      const double weight = masks && calls / 3 == 1 ? 0.0 : static_cast<double>(batch.labels.size(0));
      ++calls;
      const at::Tensor sum = toy::objective(net, batch).value * weight;
      return lt::Loss{.weight = unread ? lt::Quantity::unread(torch::tensor(weight)) : lt::Quantity(weight),
                      .sum = sum};
    };
    lt::Trainer trainer(net, sgd, objective, Half{}, lt::Accumulate<3>{});
    CHECK(trainer.fit(data).skipped == (masks ? 1 : 0));
    CHECK(trainer.policy<Half>().scale.item<double>() == 65536.0);
    return net;
  };
  for (const bool masks : {false, true}) {
    auto known = trained(false, masks), unread = trained(true, masks);
    CHECK(toy::distance(known, unread) < 1e-12);
  }
}

TEST_CASE("an overflowed step changes neither parameters nor moments nor schedule, and is counted") {
  const auto data = toy::batches(9);
  const auto every_second = [](std::vector<toy::Batch> all) {
    std::vector<toy::Batch> result;
    for (std::size_t i = 0; i < all.size(); i += 2) result.push_back(all[i]);
    return result;
  }(data);
  auto ours = toy::net(), theirs = toy::net();
  lt::FusedAdamW a(ours->parameters(), {.lr = 0.1}), b(theirs->parameters(), {.lr = 0.1});
  lt::Trainer overflows(
      ours, a, overflowing_in({1, 3, 5, 7}), Half{}, lt::ClipGradNorm{1.0}, lt::AverageWeights{},
      lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 9}, .warmup_steps = 3}, lt::Accumulate<1>{});
  lt::Trainer plain(theirs, b, overflowing_in({}), Half{}, lt::ClipGradNorm{1.0}, lt::AverageWeights{},
                    lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 9}, .warmup_steps = 3});
  const auto result = overflows.fit(data);
  CHECK(result.steps == 9);
  CHECK(result.skipped == 4);
  CHECK(plain.fit(every_second).skipped == 0);
  CHECK(toy::distance(ours, theirs) == 0.0);
  CHECK(a.moments()[0].steps[0].item<double>() == 5.0);
  CHECK(reference::difference(a.moments()[0].first[0], b.moments()[0].first[0]) == 0.0);
  CHECK(reference::difference(a.moments()[0].second[0], b.moments()[0].second[0]) == 0.0);
  const auto averages = overflows.policy<lt::AverageWeights>().named(),
             expected = plain.policy<lt::AverageWeights>().named();
  REQUIRE(averages.size() == 4);
  for (const auto& [name, average] : averages) CHECK(torch::equal(average, expected.at(name)));
}

TEST_CASE("gradients are unscaled before anything else looks at them") {
  auto net = toy::net();
  const auto data = toy::batches(1);
  torch::optim::SGD sgd(net->parameters(), 0.0);
  double plain = 0, scaled = 0;
  const auto norm = [](double& into) {
    return lt::On{lt::kClip,
                  [&into](lt::UpdateContext& update) { into = update.gradients()[0].norm().item<double>(); }};
  };
  lt::Trainer(net, sgd, toy::objective, norm(plain)).fit(data);
  lt::Trainer(net, sgd, toy::objective, norm(scaled), Half{}, lt::ClipGradNorm{1e9}).fit(data);
  CHECK(plain == scaled);
  CHECK(plain > 0);
}

TEST_CASE("a scale that collapses ends the fit with a typed error, parameters untouched") {
  auto net = toy::net(), before = toy::net();
  lt::FusedAdamW adamw(net->parameters());
  std::vector<int64_t> all(64);
  std::iota(all.begin(), all.end(), 0);
  lt::Trainer trainer(net, adamw, overflowing_in(all), Half{.initial_scale = 8, .min_scale = 1});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(64)),
                    Catch::Contains("fell to 0.5, below min_scale 1, after step 4 (4 steps skipped)"));
  CHECK(trainer.progress().step == 4);
  CHECK(toy::distance(net, before) == 0.0);
  CHECK_FALSE(toy::has_gradients(net));
  // at an epoch's end too, where no further update would notice
  lt::Trainer short_one(net, adamw, overflowing_in(all), Half{.initial_scale = 1, .min_scale = 1});
  CHECK_THROWS_AS(short_one.fit(toy::batches(1)), lt::LossScaleCollapse);
}

TEST_CASE("Autocast<fp16> refuses options and parameters that cannot work") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  for (const Half& options :
       {Half{.initial_scale = 0}, Half{.initial_scale = INFINITY}, Half{.initial_scale = 1e39},
        Half{.initial_scale = 1e-60}, Half{.growth_factor = 1}, Half{.backoff_factor = 1},
        Half{.backoff_factor = 0}, Half{.growth_interval = 0}, Half{.min_scale = NAN}})
    CHECK_THROWS_AS(lt::Trainer(net, sgd, toy::objective, options).fit(toy::batches(1)), lt::UsageError);
  auto narrow = mlp();
  narrow->to(at::kHalf);
  torch::optim::SGD by(narrow->parameters(), 0.1);
  CHECK_THROWS_WITH(lt::Trainer(narrow, by, loss_of, Half{}).fit(batches(1)),
                    Catch::Contains("itself in Half. AdamWBf16, AdamW8bit and Adafactor divide within") &&
                        Catch::Contains("keep the model in fp32"));
  narrow->to(at::kBFloat16);
  lt::AdamWBf16 bf16(narrow->parameters());
  CHECK_THROWS_WITH(lt::Trainer(narrow, bf16, loss_of, Half{}).fit(batches(1)),
                    Catch::Contains("itself in BFloat16. bf16 needs no loss scale: take Autocast<bf16>"));
}

struct OwnScale {
  struct State : lt::LossScale {};
  lt::LossScale* loss_scale(const lt::Run&, State& state) const { return &state; }
  void on_fit_begin(lt::FitContext& fit, State& state) const {
    state.begin({1024, 2, 0.5, 2000, 1e-4}, fit.run.device());
  }
};

TEST_CASE("the loss scales of two policies that are switched on are refused") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer one(net, sgd, toy::objective, lt::When{true, OwnScale{}}, lt::When{false, Half{}});
  one.fit(toy::batches(1));
  lt::Trainer both(net, sgd, toy::objective, lt::When{true, OwnScale{}}, lt::When{true, Half{}});
  CHECK_THROWS_AS(both.fit(toy::batches(1)), lt::PolicyConflict);
}

/// Fits fp16 weights whose gradients, of 3e-8, are below fp16's smallest number unless the loss is scaled,
/// and returns by how much they moved.
template <class Optimizer>
at::Tensor moved_by_small_gradients(bool scaled) {
  struct Net : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", torch::ones({5000}, torch::kHalf));
  };
  auto net = std::make_shared<Net>();
  Optimizer optimizer(net->parameters(), {.lr = 1e-2});
  const auto loss = [](std::shared_ptr<Net>& model, const at::Tensor& x) {
    return (model->weight.to(torch::kFloat) * x).sum();
  };
  const std::vector<at::Tensor> data(3, torch::full({5000}, 2.5e-8));
  lt::Trainer trainer(net, optimizer, loss, lt::When{scaled, Half{}}, lt::ClipGradNorm{1});
  trainer.fit(data);
  return 1 - net->weight.detach().to(torch::kDouble).mean();
}

TEST_CASE("fp16 weights have a loss scale under optimizers that divide by it in fp32") {
  CHECK(moved_by_small_gradients<lt::AdamWBf16>(true).item<double>() == Approx(0.0214).epsilon(0.05));
  CHECK(moved_by_small_gradients<lt::AdamWBf16>(false).item<double>() ==
        Approx(3e-4).epsilon(0.05));  // decay
  CHECK(moved_by_small_gradients<lt::AdamW8bit>(true).item<double>() == Approx(0.0214).epsilon(0.05));
  CHECK(moved_by_small_gradients<lt::Adafactor>(true).item<double>() > 0.01);
}

TEST_CASE("evaluate runs under the same autocast and leaves the scale alone") {
  auto net = mlp();
  lt::FusedAdamW adamw(net->parameters());
  lt::Trainer trainer(net, adamw, loss_of, Half{});
  trainer.evaluate(batches(2));
  CHECK(net->product == at::kHalf);
  trainer.fit(batches(2));
  CHECK(trainer.policy<Half>().growth_tracker.item<int>() == 2);
  trainer.evaluate(batches(2));
  CHECK(trainer.policy<Half>().growth_tracker.item<int>() == 2);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("a run continues from its state with the same scale, to the same bits") {
  const auto data = turns();
  const std::vector<Turn> first(data.begin(), data.begin() + 17), second(data.begin() + 17, data.end());
  Players whole, halves;
  lt::FusedAdamW a({whole->first}, {.lr = 0.01}), b({halves->first}, {.lr = 0.01});
  lt::Trainer uncut(whole, a, objective_of(&PlayersImpl::first, kOne), kOptions);
  uncut.fit(data);
  lt::StateDict state;
  {
    lt::Trainer before(halves, b, objective_of(&PlayersImpl::first, kOne), kOptions);
    before.fit(first);
    state = before.state_dict();
    before.fit(second);  // must not reach into the state
  }
  lt::Trainer again(halves, b, objective_of(&PlayersImpl::first, kOne), kOptions);
  again.load_state_dict(state);
  again.fit(second);
  CHECK(again.policy<Half>().scale.item<double>() == uncut.policy<Half>().scale.item<double>());
  CHECK(again.progress().step == kSteps);
  CHECK(again.progress().skipped == 7);
}

TEST_CASE("the windows since the scale last changed come back, so that it grows when it should") {
  auto net = mlp();
  lt::FusedAdamW adamw(net->parameters());
  lt::Trainer before(net, adamw, loss_of, kOptions);
  before.fit(batches(2));
  const lt::StateDict state = before.state_dict();
  lt::Trainer after(net, adamw, loss_of, kOptions);
  after.load_state_dict(state);
  CHECK(after.policy<Half>().growth_tracker.item<int>() == 2);
  after.fit(batches(1), {.max_steps = 3});  // the third without an overflow
  CHECK(after.policy<Half>().growth_tracker.item<int>() == 0);
  CHECK(after.policy<Half>().scale.item<double>() == 2048);
}

TEST_CASE("common layers run in fp16 on a CPU") {
  const lt::AutocastScope fp16(at::kCPU, at::kHalf);
  namespace F = torch::nn::functional;
  const auto x = torch::randn({2, 4, 16}, torch::requires_grad());
  const auto runs = [](auto&& forward) {
    const at::Tensor out = forward();
    out.to(at::kFloat).sum().backward();
    return out.scalar_type();
  };
  CHECK(runs([&] { return torch::nn::Linear(16, 8)(x); }) == at::kHalf);
  CHECK(runs([&] { return x.matmul(x.transpose(1, 2)); }) == at::kHalf);
  CHECK(runs([&] { return torch::nn::Conv1d(torch::nn::Conv1dOptions(4, 8, 3))(x); }) == at::kHalf);
  CHECK(runs([&] {
          return torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3))(x.view({2, 4, 4, 4}));
        }) == at::kHalf);
  CHECK(runs([&] { return at::scaled_dot_product_attention(x, x, x); }) == at::kHalf);
  const auto h = x.to(at::kHalf);
  CHECK(runs([&] { return F::gelu(h); }) == at::kHalf);
  CHECK(runs([&] { return F::softmax(h, -1); }) != at::kDouble);
  CHECK(runs([&] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({16}))(h); }) != at::kDouble);
  CHECK(runs([&] {
          return F::cross_entropy(h.view({-1, 16}), torch::zeros({8}, at::kLong));
        }) != at::kDouble);
}

TEST_CASE("an exception out of fp16 on a CPU is followed by a word on what may be missing, once") {
  struct Collects : c10::WarningHandler {
    std::vector<std::string> said;
    void process(const c10::Warning& warning) override { said.push_back(warning.msg()); }
  } collects;
  const c10::WarningUtils::WarningHandlerGuard guard(&collects);
  auto net = mlp();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto throws = [](Mlp&, const toy::Batch&) -> at::Tensor {
    throw std::runtime_error("no such kernel");
  };
  lt::Trainer wide(net, sgd, throws, lt::Autocast<lt::bf16>{});
  CHECK_THROWS_WITH(wide.fit(batches(1)), "no such kernel");
  CHECK(collects.said.empty());
  lt::Trainer narrow(net, sgd, throws, Half{});
  const auto said = [&] {
    collects.said.clear();
    CHECK_THROWS_WITH(narrow.fit(batches(1)), "no such kernel");
    return collects.said;
  };
  CHECK(said().size() <= 1);  // unless a case before this one has had it
  CHECK(said().empty());
  c10::WarningUtils::set_warnAlways(true);
  const auto always = said();
  c10::WarningUtils::set_warnAlways(false);
  REQUIRE(always.size() == 1);
  CHECK_THAT(always[0], Catch::Contains("docs/errors.md#could-not-create-a-primitive-descriptor"));
}

TEST_CASE("a window that overflowed is not in the epoch's mean, nor are its metrics") {
  auto net = toy::net();
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.0});
  const auto objective = [](toy::Net& net, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(net, batch);
    loss.metrics = {{"plain_loss", loss.value}};
    return loss;
  };
  auto data = toy::batches(6);
  double sum = 0, weight = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (i / 2 == 1) continue;
    const auto size = static_cast<double>(data[i].labels.size(0));
    sum += toy::objective(net, data[i]).value.item<double>() * size, weight += size;
  }
  data[2].features.fill_(NAN);
  std::vector<double> seen;
  lt::Trainer trainer(net, adamw, objective, Half{.initial_scale = 16}, lt::Accumulate<2>{},
                      lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                               seen.push_back(window.run.updates()[0].loss.mean());
                             }});
  const auto result = trainer.fit(data);
  CHECK(result.skipped == 1);
  CHECK(result.loss == Approx(sum / weight).epsilon(1e-3));
  CHECK(trainer.updates()[0].metrics.at("plain_loss").mean() == Approx(result.loss).epsilon(1e-12));
  CHECK(seen.size() == 3);
  CHECK(seen[1] == seen[0]);
}

TEST_CASE("a small first weight does not make the larger ones overflow") {
  const auto skipped = [](const std::vector<double>& weights, bool unread) {
    auto net = toy::net();
    net->to(at::kFloat);
    lt::FusedAdamW adamw(net->parameters());
    std::size_t next = 0;
    const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
      const auto logits = net(batch.features.to(at::kFloat)).to(at::kFloat);
      const double weight = weights[std::min(next++, weights.size() - 1)];
      return lt::Loss{
          .value = torch::nn::functional::cross_entropy(logits, batch.labels),
          .weight = unread ? lt::Quantity::unread(torch::full({}, weight)) : lt::Quantity(weight)};
    };
    lt::Trainer trainer(net, adamw, objective, Half{.initial_scale = 16384}, lt::Accumulate<4>{});
    return trainer.fit(toy::batches(32), {.epochs = 1}).skipped;
  };
  CHECK(skipped({1}, false) == 0);
  CHECK(skipped({1, 4096}, false) == 0);
  CHECK(skipped({1, 30, 7, 900, 4096}, false) == 0);
  CHECK(skipped({1, 4096}, true) <= 1);  // the unit of weights that are not read grows with the second window
}

namespace {

at::Tensor features() { return torch::sin(torch::arange(32, torch::kFloat)).reshape({8, 4}); }
toy::Net float_net() {
  auto net = toy::net();
  net->to(torch::kFloat);
  return net;
}

bool autocast_is_on() { return at::autocast::is_autocast_enabled(at::kCPU); }

}  // namespace

TEST_CASE("Autocast<bf16> covers forward and loss, in evaluate too, and nothing else") {
  auto net = float_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto objective = [](toy::Net& net, const at::Tensor& x) {
    CHECK(autocast_is_on());
    CHECK(net->first(x).scalar_type() == torch::kBFloat16);
    return net(x).pow(2).mean();
  };
  lt::Trainer trainer(net, sgd, objective, lt::Autocast<lt::bf16>{},
                      lt::On{lt::kClip, [](lt::UpdateContext& update) {
                               CHECK_FALSE(autocast_is_on());
                               for (const auto& gradient : update.gradients())
                                 CHECK(gradient.scalar_type() == torch::kFloat);
                             }});
  trainer.fit(std::vector{features()});
  trainer.evaluate(std::vector{features()});
  CHECK_FALSE(autocast_is_on());
  CHECK(at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16);  // the CPU's own default
}

TEST_CASE("Autocast gives the loop by hand under autocast, bit for bit") {
  auto ours = float_net(), theirs = float_net();
  torch::optim::SGD a(ours->parameters(), 0.1), b(theirs->parameters(), 0.1);
  const auto objective = [](toy::Net& net, const at::Tensor& x) { return net(x).pow(2).mean(); };
  lt::Trainer trainer(ours, a, objective, lt::Autocast<lt::bf16>{});
  trainer.fit(std::vector{features()}, {.epochs = 3});
  for (int epoch = 0; epoch < 3; ++epoch) {
    b.zero_grad();
    at::Tensor loss;
    {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      loss = objective(theirs, features());
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
    }
    loss.backward();
    b.step();
  }
  CHECK(toy::distance(ours, theirs) == 0.0);
}

TEST_CASE("Autocast<> without kept casts casts a weight at each use in training, to the same bits") {
  auto kept = float_net(), cast = float_net();
  torch::optim::SGD a(kept->parameters(), 0.1), b(cast->parameters(), 0.1);
  std::vector<bool> keeps;
  const auto objective = [&](toy::Net& net, const at::Tensor& x) {
    keeps.push_back(at::autocast::is_autocast_cache_enabled());
    return net(x).pow(2).mean();
  };
  lt::Trainer with(kept, a, objective, lt::Autocast<>{});
  lt::Trainer without(cast, b, objective, lt::Autocast<>{.keep_casts = false});
  with.fit(std::vector{features()}, {.epochs = 2});
  without.fit(std::vector{features()}, {.epochs = 2});
  (void)without.evaluate(std::vector{features()});
  CHECK(keeps == std::vector<bool>{true, true, false, false, true});
  CHECK(at::autocast::is_autocast_cache_enabled());
  CHECK(toy::distance(kept, cast) == 0.0);
}

TEST_CASE("Autocast restores what it met when the objective throws") {
  auto net = float_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(
      net, sgd, [](toy::Net&, const at::Tensor&) -> at::Tensor { throw std::runtime_error("x"); },
      lt::Autocast<lt::bf16>{});
  CHECK_THROWS_WITH(trainer.fit(std::vector{features()}), "x");
  CHECK_FALSE(autocast_is_on());
  at::autocast::set_autocast_enabled(at::kCPU, true);
  CHECK_THROWS_WITH(trainer.fit(std::vector{features()}), "x");
  CHECK(autocast_is_on());
  at::autocast::set_autocast_enabled(at::kCPU, false);
}
