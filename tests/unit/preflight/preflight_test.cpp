// SPDX-License-Identifier: MIT
// Dry steps: what they measure, that they leave no trace, and what they propose.
// Tests preflight: dry_run, phase_probe, preflight_report, recompute_scope, remedies
// Tests preflight: sample_batches, run_backup, dry_scope, trials, remedy_search
// Tests loop/step: trainer_access
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"

#include <cstdlib>
#include <functional>
#include <iterator>
#include <new>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using Catch::Matchers::Contains;
using looptorch::testing::bits_equal;
using lt::MemoryPhase;

namespace {

struct Batch {
  at::Tensor x, y;  // [B, 64], [B]
};

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("wide", wide);
    register_module("narrow", narrow);
  }
  at::Tensor forward(const at::Tensor& x) { return x + narrow(torch::relu(wide(x))); }
  torch::nn::Linear wide{64, 512}, narrow{512, 64};
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool recomputes = false) {
    register_module("stem", stem);
    register_module("norm", norm);
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(lt::Checkpointed<Block>::make());
      blocks.back()->checkpoint.mode = recomputes ? lt::CheckpointMode::recompute : lt::CheckpointMode::off;
      register_module("block" + std::to_string(i), blocks.back());
    }
    register_module("head", head);
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::dropout(norm(stem(x)), 0.1, is_training());
    for (auto& block : blocks) x = block(x);
    return head(x);
  }
  torch::nn::Linear stem{64, 64};
  torch::nn::BatchNorm1d norm{64};
  std::vector<lt::Checkpointed<Block>> blocks;
  torch::nn::Linear head{64, 10};
};
TORCH_MODULE(Net);

at::Tensor objective(Net& net, const Batch& batch) {
  return torch::nn::functional::cross_entropy(net(batch.x), batch.y);
}

std::vector<Batch> batches(int count, std::int64_t size = 64) {
  torch::manual_seed(3);
  std::vector<Batch> all;
  for (int i = 0; i < count; ++i)
    all.push_back({torch::randn({size, 64}), torch::randint(0, 10, {size}, torch::kLong)});
  return all;
}

/// All that a run is, as bits: what a snapshot holds, and flags.
lt::SnapshotContents everything(auto& trainer) {
  lt::SnapshotContents all = trainer.snapshot();
  for (auto& [name, tensor] : all.model) tensor = tensor.clone();
  for (auto& [name, tensor] : all.averaged) tensor = tensor.clone();
  all.optimizer = lt::detail::copied(all.optimizer);
  all.state = lt::detail::copied(all.state);
  for (const auto& item : trainer.model()->named_parameters())
    all.state.set("trained." + item.key(), item.value().requires_grad());
  return all;
}

void check_equal(const lt::StateDict& a, const lt::StateDict& b) {
  REQUIRE(a.values().size() == b.values().size());
  for (const auto& [key, value] : a.values()) {
    INFO(key);
    REQUIRE(b.values().count(key) == 1);
    CHECK(bits_equal(value, b.values().at(key)));
  }
}
void check_equal(const lt::SnapshotContents& a, const lt::SnapshotContents& b) {
  CHECK(a.step == b.step);
  CHECK(a.averaged.size() == b.averaged.size());
  for (const auto& [name, tensor] : a.model) CHECK(bits_equal(tensor, b.model.at(name)));
  for (const auto& [name, tensor] : a.averaged) CHECK(bits_equal(tensor, b.averaged.at(name)));
  check_equal(a.optimizer, b.optimizer);
  check_equal(a.state, b.state);
}

const lt::PreflightOptions kRoomy{.cap = 1'000'000'000};

/// True for the same number of bytes, but for the few of the root gradient that a Trainer keeps from its
/// first step on: they are part of what a later preflight finds already there.
bool alike(std::int64_t a, std::int64_t b) { return std::abs(a - b) <= 16; }

}  // namespace

