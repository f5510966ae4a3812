// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/loop/step/window_weight.hpp>
#include <looptorch/objective/running_mean.hpp>

#include "support/temporary_folder.hpp"
#include "unit/finetune_exported/support.hpp"

#include <finetune_exported/objective.hpp>

#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

namespace fe = finetune_exported;
namespace lt = looptorch;
using Catch::Contains;
using exported_data::loss_model;
using exported_data::scores_model;
using looptorch::testing::TemporaryFolder;

namespace {

const std::vector<fe::Column> kX{{.name = "x"}};

at::Tensor longs(at::ArrayRef<std::int64_t> values) { return torch::tensor(values, at::kLong); }

/// Checks the loss of scores, the input of a model that returns it, and the gradient of the model's weight.
void check_loss(const fe::LossOptions& options, const at::Tensor& scores, const at::Tensor& labels,
                const std::function<at::Tensor(const at::Tensor&)>& wanted) {
  const TemporaryFolder folder;
  auto model = scores_model(folder / "model.pt2", scores);
  const fe::Objective objective(options, *model, kX);
  const auto loss = objective(model, {{scores, labels}});
  const auto scale = torch::ones({1}, at::TensorOptions().requires_grad(true));
  const auto by_hand = wanted(scores * scale);
  CHECK(loss.value.item<double>() == Approx(by_hand.item<double>()).epsilon(1e-5));
  loss.value.backward(), by_hand.backward();
  CHECK(model->parameters()[0].grad().item<double>() ==
        Approx(scale.grad().item<double>()).epsilon(1e-4).margin(1e-6));
  CHECK(loss.weight.number() == static_cast<double>(scores.size(0)));
}

/// Evaluates the loss of `scores`, and returns the message of the refusal.
std::string refusal(const fe::LossOptions& options, const at::Tensor& scores, const at::Tensor& labels) {
  const TemporaryFolder folder;
  auto model = scores_model(folder / "model.pt2", scores);
  try {
    fe::Objective(options, *model, kX)(model, {{scores, labels}});
  } catch (const lt::UsageError& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace

TEST_CASE("a model's own loss is taken by default, weighed by samples, with the accuracy of its scores") {
  const TemporaryFolder folder;
  auto model = loss_model(folder / "model.pt2");
  const auto columns = fe::columns_of(model->inputs(), "labels");
  const fe::Objective objective({}, *model, columns);
  CHECK(objective.options().kind == "own");
  CHECK_FALSE(objective.label_column());
  const auto x = torch::tensor({{9.F, 1.F, 2.F}, {0.F, 1.F, 5.F}, {7.F, 1.F, 4.F}});
  const auto loss = objective(model, {{x, longs({0, 1, -100})}});
  CHECK(loss.value.item<double>() == Approx(30 / 9.0 - 33));
  CHECK(loss.weight.number() == 3);
  REQUIRE(loss.metrics.size() == 1);
  CHECK(loss.metrics[0].name == "accuracy");
  CHECK(loss.metrics[0].value.number() == 0.5);  // the last label does not count
  CHECK(objective(model, {{x, longs({-100, -100, -100})}}).metrics[0].value.number() == 0);
}

TEST_CASE("a loss may be computed from labels that the model takes itself") {
  const TemporaryFolder folder;
  auto model = loss_model(folder / "model.pt2");
  const fe::Objective objective({.kind = "cross-entropy"}, *model, fe::columns_of(model->inputs(), "labels"));
  CHECK_FALSE(objective.label_column());
  const auto x = torch::rand({2, 3});
  const auto labels = longs({2, 0});
  CHECK(objective(model, {{x, labels}}).value.item<double>() ==
        Approx(torch::cross_entropy_loss(x, labels).item<double>()));
  const fe::Objective squares({.kind = "mse", .labels = "labels", .scores = "loss"}, *model,
                              fe::columns_of(model->inputs(), "labels"));
  CHECK_THROWS_WITH(squares(model, {{x, labels}}), Contains("\"loss\" has sizes [] and \"labels\" [2]"));
}

TEST_CASE("labels that are no input are a column of their own, of the loss's type and padding") {
  const TemporaryFolder folder;
  const auto model = scores_model(folder / "model.pt2", torch::rand({2, 3}));
  const auto column = [&](const std::string& kind) {
    return *fe::Objective({.kind = kind, .labels = "y"}, *model, kX).label_column();
  };
  for (const char* kind : {"cross-entropy", "ctc"}) {
    CHECK(column(kind).name == "y");
    CHECK(column(kind).dtype == at::kLong);
    CHECK(column(kind).padding == -100);
    CHECK_FALSE(column(kind).dims);
  }
  CHECK(column("mse").dtype == at::kFloat);
  CHECK(column("mse").padding == 0);
}

TEST_CASE("outputs and labels that are not there are refused when the objective is made") {
  const TemporaryFolder folder;
  const auto model = scores_model(folder / "model.pt2", torch::rand({2, 3}), "logits");
  const auto refused = [&](const fe::LossOptions& options, const std::string& why) {
    CHECK_THROWS_AS(fe::Objective(options, *model, kX), lt::UsageError);
    CHECK_THROWS_WITH(fe::Objective(options, *model, kX), Contains(why));
  };
  refused({}, "the model has no output \"loss\": say by --loss how it is computed");
  refused({.kind = "own"}, "the model has no output \"loss\"");
  refused({.kind = "mse", .scores = "other"},
          "the model has no output \"other\", but logits: give the one to use as --scores");

  auto own = loss_model(folder / "own.pt2");
  CHECK_THROWS_WITH(
      fe::Objective({.labels = "y", .count_labels = true}, *own, fe::columns_of(own->inputs(), "y")),
      Contains("--count-labels: the data has no \"y\""));
}

TEST_CASE("options that would do nothing are refused") {
  const TemporaryFolder folder;
  const auto model = scores_model(folder / "model.pt2", torch::rand({2, 3}), "loss");
  const auto refused = [&](const lt::ExportedModel& of, const fe::LossOptions& options,
                           const std::string& why) {
    CHECK_THROWS_WITH(fe::Objective(options, *of, fe::columns_of(of->inputs(), options.labels)), why);
  };
  const std::string own = ": the model computes its own loss, and has no ";
  refused(model, {.labels = "y"}, "--labels \"y\"" + own + "input of that name");
  refused(model, {.scores = "s"}, "--scores \"s\"" + own + "such output");
  refused(model, {.scores = "loss"}, "--scores \"loss\"" + own + "input \"labels\" to compare them with");
  refused(model, {.blank = 3}, "--blank is of --loss ctc, and the loss is own");
  refused(model, {.kind = "mse", .scores = "loss", .blank = 3},
          "--blank is of --loss ctc, and the loss is mse");
  const auto both = loss_model(folder / "both.pt2");
  CHECK_NOTHROW(fe::Objective({.scores = "loss"}, *both, fe::columns_of(both->inputs(), "labels")));
}

TEST_CASE("an index that is out of range names the columns of whole numbers and their range") {
  const TemporaryFolder folder;
  auto model = scores_model(folder / "model.pt2", torch::rand({2, 3}));
  const fe::Objective objective({.kind = "cross-entropy", .labels = "y"}, *model, kX);
  try {
    objective(model, {{torch::rand({2, 3}), longs({99, 1})}});
    FAIL("a label that is none was taken");
  } catch (const c10::Error& error) {
    CHECK(std::string(error.what_without_backtrace()) ==
          "Target 99 is out of bounds: the numbers are 1 to 99 of \"y\"");
  }
}

TEST_CASE("cross entropy is LibTorch's, of one label a sample or of many, without ignored ones") {
  torch::manual_seed(1);
  const auto one = longs({2, -100, 0});
  check_loss({.kind = "cross-entropy"}, torch::randn({3, 4}), one,
             [&](const at::Tensor& scores) { return torch::cross_entropy_loss(scores, one); });
  const auto many = longs({1, 2, -100, 0, -100, -100}).view({2, 3});
  check_loss({.kind = "cross-entropy"}, torch::randn({2, 3, 4}), many, [&](const at::Tensor& scores) {
    return torch::cross_entropy_loss(scores.transpose(1, 2), many);
  });
}

TEST_CASE("mse is LibTorch's, of scores with the labels' sizes or one more of 1, and of whole labels too") {
  torch::manual_seed(1);
  const auto labels = torch::randn({3});
  check_loss({.kind = "mse"}, torch::randn({3, 1}), labels,
             [&](const at::Tensor& scores) { return torch::mse_loss(scores.squeeze(1), labels); });
  const auto rows = torch::randn({2, 4});
  check_loss({.kind = "mse"}, torch::randn({2, 4}), rows,
             [&](const at::Tensor& scores) { return torch::mse_loss(scores, rows); });
  const auto whole = longs({1, 2, 3});
  check_loss({.kind = "mse"}, torch::randn({3, 1}), whole, [&](const at::Tensor& scores) {
    return torch::mse_loss(scores.squeeze(1), whole.to(at::kFloat));
  });
}

TEST_CASE("CTC is LibTorch's over all frames, with each sample's own number of labels") {
  torch::manual_seed(1);
  const auto labels = longs({1, 2, 2, 3, -100, -100}).view({2, 3});
  for (const std::int64_t blank : {0, 4})
    check_loss({.kind = "ctc", .blank = blank}, torch::randn({2, 6, 5}), labels,
               [&](const at::Tensor& scores) {
                 return torch::ctc_loss(scores.log_softmax(-1).transpose(0, 1), labels.clamp_min(0),
                                        longs({6, 6}), longs({3, 1}), blank);
               });
}

TEST_CASE("an ignored label before or between others is none of CTC's, and a sample may have none at all") {
  torch::manual_seed(1);
  const auto labels = longs({1, -100, 2, -100, -100, 3, -100, -100, -100}).view({3, 3});
  const auto compact = longs({1, 2, 3, 0, 0, 0}).view({3, 2});
  check_loss({.kind = "ctc"}, torch::randn({3, 6, 5}), labels, [&](const at::Tensor& scores) {
    return torch::ctc_loss(scores.log_softmax(-1).transpose(0, 1), compact, longs({6, 6, 6}),
                           longs({2, 1, 0}));
  });
}

TEST_CASE(
    "labels that CTC has too few frames for are refused in training, and make a validation's loss infinite") {
  const TemporaryFolder folder;
  const auto scores = torch::randn({2, 4, 5});
  auto model = scores_model(folder / "model.pt2", scores);
  const fe::Objective objective({.kind = "ctc"}, *model, kX);
  CHECK(std::isfinite(
      objective(model, {{scores, longs({1, 2, 2, 1, -100, -100}).view({2, 3})}}).value.item<double>()));
  const auto too_many = longs({1, 2, -100, -100, 3, 3, 3, -100}).view({2, 4});  // 3 labels and 2 blanks
  try {
    objective(model, {{scores, too_many}});
    FAIL("more labels than frames were taken");
  } catch (const c10::ValueError& error) {
    CHECK(
        std::string(error.what_without_backtrace()) ==
        "--loss ctc: the labels of a sample need 5 frames, one each and one more between equal ones, and the "
        "batch has 4");
  }
  const torch::NoGradGuard no_grad;
  CHECK(std::isinf(objective(model, {{scores, too_many}}).value.item<double>()));
}

TEST_CASE("scores and labels of sizes that do not go together are refused with both") {
  CHECK(refusal({.kind = "cross-entropy"}, torch::rand({2, 4, 3}), longs({1, 2})) ==
        "--loss cross-entropy: \"logits\" has sizes [2, 4, 3] and \"labels\" [2]; they must have "
        "[samples, ..., classes] and [samples, ...]");
  CHECK(refusal({.kind = "mse"}, torch::rand({2, 3}), torch::rand({2})) ==
        "--loss mse: \"logits\" has sizes [2, 3] and \"labels\" [2]; they must have the same sizes");
  CHECK(refusal({.kind = "ctc"}, torch::rand({2, 3}), longs({1, 2})) ==
        "--loss ctc: \"logits\" has sizes [2, 3] and \"labels\" [2]; they must have [samples, frames, "
        "classes] and [samples, labels]");
}

TEST_CASE(
    "CTC refuses a label without a class, the blank, a negative other than -100, and a blank too high") {
  const auto scores = torch::rand({2, 4, 3});
  for (const std::int64_t label : {3, 0, -1})
    CHECK(refusal({.kind = "ctc"}, scores, longs({1, label, 2, -100}).view({2, 2})) ==
          lt::message("--loss ctc: the label ", label,
                      " of \"labels\" is none of the 3 classes but the blank, "
                      "which is 0"));
  CHECK_THAT(refusal({.kind = "ctc", .blank = 3}, scores, longs({1, 2}).view({2, 1})),
             Contains("the blank is 3, and there are 3 classes"));
}

TEST_CASE("with count_labels a batch weighs as many labels as count") {
  const TemporaryFolder folder;
  const auto scores = torch::rand({2, 3, 4});
  auto model = scores_model(folder / "model.pt2", scores);
  const auto labels = longs({1, 2, -100, 0, -100, -100}).view({2, 3});
  const fe::Objective objective({.kind = "cross-entropy", .count_labels = true}, *model, kX);
  const auto loss = objective(model, {{scores, labels}});
  CHECK(loss.weight.number() == 3);
  CHECK(loss.metrics.empty());  // no accuracy of several labels a sample
}

TEST_CASE("one label a sample of computed scores has an accuracy, and numbers have none") {
  const TemporaryFolder folder;
  const auto scores = torch::tensor({{1.F, 2.F}, {4.F, 3.F}, {1.F, 2.F}, {1.F, 2.F}});
  auto model = scores_model(folder / "model.pt2", scores);
  const fe::Objective classes({.kind = "cross-entropy"}, *model, kX);
  CHECK(classes(model, {{scores, longs({1, 1, 1, 0})}}).metrics.at(0).value.number() == 0.5);
  const fe::Objective numbers({.kind = "mse"}, *model, kX);
  CHECK(numbers(model, {{scores, scores}}).metrics.empty());
}

namespace {

/// Writes and reads a model of the inputs "x" `[B, 3]` and "labels" `[B]`, whose output "loss" is the cross
/// entropy of x times its weight: NaN if no label counts.
lt::ExportedModel entropy_model(const std::filesystem::path& file) {
  exported_data::Scaled net;
  looptorch::export_model(net,
                          [](exported_data::Scaled& scaled, const at::Tensor& x, const at::Tensor& labels) {
                            return torch::cross_entropy_loss(x * scaled->scale, labels);
                          },
                          std::tuple{torch::rand({2, 3}), torch::tensor({0, 1})}, file,
                          {.input_names = {"x", "labels"},
                           .output_names = {"loss"},
                           .dynamic = {looptorch::DynamicDim{.name = "batch", .places = {{0, 0}, {1, 0}}}}});
  return looptorch::ExportedModel(file);
}

/// Returns the loss as an objective on a device does: with weights that the host has not read.
lt::Loss on_device(lt::Loss loss) {
  loss.weight = lt::Quantity::unread(torch::tensor(loss.weight.number(), at::kLong));
  for (auto& metric : loss.metrics)
    if (metric.weight)
      metric.weight = lt::Quantity::unread(torch::tensor(metric.weight->number(), at::kLong));
  return loss;
}

}  // namespace

TEST_CASE("with count_labels on a device, a batch in which no label counts adds 0 to losses and gradients") {
  const TemporaryFolder folder;
  const auto x = torch::tensor({{9.F, 1.F, 2.F}, {0.F, 1.F, 5.F}});
  for (const std::string kind : {"own", "cross-entropy"}) {
    INFO(kind);
    auto model = kind == "own" ? entropy_model(folder / "own.pt2") : scores_model(folder / "scores.pt2", x);
    const fe::Objective objective({.kind = kind, .count_labels = true}, *model,
                                  kind == "own" ? fe::columns_of(model->inputs(), "labels") : kX);
    lt::RunningMean mean, one_mean;
    lt::detail::WindowWeight weights;
    for (const auto& labels : {longs({-100, -100}), longs({1, -100}), longs({-100, -100})}) {
      const auto loss = on_device(objective(model, {{x, labels}}));
      mean.add(loss);
      if (labels[0].item<int64_t>() == 1) one_mean.add(loss);
      weights.weigh(loss).backward();
    }
    CHECK(std::isfinite(mean.mean()));
    CHECK(mean.mean() == one_mean.mean());
    CHECK(mean.totals().weight == 1);
    CHECK(std::isfinite(model->parameters()[0].grad().item<double>()));
  }
}

TEST_CASE("accuracies are means over the labels that count, whatever weighs the loss") {
  const TemporaryFolder folder;
  const auto scores = torch::tensor({{1.F, 2.F}, {1.F, 2.F}, {1.F, 2.F}, {1.F, 2.F}});
  auto model = scores_model(folder / "model.pt2", scores);
  for (const bool count_labels : {false, true})
    for (const bool is_read : {true, false}) {
      const fe::Objective objective({.kind = "cross-entropy", .count_labels = count_labels}, *model, kX);
      lt::RunningMean mean;
      lt::RunningMeans metrics;
      for (const auto& labels : {longs({1, -100, -100, -100}), longs({0, 0, 0, 0})}) {
        const auto loss = objective(model, {{scores, labels}});
        lt::detail::record(is_read ? loss : on_device(loss), mean, metrics);
      }
      CHECK(metrics.at("accuracy").mean() == 1 / 5.0);
      CHECK(mean.totals().weight == (count_labels ? 5 : 8));
    }
}
