// SPDX-License-Identifier: MIT
// Wherever memory runs out within a window, the run goes on as one with enough memory.
//
// Tests redo: train_rerunnable, redone_window, retry
// Tests loop/step: redo_state
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/loop.hpp>
#include <looptorch/memory/checkpoint.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/policies/accumulate.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/policies/retry_on_oom.hpp>

#include "support/numbered_samples.hpp"
#include "support/toy.hpp"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace looptorch;

namespace {

/// A CPU allocator whose n-th allocation from now on fails, or each one of more bytes than a limit. It stands
/// before the library's own counter, which other tests of the process read.
class FailingAllocator final : public c10::Allocator {
 public:
  static FailingAllocator& instance() {
    static auto* const allocator = [] {
      auto* const made = new FailingAllocator;  // tensors may outlive all static objects
      c10::SetCPUAllocator(made, /*priority=*/2);
      return made;
    }();
    return *allocator;
  }

  /// Fails the n-th allocation (1 is the next), once.
  void fail_at(std::int64_t n) { countdown_ = n; }
  /// Fails each allocation of more bytes; 0: none.
  void fail_beyond(std::size_t bytes) { most_ = bytes; }
  [[nodiscard]] bool has_failed() const { return countdown_ <= 0; }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (countdown_ > 0 && --countdown_ == 0) out_of_memory(bytes);
    if (most_ > 0 && bytes > most_) out_of_memory(bytes);
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void out_of_memory(std::size_t bytes) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "no room for ", bytes, " bytes");
  }

  c10::Allocator* inner_ = &HostMemory::counted();
  std::int64_t countdown_ = 0;
  std::size_t most_ = 0;
};

RetryOnOom quiet_retries() {
  return {.report = [](const std::string&) {}};
}

double furthest(toy::Net& a, toy::Net& b) {
  double most = 0;
  for (std::size_t i = 0; i < a->parameters().size(); ++i)
    most = std::max(most, (a->parameters()[i] - b->parameters()[i]).abs().max().item<double>());
  return most;
}

/// Calls `train(net, retries)` with each allocation failing in turn, and compares with `train(net)`.
template <class Train>
void recovers_everywhere(const Train& train) {
  auto& memory = FailingAllocator::instance();
  toy::Net expected = toy::net();
  train(expected);
  for (std::int64_t n = 1;; ++n) {
    CAPTURE(n);
    toy::Net net = toy::net();
    memory.fail_at(n);
    REQUIRE_NOTHROW(train(net, quiet_retries()));
    if (!memory.has_failed()) break;
    CHECK(furthest(net, expected) < 1e-12);
  }
  memory.fail_at(0);
}

}  // namespace

TEST_CASE("RetryOnOom: wherever an allocation of a fit fails, the run ends as one with enough memory") {
  auto& memory = FailingAllocator::instance();
  const auto batches = toy::batches(6);
  const auto train = [&](toy::Net& net, auto... policies) {
    FusedAdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer, toy::objective, Accumulate<3>{}, ClipGradNorm{0.5}, policies...);
    trainer.fit(batches);
    return trainer.updates()[0].loss.mean();
  };
  toy::Net expected = toy::net(), same = toy::net();
  const double loss = train(expected);
  CHECK(train(same, quiet_retries()) == loss);
  CHECK(furthest(same, expected) == 0);

  std::int64_t recovered = 0;
  for (std::int64_t n = 1;; ++n) {
    CAPTURE(n);
    toy::Net net = toy::net();
    memory.fail_at(n);
    double found = 0;
    REQUIRE_NOTHROW(found = train(net, quiet_retries()));
    if (!memory.has_failed()) break;
    ++recovered;
    CHECK(furthest(net, expected) < 1e-12);
    CHECK(found == Approx(loss).epsilon(1e-12));
  }
  memory.fail_at(0);
  CHECK(recovered > 100);
}

