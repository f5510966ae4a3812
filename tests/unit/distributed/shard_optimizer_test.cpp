// SPDX-License-Identifier: MIT
// Sharded optimizers: the numbers of the plain run, moments that take one part in so many as
// there are ranks, and snapshots that any number of ranks goes on from. The processes that this file starts
// run the hidden cases of all files here whose names begin with "part: ".
//
// Tests distributed: shard_optimizer, bucket_layout, gradient_buckets, group_ranks, shard_layout
// Tests optim/state: optimizer_shards
// Tests ranks: rank_update
// Tests resume: shard_states
#include "support/precompiled.hpp"

#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/distributed/shard_optimizer.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;

namespace shard_optimizer_test {

using Batches = std::vector<toy::Batch>;

/// Layers large enough to be cut, small ones, one that few batches use, and one that none does.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
    register_module("often", often);
    register_module("never", never);
    to(torch::kDouble);
  }
  torch::nn::Linear first{4, 700}, second{700, 64}, third{64, 3}, often{64, 3}, never{64, 64};
};
TORCH_MODULE(Net);

lt::Loss objective(Net& net, const toy::Batch& batch) {
  const auto type = net->first->weight.scalar_type();
  const at::Tensor hidden = torch::tanh(net->second(torch::tanh(net->first(batch.features.to(type)))));
  at::Tensor out = net->third(hidden);
  if (batch.labels.size(0) == 3) out = out + net->often(hidden);
  return {.value = torch::nn::functional::cross_entropy(out.to(torch::kDouble), batch.labels),
          .weight = batch.labels.size(0)};
}

Net net_of(std::uint64_t seed, at::ScalarType type = at::kDouble) {
  torch::manual_seed(seed);
  Net net;
  net->to(type);
  return net;
}

Batches share_of(const Batches& all, std::size_t window, std::size_t rank, std::size_t size) {
  Batches mine;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i / window % size == rank) mine.push_back(all[i]);
  return mine;
}

std::size_t size_of_ranks() { return static_cast<std::size_t>(ranks::size()); }
std::size_t this_rank() { return static_cast<std::size_t>(ranks::rank()); }

/// Trains the whole in this process and its share on all ranks, and compares.
template <class Optimizer, class Options, class... Policies>
double distance_of_shared(const Options& options, at::ScalarType type, std::size_t window,
                          const Policies&... policies) {
  const std::size_t size = size_of_ranks(), rank = this_rank();
  const Batches all = toy::batches(static_cast<std::int64_t>(5 * window * size) - 2);
  const auto train = [&](Net& net, const Batches& batches, std::size_t length, auto... more) {
    Optimizer optimizer(net->parameters(), options);
    lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<>{static_cast<std::int64_t>(length)},
                        policies..., more...);
    return trainer.fit(batches, {.epochs = 2});
  };
  Net one = net_of(0, type), net = net_of(rank, type);
  const auto expected = train(one, all, window * size);
  const auto result = train(net, share_of(all, window, rank, size), window,
                            lt::DataParallel{.bucket_bytes = 20000}, lt::ShardOptimizer{});
  CHECK(result.steps == expected.steps);
  CHECK(result.loss == Approx(expected.loss).epsilon(type == at::kDouble ? 1e-12 : 1e-3));
  return toy::distance(one, net);
}

TEST_CASE("part: numbers of the plain run", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  CHECK(distance_of_shared<lt::FusedAdamW>(lt::FusedAdamWOptions{.lr = 1e-2}, at::kDouble, 1) < 1e-12);
  CHECK(distance_of_shared<lt::FusedAdamW>(lt::FusedAdamWOptions{.lr = 1e-2, .amsgrad = true}, at::kDouble, 2,
                                           lt::ClipGradNorm{0.1},
                                           lt::ScheduleLr{.decay = lt::LinearDecay{}}) < 1e-12);
  CHECK(distance_of_shared<lt::FusedAdam>(lt::FusedAdamOptions{.lr = 1e-2}, at::kDouble, 1,
                                          lt::ClipGradNorm{0.1, HUGE_VAL}) < 1e-12);
  CHECK(distance_of_shared<lt::FusedSGD>(lt::FusedSGDOptions{.lr = 0.05, .momentum = 0.9}, at::kDouble, 1,
                                         lt::ClipGradValue{0.01}) < 1e-12);
  CHECK(distance_of_shared<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2), at::kDouble, 2,
                                                lt::ClipGradNorm{0.1}) < 1e-12);
  CHECK(distance_of_shared<lt::AdamW8bit>(lt::AdamW8bitOptions{.lr = 1e-3}, at::kFloat, 1) < 2e-3);
  CHECK(distance_of_shared<lt::AdamWBf16>(lt::AdamWBf16Options{.lr = 1e-3}, at::kFloat, 1) < 2e-3);
}

