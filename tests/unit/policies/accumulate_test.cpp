// SPDX-License-Identifier: MIT
// Weights of 0, weights that stay on the device, and the sum form, against one large batch in fp64.
// Tests policies/accumulation: at_run_time
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;
using toy::Batch;

namespace {

torch::optim::SGD sgd(toy::Net& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.5));
}

at::Tensor summed(toy::Net& net, const Batch& batch) {
  namespace F = torch::nn::functional;
  return F::cross_entropy(net(batch.features), batch.labels,
                          F::CrossEntropyFuncOptions().reduction(torch::kSum));
}

/// The same objective in every form that a Loss can have. A batch whose labels are all -1 has weight 0.
lt::Loss value_known(toy::Net& net, const Batch& batch) {
  if (batch.labels.lt(0).all().item<bool>()) return {.value = net(batch.features).sum() * NAN, .weight = 0};
  return toy::objective(net, batch);
}
lt::Loss sum_known(toy::Net& net, const Batch& batch) {
  if (batch.labels.lt(0).all().item<bool>()) return {.weight = 0, .sum = net(batch.features).sum() * 0};
  return {.weight = batch.labels.size(0), .sum = summed(net, batch)};
}
lt::Loss sum_unread(toy::Net& net, const Batch& batch) {
  const auto weight = batch.labels.ge(0).sum();
  const auto safe = Batch{batch.features, batch.labels.clamp_min(0)};
  return {.weight = lt::Quantity::unread(weight),
          .sum = weight.item<int64_t>() ? summed(net, safe) : net(batch.features).sum() * 0};
}
lt::Loss value_unread(toy::Net& net, const Batch& batch) {
  lt::Loss loss = toy::objective(net, batch);
  loss.weight = lt::Quantity::unread(torch::tensor(loss.weight.number()));
  return loss;
}

std::vector<Batch> with_masked(std::vector<Batch> data, const std::vector<std::size_t>& masked) {
  for (const std::size_t i : masked) data[i].labels = torch::full_like(data[i].labels, -1);
  return data;
}

template <class Objective>
lt::FitResult train(toy::Net& net, Objective objective, const std::vector<Batch>& data, int64_t window) {
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<>{window});
  return trainer.fit(data, {.epochs = 2});
}

/// accumulation.py's two layers.
struct LayersImpl : torch::nn::Module {
  at::Tensor first = register_parameter("first", reference::wave({8, 4}, 0.1));
  at::Tensor second = register_parameter("second", reference::wave({3, 8}, 0.2));
};
TORCH_MODULE(Layers);

/// Its epoch, of unequal micro-batches.
std::vector<Batch> recorded_batches() {
  std::vector<Batch> result;
  for (const int64_t size : {3, 1, 4, 2, 5, 1, 2}) {
    const auto phase = static_cast<double>(result.size());
    result.push_back({reference::wave({size, 4}, phase), torch::arange(size).remainder(3)});
  }
  return result;
}

lt::Loss layers_loss(Layers& layers, const Batch& batch) {
  const at::Tensor logits = torch::tanh(batch.features.matmul(layers->first.t())).matmul(layers->second.t());
  return {.value = torch::nn::functional::cross_entropy(logits, batch.labels),
          .weight = batch.labels.size(0)};
}

template <class Optimizer>
void check_recorded(const std::string& name, Layers layers, Optimizer& optimizer, int64_t window) {
  const auto& recorded = reference::tensors("accumulation");
  const std::string key = name + "." + std::to_string(window);
  INFO(key);
  double last_epoch = 0, weight = 0;
  const auto data = recorded_batches();
  lt::Trainer trainer(layers, optimizer, layers_loss, lt::Accumulate<>{window});
  const auto result = trainer.fit(data, {.epochs = 3});
  const at::Tensor losses = recorded.at(key + ".losses");
  REQUIRE(result.steps == losses.size(0));
  const int64_t per_epoch = losses.size(0) / 3;
  for (int64_t i = 0; i < per_epoch; ++i) {  // the epoch's mean is that of its windows, by their sizes
    double size = 0;
    for (std::size_t j = static_cast<std::size_t>(i * window);
         j < std::min(data.size(), static_cast<std::size_t>((i + 1) * window)); ++j)
      size += static_cast<double>(data[j].labels.size(0));
    last_epoch += losses[2 * per_epoch + i].item<double>() * size;
    weight += size;
  }
  CHECK(std::abs(result.loss - last_epoch / weight) < 1e-12);
  CHECK(reference::difference(layers->first, recorded.at(key + ".first")) < 1e-12);
  CHECK(reference::difference(layers->second, recorded.at(key + ".second")) < 1e-12);
}

}  // namespace