TEST_CASE("RetryOnOom: with several updates, an update's part is rerun, and no other update twice") {
  const auto batches = toy::batches(4);
  const auto train = [&](toy::Net& net, auto... policies) {
    FusedAdamW first(net->first->parameters()), second(net->second->parameters());
    Trainer trainer(net, Update{first, &toy::objective}, Update{second, &toy::objective}, Accumulate<2>{},
                    policies...);
    trainer.fit(batches);
  };
  recovers_everywhere(train);
}

namespace {

/// Batches of `size` samples.
std::vector<toy::Batch> even_batches(std::int64_t count, std::int64_t size) {
  torch::manual_seed(5);
  std::vector<toy::Batch> batches;
  for (std::int64_t i = 0; i < count; ++i)
    batches.push_back({torch::randn({size, 4}, torch::kDouble), torch::randint(0, 3, {size}, torch::kLong)});
  return batches;
}

/// The objective, with a temporary of `bytes_a_sample` bytes for each sample.
auto hungry(std::int64_t bytes_a_sample) {
  return [bytes_a_sample](toy::Net& net, const toy::Batch& batch) {
    (void)at::empty({batch.labels.size(0) * bytes_a_sample}, at::kByte);
    return toy::objective(net, batch);
  };
}

}  // namespace

TEST_CASE(
    "RetryOnOom: pieces are halved until they fit, kept, and doubled again when memory suffices for a while") {
  auto& memory = FailingAllocator::instance();
  toy::Net net = toy::net();
  FusedAdamW optimizer(net->parameters());
  std::vector<std::string> told;
  Trainer trainer(
      net, optimizer, hungry(1 << 20),
      RetryOnOom{.relax_after = 3, .report = [&](const std::string& line) { told.push_back(line); }});
  memory.fail_beyond(2 << 20);  // two samples at once
  trainer.fit(even_batches(2, 8));
  const auto& state = trainer.policy<RetryOnOom>();
  CHECK((state.pieces == 4 && state.retries == 2 && state.windows == 1 && state.most_pieces == 4));
  REQUIRE(told.size() == 2);
  CHECK(told[0] == "memory ran out in step 0; retrying in pieces of 4 of 8 samples");
  CHECK(told[1] == "memory ran out in step 0; retrying in pieces of 2 of 8 samples");
  memory.fail_beyond(0);

  const StateDict saved = trainer.state_dict();
  trainer.fit(even_batches(1, 8));
  CHECK(state.pieces == 4);
  trainer.fit(even_batches(1, 8));  // the third window without a retry
  CHECK(state.pieces == 2);
  trainer.fit(even_batches(3, 8));
  CHECK((state.pieces == 1 && state.retries == 2));
  trainer.load_state_dict(saved);
  CHECK((trainer.policy<RetryOnOom>().pieces == 4 && trainer.policy<RetryOnOom>().calm == 1));
}

TEST_CASE("RetryOnOom: windows before memory ran out again do not count for relax_after") {
  auto& memory = FailingAllocator::instance();
  toy::Net net = toy::net();
  FusedAdamW optimizer(net->parameters());
  Trainer trainer(net, optimizer, hungry(1 << 20),
                  RetryOnOom{.relax_after = 3, .report = [](const std::string&) {}});
  const auto& state = trainer.policy<RetryOnOom>();
  memory.fail_beyond(4 << 20);
  trainer.fit(even_batches(3, 8));  // two windows without a retry
  CHECK((state.pieces == 2 && state.calm == 2));
  memory.fail_beyond(2 << 20);
  trainer.fit(even_batches(1, 8));
  memory.fail_beyond(0);
  CHECK((state.pieces == 4 && state.calm == 0));
  trainer.fit(even_batches(2, 8));
  CHECK(state.pieces == 4);
  trainer.fit(even_batches(1, 8));
  CHECK(state.pieces == 2);
}

