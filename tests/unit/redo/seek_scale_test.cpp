// SPDX-License-Identifier: MIT
// The search for a first loss scale loses no window: a run that begins with a scale that overflows has the
// bits of one that was given the scale that is found.
// Tests redo: batch_watch, train_rerunnable
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"

namespace lt = looptorch;
using Half = lt::Autocast<lt::fp16>;
using looptorch::testing::TemporaryFolder;

namespace {

/// Linear layers whose weights' gradients are computed in fp16, with dropout and running statistics.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first), register_module("norm", norm), register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    return second(torch::dropout(norm(first(x)), 0.25, is_training()));
  }
  torch::nn::Linear first{4, 8}, second{8, 3};
  torch::nn::BatchNorm1d norm{8};
  int64_t calls = 0;
};
TORCH_MODULE(Net);

/// Large losses: their gradients overflow fp16 at a scale of 65536.
at::Tensor objective(Net& net, const at::Tensor& x) { return net(x).to(at::kFloat).square().mean() * 100; }

std::vector<at::Tensor> batches(int64_t count) {
  torch::manual_seed(1);
  std::vector<at::Tensor> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(torch::randn({4 + i % 2, 4}) * (1 + i % 3));
  return result;
}

Net net() {
  torch::manual_seed(0);
  Net net;
  torch::manual_seed(7);
  return net;
}

std::vector<at::Tensor> all_of(const Net& net) {
  std::vector<at::Tensor> all = net->parameters();
  for (const at::Tensor& buffer : net->buffers()) all.push_back(buffer);
  return all;
}
bool are_equal(const Net& one, const Net& other) {
  const auto a = all_of(one), b = all_of(other);
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return a.size() == b.size();
}

double scale_in(const lt::LossScale& state) { return state.scale.item<double>(); }

/// Trains with a first scale of 65536 and with the one that was found; returns it.
template <class Policy = Half, class... Policies>
double found_in(const std::function<Policy(double)>& half, int64_t count, Policies... policies) {
  const auto data = batches(count);
  Net searching = net();
  lt::FusedAdamW one(searching->parameters(), {.lr = 0.01});
  lt::Trainer search(searching, one, objective, half(65536), policies...);
  std::vector<double> scales;
  const auto result = search.fit(data, {.max_steps = 1});
  const double found = scale_in(search.template policy<Policy>());
  CHECK(result.skipped == 0);
  CHECK(search.fit(data).skipped == 0);

  Net given = net();
  lt::FusedAdamW two(given->parameters(), {.lr = 0.01});
  lt::Trainer knows(given, two, objective, half(found), policies...);
  knows.fit(data, {.max_steps = 1});
  knows.fit(data);
  CHECK(given->calls < searching->calls);
  CHECK(are_equal(searching, given));
  CHECK(search.progress().samples == knows.progress().samples);
  CHECK(search.updates()[0].loss.mean() == knows.updates()[0].loss.mean());
  CHECK(scale_in(search.template policy<Policy>()) == scale_in(knows.template policy<Policy>()));
  CHECK(
      search.template policy<Policy>().growth_tracker.equal(knows.template policy<Policy>().growth_tracker));
  return found;
}
Half by(double scale) { return {.initial_scale = scale, .growth_interval = 4}; }

struct Streamed {  // refills one tensor
  struct Iterator {
    using iterator_concept = std::input_iterator_tag;
    using value_type = at::Tensor;
    using difference_type = std::ptrdiff_t;
    const at::Tensor& operator*() const { return one->copy_((*all)[at]); }
    Iterator& operator++() { return ++at, *this; }
    void operator++(int) { ++at; }
    bool operator==(std::default_sentinel_t) const { return at == all->size(); }
    const std::vector<at::Tensor>* all = nullptr;
    const at::Tensor* one = nullptr;
    std::size_t at = 0;
  };
  Iterator begin() { return {&all, &one, 0}; }
  std::default_sentinel_t end() const { return {}; }
  std::vector<at::Tensor> all;
  at::Tensor one = torch::empty({4, 4});
};

}  // namespace

