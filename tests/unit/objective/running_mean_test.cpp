// SPDX-License-Identifier: MIT
// A mean of what lies on a CPU, which is read at once, and on a device, which is not.
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/objective/running_mean.hpp>

#include "support/place.hpp"

namespace lt = looptorch;
using looptorch::testing::place, looptorch::testing::placed;

TEST_CASE("a running mean weighs what it is given, in double precision") {
  lt::RunningMean mean;
  CHECK(std::isnan(mean.mean()));
  mean.add(placed(torch::tensor(2.0f)), 3);
  mean.add(placed(torch::tensor(4.0f)), lt::Quantity::unread(placed(torch::tensor(1))));
  mean.add_sum(placed(torch::tensor(10.0f)), 4);
  mean.add(lt::Quantity(1.0), 2);
  CHECK(mean.totals().sum == Approx(22.0));
  CHECK(mean.totals().weight == 10.0);
  CHECK(mean.mean() == Approx(2.2));
  mean.reset();
  CHECK(mean.totals().weight == 0.0);
}

TEST_CASE("adding many small values to a large one loses nothing") {
  lt::RunningMean mean;
  mean.add(placed(torch::tensor(1e8f)), 1);
  for (int i = 0; i < 1000; ++i) mean.add(placed(torch::tensor(0.5f)), 1);
  CHECK(mean.totals().sum == 1e8 + 500);
}

TEST_CASE("weight 0 adds nothing, even to NaN, and the graph is not kept") {
  lt::RunningMean mean;
  mean.add(placed(torch::tensor(NAN)), 0);
  mean.add(lt::Quantity(NAN), 0);
  const auto leaf = placed(torch::ones({})).requires_grad_();
  mean.add(leaf * 3, 1);
  CHECK(mean.mean() == 3.0);
  CHECK(leaf.grad_fn() == nullptr);
}

TEST_CASE("sums are made in double precision, whatever the losses' type") {
  looptorch::RunningMean wide, narrow;
  wide.add(placed(torch::full({}, 2.0, torch::kHalf)),
           looptorch::Quantity::unread(placed(torch::tensor(50000))));
  CHECK(wide.mean() == 2.0);
  for (int i = 0; i < 10; ++i)
    narrow.add(placed(torch::full({}, 2.0, torch::kBFloat16)),
               looptorch::Quantity::unread(placed(torch::tensor(257))));
  CHECK(narrow.mean() == 2.0);
}

TEST_CASE("a copy of a running mean stays as it is") {
  looptorch::RunningMean mean;
  const auto weight = looptorch::Quantity::unread(placed(torch::ones({})));
  mean.add(placed(torch::full({}, 2.0)), weight);
  const looptorch::RunningMean copy = mean;
  mean.add(placed(torch::full({}, 4.0)), weight);
  CHECK(copy.mean() == 2.0);
  CHECK(mean.mean() == 3.0);
}

TEST_CASE("a weight that its owner refills for the next batch stays what it was") {
  const auto buffer = placed(torch::full({}, 3.0, torch::kDouble));
  const auto weight = looptorch::Quantity::unread(buffer);
  looptorch::RunningMean of_values, of_sums;
  of_values.add(placed(torch::full({}, 2.0)), weight);
  of_sums.add_sum(placed(torch::full({}, 6.0)), weight);
  buffer.fill_(100.0);
  CHECK(of_values.totals().weight == 3.0);
  CHECK(of_sums.mean() == 2.0);
}

TEST_CASE("a window counts unless it was skipped, which is looked at when the mean is read") {
  for (const bool skipped : {false, true}) {
    looptorch::RunningMean mean, window;
    window.add(placed(torch::full({}, 2.0)), 1);
    mean.add_window(window, at::Tensor());
    window.reset();
    window.add(placed(torch::full({}, skipped ? NAN : 4.0)),
               looptorch::Quantity::unread(placed(torch::ones({}))));
    mean.add_window(window, placed(torch::full({}, skipped)));
    CHECK(mean.mean() == (skipped ? 2.0 : 3.0));
    mean.resolve(!skipped);
    CHECK(mean.mean() == (skipped ? 2.0 : 3.0));
    mean.resolve(false);  // there is nothing in doubt any more
    CHECK(mean.totals().weight == (skipped ? 1.0 : 2.0));
  }
}