TEST_CASE("accumulation over unequal micro-batches equals PyTorch's training on whole windows") {
  for (const int64_t window : {1, 2, 4, 16}) {  // 7 batches: short last windows, and epochs shorter than one
    Layers a, b;
    torch::optim::SGD momentum(a->parameters(), torch::optim::SGDOptions(0.25).momentum(0.9));
    check_recorded("sgd", a, momentum, window);
    lt::FusedAdamW adamw(b->parameters(), {.lr = 0.01, .weight_decay = 0.1});
    check_recorded("adamw", b, adamw, window);
  }
}

TEST_CASE("max_steps counts windows, also where an epoch is shorter than one") {
  const auto data = toy::batches(3);
  auto ours = toy::net(), theirs = toy::net();
  auto a = sgd(ours), b = sgd(theirs);
  lt::Trainer trainer(ours, a, toy::objective, lt::Accumulate<8>{});
  const auto result = trainer.fit(data, {.max_steps = 5});
  CHECK(result.steps == 5);
  CHECK(result.epochs == 5);
  toy::train_by_hand(theirs, b, data, 8, 5);
  CHECK(toy::distance(ours, theirs) < 1e-12);
}

TEST_CASE("every form of a loss gives the gradient of one large batch") {
  const auto data = toy::batches(7);
  for (const int64_t window : {1, 3}) {
    auto reference = toy::net();
    auto optimizer = sgd(reference);
    toy::train_by_hand(reference, optimizer, data, static_cast<std::size_t>(window), 2);
    for (const auto& objective : {value_known, sum_known, sum_unread, value_unread}) {
      auto net = toy::net();
      train(net, objective, data, window);
      CHECK(toy::distance(net, reference) < 1e-12);
    }
  }
}

TEST_CASE("micro-batches of weight 0 contribute no gradient, NaN or not, wherever they stand in the window") {
  const auto full = toy::batches(7);
  for (const auto& masked : std::vector<std::vector<std::size_t>>{{0}, {1}, {2}, {0, 1}, {6}, {1, 4}}) {
    const auto data = with_masked(full, masked);
    auto reference = toy::net();
    auto optimizer = sgd(reference);
    for (int epoch = 0; epoch < 2; ++epoch)
      for (std::size_t begin = 0; begin < 7; begin += 3) {
        std::vector<Batch> window;
        for (std::size_t i = begin; i < std::min<std::size_t>(7, begin + 3); ++i)
          if (std::find(masked.begin(), masked.end(), i) == masked.end()) window.push_back(full[i]);
        if (!window.empty()) toy::train_by_hand(reference, optimizer, window, window.size());
      }
    for (const auto& objective : {value_known, sum_known, sum_unread}) {
      auto net = toy::net();
      const auto result = train(net, objective, data, 3);
      CHECK(toy::distance(net, reference) < 1e-12);
      CHECK(result.skipped == (masked == std::vector<std::size_t>{6} ? 2 : 0));
      CHECK(result.steps == 6);
      CHECK(std::isfinite(result.loss));
    }
  }
}

TEST_CASE("a window without any weight skips the update and is counted") {
  auto data = with_masked(toy::batches(4), {0, 1, 2, 3});
  for (const int64_t window : {1, 2})
    for (const auto& objective : {value_known, sum_known, sum_unread}) {
      auto net = toy::net(), before = toy::net();
      const auto result = train(net, objective, data, window);
      CHECK(toy::distance(net, before) == 0.0);
      CHECK(result.skipped == result.steps);
      CHECK(result.steps == 8 / window);
      CHECK(std::isnan(result.loss));
      CHECK_FALSE(toy::has_gradients(net));
    }
}