TEST_CASE("RetryOnOom: the window that ran out of memory is none of relax_after") {
  auto& memory = FailingAllocator::instance();
  toy::Net net = toy::net();
  FusedAdamW optimizer(net->parameters());
  Trainer trainer(net, optimizer, hungry(1 << 20),
                  RetryOnOom{.relax_after = 1, .report = [](const std::string&) {}});
  memory.fail_beyond(4 << 20);
  trainer.fit(even_batches(6, 8));
  memory.fail_beyond(0);
  CHECK(trainer.policy<RetryOnOom>().windows == 3);  // each second one: kept for one window, then relaxed
}

TEST_CASE(
    "RetryOnOom: single samples are tried once more with an empty cache, then the fit says what was tried") {
  auto& memory = FailingAllocator::instance();
  toy::Net net = toy::net();
  const auto before = net->parameters()[0].clone();
  FusedAdamW optimizer(net->parameters());
  std::vector<std::string> told;
  Trainer trainer(net, optimizer, hungry(1 << 20),
                  RetryOnOom{.report = [&](const std::string& line) { told.push_back(line); }});
  memory.fail_beyond(1 << 19);
  CHECK_THROWS_WITH(
      trainer.fit(even_batches(1, 4)),
      Catch::Contains("memory ran out in step 0 with single samples, also once the cache was "
                      "emptied; use shorter samples, Checkpointed, or a smaller model: no room for"));
  memory.fail_beyond(0);
  CHECK(trainer.policy<RetryOnOom>().retries == 3);
  CHECK(told == std::vector<std::string>{"memory ran out in step 0; retrying in pieces of 2 of 4 samples",
                                         "memory ran out in step 0; retrying in pieces of 1 of 4 samples",
                                         "memory ran out in step 0; retrying with an empty cache"});
  CHECK(net->parameters()[0].equal(before));
  for (const auto& parameter : net->parameters()) CHECK_FALSE(parameter.grad().defined());
}

TEST_CASE(
    "RetryOnOom: an evaluation of the objective is made in pieces, too, and leaves those of training alone") {
  auto& memory = FailingAllocator::instance();
  toy::Net net = toy::net();
  FusedAdamW optimizer(net->parameters());
  Trainer trainer(net, optimizer, hungry(1 << 20), quiet_retries());
  const auto batches = toy::batches(5);
  const Evaluation expected = trainer.evaluate(batches);
  memory.fail_beyond(1 << 20);
  const Evaluation found = trainer.evaluate(batches);
  memory.fail_beyond(0);
  CHECK(found.loss == Approx(expected.loss).epsilon(1e-13));
  CHECK((found.weight == expected.weight && found.batches == expected.batches));
  CHECK((trainer.policy<RetryOnOom>().retries > 0 && trainer.policy<RetryOnOom>().pieces == 1));
}

namespace {

/// Counts samples in a buffer, draws noise, and normalises nothing.
struct CountingNetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    samples += x.size(0);
    drawn.push_back(torch::rand({1}).item<double>());
    return layer(x);
  }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(torch::nn::LinearOptions(4, 3)));
  at::Tensor samples = register_buffer("samples", torch::zeros({}, torch::kLong));
  std::vector<double> drawn;
};
TORCH_MODULE(CountingNet);

}  // namespace

TEST_CASE("RetryOnOom: buffers and random generators are as they were when a window is rerun") {
  auto& memory = FailingAllocator::instance();
  CountingNet net;
  FusedAdamW optimizer(net->parameters());
  const auto objective = [](CountingNet& net, const toy::Batch& batch) {
    const at::Tensor scores = net(batch.features.to(at::kFloat));
    (void)at::empty({batch.labels.size(0) << 20}, at::kByte);
    return Loss{.value = torch::nn::functional::cross_entropy(scores, batch.labels),
                .weight = batch.labels.size(0)};
  };
  Trainer trainer(net, optimizer, objective, Accumulate<2>{}, quiet_retries());
  memory.fail_beyond(2 << 20);
  torch::manual_seed(7);
  trainer.fit(std::vector<toy::Batch>{even_batches(1, 2)[0], even_batches(1, 4)[0]});
  memory.fail_beyond(0);
  CHECK(net->samples.item<std::int64_t>() == 6);
  // The second micro-batch failed; then all of the window once more in pieces of at most two.
  REQUIRE(net->drawn.size() == 6);
  CHECK((net->drawn[2] == net->drawn[0] && net->drawn[3] == net->drawn[1]));
}