TEST_CASE("preflight: leaves no trace, before the first step, in mid-run and after running out of memory") {
  torch::manual_seed(0);
  Net net;
  lt::FusedAdamW adam(net->parameters(), lt::FusedAdamWOptions{});
  int told = 0;
  lt::Trainer trainer(net, adam, objective, lt::Accumulate<2>{}, lt::AverageWeights{}, lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::CosineDecay{}, .warmup_steps = 2},
                      lt::UnfreezeAt{{.epoch = 5, .patterns = {"stem.*"}}}, lt::WatchMemory{.out = nullptr},
                      lt::On{lt::kObserve, [&](lt::UpdateContext&) { ++told; }});
  const auto data = batches(6);
  const auto hard = batches(2, 128);

  const bool trained_before = GENERATE(false, true);
  if (trained_before) trainer.fit(data, {.max_steps = 4});
  told = 0;
  const auto before = everything(trainer);
  const auto report = lt::preflight(trainer, hard, kRoomy);
  CHECK(report.fits);
  check_equal(before, everything(trainer));

  const std::int64_t little = report.needed - 200'000;
  const auto refused = lt::preflight(trainer, hard, {.cap = little, .margin = 0});
  CHECK_FALSE(refused.fits);
  CHECK(refused.out_of_memory);
  check_equal(before, everything(trainer));
  CHECK(told == 0);
  for (const auto& block : net->blocks) CHECK(block->checkpoint.mode == lt::CheckpointMode::off);
}

TEST_CASE("preflight: memory that runs out in `new` or in a library is a result, too, and leaves no trace") {
  torch::manual_seed(0);
  Net net;
  lt::FusedAdamW adam(net->parameters(), lt::FusedAdamWOptions{});
  std::function<void()> fail;
  const auto failing = [&](Net& model, const Batch& batch) {
    if (batch.y.size(0) > 64) fail();
    return objective(model, batch);
  };
  lt::Trainer trainer(net, adam, failing, lt::ClipGradNorm{1.0});
  trainer.fit(batches(2));
  const auto hard = batches(2, 128);
  const auto before = everything(trainer);
  for (const std::function<void()>& way : {std::function<void()>([] { throw std::bad_alloc(); }),
                                           {[] { TORCH_CHECK(false, "CUBLAS_STATUS_ALLOC_FAILED"); }},
                                           {[] { TORCH_CHECK(false, "CUDNN_STATUS_ALLOC_FAILED"); }}}) {
    fail = way;
    const auto report = lt::preflight(trainer, hard, {.cap = kRoomy.cap, .try_remedies = false});
    CHECK((report.out_of_memory && !report.fits));
    check_equal(before, everything(trainer));
  }
  fail = [] { throw lt::Error("rank 1 ended: std::bad_alloc"); };
  CHECK_THROWS_AS(lt::preflight(trainer, hard, kRoomy), lt::Error);
}