TEST_CASE("part: several updates", "[.ranks]") {
  if (!ranks::is_started()) return;
  const std::size_t size = size_of_ranks(), rank = this_rank();
  const Batches all = toy::batches(static_cast<std::int64_t>(6 * size) - 1);
  const auto train = [&](Net& net, const Batches& batches, std::int64_t window, auto... policies) {
    lt::FusedAdamW first(net->second->parameters(), {.lr = 1e-2});
    torch::optim::SGD second(net->third->parameters(), 0.05);
    lt::Trainer trainer(net, lt::Update(first, objective), lt::Update(second, objective, {.every = 2}),
                        lt::Accumulate<>{window}, lt::ClipGradNorm{0.1}, policies...);
    trainer.fit(batches, {.epochs = 2});
  };
  Net one = net_of(0), net = net_of(rank);
  train(one, all, 2 * static_cast<std::int64_t>(size));
  train(net, share_of(all, 2, rank, size), 2, lt::DataParallel{}, lt::ShardOptimizer{});
  CHECK(toy::distance(one, net) < 1e-12);
}

TEST_CASE("part: two updates of one parameter", "[.ranks]") {
  if (!ranks::is_started()) return;
  const std::size_t size = size_of_ranks(), rank = this_rank();
  const Batches all = toy::batches(static_cast<std::int64_t>(6 * size) - 1);
  const auto train = [&](Net& net, const Batches& batches, std::int64_t window, auto... policies) {
    std::vector<at::Tensor> some = net->third->parameters();
    some.push_back(net->first->weight);
    lt::FusedAdamW first(net->parameters(), {.lr = 1e-2});
    lt::FusedSGD second(some, {.lr = 0.05, .momentum = 0.9}), same(net->parameters(), {.lr = 0.01});
    lt::Trainer trainer(net, lt::Update(second, objective), lt::Update(first, objective),
                        lt::Update(same, objective), lt::Accumulate<>{window}, policies...);
    trainer.fit(batches, {.epochs = 2});
  };
  Net one = net_of(0), net = net_of(rank);
  train(one, all, 2 * static_cast<std::int64_t>(size));
  train(net, share_of(all, 2, rank, size), 2, lt::DataParallel{}, lt::ShardOptimizer{});
  CHECK(toy::distance(one, net) < 1e-12);
}

