// SPDX-License-Identifier: MIT
// AverageWeights against torch.optim.swa_utils.AveragedModel, recorded by tests/parity/averages.py, and
// against loops by hand.
// Tests policies/weights: weight_averages
#include "support/precompiled.hpp"

#include <looptorch/policies/average_weights.hpp>
#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

constexpr int kSteps = 12;  // of averages.py

struct WavesImpl : torch::nn::Module {
  explicit WavesImpl(at::ScalarType type = torch::kDouble) {
    for (std::size_t i = 0; i < reference::shapes().size(); ++i)
      weights.push_back(register_parameter(
          looptorch::message("p", i), reference::wave(reference::shapes()[i], static_cast<double>(i), type)));
    tenths = register_buffer("tenths", torch::zeros({2}, type));
    register_buffer("count", torch::zeros({}, torch::kLong));
  }
  std::vector<at::Tensor> weights;
  at::Tensor tenths;
};
TORCH_MODULE(Waves);

/// A loss whose gradient in step `step` is averages.py's, for those parameters that need one.
at::Tensor waves_loss(Waves& waves, const int& step) {
  {
    at::NoGradGuard no_gradients;
    waves->tenths += 0.1;
  }
  at::Tensor loss = torch::zeros({}, waves->tenths.options());
  for (std::size_t i = 0; i < waves->weights.size(); ++i)
    if (const auto& weight = waves->weights[i]; weight.requires_grad())
      loss = loss + (weight * reference::wave(weight.sizes(), 0.3 * step + static_cast<double>(i),
                                              weight.scalar_type()))
                        .sum();
  return loss;
}

/// One row of a recorded history: the averages in the order of their names, then the buffer.
at::Tensor row(const lt::AverageWeights::State& averages) {
  std::vector<at::Tensor> flat;
  for (const auto& [name, average] : averages.named()) flat.push_back(average.flatten());
  return torch::cat(flat);
}

const at::Tensor& recorded(const std::string& name) { return reference::tensors("averages").at(name); }

/// How far the averages of twelve steps are from a recorded history; `before(waves, step)` comes before each.
double difference_to(const std::string& name, const lt::AverageWeights& policy, int first = 0,
                     const std::function<void(Waves&, int)>& before = {}) {
  const at::Tensor& history = recorded(name);
  Waves waves(history.scalar_type());
  torch::optim::SGD sgd(waves->parameters(), 0.25);
  lt::Trainer trainer(waves, sgd, waves_loss, policy);
  double largest = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (before) before(waves, step);
    trainer.step(step);
    const auto& averages = trainer.policy<lt::AverageWeights>();
    REQUIRE(averages.named().empty() == (step < first));
    if (step < first) continue;
    const at::Tensor ours = row(averages);
    largest = std::max(largest, reference::difference(ours, history[step].slice(0, 0, ours.numel())));
  }
  return largest;
}

lt::AverageWeights ema(double decay = 0.9) { return {.rule = lt::Ema{.decay = decay}}; }
const lt::AverageWeights kSwa{.rule = lt::Swa{}};

/// Weights of a module as one copy.
template <class Module>
at::Tensor all_of(const Module& module) {
  std::vector<at::Tensor> flat;
  for (const auto& parameter : module->parameters()) flat.push_back(parameter.detach().flatten());
  return torch::cat(flat).clone();
}

/// Trains toy::Net for `steps` steps by hand and averages as AveragedModel does; returns the averaged net.
toy::Net averaged_by_hand(toy::Net& net, const std::vector<toy::Batch>& data, double decay) {
  torch::optim::SGD sgd(net->parameters(), 0.2);
  auto average = toy::net();
  at::NoGradGuard no_gradients;
  for (std::size_t step = 0; step < data.size(); ++step) {
    {
      at::AutoGradMode with_gradients(true);
      toy::train_by_hand(net, sgd, {data[step]}, 1);
    }
    auto to = average->parameters(), from = net->parameters();
    for (std::size_t i = 0; i < to.size(); ++i)
      step == 0 ? to[i].copy_(from[i]) : to[i].copy_(decay * to[i] + (1 - decay) * from[i]);
  }
  return average;
}

}  // namespace

