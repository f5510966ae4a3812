// SPDX-License-Identifier: MIT
// DataParallel{.reproducible}: the same bits on 1, 2 and 4 ranks. Each run writes what it has made to a file,
// and the files are compared.
//
// Tests distributed: group_ranks, process_group, gradient_buckets, data_parallel
// Tests resume: saved_feed
#include "support/precompiled.hpp"

#include <looptorch/data/samplers/distributed_sampler.hpp>
#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/distributed/shard_optimizer.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;

namespace chunk_sums_test {

using Batches = std::vector<toy::Batch>;

/// Returns the share of a rank: of each `block` x size batches, its block.
Batches share_of(const Batches& all, std::size_t block, std::size_t rank, std::size_t size) {
  Batches mine;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i / block % size == rank) mine.push_back(all[i]);
  return mine;
}

struct DropoutNetImpl : torch::nn::Module {
  DropoutNetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("often", often);
    register_module("never", never);
  }
  torch::nn::Linear first{4, 33}, second{33, 3}, often{33, 3}, never{2, 2};
};
TORCH_MODULE(DropoutNet);

/// A loss with dropout, a weight that is no integer, a metric, and a layer that few batches use.
lt::Loss objective(DropoutNet& net, const toy::Batch& batch) {
  const at::Tensor hidden =
      torch::dropout(torch::tanh(net->first(batch.features.to(torch::kFloat))), 0.3, net->is_training());
  at::Tensor out = net->second(hidden);
  if (batch.labels.size(0) == 3) out = out + net->often(hidden);
  lt::Loss loss{.value = torch::nn::functional::cross_entropy(out, batch.labels),
                .weight = 0.1 * static_cast<double>(batch.labels.size(0))};
  loss.metrics.push_back({"out", out.detach().mean()});
  return loss;
}

struct Scenario {
  std::string name;
  std::size_t batches, window;
  std::int64_t chunks = 4;
  bool overlap = true, first_is_heavy = false;
};

const std::vector<Scenario> kScenarios{
    {"whole windows", 24, 4},
    {"two micro-batches a chunk", 32, 8},
    {"a short last window", 27, 8},
    {"one batch in the last window", 17, 8},
    {"more chunks than ranks", 35, 16, 16},
    {"without overlap", 27, 8, 4, false},
    {"small buckets of large weights", 27, 8, 8, true, true},
};

std::string message_of(const std::string& name, std::size_t size, std::size_t rank) {
  return lt::message(name, " ", size, "-", rank);
}

std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// Writes parameters and means as bytes.
void write(const std::filesystem::path& path, const std::vector<at::Tensor>& tensors,
           const std::vector<double>& numbers) {
  std::ofstream file(path, std::ios::binary);
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor whole = tensor.detach().contiguous();
    file.write(static_cast<const char*>(whole.const_data_ptr()),
               static_cast<std::streamsize>(whole.nbytes()));
  }
  file.write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(double)));
}

TEST_CASE("rank: the same bits", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  for (const Scenario& scenario : kScenarios) {
    CAPTURE(scenario.name, rank, size);
    Batches all = toy::batches(static_cast<std::int64_t>(scenario.batches));
    if (scenario.first_is_heavy) all[1] = toy::join(all, 1, 12);
    const std::size_t block = scenario.window / size;
    torch::manual_seed(rank == 0 ? 3 : 4);  // all ranks train the model of rank 0
    DropoutNet net;
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    std::vector<double> numbers;
    const auto note = [&numbers](lt::WindowContext& window) {
      const lt::UpdateView& view = window.run.updates()[0];
      numbers.insert(numbers.end(), {view.loss.mean(), view.metrics.at("out").mean(),
                                     static_cast<double>(window.run.progress().samples)});
    };
    lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<>{static_cast<std::int64_t>(block)},
                        lt::ClipGradNorm{0.5}, lt::On{lt::kSchedule, note},
                        lt::DataParallel{.bucket_bytes = 100,
                                         .overlap = scenario.overlap,
                                         .reproducible = true,
                                         .chunks = scenario.chunks,
                                         .seed = 5});
    const auto result = trainer.fit(share_of(all, block, rank, size), {.epochs = 3});
    CHECK(result.steps ==
          static_cast<std::int64_t>(3 * ((all.size() + scenario.window - 1) / scenario.window)));
    write(ranks::folder() / message_of(scenario.name, size, rank), net->parameters(), numbers);
  }
}

