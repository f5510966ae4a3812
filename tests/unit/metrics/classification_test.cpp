// SPDX-License-Identifier: MIT
// Against scikit-learn's and torchmetrics' scores, recorded by tests/parity/metrics_classification.py.
// Tests metrics: class_scores, top_k_accuracy, auroc
#include "support/precompiled.hpp"

#include <looptorch/metrics/auroc.hpp>
#include <looptorch/metrics/classification.hpp>
#include <looptorch/metrics/top_k_accuracy.hpp>

#include "support/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using Catch::Contains;
using looptorch::Auroc, looptorch::ClassificationMetrics, looptorch::TopKAccuracy, looptorch::UsageError;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const at::Tensor& tensor(const std::string& name) {
  return reference::tensors("metrics_classification").at(name);
}

std::vector<double> numbers(const std::string& name) {
  const auto& values = tensor(name);
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

/// Adds the recorded scores of `name` in batches of `size`.
template <class Metrics>
Metrics measured(Metrics metrics, const std::string& name, std::int64_t size) {
  const auto &scores = tensor(name + ".scores"), &labels = tensor(name + ".labels");
  for (std::int64_t at = 0; at < labels.numel(); at += size)
    metrics.add(scores.slice(0, at, at + size), labels.slice(0, at, at + size));
  return metrics;
}

at::Tensor labels(std::vector<std::int64_t> values) { return torch::tensor(values); }

}  // namespace

TEST_CASE("classification: scikit-learn's accuracy and F1, in any batches, with classes that never occur") {
  const std::string name = GENERATE("plain", "absent");
  const std::int64_t size = GENERATE(1, 7, 300);
  CAPTURE(name, size);
  const auto counts = measured(ClassificationMetrics(6), name, size).counts();
  const auto expected = numbers(name + ".f1");
  CHECK(counts.count() == 300);
  CHECK(counts.accuracy() == Approx(expected[0]).epsilon(1e-12));
  CHECK(counts.macro_f1() == Approx(expected[1]).epsilon(1e-12));
  CHECK(counts.micro_f1() == Approx(expected[2]).epsilon(1e-12));
  for (std::size_t c = 0; c < 6; ++c) CHECK(counts.classes[c].f1() == Approx(expected[3 + c]).epsilon(1e-12));
}

TEST_CASE("classification: by hand, from classes, bool and scores of other types") {
  ClassificationMetrics two(2);
  two.add(torch::tensor({0.9, 0.2, 0.7, 0.4}).gt(0.5), labels({1, 0, 0, 1}).to(torch::kInt));
  CHECK(two.accuracy() == 0.5);
  CHECK(two.counts().classes[1].precision() == 0.5);
  CHECK(two.counts().classes[1].recall() == 0.5);
  CHECK(torch::equal(two.confusion(), torch::tensor({{1, 1, 0}, {1, 1, 0}})));
  ClassificationMetrics three(3);
  three.add(torch::tensor({{1, 1, 0}, {0, 2, 2}}).to(torch::kBFloat16), labels({0, 2}));  // ties: the first
  three.add(labels({2, 2, 7}), labels({2, 0, 1}));  // 7 is no class, and so no prediction
  CHECK(torch::equal(three.confusion(), torch::tensor({{1, 0, 1, 0}, {0, 0, 0, 1}, {0, 1, 1, 0}})));
  CHECK(three.macro_f1() == Approx((2. / 3 + 0 + 0.5) / 3));
  three.reset();
  three.add(torch::eye(3).to(torch::kBool), labels({0, 1, 0}));
  CHECK(torch::equal(three.confusion(), torch::tensor({{1, 0, 1, 0}, {0, 1, 0, 0}, {0, 0, 0, 0}})));
  TopKAccuracy top(1);
  top.add(torch::eye(3).to(torch::kBool), labels({0, 1, 0}));
  CHECK(top.accuracy() == Approx(2. / 3));
  three.reset();
  CHECK(three.counts().count() == 0);
}

TEST_CASE("classification: a NaN is no prediction, and labels out of range are an error as they are read") {
  ClassificationMetrics metrics(2);
  metrics.add(torch::tensor({{0.5, kNaN}, {0.5, 0.7}}), labels({1, 1}));
  CHECK(metrics.accuracy() == 0.5);
  CHECK(metrics.counts().classes[1].missed == 1);
  CHECK(metrics.counts().classes[0].wrong == 0);
  CHECK(metrics.micro_f1() == Approx(2. / 3));
  metrics.add(torch::zeros({2, 2}), labels({-100, 2}));
  CHECK_THROWS_WITH(metrics.counts(), Contains("2 labels are outside of 0 to 1. Leave such samples out"));
  CHECK(std::isnan(ClassificationMetrics(2).accuracy()));
  CHECK(std::isnan(ClassificationMetrics(2).macro_f1()));
}

TEST_CASE("classification: what cannot be compared is refused with its shapes") {
  CHECK_THROWS_WITH(ClassificationMetrics(1), Contains("two classes or more, got 1"));
  ClassificationMetrics metrics(3);
  CHECK_THROWS_WITH(metrics.add(torch::zeros({2, 4}), labels({0, 1})), Contains("must be real, [N, 3]"));
  CHECK_THROWS_WITH(metrics.add(torch::zeros({2}), labels({0, 1})), Contains("`scores > 0.5`"));
  CHECK_THROWS_WITH(metrics.add(torch::zeros({2, 3}), labels({0, 1, 2})),
                    Contains("[2, 3] and labels of shape [3]"));
  CHECK_THROWS_WITH(metrics.add(torch::zeros({2, 3}), torch::zeros({2})), Contains("labels are integers"));
  CHECK_THROWS_AS(metrics.add(at::Tensor(), labels({0})), UsageError);
}