TEST_CASE("RetryOnOom: LibTorch's own optimizers are not stepped twice") {
  auto& memory = FailingAllocator::instance();
  const auto batches = even_batches(1, 4);
  const auto train = [&](toy::Net& net) {
    torch::optim::AdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer, toy::objective, quiet_retries());
    trainer.fit(batches);
  };
  toy::Net expected = toy::net();
  train(expected);
  std::int64_t ended = 0;
  for (std::int64_t n = 1;; ++n) {
    CAPTURE(n);
    toy::Net net = toy::net();
    memory.fail_at(n);
    try {
      train(net);
    } catch (const c10::OutOfMemoryError&) {
      ++ended;
      continue;
    }
    if (!memory.has_failed()) break;
    CHECK(furthest(net, expected) < 1e-12);
  }
  memory.fail_at(0);
  CHECK(ended > 0);
}

TEST_CASE("RetryOnOom: with fp16 loss scaling the scale is that of a run with enough memory") {
  auto& memory = FailingAllocator::instance();
  const auto batches = even_batches(4, 4);
  std::int64_t calls = 0,
               armed = 0;  // memory fails at the armed-th call of the objective, in its first tensor
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    if (++calls == armed) memory.fail_at(1);
    return toy::objective(net, batch);
  };
  struct Trained {
    std::int64_t skipped = 0;
    double scale = 0;
  };
  const auto train = [&](toy::Net& net, auto... policies) {
    calls = 0;
    FusedAdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer, objective, Autocast<fp16>{.initial_scale = 1024, .growth_interval = 2},
                    Accumulate<2>{}, policies...);
    trainer.fit(batches, {.epochs = 3});
    (void)trainer.updates();
    return Trained{trainer.progress().skipped,
                   trainer.template policy<Autocast<fp16>>().scale.template item<double>()};
  };
  toy::Net expected = toy::net();
  const Trained without = train(expected);
  CHECK(without.scale > 1024);
  for (armed = 1; armed <= 12; ++armed) {
    CAPTURE(armed);
    toy::Net net = toy::net();
    Trained with;
    REQUIRE_NOTHROW(with = train(net, quiet_retries()));
    CHECK(memory.has_failed());
    CHECK((with.skipped == without.skipped && with.scale == without.scale));
    CHECK(furthest(net, expected) < 1e-2);  // pieces round otherwise in fp16
  }
  memory.fail_at(0);
}

TEST_CASE(
    "RetryOnOom: with a recomputed layer, memory may run out in its forward pass and in its second one") {
  const auto objective = [](toy::Net& net, const toy::Batch& batch) {
    const at::Tensor hidden =
        checkpoint([&](const at::Tensor& x) { return torch::tanh(net->first(x)); }, batch.features);
    return Loss{.value = torch::nn::functional::cross_entropy(net->second(hidden), batch.labels),
                .weight = batch.labels.size(0)};
  };
  const auto batches = toy::batches(4);
  const auto train = [&](toy::Net& net, auto... policies) {
    FusedAdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer, objective, Accumulate<2>{}, policies...);
    trainer.fit(batches);
  };
  recovers_everywhere(train);
}

