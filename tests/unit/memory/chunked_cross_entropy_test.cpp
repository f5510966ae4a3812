// SPDX-License-Identifier: MIT
// The cross-entropy whose scores never exist as a whole, beside at::cross_entropy_loss of all scores; and
// embedding rows, which add to the same gradient.
// Tests memory: embedding_rows, gradient_in_place, score_chunks
#include "support/precompiled.hpp"

#include <looptorch/memory/checkpoint.hpp>
#include <looptorch/memory/chunked_cross_entropy.hpp>
#include <looptorch/memory/embedding_rows.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/policies/autocast.hpp>

#include <limits>
#include <thread>
#include <vector>

namespace lt = looptorch;

namespace {

constexpr std::int64_t kRows = 12, kWidth = 5, kClasses = 17;

struct Problem {
  at::Tensor hidden_ND = at::randn({kRows, kWidth}, at::kDouble).requires_grad_();
  at::Tensor weight_VD = at::randn({kClasses, kWidth}, at::kDouble).requires_grad_();
  at::Tensor bias_V = at::randn({kClasses}, at::kDouble).requires_grad_();
  at::Tensor labels_N = at::randint(0, kClasses, {kRows}, at::kLong);

  [[nodiscard]] at::Tensor plain(const lt::CrossEntropyOptions& options) const {
    return at::cross_entropy_loss(at::linear(hidden_ND, weight_VD, options.bias), labels_N,
                                  options.class_weights, at::Reduction::Mean, options.ignore_index,
                                  options.label_smoothing);
  }
  [[nodiscard]] at::Tensor chunked(const lt::CrossEntropyOptions& options) const {
    return lt::chunked_cross_entropy(hidden_ND, weight_VD, labels_N, options);
  }
  /// Returns the gradients of a loss and of twice the same, and clears them.
  std::vector<at::Tensor> gradients(const std::function<at::Tensor()>& loss) {
    for (const at::Tensor& each : {hidden_ND, weight_VD, bias_V}) each.mutable_grad().reset();
    loss().backward();
    (2 * loss()).backward();  // adds to what is there
    return {hidden_ND.grad(), weight_VD.grad(), bias_V.grad()};
  }
};

double distance(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined() ? 0 : 1;
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("chunked_cross_entropy equals the loss of all scores, and its gradients") {
  at::manual_seed(1);
  const auto chunk_classes = GENERATE(1, 5, 17, 100);
  const auto smoothing = GENERATE(0.0, 0.1);
  const bool weighs = GENERATE(false, true), biased = GENERATE(false, true);
  Problem problem;
  problem.labels_N.narrow(0, 3, 4).fill_(-100);
  const lt::CrossEntropyOptions options{
      .label_smoothing = smoothing,
      .bias = biased ? problem.bias_V : at::Tensor(),
      .class_weights = weighs ? at::rand({kClasses}, at::kDouble) + 0.1 : at::Tensor(),
      .chunk_bytes = chunk_classes * kRows * 8};
  CHECK(distance(problem.chunked(options), problem.plain(options)) < 1e-12);
  const auto wanted = problem.gradients([&] { return problem.plain(options); });
  const auto computed = problem.gradients([&] { return problem.chunked(options); });
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(distance(computed[i], wanted[i]) < 1e-12);
}

TEST_CASE("chunked_cross_entropy: a class that a bias of -inf rules out makes no other row NaN") {
  at::manual_seed(1);
  Problem problem;
  problem.labels_N.copy_(at::arange(kRows) + 2);
  const at::Tensor bias_V = at::zeros({kClasses}, at::kDouble);
  bias_V[0] = bias_V[5] = -std::numeric_limits<double>::infinity();
  problem.labels_N.masked_fill_(problem.labels_N.eq(5), 6);
  const lt::CrossEntropyOptions options{.bias = bias_V, .chunk_bytes = 5 * kRows * 8};
  const at::Tensor loss = problem.chunked(options);
  CHECK(loss.isfinite().item<bool>());
  CHECK(distance(loss, problem.plain(options)) < 1e-12);
}

TEST_CASE("chunked_cross_entropy takes hidden states of any shape, and an ignored label of any value") {
  at::manual_seed(2);
  Problem problem;
  problem.labels_N[0] = 7;
  const lt::CrossEntropyOptions options{.ignore_index = 7};
  const at::Tensor folded = lt::chunked_cross_entropy(
      problem.hidden_ND.view({3, 4, kWidth}), problem.weight_VD, problem.labels_N.view({3, 4}), options);
  CHECK(distance(folded, problem.plain(options)) < 1e-12);
}

TEST_CASE("chunked_cross_entropy: rows that do not count add nothing, and none at all make NaN") {
  at::manual_seed(3);
  Problem problem;
  problem.labels_N[2] = -100;
  {
    const at::NoGradGuard guard;
    problem.hidden_ND[2].fill_(std::numeric_limits<double>::infinity());
  }
  CHECK(std::isfinite(problem.chunked({}).item<double>()));
  problem.labels_N.fill_(-100);
  CHECK(std::isnan(problem.chunked({}).item<double>()));
  CHECK(std::isnan(problem.plain({}).item<double>()));
  problem.hidden_ND = at::randn({kRows, kWidth}, at::kDouble).requires_grad_();
  const auto wanted = problem.gradients([&] { return problem.plain({}); });
  const auto computed = problem.gradients([&] { return problem.chunked({}); });
  for (std::size_t i = 0; i < 2; ++i) CHECK(at::equal(computed[i], wanted[i]));  // zeros
}

TEST_CASE("gradients go to autograd where it is asked for them, or hooks wait") {
  at::manual_seed(4);
  Problem problem;
  problem.weight_VD.mutable_grad() = at::ones_like(problem.weight_VD);
  const auto wanted = torch::autograd::grad({problem.plain({})}, {problem.weight_VD})[0];

  SECTION("torch::autograd::grad leaves the gradient as it is") {
    const auto computed = torch::autograd::grad({problem.chunked({})}, {problem.weight_VD})[0];
    CHECK(distance(computed, wanted) < 1e-12);
    CHECK(problem.weight_VD.grad().eq(1).all().item<bool>());
  }
  SECTION("backward of chosen tensors adds to theirs alone") {
    problem.chunked({}).backward({}, std::nullopt, false, {{problem.hidden_ND}});
    CHECK(problem.weight_VD.grad().eq(1).all().item<bool>());
  }
  SECTION("a hook sees the whole gradient") {
    at::Tensor seen;
    problem.weight_VD.register_hook([&](const at::Tensor& gradient) { seen = gradient.clone(); });
    problem.chunked({}).backward();
    REQUIRE(seen.defined());
    CHECK(distance(seen, wanted) < 1e-12);
    CHECK(distance(problem.weight_VD.grad(), wanted + 1) < 1e-12);
  }
  SECTION("a hook of the node that adds up the gradient sees the whole gradient") {
    struct Hook : torch::autograd::FunctionPreHook {
      explicit Hook(at::Tensor& gradient) : seen(gradient) {}
      torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
        seen = gradients.at(0).clone();
        return gradients;
      }
      at::Tensor& seen;
    };
    at::Tensor seen;
    const auto node = torch::autograd::impl::grad_accumulator(problem.weight_VD);
    node->add_pre_hook(std::make_unique<Hook>(seen));
    problem.chunked({}).backward();
    REQUIRE(seen.defined());
    CHECK(distance(seen, wanted) < 1e-12);
  }
  SECTION("frozen weights get none") {
    problem.weight_VD.mutable_grad().reset();
    problem.weight_VD.requires_grad_(false);
    problem.chunked({}).backward();
    CHECK_FALSE(problem.weight_VD.grad().defined());
    CHECK(problem.hidden_ND.grad().defined());
  }
  SECTION("it cannot be differentiated twice") {
    CHECK_THROWS_WITH(torch::autograd::grad({problem.chunked({})}, {problem.hidden_ND}, {}, true, true),
                      Catch::Contains("can be differentiated once"));
  }
}

TEST_CASE("chunked_cross_entropy under autocast is as exact as the plain loss") {
  at::manual_seed(5);
  const at::Tensor hidden_ND = at::randn({64, 32}).requires_grad_(),
                   weight_VD = at::randn({500, 32}).requires_grad_();
  const at::Tensor labels_N = at::randint(0, 500, {64}, at::kLong);
  const auto gradients = [&](const std::function<at::Tensor()>& loss_of) {
    for (const at::Tensor& each : {hidden_ND, weight_VD}) each.mutable_grad().reset();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const at::Tensor loss = loss_of();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    CHECK(loss.scalar_type() == at::kFloat);
    loss.backward();
    return std::vector{loss.detach(), hidden_ND.grad(), weight_VD.grad()};
  };
  const at::Tensor exact = at::cross_entropy_loss(at::linear(hidden_ND, weight_VD), labels_N);
  exact.backward();
  const std::vector wanted{exact.detach(), hidden_ND.grad().clone(), weight_VD.grad().clone()};
  const auto plain = gradients(
      [&] { return at::cross_entropy_loss(at::linear(hidden_ND, weight_VD).to(at::kFloat), labels_N); });
  const auto chunked = gradients([&] {
    return lt::chunked_cross_entropy(hidden_ND, weight_VD, labels_N, {.chunk_bytes = 64 * 4 * 100});
  });
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double size = wanted[i].abs().max().item<double>();
    CHECK(distance(chunked[i], wanted[i]) < std::max(2 * distance(plain[i], wanted[i]), 1e-3 * size));
  }
}