/// Returns the bytes of moments, step counts left out.
std::int64_t bytes_of(const lt::FusedAdamW& optimizer) {
  std::int64_t bytes = 0;
  for (const lt::AdamMoments& moments : optimizer.moments())
    for (const auto* list : {&moments.first, &moments.second})
      for (const at::Tensor& tensor : *list)
        if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

/// Notes what the run holds, as Run::held_memory counts it.
struct NoteHeld {
  std::int64_t* optimizer;
  static constexpr bool reads_memory = true;
  void on_window_end(lt::WindowContext& window) const { *optimizer = window.run.held_memory().optimizer; }
};

TEST_CASE("part: memory of moments", "[.ranks]") {
  if (!ranks::is_started()) return;
  const std::size_t size = size_of_ranks(), rank = this_rank();
  Net net = net_of(0);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  std::int64_t held = 0;
  lt::Trainer trainer(net, optimizer, objective, NoteHeld{&held}, lt::DataParallel{}, lt::ShardOptimizer{});
  trainer.fit(share_of(toy::batches(static_cast<std::int64_t>(8 * size)), 1, rank, size));
  const std::int64_t bytes = bytes_of(optimizer);
  std::int64_t whole = 0;
  for (const auto* layer : {&net->first, &net->second, &net->third, &net->often})
    for (const at::Tensor& parameter : (*layer)->parameters())
      whole += 2 * static_cast<std::int64_t>(parameter.nbytes());
  CAPTURE(bytes, whole, size);
  CHECK(static_cast<double>(bytes) <= 1.05 * static_cast<double>(whole) / static_cast<double>(size));
  CHECK(held >= bytes);
  CHECK(held <= bytes + 1000);  // with step counts
  std::ofstream(ranks::folder() / lt::message("bytes", rank)) << bytes;
  if (rank == 0) std::ofstream(ranks::folder() / "whole") << whole;
}

/// One run with snapshots; the folder's name says which.
template <class Optimizer, class Options>
lt::FitResult train_with_snapshots(Net& net, const Options& options, const lt::FitOptions& fit,
                                   const std::filesystem::path& folder, bool shares = true) {
  const std::size_t size = size_of_ranks(), rank = this_rank();
  Optimizer optimizer(net->parameters(), options);
  lt::Trainer trainer(net, optimizer, objective, lt::SnapshotEvery{.folder = folder, .steps = 2},
                      lt::ClipGradNorm{0.1}, lt::DataParallel{.bucket_bytes = 20000},
                      lt::When{shares, lt::ShardOptimizer{}});
  return trainer.fit(share_of(toy::batches(static_cast<std::int64_t>(5 * size) - 1), 1, rank, size), fit);
}

template <class Optimizer, class Options>
void cut_and_resume(const std::string& name, const Options& options, at::ScalarType type) {
  const auto folder = [&](const char* which) { return ranks::folder() / (name + which); };
  Net whole = net_of(0, type), cut = net_of(0, type), resumed = net_of(7, type), plain = net_of(8, type);
  (void)train_with_snapshots<Optimizer>(whole, options, {.epochs = 3}, folder(" whole"));
  CHECK(train_with_snapshots<Optimizer>(cut, options, {.epochs = 3, .max_steps = 7}, folder(" cut")).steps ==
        7);
  CHECK(train_with_snapshots<Optimizer>(resumed, options, {.epochs = 3, .resume = folder(" cut")},
                                        folder(" resumed"))
            .steps == 15);
  CHECK(toy::distance(whole, resumed) == 0.0);
  // Without sharing, from the same snapshot: the sums of gradients are the same numbers in another order.
  (void)train_with_snapshots<Optimizer>(plain, options, {.epochs = 3, .resume = folder(" cut")},
                                        folder(" plain"), /*shares=*/false);
  if (type == at::kDouble) CHECK(toy::distance(whole, plain) < 1e-12);
  if (ranks::rank() == 0) CHECK(std::filesystem::exists(folder(" cut") / "step-00000007"));
}

TEST_CASE("part: snapshots", "[.ranks]") {
  if (!ranks::is_started()) return;
  cut_and_resume<lt::FusedAdamW>("fused", lt::FusedAdamWOptions{.lr = 1e-2}, at::kDouble);
  cut_and_resume<torch::optim::AdamW>("libtorch", torch::optim::AdamWOptions(1e-2), at::kDouble);
  cut_and_resume<lt::AdamW8bit>("narrow", lt::AdamW8bitOptions{.lr = 1e-2}, at::kFloat);
  if (ranks::rank() == 0) {
    const auto step = ranks::folder() / "fused cut" / "step-00000007";
    for (int other = 1; other < ranks::size(); ++other)
      CHECK(std::filesystem::file_size(step / lt::detail::shard_file_name(other)) > 1000);
    for (const auto& entry : std::filesystem::directory_iterator(ranks::folder() / "fused cut"))
      CHECK(!lt::detail::is_left_shard(entry.path().filename().string()));
  }
}

TEST_CASE("part: reproducible", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  const std::size_t size = size_of_ranks(), rank = this_rank(), window = 8 / size;
  const Batches mine = share_of(toy::batches(27), window, rank, size);
  const auto train = [&](Net& net, auto... policies) {
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<>{static_cast<std::int64_t>(window)},
                        lt::ClipGradNorm{0.1}, lt::DataParallel{.reproducible = true}, policies...);
    trainer.fit(mine, {.epochs = 2});
  };
  Net plain = net_of(3, at::kFloat), net = net_of(3, at::kFloat);
  train(plain);
  train(net, lt::ShardOptimizer{});
  CHECK(toy::distance(plain, net) == 0.0);
}