TEST_CASE("a weight or a loss that cannot be is refused with its value or shape") {
  auto net = toy::net();
  const auto data = toy::batches(1);
  const auto fails = [&](auto objective, const std::string& part) {
    CHECK_THROWS_WITH(train(net, objective, data, 2), Catch::Contains(part));
    CHECK_FALSE(toy::has_gradients(net));
  };
  fails([](toy::Net& n, const Batch& b) { return lt::Loss{.value = n(b.features).mean(), .weight = -2}; },
        "got -2");
  fails([](toy::Net& n, const Batch& b) { return lt::Loss{.value = n(b.features).mean(), .weight = NAN}; },
        "got nan");
  fails([](toy::Net& n, const Batch& b) { return n(b.features); }, "got shape [3, 3]");
  fails([](toy::Net& n,
           const Batch& b) { return lt::Loss{.value = n(b.features).mean(), .sum = n(b.features).sum()}; },
        "both");
  fails([](toy::Net&, const Batch&) { return lt::Loss{}; }, "none");
  fails([](toy::Net&, const Batch&) { return torch::ones({}); }, "does not depend on any parameter");
  fails([](toy::Net&, const Batch&) { return torch::ones({}, torch::kLong); }, "is of type Long");
  fails([](toy::Net&, const Batch&) { return lt::Loss{.value = torch::ones({}, torch::kLong), .weight = 3}; },
        "is of type Long");
  fails([](toy::Net& n,
           const Batch& b) { return lt::Loss{.value = n(b.features).mean(), .weight = b.features}; },
        "[3, 4]");
}

TEST_CASE("accumulate keeps (8x1), (4x2), (2x4), (1x8) together") {
  torch::manual_seed(5);
  const Batch whole{torch::randn({8, 4}, torch::kDouble), torch::randint(0, 3, {8}, torch::kLong)};
  const auto losses = [&](int64_t size) {
    std::vector<Batch> data;
    for (int64_t i = 0; i < 8; i += size)
      data.push_back({whole.features.slice(0, i, i + size), whole.labels.slice(0, i, i + size)});
    auto net = toy::net();
    auto optimizer = sgd(net);
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<>{8 / size});
    std::vector<double> result;
    for (int64_t epoch = 1; epoch <= 5; ++epoch) result.push_back(trainer.fit(data, {.epochs = epoch}).loss);
    return result;
  };
  const auto reference = losses(8);
  for (const int64_t size : {4, 2, 1})
    for (std::size_t i = 0; i < reference.size(); ++i)
      CHECK(losses(size)[i] == Approx(reference[i]).epsilon(1e-12));
}

TEST_CASE("what is differentiated stays near the size of the losses, whatever the weights: fp16 needs it") {
  lt::detail::WindowWeight weights;
  const auto value = torch::tensor(2.0f);
  CHECK(weights.weigh({.value = value, .weight = 1e6}).is_same(value));
  CHECK(weights.weigh({.value = value, .weight = 5e5}).item<double>() == 1.0);
  CHECK(weights.scale().number() == Approx(1e6 / 1.5e6));
  weights.next_window();
  CHECK(weights.weigh({.value = value, .weight = 2e6}).item<double>() ==
        4.0);  // the unit is the run's, not the window's
  CHECK(weights.take_correction() == 1.0);
  CHECK(weights.weigh({.value = value, .weight = 7e6}).item<double>() == 1.75);  // it grew to 8e6
  CHECK(weights.take_correction() == 0.125);
  CHECK(weights.take_correction() == 1.0);
  CHECK(weights.scale().number() == Approx(8e6 / 9e6));
}

TEST_CASE("gradients are those of the large batch where the unit grows within a window") {
  const std::vector<double> weights{1, 512, 100, 30, 5, 2000, 1, 9, 1e6};
  const auto data = toy::batches(9);
  auto ours = toy::net(), theirs = toy::net();
  auto a = sgd(ours), b = sgd(theirs);
  std::size_t next = 0;
  const auto objective = [&](toy::Net& net, const Batch& batch) {
    lt::Loss loss = toy::objective(net, batch);
    loss.weight = weights[next++];
    return loss;
  };
  lt::Trainer(ours, a, objective, lt::Accumulate<3>{}).fit(data);
  for (std::size_t i = 0; i < 9; i += 3) {
    at::Tensor sum = torch::zeros({}, torch::kDouble);
    for (std::size_t k = i; k < i + 3; ++k) sum = sum + toy::objective(theirs, data[k]).value * weights[k];
    b.zero_grad();
    (sum / (weights[i] + weights[i + 1] + weights[i + 2])).backward();
    b.step();
  }
  CHECK(toy::distance(ours, theirs) < 1e-12);
}