TEST_CASE("top-k: scikit-learn's shares, in any batches") {
  const std::string name = GENERATE("plain", "absent");
  const std::int64_t size = GENERATE(1, 7, 300);
  CAPTURE(name, size);
  const auto expected = numbers(name + ".top");
  for (std::int64_t k = 1; k <= 5; ++k) {
    const auto metrics = measured(TopKAccuracy(k), name, size);
    CHECK(metrics.count() == 300);
    CHECK(metrics.accuracy() == Approx(expected[static_cast<std::size_t>(k - 1)]).epsilon(1e-12));
  }
  CHECK(measured(TopKAccuracy(6), name, size).accuracy() == 1);
}

TEST_CASE("top-k: of ties the first class is better, a NaN is a miss, and there must be k classes") {
  const auto share = [](std::int64_t k, const at::Tensor& scores, std::vector<std::int64_t> of) {
    TopKAccuracy metrics(k);
    metrics.add(scores, labels(std::move(of)));
    return metrics.accuracy();
  };
  const auto equal = torch::ones({3, 3});
  CHECK(share(1, equal, {0, 1, 2}) == Approx(1. / 3));  // as argmax
  CHECK(share(2, equal, {0, 1, 2}) == Approx(2. / 3));
  CHECK(share(2, torch::tensor({{kNaN, 1., 0.}, {1., kNaN, 0.}, {kNaN, 1., 2.}}), {0, 0, 1}) ==
        Approx(1. / 3));
  CHECK(share(1, torch::tensor({{3, 1}, {1, 3}}), {0, -100}) == 0.5);
  CHECK(std::isnan(TopKAccuracy(2).accuracy()));
  CHECK_THROWS_WITH(share(4, equal, {0, 1, 2}), Contains("counts the 4 best classes, and there are 3"));
  CHECK_THROWS_WITH(TopKAccuracy(0), Contains("from 1, got 0"));
  CHECK_THROWS_AS(share(1, torch::ones({3}), {0, 1, 2}), UsageError);
}

TEST_CASE("AUROC: scikit-learn's and torchmetrics' areas, with ties, in any batches") {
  const std::int64_t size = GENERATE(1, 7, 400);
  CAPTURE(size);
  for (const char* name : {"binary.plain", "binary.ties", "binary.constant"})
    CHECK(measured(Auroc(), name, size).area() ==
          Approx(numbers(std::string(name) + ".area")[0]).epsilon(1e-12));
  for (const char* name : {"plain", "absent"}) {
    const auto expected = numbers(std::string(name) + ".areas");
    const auto metrics = measured(Auroc(), name, size);
    const auto areas = metrics.areas();
    REQUIRE(areas.size() == 6);
    for (std::size_t c = 0; c < 6; ++c)
      CHECK(
          (std::isnan(expected[c]) ? std::isnan(areas[c]) : areas[c] == Approx(expected[c]).epsilon(1e-12)));
    CHECK(metrics.area() == Approx(expected[6]).epsilon(1e-12));
  }
}

TEST_CASE("AUROC: labels out of range are an error as the area is read, not samples of the other classes") {
  const auto ignored = labels({1, 0, -100});
  Auroc two;
  two.add(torch::tensor({2., 1., 3.}), ignored);
  CHECK_THROWS_WITH(two.area(), Contains("Auroc: 1 labels are outside of 0 to 1. Leave such samples out"));
  Auroc three;
  three.add(torch::zeros({3, 3}), labels({3, 0, -100}));
  CHECK_THROWS_WITH(three.areas(), Contains("Auroc: 2 labels are outside of 0 to 2. Leave such samples out"));
}

TEST_CASE("AUROC: what the data leave undefined is not a number, and shapes must fit") {
  const auto area = [](const at::Tensor& scores, std::vector<std::int64_t> of) {
    Auroc metrics;
    metrics.add(scores, labels(std::move(of)));
    return metrics.area();
  };
  CHECK(area(torch::tensor({1., 2., 3.}), {0, 0, 1}) == 1);
  CHECK(area(torch::tensor({1, 2, 3}), {1, 1, 0}) == 0);
  CHECK(area(torch::tensor({16777217, 16777216}, at::kLong), {1, 0}) == 1);  // equal in fp32
  CHECK(area(torch::tensor({16777216, 16777217}, at::kInt), {1, 0}) == 0);
  CHECK(std::isnan(area(torch::tensor({1., 2.}), {1, 1})));
  CHECK(std::isnan(area(torch::tensor({1., kNaN}), {0, 1})));
  CHECK(std::isnan(Auroc().area()));
  CHECK(Auroc().areas().empty());
  Auroc metrics;
  auto scores = torch::zeros({2, 3});
  metrics.add(scores, labels({0, 1}));
  scores.fill_(kNaN);  // a copy was kept
  CHECK(metrics.area() == 0.5);
  CHECK_THROWS_WITH(metrics.add(torch::zeros({2}), labels({0, 1})),
                    Contains("[2] after those of shape [2, 3]"));
  CHECK_THROWS_AS(metrics.add(torch::zeros({2, 3, 4}), labels({0, 1})), UsageError);
}