TEST_CASE(
    "a first scale that overflows loses no window, and the run has the bits of the one that was given the scale") {
  const double found = found_in<Half>(by, 6);
  CHECK(found < 65536);
  CHECK(found_in<Half>(by, 6, lt::Accumulate<3>{}) < 65536);
  CHECK(found_in<Half>(by, 5, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0}, lt::AverageWeights{}) < 65536);
  CHECK(found_in<Half>(by, 6, lt::SkipBadWindows{.spikes = 3}, lt::Accumulate<2>{}) < 65536);
  CHECK(found_in<Half>(by, 6, lt::Autopsy{}, lt::Accumulate<2>{}) < 65536);
  const auto mixed = [](double scale) { return lt::Autocast<>{.fp16_scale = by(scale), .type = at::kHalf}; };
  CHECK(found_in<lt::Autocast<>>(mixed, 6, lt::Accumulate<2>{}) < 65536);
  const auto uneven = [](double scale) { return Half{.initial_scale = scale, .backoff_factor = 0.3}; };
  CHECK(found_in<Half>(uneven, 6) < 65536);
}

TEST_CASE("from the found scale on the numbers are GradScaler's") {
  torch::manual_seed(0);
  torch::nn::Linear layer(4, 3);
  torch::optim::SGD sgd(layer->parameters(), 1e-9);
  const auto of_layer = [](torch::nn::Linear& net, const at::Tensor& x) {
    return net(x).to(at::kFloat).square().mean() * 1000;
  };
  lt::Trainer trainer(layer, sgd, of_layer, Half{.growth_interval = 3});
  const std::vector<at::Tensor> data(9, torch::randn({4, 4}));
  trainer.fit(data, {.max_steps = 1});
  const double found = scale_in(trainer.policy<Half>());
  CHECK(found < 65536);
  CHECK(trainer.policy<Half>().growth_tracker.item<int>() == 1);
  trainer.fit(data, {.max_steps = 3});
  CHECK(scale_in(trainer.policy<Half>()) == 2 * found);
  CHECK(trainer.progress().skipped == 0);
  trainer.fit(data,
              {.max_steps = 4});  // after the first update an overflow is skipped, as GradScaler does it
  CHECK(trainer.progress().skipped == 1);
  CHECK(scale_in(trainer.policy<Half>()) == found);
  CHECK(trainer.policy<Half>().growth_tracker.item<int>() == 0);
}

TEST_CASE("several updates share the search: each is rerun alone, and none loses its first window") {
  struct TwoImpl : torch::nn::Module {
    torch::nn::Linear a = register_module("a", torch::nn::Linear(4, 3)),
                      b = register_module("b", torch::nn::Linear(4, 3));
  };
  std::array<int64_t, 2> calls{};
  const auto of = [&](torch::nn::Linear TwoImpl::*layer, double factor, std::size_t index) {
    return [&calls, layer, factor, index](std::shared_ptr<TwoImpl>& net, const at::Tensor& x) {
      ++calls[index];
      return ((*net).*layer)(x).to(at::kFloat).square().mean() * factor;
    };
  };
  torch::manual_seed(0);
  auto two = std::make_shared<TwoImpl>();
  torch::optim::SGD first(two->a->parameters(), 1e-6), second(two->b->parameters(), 1e-6);
  lt::Trainer trainer(two, lt::Update{first, of(&TwoImpl::a, 10, 0)},
                      lt::Update{second, of(&TwoImpl::b, 1000, 1), {.every = 2}}, Half{},
                      lt::Accumulate<2>{});
  CHECK(trainer.fit(batches(8)).skipped == 0);
  CHECK(trainer.updates()[0].applied == 4);
  CHECK(trainer.updates()[1].applied == 2);
  CHECK(calls[0] > 8);
  CHECK(calls[1] > 4);
  CHECK(trainer.policy<Half>().growth_tracker.item<int>() == 4);
}