TEST_CASE("exponential and equal averages are AveragedModel's, after each step, in fp32 and fp64") {
  CHECK(difference_to("ema64", ema()) == 0.0);
  CHECK(difference_to("ema32", ema()) == 0.0);
  CHECK(difference_to("swa64", kSwa) < 1e-15);
  CHECK(difference_to("swa32", kSwa) < 2e-7);
}

TEST_CASE("averaging begins late and pauses as asked; buffers are averaged if asked") {
  CHECK(difference_to("swa_begin_every64", {.rule = lt::Swa{}, .begin_after = 3, .every = 2}, 4) < 1e-15);
  lt::AverageWeights with_buffers = ema();
  with_buffers.average_buffers = true;
  CHECK(difference_to("ema_buffers64", with_buffers) == 0.0);

  Waves waves;
  torch::optim::SGD sgd(waves->parameters(), 0.25);
  lt::Trainer trainer(waves, sgd, waves_loss, with_buffers);
  trainer.fit(std::vector{0, 1});
  CHECK(trainer.policy<lt::AverageWeights>().named().count("tenths") == 1);
  CHECK(trainer.policy<lt::AverageWeights>().named().count("count") == 0);  // no floating-point number
  CHECK(trainer.policy<lt::AverageWeights>().count() == 2);
}

TEST_CASE("parameters that are frozen or unfrozen during the run have AveragedModel's averages") {
  const auto before = [](Waves& waves, int step) {
    waves->weights[1].set_requires_grad(step >= 5);
    waves->weights[2].set_requires_grad(step < 5);
  };
  for (const auto& [name, policy] : {std::pair("ema_frozen64", ema()), std::pair("swa_frozen64", kSwa)}) {
    Waves waves;
    torch::optim::SGD sgd(waves->parameters(), 0.25);
    lt::Trainer trainer(waves, sgd, waves_loss, policy);
    for (int step = 0; step < kSteps; ++step) {
      before(waves, step);
      trainer.step(step);
      const auto& averages = trainer.policy<lt::AverageWeights>();
      CHECK(averages.named().size() == (step < 5 ? 3 : 4));  // what never moved needs no memory
    }
    const auto& averages = trainer.policy<lt::AverageWeights>();
    CHECK(reference::difference(row(averages), recorded(name)[kSteps - 1].slice(0, 0, 31)) < 1e-15);
  }
}

TEST_CASE("parameters that join the optimizer in a later fit have AveragedModel's averages") {
  Waves waves;
  auto& weights = waves->weights;
  torch::optim::SGD sgd({weights[0], weights[2], weights[3]}, 0.25);
  lt::Trainer trainer(waves, sgd, waves_loss, kSwa);
  weights[1].set_requires_grad(false);
  trainer.fit(std::vector{0, 1, 2, 3, 4});
  CHECK(trainer.policy<lt::AverageWeights>().named().size() == 3);
  weights[1].set_requires_grad(true), weights[2].set_requires_grad(false);
  sgd.add_param_group(torch::optim::OptimizerParamGroup({weights[1]}));
  trainer.fit(std::vector{5, 6, 7, 8, 9, 10, 11}, {.epochs = 2});
  CHECK(reference::difference(row(trainer.policy<lt::AverageWeights>()),
                              recorded("swa_frozen64")[kSteps - 1].slice(0, 0, 31)) < 1e-15);
}

TEST_CASE("warm-up bounds the decay by (1 + n) / (10 + n)") {
  const lt::Ema warm{.decay = 0.5, .warmup = true}, plain{.decay = 0.5};
  for (const std::int64_t n : {1, 2, 7, 8, 9, 100}) {
    const double bound = (1.0 + static_cast<double>(n)) / (10.0 + static_cast<double>(n));
    CHECK(warm.share(n) == 1 - std::min(0.5, bound));
    CHECK(plain.share(n) == 0.5);
  }
}