TEST_CASE("RetryOnOom: batches from the loader's memory are as they were when their window is rerun") {
  auto& memory = FailingAllocator::instance();
  const auto train = [&](const RetryOnOom& retries) {
    torch::manual_seed(0);
    torch::nn::Linear net(4, 3);
    FusedAdamW optimizer(net->parameters());
    const auto objective = [](torch::nn::Linear& net, const numbered::Batch& batch) {
      (void)at::empty({batch.labels.size(0) << 20}, at::kByte);
      return Loss{.value = torch::nn::functional::cross_entropy(net(batch.features), batch.labels),
                  .weight = batch.labels.size(0)};
    };
    Trainer trainer(net, optimizer, objective, Accumulate<3>{}, retries);
    PinnedPrefetchLoader loader(numbered::Samples{50}, {.batch_size = 4, .workers = 2},
                                RandomSampler{.seed = 3});
    trainer.fit(loader, {.epochs = 2});
    return std::pair(net->weight.detach().clone(), trainer.policy<RetryOnOom>().windows);
  };
  const auto [expected, none] = train(quiet_retries());
  auto retries = quiet_retries();
  retries.relax_after = 1;
  memory.fail_beyond(2 << 20);
  const auto [found, windows] = train(retries);
  memory.fail_beyond(0);
  CHECK((none == 0 && windows >= 4));
  CHECK((found - expected).abs().max().item<double>() < 1e-5);
}

TEST_CASE("RetryOnOom: a batch that is refilled for the next micro-batch is rerun as it was") {
  const auto data = toy::batches(6);
  const auto trained = [&](bool fails) {
    toy::Net net = toy::net();
    FusedAdamW optimizer(net->parameters(), {.lr = 0.05});
    int calls = 0;
    const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
      if (fails && ++calls == 4) TORCH_CHECK_WITH(OutOfMemoryError, false, "no room");
      return toy::objective(net, batch);
    };
    Trainer trainer(net, optimizer, objective, Accumulate<2>{}, quiet_retries());
    toy::Batch one{torch::empty_like(data[0].features), torch::empty_like(data[0].labels)};
    for (const toy::Batch& batch : data) {
      one.features.resize_as_(batch.features).copy_(batch.features);
      one.labels.resize_as_(batch.labels).copy_(batch.labels);
      trainer.step(one);
    }
    trainer.finish_window();
    CHECK(trainer.template policy<RetryOnOom>().windows == (fails ? 1 : 0));
    return net;
  };
  toy::Net whole = trained(false), retried = trained(true);
  CHECK(furthest(whole, retried) < 1e-12);
}

TEST_CASE("RetryOnOom: a negative relax_after is refused") {
  toy::Net net = toy::net();
  FusedAdamW optimizer(net->parameters());
  Trainer trainer(net, optimizer, toy::objective, RetryOnOom{.relax_after = -1});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1)),
                    "RetryOnOom's relax_after must be a number of windows or 0 for never, got -1");
}

TEST_CASE("RetryOnOom: under When an objective may return a tensor, whose windows are rerun as they are") {
  auto& memory = FailingAllocator::instance();
  std::int64_t failures = 0;
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    if (failures-- > 0) memory.fail_at(1);  // once, as fragments do that an emptied cache gives back
    return toy::objective(net, batch).value;
  };
  const auto batches = even_batches(3, 4);
  const auto train = [&](toy::Net& net, auto... policies) {
    FusedAdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer, objective, Accumulate<3>{}, policies...);
    trainer.fit(batches);
  };
  toy::Net expected = toy::net(), found = toy::net();
  train(expected);
  failures = 1;
  std::vector<std::string> told;
  train(found, When{true, RetryOnOom{.report = [&](const std::string& line) { told.push_back(line); }}});
  CHECK(told == std::vector<std::string>{"memory ran out in step 0; retrying with an empty cache"});
  CHECK(furthest(found, expected) == 0);
  failures = 1;
  CHECK_THROWS_AS(train(found, When{false, RetryOnOom{}}), c10::OutOfMemoryError);
  failures = 2;
  CHECK_THROWS_WITH(
      train(found, When{true, quiet_retries()}),
      Catch::Contains(
          "with batches that cannot be split, also once the cache was emptied; use smaller batches"));
}

namespace {

/// Counts what is kept of a window: handles of each batch's labels beside the test's own.
template <class Listed>
std::vector<std::size_t> owners_at_window_ends(Listed policy) {
  toy::Net net = toy::net();
  FusedAdamW optimizer(net->parameters());
  const auto batches = even_batches(4, 4);
  std::vector<std::size_t> owners;
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    owners.push_back(batches[0].labels.use_count());
    return toy::objective(net, batch);
  };
  Trainer trainer(net, optimizer, objective, Accumulate<4>{}, policy);
  trainer.fit(batches);
  return owners;
}

}  // namespace