TEST_CASE("part: an overflow in another rank's part", "[.ranks]") {
  if (!ranks::is_started()) return;
  Net net = net_of(0, at::kFloat);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-3});
  // The gradient of one bias alone is infinite: only the rank that has it sees that.
  const auto overflowing = [](Net& net, const toy::Batch& batch) {
    const at::Tensor loss = objective(net, batch).value.to(torch::kFloat);
    const at::Tensor bias = net->third->bias.sum();
    return batch.labels.size(0) == 1 && ranks::rank() == 1 ? loss + 1e37 * (bias - bias.detach()) : loss;
  };
  lt::Trainer trainer(net, optimizer, overflowing, lt::Autocast<lt::fp16>{.initial_scale = 1024},
                      lt::ClipGradNorm{1.0}, lt::DataParallel{}, lt::ShardOptimizer{});
  const Batches batches = toy::batches(8);
  const auto overflows = std::count_if(batches.begin(), batches.end(),
                                       [](const toy::Batch& batch) { return batch.labels.size(0) == 1; });
  CHECK(trainer.fit(batches).skipped == overflows);
  for (const at::Tensor& parameter : net->parameters()) CHECK(std::isfinite(parameter.sum().item<double>()));
  CHECK(trainer.policy<lt::Autocast<lt::fp16>>().scale.item<float>() ==
        1024.0F / std::exp2(static_cast<float>(overflows)));
}

/// An optimizer that does not say what it keeps.
struct Secretive : torch::optim::SGD {
  using torch::optim::SGD::SGD;
  void state_dict(lt::StateDict&) const {}
  void load_state_dict(const lt::StateDict&) {}
};

struct ReadsGradients {
  void before_update(lt::UpdateContext& update) const { (void)update.gradients(); }
};

TEST_CASE("part: an optimizer that cannot be sharded is refused", "[.ranks]") {
  if (!ranks::is_started()) return;
  const Batches batches = toy::batches(3);
  using Catch::Contains;
  {
    Net net = net_of(0);
    Secretive optimizer(net->parameters(), 0.05);
    lt::Trainer trainer(net, optimizer, objective, lt::DataParallel{}, lt::ShardOptimizer{});
    CHECK_THROWS_WITH(trainer.fit(batches), Contains("ShardOptimizer cannot shard") && Contains("Secretive"));
  }
  {
    Net net = net_of(0);
    lt::FusedSGD optimizer(net->parameters(), {.lr = 0.05});
    lt::Trainer alone(net, optimizer, objective, lt::ShardOptimizer{});
    CHECK_THROWS_WITH(alone.fit(batches), Contains("over the ranks of DataParallel: list that, too"));
    lt::Trainer trainer(net, optimizer, objective, lt::DataParallel{}, lt::ShardOptimizer{},
                        lt::When{false, lt::SnapshotEvery{}});
    trainer.fit(batches);
    CHECK_THROWS_WITH(trainer.snapshot(), Contains("moments are sharded (ShardOptimizer)"));
  }
  Net net = net_of(0);
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.05});
  lt::Trainer trainer(net, optimizer, objective, ReadsGradients{}, lt::DataParallel{}, lt::ShardOptimizer{});
  CHECK_THROWS_WITH(trainer.fit(batches),
                    Contains("ReadsGradients reads gradients, and under ShardOptimizer"));
}

/// Goes on alone from what several ranks have written.
TEST_CASE("alone: from the snapshots of several ranks", "[.ranks]") {
  if (!ranks::is_started()) return;
  Net net = net_of(9);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  lt::Trainer trainer(net, optimizer, objective, lt::SnapshotEvery{.folder = ranks::folder() / "alone"},
                      lt::ClipGradNorm{0.1}, lt::DataParallel{}, lt::ShardOptimizer{});
  const auto size = static_cast<std::size_t>(std::stoi(std::getenv("WRITTEN_BY")));
  const Batches all = toy::batches(static_cast<std::int64_t>(5 * size) - 1);
  const auto result = trainer.fit(share_of(all, 1, 0, size),
                                  {.epochs = 3, .max_steps = 8, .resume = ranks::folder() / "fused cut"});
  CHECK(result.steps == 8);
  CHECK(result.resumed->step == 7);
  std::int64_t whole = 0;
  for (const at::Tensor& parameter : net->parameters())
    whole += 2 * static_cast<std::int64_t>(parameter.nbytes());
  CHECK(bytes_of(optimizer) <= whole);
  CHECK(bytes_of(optimizer) > whole / 2);
}