TEST_CASE("the search ends with the first update that is made, not with the first window") {
  const auto data = batches(6);
  Net searching = net(), given = net();
  const auto bad_at_first = [](Net& net, const at::Tensor& x, int64_t& number, int64_t bad) {
    const at::Tensor loss = objective(net, x);
    return number++ < bad ? loss * INFINITY : loss;
  };
  int64_t seen = 0;
  lt::FusedAdamW one(searching->parameters());
  lt::Trainer trainer(
      searching, one, [&](Net& net, const at::Tensor& x) { return bad_at_first(net, x, seen, 2); }, Half{});
  CHECK(trainer.fit(data).skipped == 2);  // a loss that is infinite is no matter of the scale
  CHECK(trainer.updates()[0].applied == 4);
  CHECK(scale_in(trainer.policy<Half>()) < 65536 / 4);
}

TEST_CASE("a window that no scale helps is skipped as any other; a scale that collapses is the typed error") {
  int64_t number = 0, bad = 1;
  const auto infinite_slope = [&](Net& net, const at::Tensor& x) {
    const at::Tensor zero = net->first->weight.sum() * 0;
    const at::Tensor loss = objective(net, x);
    return number++ < bad ? loss + zero.sqrt() : loss;  // finite, with a slope that is not
  };
  {
    Net searching = net();
    lt::FusedAdamW adamw(searching->parameters());
    lt::Trainer trainer(searching, adamw, infinite_slope, Half{.initial_scale = 1024, .min_scale = 512});
    bad = 2;  // the first window, and what retries it
    trainer.fit(batches(1));
    CHECK(trainer.progress().skipped == 1);
    CHECK(trainer.policy<Half>().scale.item<double>() == 512);  // by GradScaler's rule
  }
  number = 0, bad = 1000;
  Net searching = net(), before = net();
  lt::FusedAdamW adamw(searching->parameters());
  lt::Trainer trainer(searching, adamw, infinite_slope, Half{.initial_scale = 8, .min_scale = 1});
  CHECK_THROWS_WITH(trainer.fit(batches(9)),
                    Catch::Contains("fell to 0.5, below min_scale 1, after step 4 (4 steps skipped)"));
  CHECK(number == 4 + 3 + 2 + 1 + 1);
  for (std::size_t i = 0; i < before->parameters().size(); ++i) {
    CHECK(searching->parameters()[i].equal(before->parameters()[i]));
    CHECK_FALSE(searching->parameters()[i].grad().defined());
  }
  lt::Trainer endless(searching, adamw, infinite_slope, Half{.min_scale = 0});
  CHECK(endless.fit(batches(3)).skipped == 3);
}

TEST_CASE("a range that refills one tensor, and a loop of step, are rerun with their own samples") {
  const auto data = batches(8);
  std::vector<at::Tensor> even;
  for (const auto& x : data) even.push_back(x.slice(0, 0, 4).contiguous());
  const auto trained = [&](double scale, bool by_step) {
    Net model = net();
    lt::FusedAdamW adamw(model->parameters(), {.lr = 0.01});
    lt::Trainer trainer(model, adamw, objective, by(scale), lt::Accumulate<2>{});
    if (by_step) {
      at::Tensor one = torch::empty({4, 4});
      for (const auto& x : even) trainer.step(one.copy_(x));
      trainer.finish_window();
    } else {
      trainer.fit(Streamed{even});
    }
    CHECK(trainer.progress().skipped == 0);
    return model;
  };
  Net probe = net();
  lt::FusedAdamW adamw(probe->parameters(), {.lr = 0.01});
  lt::Trainer trainer(probe, adamw, objective, by(65536), lt::Accumulate<2>{});
  trainer.fit(even, {.max_steps = 1});
  const double found = scale_in(trainer.policy<Half>());
  REQUIRE(found < 65536);
  for (const bool by_step : {false, true}) CHECK(are_equal(trained(65536, by_step), trained(found, by_step)));
}