TEST_CASE("evaluate uses the averages, without copies, and leaves the parameters as they were, bit for bit") {
  const auto data = toy::batches(9);
  auto ours = toy::net(), theirs = toy::net();
  torch::optim::SGD sgd(ours->parameters(), 0.2);
  lt::Trainer trainer(ours, sgd, toy::objective, ema(0.7));
  const double plain = trainer.evaluate(data).loss;  // no average yet: the plain weights
  CHECK(plain == Approx(lt::Trainer(ours, sgd, toy::objective).evaluate(data).loss));
  trainer.fit(data);
  auto average = averaged_by_hand(theirs, data, 0.7);
  CHECK(toy::distance(ours, theirs) < 1e-12);

  const at::Tensor before = all_of(ours);
  const auto versions = [&] {
    std::vector<std::int64_t> versions;
    for (const auto& parameter : ours->parameters()) versions.push_back(parameter._version());
    return versions;
  };
  const auto version = versions();
  const at::Tensor alias = ours->first->weight.detach().t();
  std::vector<const void*> memory;
  for (const auto& [name, tensor] : trainer.policy<lt::AverageWeights>().named())
    memory.push_back(tensor.data_ptr());
  std::size_t batches = 0;
  const auto measure = [&](toy::Net& net, const toy::Batch& batch) {
    ++batches;
    CHECK(toy::distance(net, average) < 1e-12);
    CHECK(torch::equal(alias, net->first->weight.t()));  // a view goes along
    std::vector<const void*> seen;
    for (const auto& item : net->named_parameters()) {
      seen.push_back(item.value().data_ptr());
      CHECK(item.value().requires_grad());
    }
    std::sort(seen.begin(), seen.end()), std::sort(memory.begin(), memory.end());
    CHECK(seen == memory);
    return toy::objective(net, batch);
  };
  torch::optim::SGD unused(average->parameters(), 0.2);
  const double expected = lt::Trainer(average, unused, toy::objective).evaluate(data).loss;
  CHECK(trainer.evaluate(data, measure).loss == Approx(expected).epsilon(1e-12));
  CHECK(batches == data.size());
  CHECK(torch::equal(all_of(ours), before));
  CHECK(versions() == version);
  CHECK(torch::equal(alias, ours->first->weight.t()));
}

TEST_CASE("an exception in evaluate puts the parameters back, and an evaluation within one changes nothing") {
  const auto data = toy::batches(5);
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.2);
  lt::Trainer trainer(net, sgd, toy::objective, ema());
  trainer.fit(data);
  const at::Tensor before = all_of(net);
  const auto averages = trainer.policy<lt::AverageWeights>().named();
  const at::Tensor average = averages.at("first.weight").clone();
  CHECK_THROWS_WITH(trainer.evaluate(data,
                                     [&](toy::Net& net, const toy::Batch&) -> double {
                                       CHECK(torch::equal(net->first->weight, average));
                                       throw std::runtime_error("measured badly");
                                     }),
                    "measured badly");
  CHECK(torch::equal(all_of(net), before));
  trainer.evaluate(data, [&](toy::Net&, const toy::Batch&) {
    return trainer
        .evaluate(data,
                  [&](toy::Net& net, const toy::Batch&) {
                    CHECK(torch::equal(net->first->weight, average));
                    return 0.0;
                  })
        .loss;
  });
  CHECK(torch::equal(all_of(net), before));
  CHECK(torch::equal(trainer.policy<lt::AverageWeights>().named().at("first.weight"), average));
}

TEST_CASE("evaluating in between changes no bit of training or of the averages") {
  const auto data = toy::batches(7);
  auto one = toy::net(), two = toy::net();
  torch::optim::AdamW a(one->parameters(), 0.05), b(two->parameters(), 0.05);
  lt::Trainer with(one, a, toy::objective, ema(), lt::Validate{toy::batches(2, 9), {.every = 1}});
  lt::Trainer without(two, b, toy::objective, ema());
  with.fit(data, {.epochs = 2}), without.fit(data, {.epochs = 2});
  CHECK(toy::distance(one, two) == 0.0);
  CHECK(torch::equal(row(with.policy<lt::AverageWeights>()), row(without.policy<lt::AverageWeights>())));

  auto off = ema();
  off.evaluate = false;
  auto three = toy::net();
  torch::optim::SGD sgd(three->parameters(), 0.2);
  lt::Trainer trainer(three, sgd, toy::objective, off);
  trainer.fit(data);
  CHECK(trainer.evaluate(data).loss == lt::Trainer(three, sgd, toy::objective).evaluate(data).loss);
}

