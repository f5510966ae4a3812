// SPDX-License-Identifier: MIT
// Against numpy's scores, recorded by tests/parity/metrics_regression.py.
#include "support/precompiled.hpp"

#include <looptorch/metrics/regression.hpp>

#include "support/reference.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using looptorch::RegressionMetrics;
using looptorch::UsageError;

namespace {

const auto& tensor(const std::string& name) { return reference::tensors("metrics_regression").at(name); }

RegressionMetrics in_batches(const at::Tensor& prediction, const at::Tensor& target, int64_t size) {
  RegressionMetrics metrics;
  for (int64_t at = 0; at < prediction.numel(); at += size) {
    const auto end = std::min(at + size, prediction.numel());
    metrics.add(prediction.slice(0, at, end), target.slice(0, at, end));
  }
  return metrics;
}

}  // namespace

TEST_CASE("regression: numpy's concordance, R2, Pearson and squared error to 1e-12, in any batches") {
  const std::string name = GENERATE("plain", "far", "far_apart", "close", "small", "against", "drifting");
  const int64_t size = GENERATE(1, 7, 64, 399, 400);
  CAPTURE(name, size);
  const auto moments = in_batches(tensor(name + ".prediction"), tensor(name + ".target"), size).moments();
  const auto* expected = tensor(name + ".scores").const_data_ptr<double>();
  CHECK(moments.count == 400);
  CHECK(std::abs(moments.concordance() - expected[0]) <= 1e-12);
  CHECK(std::abs(moments.r2() - expected[1]) <= 1e-12 * std::max(1.0, std::abs(expected[1])));
  CHECK(std::abs(moments.pearson() - expected[2]) <= 1e-12);
  CHECK(std::abs(moments.mean_squared_error() - expected[3]) <= 1e-12 * expected[3]);
}

TEST_CASE("regression: by hand") {
  RegressionMetrics metrics;
  metrics.add(torch::tensor({1.0, 2.0, 3.0}), torch::tensor({2.0, 4.0, 6.0}));
  CHECK(metrics.count() == 3);
  CHECK(metrics.pearson() == Approx(1));
  CHECK(metrics.concordance() == Approx(2 * (4.0 / 3) / (2.0 / 3 + 8.0 / 3 + 4)));
  CHECK(metrics.r2() == Approx(1 - 14.0 / 8));
  CHECK(metrics.mean_squared_error() == Approx(14.0 / 3));
  CHECK(metrics.moments().prediction_mean == 2);
  CHECK(metrics.moments().target_mean == 4);
  metrics.reset();
  CHECK(metrics.count() == 0);
  metrics.add(torch::tensor({1.0, 2.0}), torch::tensor({1.0, 2.0}));
  CHECK(metrics.concordance() == 1);
  CHECK(metrics.r2() == 1);
}

TEST_CASE("regression: what the data leave undefined is not a number") {
  CHECK(std::isnan(RegressionMetrics().concordance()));
  CHECK(std::isnan(RegressionMetrics().r2()));
  RegressionMetrics constant;
  constant.add(torch::zeros({4}), torch::arange(4));
  CHECK(std::isnan(constant.pearson()));
  CHECK(constant.concordance() == 0);
  RegressionMetrics broken;
  broken.add(torch::tensor({1.0, std::nan("")}), torch::tensor({1.0, 2.0}));
  CHECK(std::isnan(broken.r2()));
}

TEST_CASE("regression: any shape and real dtype, in double whatever comes in") {
  const auto prediction = tensor("far.prediction").to(torch::kFloat),
             target = tensor("far.target").to(torch::kFloat);
  RegressionMetrics single, twice;
  single.add(prediction.reshape({20, 4, 5}), target.reshape({20, 4, 5}));
  twice.add(prediction.to(torch::kDouble), target.to(torch::kDouble));
  CHECK(single.concordance() == twice.concordance());
  RegressionMetrics mixed;
  mixed.add(torch::tensor({1.0, 2.0, 4.0}, torch::kHalf).requires_grad_(), torch::tensor({1, 2, 3}));
  mixed.add(torch::empty({0, 3}), torch::empty({0, 3}));
  mixed.add(torch::tensor(5.0), torch::tensor(4.0));
  CHECK(mixed.count() == 4);
  CHECK(mixed.mean_squared_error() == 0.5);
}

TEST_CASE("regression: adding reads nothing back, as tensors without data show") {
  RegressionMetrics metrics;
  const auto nothing = torch::empty({8}, torch::kMeta);
  metrics.add(nothing, nothing);
  metrics.add(nothing, nothing);
  CHECK(metrics.count() == 16);
  CHECK_THROWS(metrics.moments());
}

TEST_CASE("regression: shapes and devices that differ are named") {
  RegressionMetrics metrics;
  const auto adding = [&](const at::Tensor& a, const at::Tensor& b) { metrics.add(a, b); };
  CHECK_THROWS_AS(adding(torch::ones({4, 1}), torch::ones({4})), UsageError);
  CHECK_THROWS_WITH(
      adding(torch::ones({4, 1}), torch::ones({4})),
      "RegressionMetrics: predictions of shape [4, 1] and targets of shape [4]; they must be equal");
  CHECK_THROWS_WITH(adding(torch::ones({2}), torch::ones({2}, torch::kMeta)),
                    "RegressionMetrics: predictions on cpu and targets on meta; they must be on one device");
  CHECK_THROWS_WITH(adding(torch::ones({2}, torch::kComplexDouble), torch::ones({2})),
                    "RegressionMetrics: complex numbers; they must be real");
  CHECK_THROWS_WITH(adding({}, torch::ones({2})), "RegressionMetrics: an undefined tensor");
  CHECK(metrics.count() == 0);
  adding(torch::ones({2}), torch::ones({2}));
  CHECK_THROWS_WITH(adding(torch::ones({2}, torch::kMeta), torch::ones({2}, torch::kMeta)),
                    "RegressionMetrics: a batch on meta after batches on cpu");
}

TEST_CASE("regression: ranks' moments add up, far from zero and with ranks that have no pairs") {
  const auto prediction = tensor("plain.prediction") + 1e8, target = tensor("plain.target") + 1e8;
  auto first = in_batches(prediction.slice(0, 0, 70), target.slice(0, 0, 70), 50);
  auto second = in_batches(prediction.slice(0, 70), target.slice(0, 70), 50);
  RegressionMetrics third;
  const auto own = first.moments();
  looptorch::RankReduction reductions[3];
  first.all_reduce("scores", reductions[0]);
  second.all_reduce("scores", reductions[1]);
  third.all_reduce("scores", reductions[2]);
  const std::vector messages{reductions[2].message(), reductions[0].message(), reductions[1].message()};
  for (auto& reduction : reductions) reduction.take(messages);
  const auto whole = in_batches(prediction, target, 50).moments();
  for (const auto& all : {first.moments(), second.moments(), third.moments()}) {
    CHECK(all.count == whole.count);
    CHECK(all.concordance() == Approx(whole.concordance()).epsilon(1e-9));
    CHECK(all.pearson() == Approx(whole.pearson()).epsilon(1e-9));
    CHECK(all.r2() == Approx(whole.r2()).epsilon(1e-9));
    CHECK(all.mean_squared_error() == Approx(whole.mean_squared_error()).epsilon(1e-9));
  }
  first.add(prediction.slice(0, 0, 0), target.slice(0, 0, 0));
  CHECK(first.moments().count == whole.count);
  first.add(prediction.slice(0, 0, 1), target.slice(0, 0, 1));
  CHECK(first.moments().count == own.count + 1);
}