TEST_CASE("a saved mean continues with the same bits") {
  for (const bool known : {true, false}) {
    const auto add = [&](lt::RunningMean& mean, float value, double weight) {
      mean.add(placed(torch::tensor(value)),
               known ? lt::Quantity(weight) : lt::Quantity::unread(placed(torch::tensor(weight))));
    };
    lt::RunningMean whole, saved, loaded;
    for (lt::RunningMean* mean : {&whole, &saved}) add(*mean, 0.1F, 3), add(*mean, 0.7F, 5);
    lt::StateDict state;
    saved.save(state);
    loaded.add(lt::Quantity(100.0), 1);  // which loading forgets
    loaded.load(state);
    add(whole, 1e-9F, 7), add(loaded, 1e-9F, 7);
    CHECK(loaded.totals().sum == whole.totals().sum);
    CHECK(loaded.totals().weight == 15.0);
    CHECK(saved.totals().weight == 8.0);
    if (!place().is_cpu()) CHECK(loaded.device_sum().device() == place());
  }
}

TEST_CASE("a weight of 0 adds nothing, and a mean has something once it has a weight, known or not") {
  lt::RunningMean mean;
  CHECK_FALSE(mean.has_any());
  mean.add(placed(torch::full({}, NAN)), 0);
  mean.add_sum(placed(torch::full({}, NAN)), 0);
  mean.add(lt::Quantity(double(NAN)), 0);
  CHECK_FALSE(mean.has_any());
  mean.add(placed(torch::full({}, 2.0)), lt::Quantity::unread(placed(torch::ones({}))));
  CHECK(mean.has_any());
  CHECK(mean.mean() == 2.0);
}

TEST_CASE("a mean that is reset or loaded forgets a window in doubt") {
  lt::RunningMean window, mean, empty;
  window.add(placed(torch::full({}, 4.0)), 1);
  lt::StateDict nothing;
  empty.save(nothing);
  for (const bool loads : {false, true}) {
    mean.add_window(window, placed(torch::ones({})));  // skipped, which only the device knows
    loads ? mean.load(nothing) : mean.reset();
    CHECK((mean.windows() == 0 && mean.holds_last_window()));
    mean.add(placed(torch::full({}, 3.0)), 2);
    CHECK(mean.mean() == 3.0);
    CHECK(mean.totals().weight == 2.0);
    mean.reset();
  }
}

TEST_CASE("metrics have the weight of the loss that carries them") {
  lt::RunningMean mean;
  lt::RunningMeans metrics;
  for (const double weight : {1.0, 3.0}) {
    lt::Loss loss{.value = placed(torch::full({}, weight)), .weight = weight};
    loss.metrics = {{"accuracy", weight}};
    lt::detail::record(loss, mean, metrics);
  }
  CHECK(mean.mean() == 2.5);
  CHECK(metrics.at("accuracy").mean() == 2.5);
  CHECK(metrics.at("accuracy").totals().weight == 4.0);
}

TEST_CASE("a metric is averaged by its own weight where it has one, and by the loss's where it has none") {
  for (const bool known : {true, false}) {
    const auto count = [&](double number) {
      return known ? lt::Quantity(number) : lt::Quantity::unread(placed(torch::tensor(number)));
    };
    lt::RunningMean mean;
    lt::RunningMeans metrics;
    for (const double right : {1.0, 0.0})
      lt::detail::record({.value = placed(torch::full({}, right)),
                          .weight = 4,
                          .metrics = {{"own", right, count(right == 1 ? 1 : 4)}, {"shared", right}}},
                         mean, metrics);
    CHECK(metrics.at("own").mean() == 1 / 5.0);
    CHECK(metrics.at("shared").mean() == 0.5);
    CHECK(mean.mean() == 0.5);
  }
}