namespace {

/// Two weights side by side in one buffer, and the first again under another name.
struct FlatImpl : torch::nn::Module {
  FlatImpl() {
    const at::Tensor buffer = torch::arange(6, torch::kDouble);
    a = register_parameter("a", buffer.slice(0, 0, 2));
    b = register_parameter("b", buffer.slice(0, 2, 6));
    register_parameter("tied", a);
  }
  at::Tensor a, b;
};
TORCH_MODULE(Flat);

}  // namespace

TEST_CASE("weights in one buffer are exchanged each by itself, tied ones once") {
  Flat flat;
  torch::optim::SGD sgd({flat->a, flat->b}, 1.0);
  const auto loss = [](Flat& flat, const int&) { return flat->a.sum() + 2 * flat->b.sum(); };
  lt::Trainer trainer(flat, sgd, loss, kSwa);
  trainer.fit(std::vector{0, 0, 0});  // a: -1, -2, -3; b: -2, -4, -6
  const auto& averages = trainer.policy<lt::AverageWeights>();
  CHECK(averages.named().size() == 2);
  for (int i = 0; i < 2; ++i) {
    trainer.evaluate(std::vector{0}, [](Flat& flat, const int&) {
      CHECK(torch::allclose(flat->a, torch::tensor({-2.0, -1.0}, torch::kDouble), 0, 1e-14));
      CHECK(torch::allclose(flat->b, torch::tensor({-2.0, -1.0, 0.0, 1.0}, torch::kDouble), 0, 1e-14));
      CHECK(flat->a.requires_grad());
      return 0.0;
    });
    CHECK(torch::equal(flat->a, torch::tensor({-3.0, -2.0}, torch::kDouble)));
    CHECK(torch::equal(flat->b, torch::tensor({-4.0, -3.0, -2.0, -1.0}, torch::kDouble)));
    CHECK(flat->a.storage().is_alias_of(flat->b.storage()));
  }
  trainer.fit(std::vector{0, 0, 0}, {.epochs = 2});  // a: -4, -5, -6
  CHECK(flat->a[0].item<double>() == -6.0);
  CHECK(averages.named().at("a")[0].item<double>() == Approx(-3.5));
}

TEST_CASE("two parameters that share their memory are exchanged and put back exactly") {
  struct SharedImpl : torch::nn::Module {
    at::Tensor a = register_parameter("a", torch::arange(6, torch::kDouble).reshape({2, 3}));
    at::Tensor b = register_parameter("b", a.detach().t());
  };
  auto shared = std::make_shared<SharedImpl>();
  torch::optim::SGD sgd(shared->parameters(), 0.5);
  const auto loss = [](std::shared_ptr<SharedImpl>& model, const int&) {
    return model->a.sum() + model->b.sum();
  };
  lt::Trainer trainer(shared, sgd, loss, kSwa);
  trainer.fit(std::vector{0, 0, 0});  // each step moves both by 0.5, and both are the same numbers
  const at::Tensor start = torch::arange(6, torch::kDouble).reshape({2, 3});
  const at::Tensor average = trainer.policy<lt::AverageWeights>().named().at("a").clone();
  for (int i = 0; i < 2; ++i) {
    trainer.evaluate(std::vector{0}, [&](std::shared_ptr<SharedImpl>& model, const int&) {
      CHECK(torch::allclose(model->a, start - 2.0, 0, 1e-14));
      CHECK(torch::equal(model->b, model->a.t()));
      return 0.0;
    });
    CHECK(torch::equal(shared->a, start - 3.0));
    CHECK(torch::equal(shared->b, shared->a.t()));
    CHECK(torch::equal(trainer.policy<lt::AverageWeights>().named().at("a"), average));
  }
}