TEST_CASE("preflight: what does not fit is not split, and a run that retries keeps its large micro-batches") {
  torch::manual_seed(0);
  Net net;
  lt::FusedAdamW adam(net->parameters(), lt::FusedAdamWOptions{});
  int told = 0;
  const auto weighed = [](Net& model, const Batch& batch) {
    return lt::Loss{.value = objective(model, batch), .weight = batch.y.size(0)};
  };
  lt::Trainer trainer(net, adam, weighed, lt::RetryOnOom{.report = [&](const std::string&) { ++told; }});
  const auto hard = batches(2, 128);
  const auto report = lt::preflight(trainer, hard, kRoomy);
  const auto refused = lt::preflight(trainer, hard, {.cap = report.needed - 200'000, .margin = 0});
  CHECK((report.fits && refused.out_of_memory && told == 0));
  CHECK((trainer.policy<lt::RetryOnOom>().pieces == 1 && trainer.policy<lt::RetryOnOom>().retries == 0));
}

namespace {

/// Registers a table in its first forward, and lengthens it for longer inputs.
struct TableImpl : torch::nn::Module {
  TableImpl() { register_module("linear", linear); }
  at::Tensor forward(const at::Tensor& x) {
    if (!table.defined()) table = register_buffer("table", torch::ones({4, 1}));
    if (table.size(0) < x.size(0)) table.set_data(torch::ones({x.size(0), 1}));
    return linear(x * table.narrow(0, 0, x.size(0)));
  }
  torch::nn::Linear linear{8, 8};
  at::Tensor table;
};
TORCH_MODULE(Table);

}  // namespace

TEST_CASE("preflight: a buffer that forward registers or lengthens stays") {
  Table net;
  const at::Tensor weight = net->linear->weight.detach().clone();
  lt::FusedSGD sgd(net->parameters(), {.lr = 0.1});
  lt::Trainer trainer(net, sgd, [](Table& net, const at::Tensor& x) { return net(x).square().mean(); });
  for (const std::int64_t length : {4, 6}) {
    CHECK(lt::preflight(trainer, std::vector{torch::ones({length, 8})}, {.cap = 100'000'000}).fits);
    CHECK(net->table.size(0) == length);
    CHECK(bits_equal(net->linear->weight, weight));
  }
  CHECK(trainer.fit(std::vector{torch::ones({6, 8})}).status == lt::FitStatus::completed);
}

TEST_CASE("preflight: training continues as it would have without, bit for bit") {
  const auto train = [](bool checked) {
    torch::manual_seed(0);
    Net net;
    lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
    lt::Trainer trainer(net, adam, objective, lt::Accumulate<2>{}, lt::AverageWeights{});
    const auto data = batches(6);
    torch::manual_seed(1);
    if (checked) CHECK(lt::preflight(trainer, data, kRoomy).fits);
    trainer.fit(data, {.max_steps = 2});
    if (checked) CHECK_FALSE(lt::preflight(trainer, data, {.cap = 1'000'000}).fits);
    CHECK((trainer.progress().batches_per_epoch == 6 && trainer.progress().total_steps == 2));
    const lt::testing::Warnings warnings;
    trainer.fit(data, {.max_steps = 6});
    CHECK(warnings.texts.empty());
    return everything(trainer);
  };
  check_equal(train(false), train(true));
}

TEST_CASE("preflight: predicts the peak of the fit that follows") {
  torch::manual_seed(0);
  Net net;
  torch::optim::AdamW adam(net->parameters(), torch::optim::AdamWOptions(1e-3));
  const bool averages = GENERATE(false, true);
  lt::Trainer trainer(net, adam, objective, lt::When{averages, lt::AverageWeights{}},
                      lt::WatchMemory{.out = nullptr});
  const auto hard = batches(1, 256);
  std::vector<Batch> data;  // parts of one tensor, so that the data takes as much in both
  for (int i = 0; i < 8; ++i) data.push_back(lt::detail::first_samples(hard[0], 64));
  data[5] = hard[0];
  const auto report = lt::preflight(trainer, hard, kRoomy);
  trainer.fit(data);
  const auto& watched = trainer.policy<lt::WatchMemory>();
  CHECK(report.needed == watched.peak().bytes);
  CHECK(report.phases.peak().phase == watched.peak().phase);
  for (const auto phase : {MemoryPhase::forward, MemoryPhase::backward, MemoryPhase::update})
    CHECK(report.phases.peak_in(phase) == watched.peak_in(phase));
  CHECK(report.parts.total() == report.needed);
  CHECK(report.parts.optimizer == watched.breakdown().optimizer);
}

namespace {

/// Yields batches of these sizes, each in the memory of the one before.
struct Refilled {
  struct Iterator {
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    Batch operator*() const {
      of->one.x.resize_({of->sizes[next], 64}).zero_(), of->one.y.resize_({of->sizes[next]}).zero_();
      return of->one;
    }
    Iterator& operator++() { return ++next, *this; }
    void operator++(int) { ++next; }
    bool operator==(std::default_sentinel_t) const { return next == of->sizes.size(); }
    Refilled* of = nullptr;
    std::size_t next = 0;
  };
  Iterator begin() { return {this}; }
  static std::default_sentinel_t end() { return {}; }

  std::vector<std::int64_t> sizes;
  Batch one{torch::empty({0, 64}), torch::empty({0}, torch::kLong)};
};

}  // namespace

TEST_CASE("preflight: the hardest batch counts, wherever a range that refills one batch yields it") {
  const auto needed = [](std::vector<std::int64_t> sizes) {
    Net net;
    lt::FusedSGD sgd(net->parameters(), {.lr = 0.1});
    lt::Trainer trainer(net, sgd, objective);
    return lt::preflight(trainer, Refilled{std::move(sizes)}, {.cap = 100'000'000}).needed;
  };
  const std::int64_t last = needed({16, 256}), first = needed({256, 16});
  CHECK(std::abs(first - last) * 10 < last);
}

TEST_CASE("preflight: the verdict follows the cap and the margin") {
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, objective);
  const auto hard = batches(1, 128);
  const auto check = [&](std::int64_t cap, double margin) {
    return lt::preflight(trainer, hard, {.cap = cap, .margin = margin, .try_remedies = false});
  };
  const std::int64_t needed = check(kRoomy.cap, 0).needed;
  CHECK(needed > 0);
  CHECK(check(needed, 0).fits);
  CHECK_FALSE(check(needed - 1, 0).fits);
  CHECK_FALSE(check(needed, 0.1).fits);
  CHECK_FALSE(check(needed, 0.1).out_of_memory);  // it ran, and leaves too little
  CHECK(check(needed * 10 / 9 + 1, 0.1).fits);
  CHECK(lt::preflight(trainer, hard).fits);  // of this machine
  CHECK_THAT(check(needed, 0.1).text(), Contains("does not fit: needs") &&
                                            Contains("with 10 % to stay free") &&
                                            Contains("in backward: weights"));
}

TEST_CASE("preflight: dry steps end after the window that needs too much, with the verdict of all of them") {
  torch::manual_seed(0);
  Net net;
  lt::FusedAdamW adam(net->parameters(), lt::FusedAdamWOptions{});
  const auto windows = GENERATE(1, 2);  // micro-batches a window
  lt::Trainer trainer(net, adam, objective, lt::Accumulate<>{windows}, lt::ClipGradNorm{1.0},
                      lt::RestoreBest{.metric = "loss"});
  auto hard = batches(2, 64);
  hard.push_back(batches(1, 128).front());
  const auto before = everything(trainer);  // counts, too
  const auto whole = lt::preflight(trainer, hard, kRoomy).needed;
  for (const std::int64_t most : {whole, whole - 16, whole * 3 / 4, whole / 2, std::int64_t{1}}) {
    INFO(most);
    auto options = kRoomy;
    options.stop_beyond = most;
    const auto report = lt::preflight(trainer, hard, options);
    CHECK(report.stopped == (whole > most));
    CHECK((report.needed > most) == (whole > most));
    CHECK(report.needed <= whole);
    if (!report.stopped) CHECK(report.needed == whole);
    check_equal(before, everything(trainer));
  }
  CHECK_THROWS_WITH(lt::preflight(trainer, hard, {.stop_beyond = -1}),
                    Contains("PreflightOptions::stop_beyond is in bytes, got -1"));
}

TEST_CASE("preflight: what would fit is tried, and named by policies that need what was measured") {
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, objective, lt::Accumulate<2>{});
  const auto hard = batches(1, 1024);
  const std::int64_t needed = lt::preflight(trainer, hard, kRoomy).needed;
  const auto report = lt::preflight(trainer, hard, {.cap = needed * 4 / 5, .margin = 0});
  REQUIRE_FALSE(report.fits);
  const auto find_in = [](const lt::PreflightReport& report, const std::string& change) {
    for (const auto& trial : report.tried)
      if (trial.change.find(change) != std::string::npos) return trial;
    FAIL(change << " was not tried: " << report.text());
    return lt::PreflightTrial{};
  };
  const auto find = [&](const std::string& change) { return find_in(report, change); };
  const auto with = [&](const std::vector<Batch>& data, auto... policies) {
    lt::Trainer other(net, adam, objective, policies...);
    return lt::preflight(other, data, kRoomy).needed;
  };
  const auto half = find("micro-batches of 512 with Accumulate<4>{}");
  CHECK(half.fits);
  CHECK(alike(half.needed, with(std::vector{lt::detail::first_samples(hard[0], 512)}, lt::Accumulate<4>{})));
  const auto recomputed = find("Checkpointed<");
  CHECK((recomputed.fits && recomputed.needed < needed * 3 / 4));
  CHECK_THAT(
      recomputed.change,
      Catch::StartsWith("Checkpointed<") && Catch::EndsWith("Block>{}"));  // unity builds add a namespace
  CHECK_THAT(recomputed.change, !Contains("anonymous"));
  CHECK(alike(recomputed.needed, with(hard, lt::Accumulate<2>{}, lt::Checkpointed<Block>{})));
  const auto cast = find("Autocast<bf16>{}");
  CHECK(cast.needed < needed);
  const auto listed = with(hard, lt::Accumulate<2>{}, lt::Autocast<lt::bf16>{});
  CHECK((cast.needed >= listed && cast.needed < listed + listed / 100));  // casts are kept a little longer
  CHECK(find("Freeze{\"stem.*\"}").out_of_memory);
  const auto roomier = lt::preflight(trainer, hard, {.cap = needed - 1, .margin = 0});
  CHECK(alike(find_in(roomier, "Freeze{\"stem.*\"}").needed,
              with(hard, lt::Accumulate<2>{}, lt::Freeze{"stem.*"})));
  CHECK_THAT(report.text(), Contains("\n  fits (") && Contains("): Checkpointed<"));
  for (const auto& trial : report.tried) {
    INFO(report.text());
    CHECK((report.text().find("): " + trial.change + "\n") != std::string::npos) == trial.fits);
  }
}