TEST_CASE("RetryOnOom: switched off it keeps no batches") {
  const auto on = owners_at_window_ends(When{true, quiet_retries()});
  const auto off = owners_at_window_ends(When{false, RetryOnOom{}});
  CHECK(on == std::vector<std::size_t>{on[0], on[0], on[0], on[0]});
  CHECK(off[1] == on[1] - 1);  // the window's first batch has gone by then
}

TEST_CASE("RetryOnOom: memory of the host that runs out is retried, too, and no other error is") {
  const auto batches = even_batches(3, 4);
  const auto train = [&](toy::Net& net, const std::function<void()>& fail) {
    std::int64_t calls = 0;
    const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
      if (++calls == 2 && fail) fail();
      return toy::objective(net, batch);
    };
    FusedAdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer, objective, Accumulate<3>{}, quiet_retries());
    trainer.fit(batches);
    return trainer.policy<RetryOnOom>().retries;
  };
  toy::Net expected = toy::net();
  CHECK(train(expected, {}) == 0);
  for (const std::function<void()>& fail : std::vector<std::function<void()>>{
           [] { throw std::bad_alloc(); }, [] { (void)at::empty({std::int64_t{1} << 58}); },
           [] { TORCH_CHECK(false, "CUDA error: out of memory"); }}) {
    toy::Net net = toy::net();
    CHECK(train(net, fail) == 1);
    CHECK(furthest(net, expected) < 1e-12);
  }
  toy::Net net = toy::net();
  CHECK_THROWS_WITH(train(net, [] { throw Error("rank 1: CUDA out of memory"); }),
                    "rank 1: CUDA out of memory");
  CHECK_THROWS_AS(train(net, [] { throw std::out_of_range("index"); }), std::out_of_range);
}

TEST_CASE("RetryOnOom: a window is not retried on a batch that the objective writes to in place") {
  const auto train = [&](auto normalise, std::int64_t fails_at) {
    std::int64_t calls = 0;
    const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
      const toy::Batch normal{normalise(batch.features), batch.labels};
      if (++calls == fails_at) throw std::bad_alloc();
      return toy::objective(net, normal);
    };
    toy::Net net = toy::net();
    FusedAdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer, objective, Accumulate<3>{}, quiet_retries());
    trainer.fit(even_batches(6, 4));
    return net;
  };
  const auto in_place = [](at::Tensor x) { return x.mul_(2); };
  const auto copied = [](const at::Tensor& x) { return x * 2; };
  toy::Net expected = train(copied, 0), retried = train(copied, 5), unretried = train(in_place, 0);
  CHECK(furthest(retried, expected) < 1e-12);
  CHECK(furthest(unretried, expected) == 0);
  for (const std::int64_t fails_at : {1, 2, 5})
    CHECK_THROWS_WITH(train(in_place, fails_at),
                      Catch::Contains("writes to its batch in place") && Catch::Contains("std::bad_alloc"));
}

TEST_CASE("RetryOnOom: an evaluation is not retried on a batch that the objective writes to in place") {
  const auto evaluate = [&](auto normalise) {
    std::int64_t calls = 0;
    const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
      const toy::Batch normal{normalise(batch.features), batch.labels};
      if (++calls == 2) throw std::bad_alloc();
      return toy::objective(net, normal);
    };
    toy::Net net = toy::net();
    FusedAdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer, objective, quiet_retries());
    return trainer.evaluate(even_batches(3, 4)).loss;
  };
  CHECK(evaluate([](const at::Tensor& x) { return x * 2; }) > 0);
  CHECK_THROWS_WITH(evaluate([](at::Tensor x) { return x.mul_(2); }),
                    Catch::Contains("writes to its batch in place") && Catch::Contains("measured again"));
}