TEST_CASE("The same bits on 1, 2 and 4 ranks") {
  const lt::testing::TemporaryFolder folder;
  for (const int size : {1, 2, 4})
    for (const auto& outcome : ranks::run_ranks(size, "rank: the same bits", folder.path())) {
      INFO(size << " ranks\n" << outcome.output);
      CHECK(outcome.passed());
      CHECK(outcome.output.find("All tests passed") != std::string::npos);
    }
  for (const Scenario& scenario : kScenarios) {
    const std::string one = text_of(folder / message_of(scenario.name, 1, 0));
    CHECK(one.size() > 1000);
    for (const std::size_t size : {2U, 4U})
      for (std::size_t rank = 0; rank < size; ++rank) {
        CAPTURE(scenario.name, size, rank);
        CHECK(text_of(folder / message_of(scenario.name, size, rank)) == one);
      }
  }
}

constexpr std::int64_t kWindow = 8;  // micro-batches of all ranks

/// Samples for a loader, of which every eighth is drawn anew in each epoch.
struct Numbered {
  [[nodiscard]] std::int64_t size() const { return 70; }
  [[nodiscard]] toy::Batch get(std::int64_t index) const {
    const auto at = static_cast<double>(index);
    return {torch::tensor({std::sin(at), std::cos(2 * at), std::sin(3 * at), at / 70}, torch::kDouble),
            torch::tensor(index % 3)};
  }
  [[nodiscard]] toy::Batch collate(std::span<toy::Batch> samples) const {
    std::vector<at::Tensor> features, labels;
    for (const toy::Batch& sample : samples)
      features.push_back(sample.features), labels.push_back(sample.labels);
    return {torch::stack(features), torch::stack(labels)};
  }
};

/// Trains 35 micro-batches an epoch, the last window of which is short, and writes what it has made. `from`,
/// a folder of snapshots, is gone on from; the run ends, or is killed, in step 7 if `cuts`.
template <class Range>
void train_and_write(Range&& range, const std::string& name, const std::string& from, bool cuts, bool kills,
                     bool shares) {
  const std::int64_t block = kWindow / ranks::size();
  torch::manual_seed(from.empty() ? 3 : 99 + ranks::rank());
  DropoutNet net;
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  std::vector<double> numbers;
  const auto note = [&](lt::WindowContext& window) {
    const lt::UpdateView& view = window.run.updates()[0];
    if (window.run.progress().step > 10)
      numbers.insert(numbers.end(), {view.loss.mean(), view.metrics.at("out").mean(),
                                     static_cast<double>(window.run.progress().samples)});
    if (kills && window.run.progress().step == 7) ::raise(SIGKILL);
  };
  const std::string written_by = lt::message(name, " of ", ranks::size(),
                                             !from.empty() ? " again"
                                             : cuts        ? ""
                                                           : " whole");
  lt::Trainer trainer(
      net, optimizer, objective, lt::Accumulate<>{block}, lt::ClipGradNorm{0.5}, lt::On{lt::kSchedule, note},
      lt::SnapshotEvery{.folder = ranks::folder() / lt::message(written_by, " from ", from), .steps = 2},
      lt::DataParallel{.reproducible = true, .chunks = 4, .seed = 5}, lt::When{shares, lt::ShardOptimizer{}});
  lt::FitOptions options{.epochs = 3};
  if (cuts && !kills) options.max_steps = 7;
  if (!from.empty()) options.resume = ranks::folder() / lt::message(name, " of ", from, " from ");
  const auto result = trainer.fit(range, options);
  CHECK(result.steps == (cuts ? 7 : 15));
  if (cuts) return;
  write(ranks::folder() / message_of(name + " from " + from, static_cast<std::size_t>(ranks::size()),
                                     static_cast<std::size_t>(ranks::rank())),
        net->parameters(), numbers);
}

void train_both(const std::string& from, bool cuts) {
  const std::int64_t size = ranks::size(), rank = ranks::rank();
  const auto block = static_cast<std::size_t>(kWindow / size);
  const Batches mine =
      share_of(toy::batches(35), block, static_cast<std::size_t>(rank), static_cast<std::size_t>(size));
  train_and_write(mine, "range", from, cuts, /*kills=*/false, /*shares=*/false);
  lt::PinnedPrefetchLoader loader(
      Numbered{}, {.batch_size = 2, .workers = 1},
      lt::DistributedSampler(
          {.rank = rank, .world_size = size, .uneven = lt::Uneven::keep, .block = kWindow / size * 2},
          lt::RandomSampler{.seed = 4}));
  train_and_write(loader, "loader", from, cuts, /*kills=*/cuts, /*shares=*/true);
}