TEST_CASE("preflight: smaller micro-batches are tried with the gradients that wait beside them") {
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  const auto hard = batches(1, 6);  // gradients are most of the peak
  const auto half = std::vector{lt::detail::first_samples(hard[0], 3)};
  lt::Trainer trainer(net, adam, objective);
  lt::Trainer halves(net, adam, objective, lt::Accumulate<2>{});
  const auto needed = lt::preflight(trainer, hard, kRoomy).needed;
  const auto report = lt::preflight(trainer, hard, {.cap = needed - 1, .margin = 0});
  REQUIRE_FALSE(report.fits);
  CHECK(lt::preflight(halves, half, kRoomy).needed > needed);
  for (const auto& trial : report.tried)
    if (trial.change.starts_with("micro-batches")) CHECK_FALSE(trial.fits);
  CHECK(alike(lt::preflight(trainer, hard, kRoomy).needed, needed));  // windows are as long as before

  lt::Trainer released(net, adam, objective, lt::UpdateInBackward{});
  CHECK_THAT(lt::preflight(released, hard, {.cap = 100'000}).text(), !Contains("Accumulate"));
}

TEST_CASE("preflight: recomputation that the program has switched off is tried before the first fit, too") {
  Net net(/*recomputes=*/true);  // as Checkpointed layers are by default
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  const auto hard = batches(1, 1024);
  const auto changes = [&](bool recomputes) {
    lt::Trainer trainer(net, adam, objective, lt::When{recomputes, lt::Checkpointed<Block>{}});
    const auto report =
        lt::preflight(trainer, hard, {.cap = lt::preflight(trainer, hard, kRoomy).needed - 1, .margin = 0});
    CHECK_FALSE(report.fits);
    return report.text();
  };
  CHECK_THAT(changes(false), Contains("): Checkpointed<"));
  CHECK_THAT(changes(true), !Contains("Checkpointed<"));
}

TEST_CASE("preflight: bf16 is no remedy of a run that computes in 16 bits") {
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  const auto text = [&](auto... policies) {
    lt::Trainer trainer(net, adam, objective, policies...);
    return lt::preflight(trainer, batches(1, 64), {.cap = 1'000'000}).text();
  };
  CHECK_THAT(text(), Contains("Autocast<bf16>{}"));
  CHECK_THAT(text(lt::Autocast<>{}), !Contains("Autocast"));
  net->to(at::kBFloat16);
  const auto in_bf16 = [](Net& net, const Batch& batch) {
    return objective(net, {batch.x.to(at::kBFloat16), batch.y});
  };
  lt::Trainer half(net, adam, in_bf16);
  CHECK_THAT(lt::preflight(half, batches(1, 64), {.cap = 500'000}).text(), !Contains("Autocast"));
}

TEST_CASE(
    "preflight: tries the remedies that its reader has, in the reader's words, none below the least batch") {
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, objective);
  const auto hard = batches(1, 64);
  const auto flags = [](std::int64_t samples, std::int64_t count) {
    return "--batch-size " + std::to_string(samples) + " --gradient-accumulation " + std::to_string(count);
  };
  const lt::PreflightRemedies remedies{
      .least_batch = 8, .batches = flags, .recomputation = nullptr, .bf16 = "", .frozen = nullptr};
  const auto none = lt::preflight(trainer, hard, {.cap = 1'000'000, .remedies = remedies});
  REQUIRE(none.tried.size() == 1);
  CHECK(none.tried[0].change == "--batch-size 8 --gradient-accumulation 8");
  CHECK_FALSE(none.tried[0].fits);
  CHECK_THAT(none.text(), Contains("tried, and does not fit: --batch-size 8 --gradient-accumulation 8 (") &&
                              !Contains("  fits ("));

  auto all = remedies;
  all.recomputation = [](const std::string&) { return std::string("--recompute"); };
  all.bf16 = "--bf16";
  all.separator = " ";
  const auto both = lt::preflight(trainer, hard, {.cap = 1'000'000, .remedies = all});
  CHECK(both.tried.back().change == "--recompute --bf16 --batch-size 8 --gradient-accumulation 8");
  auto whole = all;
  whole.least_batch = 64;
  for (const auto& trial : lt::preflight(trainer, hard, {.cap = 1'000'000, .remedies = whole}).tried)
    CHECK_THAT(trial.change, !Contains("--batch-size"));
}

TEST_CASE("find_micro_batch: the largest divisor of the window that fits, which then trains within the cap") {
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  const auto hard = batches(1, 96);
  lt::Trainer trainer(net, adam, objective, lt::Accumulate<2>{});
  const std::int64_t needed = lt::preflight(trainer, hard, kRoomy).needed;
  const auto two = lt::preflight(trainer, std::vector{lt::detail::first_samples(hard[0], 2)}, kRoomy).needed;
  const lt::PreflightOptions options{.cap = (needed + two) / 2, .margin = 0};

  const auto found = lt::find_micro_batch(trainer, hard, options);
  REQUIRE(found.size > 1);
  CHECK(found.size < 96);
  CHECK(found.size * found.accumulate == 192);
  const auto with = [&](std::int64_t size) {
    lt::Trainer smaller(net, adam, objective, lt::Accumulate<>{192 / size});
    return lt::preflight(smaller, std::vector{lt::detail::first_samples(hard[0], size)}, options).fits;
  };
  CHECK(with(found.size));
  std::int64_t next = found.size + 1;
  while (192 % next != 0) ++next;
  CHECK_FALSE(with(next));
  CHECK(found.tried.size() <= 5);  // bisection, of eleven divisors

  CHECK(lt::find_micro_batch(trainer, hard, {.cap = two / 2}).size == 0);
  const auto all = lt::find_micro_batch(trainer, hard, kRoomy);
  CHECK(all.size == 96);
  CHECK(all.accumulate == 2);
  CHECK(all.tried.size() == 1);
}

TEST_CASE("preflight: a change that cannot be run says why") {
  Net net;  // BatchNorm refuses a single sample
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, objective);
  const auto two = batches(1, 2);
  const std::int64_t needed = lt::preflight(trainer, two, kRoomy).needed;
  const auto found = lt::find_micro_batch(trainer, two, {.cap = needed - 1, .margin = 0});
  CHECK(found.size == 0);
  REQUIRE(found.tried.size() == 2);
  CHECK(found.tried[0].out_of_memory);
  CHECK_THAT(found.tried[1].error, Contains("Expected more than 1 value per channel"));
}

TEST_CASE("preflight: layers that are unfrozen in a later epoch count") {
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  const auto needed = [&](auto... policies) {
    lt::Trainer trainer(net, adam, objective, policies...);
    return lt::preflight(trainer, batches(1, 16), kRoomy).needed;
  };
  CHECK(needed(lt::UnfreezeAt{{.epoch = 7, .patterns = {"block*"}}}) == needed());
}

TEST_CASE("preflight: averages that begin later, the best weights and a snapshot's copy count") {
  const lt::testing::TemporaryFolder folder;
  const auto check = [&](auto... policies) {
    Net net;
    lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
    lt::Trainer trainer(net, adam, objective, policies...);
    auto report = lt::preflight(trainer, batches(1, 16), kRoomy);
    CHECK(report.parts.total() + report.snapshot == report.needed);
    return report;
  };
  const auto plain = check();
  const auto averaged = check(lt::AverageWeights{}), later = check(lt::AverageWeights{.begin_after = 1000});
  CHECK(later.needed == averaged.needed);
  CHECK(later.parts.averages == averaged.parts.averages);
  CHECK(later.parts.averages > 0);

  {
    const lt::Validate validate{batches(1)};
    CHECK(check(validate, lt::RestoreBest{}).needed == check(validate).needed + plain.parts.weights);
  }

  const auto saved = check(lt::SnapshotEvery{.folder = folder.path() / "snapshots", .steps = 1});
  const std::int64_t kCounters = 64;  // steps taken, which the optimizer makes with its moments
  CHECK(std::abs(saved.snapshot - saved.parts.weights - saved.parts.optimizer) <= kCounters);
  CHECK(saved.needed == plain.needed + saved.snapshot);
  CHECK_THAT(saved.text(), Catch::Matchers::Contains(", snapshot "));
}

TEST_CASE("preflight: policies that report stay silent, and write nothing") {
  const lt::testing::TemporaryFolder folder;
  std::FILE* const file = std::tmpfile();
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, objective, lt::ShowProgress{.out = file}, lt::WatchMemory{file},
                      lt::SnapshotEvery{.folder = folder.path() / "snapshots", .steps = 1});
  CHECK(lt::preflight(trainer, batches(1), kRoomy).fits);
  CHECK(std::ftell(file) == 0);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "snapshots"));
  trainer.fit(batches(2));  // and report again afterwards
  CHECK(std::ftell(file) > 0);
  CHECK(std::filesystem::exists(folder.path() / "snapshots"));
  std::fclose(file);
}

TEST_CASE("preflight: between two fits says nothing of the learning rate, and the next fit still does") {
  Net net;
  lt::FusedAdamW adam(net->parameters(), {.lr = 1e-2});
  const auto data = batches(4, 8);
  lt::Trainer trainer(net, adam, objective, lt::ScheduleLr{});
  trainer.fit(data);
  lt::testing::Warnings warnings;
  CHECK(lt::preflight(trainer, data, kRoomy).fits);
  CHECK(warnings.texts.empty());
  trainer.fit(data, {.epochs = 3});  // of 12 steps, and 4 before
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0], Contains("jumps from 0.0025 to 0.00666667 in step 4") &&
                                    Contains("was to end at step 4") && Contains("now ends at step 12"));
  CHECK(lt::preflight(trainer, data, kRoomy).fits);
  CHECK(warnings.texts.size() == 1);
}