std::int64_t number_in(const std::filesystem::path& path) {
  std::int64_t number = -1;
  std::ifstream(path) >> number;
  return number;
}

void require_all_passed(const std::vector<ranks::Outcome>& outcomes, const std::string& name) {
  for (const auto& outcome : outcomes) {
    INFO(name << "\n" << outcome.output);
    CHECK(outcome.passed());
    CHECK(outcome.output.find("All tests passed") != std::string::npos);
  }
}

TEST_CASE("Ranks that share an optimizer out train as one process does") {
  for (const int size : {2, 4}) {
    CAPTURE(size);
    const lt::testing::TemporaryFolder folder;
    require_all_passed(ranks::run_ranks(size, "part: *", folder.path()), "part: *");
    std::int64_t sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += number_in(folder / lt::message("bytes", rank));
    CHECK(sum == number_in(folder / "whole"));
    if (size == 4)
      require_all_passed(ranks::run_ranks(1, "alone: *", folder.path(), {{"WRITTEN_BY", "4"}}), "alone");
  }
}

TEST_CASE("Parts of parameters") {
  const auto tensors = [](std::initializer_list<std::int64_t> sizes) {
    std::vector<at::Tensor> result;
    for (const std::int64_t size : sizes) result.push_back(torch::zeros({size}));
    return result;
  };
  const auto loads_of = [](const std::vector<at::Tensor>& parameters, std::int64_t size, bool by_element) {
    std::vector<std::int64_t> loads(static_cast<std::size_t>(size));
    for (std::int64_t rank = 0; rank < size; ++rank) {
      lt::detail::ShardLayout parts(rank, size, by_element);
      parts.refresh(parameters);
      for (const auto& split : parts.all()) {
        std::int64_t at = 0;
        for (const lt::ShardRange& range : split->ranges) {
          CHECK(range.begin == at);
          CHECK(range.begin % lt::detail::ShardLayout::kGrain == 0);
          at += range.count;
        }
        CHECK(at == split->whole.numel());
      }
      for (const at::Tensor& part : parts.tensors()) loads[static_cast<std::size_t>(rank)] += part.numel();
    }
    return loads;
  };
  for (const std::int64_t size : {1, 2, 3, 4, 7}) {
    const auto parameters = tensors({3, 50000, 255, 256, 511, 512, 513, 7, 20000, 1});
    const auto loads = loads_of(parameters, size, true);
    CHECK(*std::ranges::max_element(loads) - *std::ranges::min_element(loads) <=
          2 * lt::detail::ShardLayout::kGrain);
  }
  CHECK(loads_of(tensors({100, 50, 30, 20}), 2, false) == std::vector<std::int64_t>{100, 100});
  CHECK(loads_of(tensors({}), 2, true) == std::vector<std::int64_t>{0, 0});
  CHECK(loads_of(tensors({0, 512, 0}), 2, true) == std::vector<std::int64_t>{256, 256});

  lt::detail::ShardLayout parts(0, 2, true);
  std::vector<at::Tensor> parameters = tensors({1024, 2048});
  parts.refresh(parameters);
  const at::Tensor before = parts.of(parameters[0]).shard;
  parameters.insert(parameters.begin(), torch::zeros({4096}));  // one joins, the others stay where they are
  parts.refresh(parameters);
  CHECK(parts.of(parameters[1]).shard.is_same(before));
  parameters[1].set_data(torch::ones({1024}));
  parts.refresh(parameters);
  CHECK(before.sum().item<double>() == static_cast<double>(before.numel()));
  before.fill_(2.0);
  CHECK(parameters[1].sum().item<double>() == 1024.0 + static_cast<double>(before.numel()));
}

TEST_CASE("One process shares nothing out") {
  Net net = net_of(0), plain = net_of(0);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2}), reference(plain->parameters(), {.lr = 1e-2});
  lt::Trainer trainer(net, optimizer, objective, lt::DataParallel{}, lt::ShardOptimizer{});
  lt::Trainer other(plain, reference, objective);
  trainer.fit(toy::batches(5));
  other.fit(toy::batches(5));
  CHECK(toy::distance(net, plain) == 0.0);
  CHECK(!trainer.policy<lt::ShardOptimizer>().is_sharded);
}

}  // namespace shard_optimizer_test