TEST_CASE("a run that is cut within or after the search continues to the same bits") {
  const auto data = batches(6);
  const auto run = [&](const std::filesystem::path& folder, Net& model, lt::FitOptions options, int64_t bad) {
    int64_t number = options.resume.empty() ? 0 : 1;
    torch::manual_seed(options.resume.empty() ? 7 : 8);
    lt::FusedAdamW adamw(model->parameters(), {.lr = 0.01});
    lt::Trainer trainer(
        model, adamw,
        [&](Net& net, const at::Tensor& x) {
          const at::Tensor loss = objective(net, x);
          return number++ < bad ? loss * INFINITY : loss;
        },
        Half{}, lt::SnapshotEvery{.folder = folder, .steps = 1, .on_signals = false});
    trainer.fit(data, options);
    return scale_in(trainer.policy<Half>());
  };
  for (const int64_t bad :
       {0, 1}) {  // after 1 step the search has ended, or the first window said nothing of it
    TemporaryFolder whole, cut;
    Net straight = net(), halting = net(), resumed = net();
    const double scale = run(whole.path(), straight, {.epochs = 1}, bad);
    run(cut.path(), halting, {.max_steps = 1}, bad);
    CHECK(run(cut.path(), resumed, {.epochs = 1, .resume = cut.path()}, bad) == scale);
    CHECK(scale < 65536);
    CHECK(are_equal(straight, resumed));
  }
}

TEST_CASE("batches are kept until the first update was made, and no longer") {
  const auto data = batches(6);
  std::vector<int64_t> users;
  Net model = net();
  lt::FusedAdamW adamw(model->parameters());
  lt::Trainer trainer(
      model, adamw,
      [&](Net& net, const at::Tensor& x) {
        users.push_back(static_cast<int64_t>(data[0].use_count()));
        return objective(net, x);
      },
      Half{}, lt::Accumulate<1>{});
  const auto alone = static_cast<int64_t>(data[0].use_count());
  trainer.fit(data);
  CHECK(users.front() > alone);
  CHECK(users.back() == alone);
}

TEST_CASE("with RetryOnOom the window is rerun by scale and by pieces") {
  const auto data = batches(6);
  const auto trained = [&](double scale, bool fails) {
    Net model = net();
    lt::FusedAdamW adamw(model->parameters(), {.lr = 0.01});
    int64_t calls = 0;
    const auto weighed = [&](Net& net, const at::Tensor& x) {
      if (fails && ++calls == 3) TORCH_CHECK_WITH(OutOfMemoryError, false, "no room");
      return lt::Loss{.value = objective(net, x), .weight = x.size(0)};
    };
    lt::Trainer trainer(model, adamw, weighed, Half{.initial_scale = scale}, lt::Accumulate<2>{},
                        lt::RetryOnOom{.report = [](const std::string&) {}});
    CHECK(trainer.fit(data).skipped == 0);
    return std::pair(model, scale_in(trainer.policy<Half>()));
  };
  const auto [model, found] = trained(65536, false);
  CHECK(found < 65536);
  CHECK(are_equal(model, trained(found, false).first));
  const auto [in_pieces, again] = trained(65536, true);
  CHECK(again <= 65536);
}

TEST_CASE("a window is not rerun at another scale on a batch that the objective writes to in place") {
  const auto train = [&](double scale) {
    Net model = net();
    lt::FusedAdamW adamw(model->parameters(), {.lr = 0.01});
    lt::Trainer trainer(
        model, adamw, [&](Net& net, at::Tensor x) { return objective(net, x.mul_(1)); },
        Half{.initial_scale = scale}, lt::Accumulate<2>{});
    trainer.fit(batches(6));
  };
  train(2);
  CHECK_THROWS_WITH(train(65536), Catch::Contains("writes to its batch in place") &&
                                      Catch::Contains("at a lower loss scale"));
}