TEST_CASE("preflight: several updates, each of which keeps the window's batches") {
  Net a, b;
  struct PairImpl : torch::nn::Module {
    PairImpl(const Net& a, const Net& b) : a(register_module("a", a)), b(register_module("b", b)) {}
    Net a, b;
  };
  auto pair = std::make_shared<PairImpl>(a, b);
  lt::FusedAdam first(a->parameters(), lt::FusedAdamOptions{}),
      second(b->parameters(), lt::FusedAdamOptions{});
  const auto of = [](auto member) {
    return [member](std::shared_ptr<PairImpl>& pair, const Batch& batch) {
      return objective((*pair).*member, batch);
    };
  };
  lt::Trainer trainer(pair, lt::Update{first, of(&PairImpl::a)},
                      lt::Update{second, of(&PairImpl::b), {.every = 3}}, lt::Accumulate<2>{},
                      lt::WatchMemory{.out = nullptr});
  const auto hard = batches(1, 256);
  const auto report = lt::preflight(trainer, hard, kRoomy);
  std::vector<Batch> data(12, hard[0]);
  trainer.fit(data);
  CHECK(double(report.needed) ==
        Approx(double(trainer.policy<lt::WatchMemory>().peak().bytes)).epsilon(0.01));
}

TEST_CASE("preflight: refuses what it cannot run on, and passes on what the objective throws") {
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, objective);
  const auto some = batches(1);
  auto wrong = some;
  wrong[0].y = wrong[0].y + 100;
  const auto before = everything(trainer);
  CHECK_THROWS_WITH(lt::preflight(trainer, std::vector<Batch>{}), Contains("no batches"));
  CHECK_THROWS_WITH(lt::preflight(trainer, some, {.margin = 1.0}), Contains("got 1"));
  CHECK_THROWS_WITH(lt::preflight(trainer, some, {.cap = -5}), Contains("got -5"));
  CHECK_THROWS_WITH(lt::preflight(trainer, std::vector{Batch{torch::tensor(1), torch::tensor(1)}}),
                    Contains("without samples"));
  CHECK_THROWS_AS(lt::preflight(trainer, wrong), c10::Error);
  check_equal(before, everything(trainer));
}