TEST_CASE("chunked_cross_entropy of fp64 stays in fp64 under autocast, as at::linear does") {
  at::manual_seed(5);
  Problem problem;
  const lt::AutocastScope autocast(at::kCPU, at::kBFloat16);
  const at::Tensor loss = problem.chunked({}), plain = problem.plain({});
  CHECK(loss.scalar_type() == at::kDouble);
  CHECK(distance(loss, plain) < 1e-12);
  const auto computed = problem.gradients([&] { return problem.chunked({}); });
  const auto wanted = problem.gradients([&] { return problem.plain({}); });
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(distance(computed[i], wanted[i]) < 1e-12);
}

TEST_CASE(
    "chunked_cross_entropy holds one chunk of scores, and adds to a gradient without another of its size") {
  at::manual_seed(6);
  auto& memory = lt::HostMemory::counted();
  constexpr std::int64_t kMany = 20'000, kChunk = 200'000;
  const at::Tensor hidden_ND = at::randn({64, 32}).requires_grad_(),
                   weight_VD = at::randn({kMany, 32}).requires_grad_();
  const at::Tensor labels_N = at::randint(0, kMany, {64}, at::kLong);
  const auto peak = [&] {
    const at::Tensor loss =
        lt::chunked_cross_entropy(hidden_ND, weight_VD, labels_N, {.chunk_bytes = kChunk});
    loss.backward();
    return memory.peak_bytes();
  };
  weight_VD.mutable_grad() = at::zeros_like(weight_VD);
  hidden_ND.mutable_grad() = at::zeros_like(hidden_ND);
  memory.reset_peak();
  const auto before = memory.allocated_bytes();
  CHECK(peak() - before < 4 * kChunk);  // all scores are 5,120,000 bytes, the gradient 2,560,000
}