TEST_CASE("a tied weight, listed twice by its model, is scaled and moved once") {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      register_module("a", a);
      register_module("b", b);
      b->weight = b->register_parameter("tied", a->weight);
      to(torch::kDouble);
      b->weight = a->weight;
    }
    torch::nn::Linear a{4, 4}, b{4, 4};
  };
  auto tied = std::make_shared<TiedImpl>();
  const auto weight = tied->a->weight;
  lt::FusedSGD sgd({weight, weight}, {.lr = 1.0});
  const auto before = weight.detach().clone();
  const auto objective = [&](std::shared_ptr<TiedImpl>&, const at::Tensor& x) { return (weight * x).sum(); };
  lt::Trainer trainer(tied, sgd, objective, lt::Accumulate<2>{});
  trainer.fit(std::vector{torch::ones({4, 4}, torch::kDouble), torch::full({4, 4}, 3.0, torch::kDouble)});
  CHECK((before - weight.detach()).sub(2.0).abs().max().item<double>() < 1e-12);
  lt::FusedAdamW adam({weight, weight});
  CHECK(adam.param_groups()[0].params().size() == 1);
}

TEST_CASE("a step reads nothing back from its device: it runs on meta tensors, which have nothing to read") {
  toy::Ghost net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  const auto objective = [](toy::Ghost& net, const Batch& batch) {
    return lt::Loss{.value = net(batch.features).pow(2).mean(), .weight = batch.features.size(0)};
  };
  lt::Trainer trainer(net, sgd, objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 10}},
                      lt::CacheFlushEvery<1000>{});
  for (const auto& batch : toy::batches(4))
    trainer.step(batch);  // moves the batches to the model's device, too
  CHECK(trainer.progress().step == 2);
  CHECK(trainer.updates()[0].applied == 2);
  CHECK_THROWS(trainer.updates()[0].loss.mean());
}

TEST_CASE(
    "known and unread weights may stand in one window, and a known 0 among them contributes no gradient") {
  const auto data = toy::batches(7);
  const auto masked = with_masked(data, {1, 4});
  auto kept = data;
  kept.erase(kept.begin() + 4), kept.erase(kept.begin() + 1);
  int64_t calls = 0;
  const auto mixed = [&](toy::Net& net, const Batch& batch) {
    const bool empty = batch.labels.lt(0).all().item<bool>();
    return empty || calls++ % 2 ? value_known(net, batch) : value_unread(net, batch);
  };
  auto ours = toy::net(), theirs = toy::net();
  auto a = sgd(ours), b = sgd(theirs);
  lt::Trainer trainer(ours, a, mixed, lt::Accumulate<7>{});
  CHECK(trainer.fit(masked, {.epochs = 2}).skipped == 0);
  toy::train_by_hand(theirs, b, kept, 5, 2);
  CHECK(toy::distance(ours, theirs) < 1e-12);
}

TEST_CASE("an objective may refill one weight tensor, and one loss tensor, for every micro-batch") {
  const auto data = toy::batches(7);
  for (const int64_t window : {1, 3, 7}) {
    auto ours = toy::net(), theirs = toy::net();
    auto a = sgd(ours), b = sgd(theirs);
    const auto buffer = torch::zeros({}, torch::kDouble);
    const auto metric = torch::zeros({}, torch::kDouble);
    const auto refilling = [&](toy::Net& net, const Batch& batch) {
      buffer.fill_(batch.labels.size(0));
      metric.copy_(buffer);
      lt::Loss loss = toy::objective(net, batch);
      loss.weight = lt::Quantity::unread(buffer);
      loss.metrics = {{"size", lt::Quantity::unread(metric)}};
      return loss;
    };
    const auto known = [](toy::Net& net, const Batch& batch) {
      lt::Loss loss = toy::objective(net, batch);
      loss.metrics = {{"size", batch.labels.size(0)}};
      return loss;
    };
    lt::Trainer one(ours, a, refilling, lt::Accumulate<>{window});
    lt::Trainer two(theirs, b, known, lt::Accumulate<>{window});
    CHECK(one.fit(data, {.epochs = 2}).loss == Approx(two.fit(data, {.epochs = 2}).loss).epsilon(1e-12));
    CHECK(toy::distance(ours, theirs) < 1e-12);
    CHECK(one.updates()[0].metrics.at("size").mean() == Approx(two.updates()[0].metrics.at("size").mean()));
  }
}

TEST_CASE("Accumulate's run-time window is checked when it is made") {
  CHECK_THROWS_WITH(lt::Accumulate<>{-2}, Catch::Contains("got -2"));
}