TEST_CASE("killed: and gone on", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  std::istringstream from(std::getenv("GO_ON_FROM"));
  for (std::string each; std::getline(from, each, ',');) train_both(each == "none" ? "" : each, false);
  if (std::getenv("IS_CUT")) train_both("", true);
}

TEST_CASE("Killed on 4 ranks and gone on on 1 and 2, and the other way round, the same bits") {
  const lt::testing::TemporaryFolder folder;
  const auto start = [&](int size, const std::string& from, bool cuts) {
    ranks::Variables variables{{"GO_ON_FROM", from}};
    if (cuts) variables["IS_CUT"] = "1";
    for (const auto& outcome : ranks::run_ranks(size, "killed: and gone on", folder.path(), variables)) {
      INFO(size << " ranks from " << from << "\n" << outcome.output);
      if (cuts)
        CHECK((WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == SIGKILL));
      else
        CHECK(outcome.output.find("All tests passed") != std::string::npos);
      CHECK(outcome.output.find("FAILED") == std::string::npos);
    }
  };
  start(4, "", true);
  start(1, "none,4", true);
  start(2, "4,1", false);
  start(4, "1", false);
  for (const std::string name : {"range", "loader"}) {
    const std::string whole = text_of(folder / message_of(name + " from ", 1, 0));
    CHECK(whole.size() > 1000);
    for (const auto& [from, size] : {std::pair("4", 1U), {"4", 2U}, {"1", 2U}, {"1", 4U}})
      for (std::size_t rank = 0; rank < size; ++rank) {
        CAPTURE(name, from, size, rank);
        CHECK((text_of(folder / message_of(name + " from " + from, size, rank)) == whole));
      }
  }
}

TEST_CASE("Reproducible windows have the gradients of plain ones") {
  const Batches batches = toy::batches(27);
  toy::Net net = toy::net(), plain = toy::net();
  const auto train = [&](toy::Net& of, auto... policies) {
    torch::optim::AdamW optimizer(of->parameters(), torch::optim::AdamWOptions(1e-2));
    lt::Trainer trainer(of, optimizer, toy::objective, lt::Accumulate<8>{}, lt::ClipGradNorm{0.5},
                        policies...);
    return trainer.fit(batches, {.epochs = 3});
  };
  const auto expected = train(plain);
  const auto result = train(net, lt::DataParallel{.reproducible = true});
  CHECK(toy::distance(net, plain) < 1e-12);
  CHECK(result.loss == Approx(expected.loss).epsilon(1e-12));
  CHECK(result.steps == expected.steps);
}

TEST_CASE("What cannot have the same bits is refused") {
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  const auto said = [&](const lt::DataParallel& policy, auto... policies) -> std::string {
    lt::Trainer trainer(net, optimizer, toy::objective, policies..., policy);
    try {
      trainer.fit(toy::batches(16));
    } catch (const lt::Error& error) {
      return error.what();
    }
    return "";
  };
  using Catch::Contains;
  CHECK(said({.reproducible = true, .chunks = 4}, lt::Accumulate<8>{}).empty());
  CHECK_THAT(said({.reproducible = true, .chunks = 6}, lt::Accumulate<6>{}),
             Contains("power of two as `chunks`, got 6"));
  CHECK_THAT(said({.reproducible = true, .chunks = 0}), Contains("got 0"));
  CHECK_THAT(said({.reproducible = true}, lt::Accumulate<12>{}),
             Contains("a window has 12 micro-batches on each: list Accumulate<8>"));
  CHECK_THAT(said({.batch_norm = lt::BatchNormMode::per_rank, .reproducible = true, .chunks = 1}),
             Contains("batch statistics"));
  torch::optim::SGD second(net->second->parameters(), 0.05);
  lt::Trainer two(net, lt::Update(optimizer, toy::objective), lt::Update(second, toy::objective),
                  lt::DataParallel{.reproducible = true, .chunks = 1});
  CHECK_THROWS_WITH(two.fit(toy::batches(3)), Contains("one update only"));
}

TEST_CASE("three ranks: too many", "[.ranks]") {
  if (!ranks::is_started()) return;
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::DataParallel{.reproducible = true, .chunks = 4});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(3)), Catch::Contains("4 chunks, which 3 ranks cannot share"));
}

TEST_CASE("A number of ranks that does not divide the chunks is refused") {
  const lt::testing::TemporaryFolder folder;
  for (const auto& outcome : ranks::run_ranks(3, "three ranks: too many", folder.path())) {
    INFO(outcome.output);
    CHECK(outcome.passed());
  }
}

}  // namespace chunk_sums_test