TEST_CASE("embedding_rows equals at::embedding, and adds to a gradient row by row") {
  at::manual_seed(7);
  const at::Tensor weight_VD = at::randn({50, 4}, at::kDouble).requires_grad_();
  const at::Tensor ids_BL = at::randint(0, 50, {3, 7}, at::kLong),
                   factors = at::randn({3, 7, 4}, at::kDouble);
  ids_BL[0][0] = ids_BL[2][6];  // a row twice
  const auto loss = [&](const at::Tensor& rows) { return (rows * factors).sum(); };
  loss(at::embedding(weight_VD, ids_BL)).backward();
  const at::Tensor wanted = weight_VD.grad().clone();
  weight_VD.mutable_grad().reset();
  const at::Tensor rows = lt::embedding_rows(weight_VD, ids_BL);
  CHECK(at::equal(rows, at::embedding(weight_VD, ids_BL)));
  loss(rows).backward();
  CHECK(distance(weight_VD.grad(), wanted) < 1e-12);
  const at::Tensor sum = weight_VD.grad();
  loss(lt::embedding_rows(weight_VD, ids_BL)).backward();
  CHECK(weight_VD.grad().is_same(sum));
  CHECK(distance(sum, 2 * wanted) < 1e-12);
  CHECK_THROWS_AS(lt::embedding_rows(weight_VD[0], ids_BL), lt::UsageError);
}

TEST_CASE("in a checkpointed block, too, losses and rows add to a gradient, unless hooks wait for it") {
  const Problem p;
  const at::Tensor table_VD = at::randn({kClasses, kWidth}, at::kDouble).requires_grad_();
  const auto loss = [&] {
    return lt::chunked_cross_entropy(lt::embedding_rows(table_VD, p.labels_N), p.weight_VD, p.labels_N);
  };
  loss().backward();
  const at::Tensor of_weight = p.weight_VD.grad(), of_table = table_VD.grad();
  const at::Tensor once_of_weight = of_weight.clone(), once_of_table = of_table.clone();
  loss().backward();
  const at::Tensor twice_of_weight = of_weight.clone(), twice_of_table = of_table.clone();
  of_weight.copy_(once_of_weight), of_table.copy_(once_of_table);
  lt::checkpoint(loss).backward();
  CHECK(at::equal(of_weight, twice_of_weight));
  CHECK(at::equal(of_table, twice_of_table));
  int hooked = 0;
  p.weight_VD.register_hook([&](const at::Tensor&) { ++hooked; });
  lt::checkpoint(loss).backward();
  CHECK(hooked == 1);
}