TEST_CASE(
    "preflight: samples of a dataset are collated, in smaller batches, too; those that fail are skipped") {
  struct Clips {
    struct Sample {
      at::Tensor x;
      std::int64_t y;
    };
    struct Collated {
      at::Tensor x, y;
      std::vector<std::int64_t> lengths;  // by which a view of the tensors alone would be wrong
    };
    std::int64_t size() const { return 40; }
    Sample get(std::int64_t index) const {
      if (index == 3) throw std::runtime_error("clip 3 is broken");
      return {torch::full({64}, double(index)), index % 10};
    }
    Collated collate(std::span<Sample> samples) const {
      std::vector<at::Tensor> x;
      std::vector<std::int64_t> y;
      for (const Sample& sample : samples) x.push_back(sample.x), y.push_back(sample.y);
      return {torch::stack(x), torch::tensor(y), y};
    }
  };
  Net net;
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  const auto of_clips = [](Net& net, const Clips::Collated& batch) {
    if (std::int64_t(batch.lengths.size()) != batch.x.size(0)) throw std::logic_error("lengths of others");
    return torch::nn::functional::cross_entropy(net(batch.x), batch.y);
  };
  lt::Trainer trainer(net, adam, of_clips, lt::Accumulate<2>{});
  const Clips clips;
  std::vector<std::int64_t> all(32);
  std::iota(all.begin(), all.end(), 0);
  const lt::SampleBatches batches(clips, {all, {3}});
  const auto report = lt::preflight(trainer, batches, kRoomy);
  CHECK(report.fits);
  CHECK(batches.of_at_most(100).size() == 1);
  CHECK(batches.of_at_most(100)[0].x.size(0) == 31);
  CHECK(batches.of_at_most(4)[0].lengths == std::vector<std::int64_t>{0, 1, 2, 4});
  const auto found = lt::find_micro_batch(trainer, batches, {.cap = report.needed - 1, .margin = 0});
  CHECK(found.size > 1);
  CHECK(found.size * found.accumulate == 64);
  CHECK_THROWS_WITH(lt::preflight(trainer, lt::SampleBatches(clips, {{3}})), Contains("clip 3 is broken"));
}
