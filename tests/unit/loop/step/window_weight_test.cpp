// SPDX-License-Identifier: MIT
// The arithmetic of accumulation on scalars: what is differentiated, times scale(), is the weighted mean.
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/loop/step/window_weight.hpp>

#include "support/place.hpp"

#include <utility>
#include <vector>

namespace lt = looptorch;
using lt::Loss;
using lt::Quantity;
using lt::detail::WindowWeight;

namespace {

at::Tensor number(double value) { return lt::testing::placed(torch::tensor(value, torch::kDouble)); }

/// The mean over a window of (mean, weight), as gradients would be accumulated.
double mean_of(WindowWeight& weight, const std::vector<std::pair<double, Quantity>>& losses) {
  at::Tensor sum = number(0);
  for (const auto& [value, count] : losses) {
    const at::Tensor weighed = weight.weigh(Loss{.value = number(value), .weight = count});
    sum = sum * weight.take_correction();
    if (weighed.defined()) sum = sum + weighed;
  }
  return weight.scale().apply(sum).item<double>();
}

}  // namespace

TEST_CASE("a window's mean is over all of its things, for known and for unread weights") {
  for (const bool unread : {false, true}) {
    const auto count = [&](double value) {
      return unread ? Quantity::unread(number(value)) : Quantity(value);
    };
    WindowWeight weight;
    CHECK(mean_of(weight, {{2.0, count(2)}, {7.0, count(3)}}) == Approx(25.0 / 5).epsilon(1e-14));
    weight.next_window();
    CHECK(mean_of(weight, {{3.0, count(1)}, {5.0, count(100)}, {1.0, count(0)}}) ==
          Approx(503.0 / 101).epsilon(1e-14));
  }
}

TEST_CASE("the unit is the first weight, and doubles when a weight is more than twice as large") {
  WindowWeight weight;
  CHECK(weight.weigh({.value = number(3), .weight = 2}).item<double>() == 3.0);
  CHECK(weight.take_correction() == 1.0);
  CHECK(weight.weigh({.value = number(1), .weight = 10}).item<double>() == 10.0 / 16);
  CHECK(weight.take_correction() == 1.0 / 8);  // the unit has grown from 2 to 16
  CHECK(weight.take_correction() == 1.0);
  CHECK(weight.scale().number() == 16.0 / 12);
}

TEST_CASE("a micro-batch of weight 0 is not differentiated, and a window of nothing else is empty") {
  WindowWeight weight;
  CHECK_FALSE(weight.weigh({.value = number(NAN), .weight = 0}).defined());
  CHECK(weight.is_empty());
  CHECK_FALSE(weight.unread_empty().defined());
  weight.weigh({.weight = Quantity::unread(number(0)), .sum = number(0)});
  CHECK_FALSE(weight.is_empty());  // only the device knows
  CHECK(weight.unread_empty().item<bool>());
  weight.weigh({.value = number(1), .weight = 2});
  CHECK_FALSE(weight.unread_empty().item<bool>());
}

TEST_CASE("a window of one micro-batch is differentiated as it is") {
  WindowWeight weight;
  const at::Tensor value = number(3);
  CHECK(weight.weigh_alone({.value = value, .weight = 5}).is_same(value));
  CHECK(weight.weigh_alone({.weight = 4, .sum = number(10)}).item<double>() == 2.5);
  CHECK_FALSE(weight.weigh_alone({.value = value, .weight = 0}).defined());
}

TEST_CASE("a saved unit is the unit of the next run") {
  for (const bool unread : {false, true}) {
    const auto count = [&](double value) {
      return unread ? Quantity::unread(number(value)) : Quantity(value);
    };
    WindowWeight weight, other;
    weight.weigh({.value = number(1), .weight = count(2)});
    lt::StateDict state;
    weight.save(state);
    other.load(state, lt::testing::place());
    weight.next_window();
    weight.weigh({.value = number(1), .weight = count(64)});
    weight.next_window();  // an unread unit grows, and what was saved does not
    CHECK(state.contains("unread_unit") == unread);
    const at::Tensor weighed = other.weigh({.value = number(3), .weight = count(4)});
    CHECK(weighed.item<double>() == 6.0);
    CHECK(weighed.device() == lt::testing::place());
  }
}

TEST_CASE("a unit that was saved on another device is brought to that of the run") {
  WindowWeight weight, other;
  weight.weigh({.value = number(1), .weight = Quantity::unread(number(2))});
  lt::StateDict state, read;
  weight.save(state);
  for (const auto& [key, value] : state.values()) {  // as a snapshot reads it
    const auto* tensor = value.get_if<at::Tensor>();
    read.set(key, tensor ? lt::StateDict::Value(tensor->cpu()) : value);
  }
  other.load(read, lt::testing::place());
  CHECK(other.weigh({.value = number(3), .weight = Quantity::unread(number(4))}).item<double>() == 6.0);
}