TEST_CASE("tied weights get both gradients, in any order of micro-batches") {
  at::manual_seed(8);
  const at::Tensor weight_VD = at::randn({50, 4}, at::kDouble).requires_grad_();
  const at::Tensor ids_N = at::randint(0, 50, {9}, at::kLong);
  const auto twice = [&](const std::function<at::Tensor()>& loss) {
    weight_VD.mutable_grad().reset();
    loss().backward();
    loss().backward();
    return weight_VD.grad();
  };
  const at::Tensor wanted = twice([&] {
    return at::cross_entropy_loss(at::linear(at::embedding(weight_VD, ids_N).tanh(), weight_VD),
                                  ids_N.roll(1));
  });
  const at::Tensor computed = twice([&] {
    return lt::chunked_cross_entropy(lt::embedding_rows(weight_VD, ids_N).tanh(), weight_VD, ids_N.roll(1));
  });
  CHECK(distance(computed, wanted) < 1e-12);
}

TEST_CASE("threads that run backward on one weight at once lose no gradient") {
  constexpr int kThreads = 4, kTimes = 1500;
  const at::Tensor hidden_ND = at::ones({4, 16}, at::kDouble), labels_N = at::arange(4, at::kLong),
                   ids_N = at::arange(64, at::kLong);
  const at::Tensor weight_VD = at::zeros({64, 16}, at::kDouble).requires_grad_();
  const std::vector<std::function<at::Tensor()>> losses{
      [&] { return lt::embedding_rows(weight_VD, ids_N).sum(); },
      [&] { return lt::chunked_cross_entropy(hidden_ND, weight_VD, labels_N); },
      [&] { return at::embedding(weight_VD, ids_N).sum(); }};  // which autograd adds
  std::vector<at::Tensor> wanted;
  for (const auto& loss : losses) {
    weight_VD.mutable_grad().reset();
    loss().backward();
    wanted.push_back(weight_VD.grad().clone());
  }
  const auto check = [&](std::vector<std::size_t> of_threads) {
    weight_VD.mutable_grad() = at::zeros_like(weight_VD);
    at::Tensor expected = at::zeros_like(wanted[0]);
    std::vector<std::thread> threads;
    for (const std::size_t which : of_threads) {
      expected += wanted[which] * kTimes;
      threads.emplace_back([&loss = losses[which]] {
        for (int i = 0; i < kTimes; ++i) loss().backward();
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(distance(weight_VD.grad(), expected) < 1e-6);
  };
  check(std::vector<std::size_t>(kThreads, 0));
  check(std::vector<std::size_t>(kThreads, 1));
  check({0, 1, 2, 0});
}

TEST_CASE("chunked_cross_entropy refuses what cannot be right") {
  Problem problem;
  const auto of = [&](const at::Tensor& labels, lt::CrossEntropyOptions options = {}) {
    return lt::chunked_cross_entropy(problem.hidden_ND, problem.weight_VD, labels, options);
  };
  CHECK_THROWS_WITH(lt::chunked_cross_entropy(problem.hidden_ND, problem.weight_VD.t(), problem.labels_N),
                    Catch::Contains("got [12, 5] and [5, 17]"));
  CHECK_THROWS_WITH(of(problem.labels_N.narrow(0, 0, 3)),
                    Catch::Contains("need labels of shape [12], got Long of [3]"));
  CHECK_THROWS_WITH(of(problem.labels_N.to(at::kInt)), Catch::Contains("got Int of [12]"));
  problem.labels_N[4] = kClasses;
  CHECK_THROWS_WITH(of(problem.labels_N), Catch::Contains("label 17 is none of the 17 classes"));
  problem.labels_N[4] = 0;
  CHECK_THROWS_WITH(of(problem.labels_N, {.label_smoothing = 1.5}), Catch::Contains("from 0 to 1, got 1.5"));
  CHECK_THROWS_WITH(of(problem.labels_N, {.bias = at::zeros({3})}), Catch::Contains("shape [17], got [3]"));
  CHECK_THROWS_WITH(of(problem.labels_N, {.chunk_bytes = -1}), Catch::Contains("at least 0, got -1"));
}