TEST_CASE("a vetoed update changes no average, whether the host or only the device knows of it") {
  for (const bool by_tensor : {false, true}) {
    auto net = toy::net();
    net->to(torch::kFloat);
    lt::FusedAdamW adamw(net->parameters(), {.lr = 0.1});
    int update = 0;
    const lt::On veto{lt::kCheck, [&](lt::UpdateContext& context) {
                        const bool skip = update++ % 2 == 1;
                        by_tensor ? context.veto(torch::full({}, skip)) : context.veto(skip);
                      }};
    const auto objective = [](toy::Net& net, const at::Tensor& x) { return net(x).pow(2).mean(); };
    lt::Trainer trainer(net, adamw, objective, kSwa, veto);
    const auto x = torch::ones({2, 4});
    const auto& averages = trainer.policy<lt::AverageWeights>();
    trainer.fit(std::vector{x});
    const at::Tensor first = row(averages).clone();
    CHECK(averages.count() == 1);
    CHECK(trainer.fit(std::vector{x}, {.epochs = 2}).skipped == 1);
    CHECK(averages.count() == 1);
    CHECK(torch::equal(row(averages), first));
    trainer.fit(std::vector{x}, {.epochs = 3});
    CHECK(averages.count() == 2);
    const at::Tensor now = torch::cat(
        {net->first->bias, net->first->weight.flatten(), net->second->bias, net->second->weight.flatten()});
    CHECK(reference::difference(row(averages), (first + now.detach()) / 2) < 1e-7);
  }
}

TEST_CASE("of several updates one by name is averaged, or each after its own") {
  const auto train = [](const std::string& name) {
    auto net = toy::net();
    torch::optim::SGD first(net->first->parameters(), 0.1), second(net->parameters(), 0.1);
    lt::AverageWeights policy = kSwa;
    policy.update = name;
    lt::Trainer trainer(net, lt::Update{first, toy::objective, {.name = "critic"}},
                        lt::Update{second, toy::objective, {.name = "generator", .every = 2}}, policy);
    trainer.fit(toy::batches(4));
    return trainer.policy<lt::AverageWeights>();
  };
  const auto critic = train("critic"), generator = train("generator"), both = train("");
  CHECK((critic.count(0) == 4 && critic.count(1) == 0));
  CHECK((generator.count(0) == 0 && generator.count(1) == 2));
  CHECK((both.count(0) == 4 && both.count(1) == 2));
  CHECK((critic.named().size() == 2 && generator.named().size() == 4));
  CHECK(torch::equal(row(both), row(generator)));  // what both train is averaged after the last of them
  CHECK_THROWS_AS(train("gnerator"), lt::UsageError);
  CHECK_THROWS_WITH(train("gnerator"),
                    Catch::Contains("'gnerator'") && Catch::Contains("'critic', 'generator'"));
}

TEST_CASE("parameters outside the model have no average") {
  auto net = toy::net(), other = toy::net(3);
  std::vector<at::Tensor> parameters = net->parameters();
  for (const auto& parameter : other->parameters()) parameters.push_back(parameter);
  torch::optim::SGD sgd(parameters, 0.1);
  const auto both = [&](toy::Net& net, const toy::Batch& batch) {
    return toy::objective(net, batch).value + toy::objective(other, batch).value;
  };
  lt::Trainer trainer(net, sgd, both, kSwa);
  trainer.fit(toy::batches(3));
  CHECK(trainer.policy<lt::AverageWeights>().named().size() == 4);
}

TEST_CASE("averages of bf16 weights follow steps that are too small for 16 bits") {
  torch::nn::Linear net(4, 4);
  net->to(torch::kBFloat16);
  torch::NoGradGuard no_gradients;
  net->weight.fill_(1), net->bias.fill_(1);
  torch::optim::SGD sgd(net->parameters(), 0.0);
  const auto objective = [](torch::nn::Linear& net, const at::Tensor& x) {
    torch::AutoGradMode gradients(true);
    return net(x).sum().to(torch::kFloat);
  };
  lt::Trainer trainer(net, lt::Update{sgd, objective, {.lossy_weights = true}},
                      lt::AverageWeights{.rule = lt::Ema{.decay = 0.999}});
  const std::vector<at::Tensor> batches(1000, torch::ones({1, 4}, torch::kBFloat16));
  trainer.fit(std::vector(batches.begin(), batches.begin() + 1));
  net->weight.fill_(2), net->bias.fill_(2);
  trainer.fit(batches, {.epochs = 2});
  const auto average = trainer.policy<lt::AverageWeights>().named().at("weight");
  CHECK(average.scalar_type() == torch::kFloat);
  CHECK(average[0][0].item<double>() == Approx(2 - std::pow(0.999, 1000)).epsilon(1e-3));
  const auto mean = [](torch::nn::Linear& net, const at::Tensor&) {
    return net->weight.mean().item<double>();
  };
  CHECK(trainer.evaluate(std::vector(1, batches[0]), mean).loss ==
        Approx(average[0][0].item<double>()).epsilon(0.005));
  CHECK(net->weight.eq(2).all().item<bool>());
}

TEST_CASE("averages are copied into the model for good, or into another one") {
  auto net = toy::net(), other = toy::net(7);
  torch::optim::SGD sgd(net->parameters(), 0.2);
  lt::Trainer trainer(net, sgd, toy::objective, ema());
  trainer.fit(toy::batches(5));
  const auto& averages = trainer.policy<lt::AverageWeights>();
  const double averaged = trainer.evaluate(toy::batches(3, 4)).loss;
  averages.copy_to(*other);
  CHECK(torch::equal(other->first->weight, averages.named().at("first.weight")));
  CHECK_FALSE(toy::distance(net, other) == 0.0);
  averages.copy_to(*net);
  CHECK(toy::distance(net, other) == 0.0);
  CHECK(lt::Trainer(net, sgd, toy::objective).evaluate(toy::batches(3, 4)).loss == averaged);

  torch::nn::Linear stranger(4, 8);
  CHECK_THROWS_AS(averages.copy_to(*stranger), lt::StateError);
  CHECK_THROWS_WITH(averages.copy_to(*stranger), Catch::Contains("'first.bias'"));
}

TEST_CASE("averages are saved by name and continue as if nothing had happened") {
  const auto data = toy::batches(8);
  const auto half = std::vector(data.begin(), data.begin() + 4);
  auto whole = toy::net(), resumed = toy::net();
  torch::optim::SGD a(whole->parameters(), 0.2), b(resumed->parameters(), 0.2);
  lt::Trainer one(whole, a, toy::objective, kSwa);
  one.fit(half);
  const lt::StateDict saved = one.state_dict();
  const at::Tensor weights = all_of(whole), averaged = row(one.policy<lt::AverageWeights>()).clone();
  one.fit(half, {.epochs = 2});  // what was saved does not go on

  lt::Trainer two(resumed, b, toy::objective, kSwa);
  two.load_state_dict(saved);
  CHECK(torch::equal(row(two.policy<lt::AverageWeights>()), averaged));
  torch::nn::utils::vector_to_parameters(weights, resumed->parameters());
  two.evaluate(half, [&](toy::Net& net, const toy::Batch&) {  // before any fit
    CHECK(torch::equal(net->first->bias, averaged.slice(0, 0, 8)));
    return 0.0;
  });
  two.fit(half, {.epochs = 2});
  CHECK(toy::distance(whole, resumed) == 0.0);
  CHECK(two.policy<lt::AverageWeights>().count() == 8);
  CHECK(torch::equal(row(one.policy<lt::AverageWeights>()), row(two.policy<lt::AverageWeights>())));
}

TEST_CASE("averages of buffers are of what each window left, also if its update counts late, and are saved") {
  const auto data = toy::batches(7);
  for (const auto& [known_late, every] : {std::pair(false, 1), {true, 1}, {false, 3}, {true, 3}}) {
    const lt::AverageWeights policy{.rule = lt::Ema{.decay = 0.75}, .every = every, .average_buffers = true};
    const auto objective = [](torch::nn::BatchNorm1d& norm, const toy::Batch& batch) {
      return norm(batch.features.repeat({2, 1})).square().mean();
    };
    torch::nn::BatchNorm1d norm(4);
    norm->to(torch::kDouble);
    torch::optim::SGD sgd(norm->parameters(), 0.1);
    at::Tensor mean, variance;
    int windows = 0;
    lt::StateDict state;
    {
      lt::Trainer trainer(norm, sgd, objective, policy,
                          lt::On{lt::kClip,
                                 [&, late = known_late](lt::UpdateContext& update) {
                                   if (late) update.veto(torch::zeros({}));
                                 }},
                          lt::On{lt::kObserve, [&, n = every](lt::WindowContext&) {
                                   if (++windows % n != 0) return;
                                   const auto move = [](at::Tensor& average, const at::Tensor& buffer) {
                                     average =
                                         average.defined() ? at::lerp(average, buffer, 0.25) : buffer.clone();
                                   };
                                   move(mean, norm->running_mean), move(variance, norm->running_var);
                                 }});
      trainer.fit(data);
      const auto& averages = trainer.template policy<lt::AverageWeights>();
      CHECK(torch::allclose(averages.named().at("running_mean"), mean, 0, 1e-15));
      CHECK(torch::allclose(averages.named().at("running_var"), variance, 0, 1e-15));
      state = trainer.state_dict();
    }
    lt::Trainer other(norm, sgd, objective, policy);
    other.load_state_dict(state);
    CHECK(torch::allclose(other.policy<lt::AverageWeights>().named().at("running_var"), variance, 0, 1e-15));
    CHECK(torch::allclose(other.policy<lt::AverageWeights>().named().at("running_mean"), mean, 0, 1e-15));
  }
}

TEST_CASE("averages of another model are refused, by name and by shape") {
  Waves waves;
  torch::optim::SGD sgd(waves->parameters(), 0.25);
  lt::Trainer trainer(waves, sgd, waves_loss, kSwa);
  lt::StateDict dict;
  dict.set("updates", 1);
  dict.set("updates.0.count", 1);
  const auto refusal = [&](const std::string& name, const at::Tensor& average) {
    lt::StateDict wrong = dict;
    wrong.set("updates.0.averages." + name, average);
    lt::AverageWeights::State state;
    kSwa.load_state_dict(wrong, state);
    try {
      state.follow(*waves);
    } catch (const lt::StateError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal("p1", torch::zeros({7})).empty());
  CHECK_THAT(refusal("p1.weight", torch::zeros({7})), Catch::Contains("'p1.weight'"));
  CHECK_THAT(refusal("p1", torch::zeros({8})), Catch::Contains("[8]") && Catch::Contains("[7]"));
}

TEST_CASE("averages follow a model that changes its type between fits") {
  const auto x = torch::ones({2, 4}, torch::kDouble);
  const auto objective = [](toy::Net& net, const at::Tensor& x) {
    return net(x.to(net->first->weight.scalar_type())).pow(2).mean();
  };
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, objective, kSwa);
  trainer.fit(std::vector{x});
  net->to(torch::kFloat);
  trainer.evaluate(std::vector{x}, [](toy::Net& net, const at::Tensor&) {
    CHECK(net->first->weight.scalar_type() == torch::kFloat);
    return 0.0;
  });
  trainer.fit(std::vector{x}, {.epochs = 2});
  CHECK(trainer.policy<lt::AverageWeights>().count() == 2);
  CHECK(trainer.policy<lt::AverageWeights>().named().at("first.bias").scalar_type() == torch::kFloat);
}

TEST_CASE("accumulation and clipping are over before the weights are averaged") {
  const auto data = toy::batches(6);
  auto ours = toy::net(), theirs = toy::net();
  torch::optim::SGD a(ours->parameters(), 0.2);
  lt::Trainer trainer(ours, a, toy::objective, kSwa, lt::Accumulate<2>{});
  trainer.fit(data);
  torch::optim::SGD b(theirs->parameters(), 0.2);
  at::Tensor sum = torch::zeros_like(theirs->first->weight);
  for (std::size_t i = 0; i < 6; i += 2) {
    toy::train_by_hand(theirs, b, {toy::join(data, i, i + 2)}, 1);
    sum = sum + theirs->first->weight.detach();
  }
  const auto averages = trainer.policy<lt::AverageWeights>().named();
  CHECK(reference::difference(averages.at("first.weight"), sum / 3) < 1e-12);
}

TEST_CASE("options that cannot be are refused before training") {
  const auto refused = [](const lt::AverageWeights& policy, const std::string& sentence) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.2);
    lt::Trainer trainer(net, sgd, toy::objective, policy);
    CHECK_THROWS_AS(trainer.fit(toy::batches(1)), lt::UsageError);
    CHECK_THROWS_WITH(trainer.fit(toy::batches(1)), Catch::Contains(sentence));
    CHECK(trainer.progress().step == 0);
  };
  refused(ema(1.0), "decay in [0, 1), got 1");
  refused(ema(-0.1), "got -0.1");
  refused(ema(NAN), "got nan");
  refused({.begin_after = -1}, "`begin_after` counts updates from 0, got -1");
  refused({.every = 0}, "`every` must be at least 1, got 0");
}
