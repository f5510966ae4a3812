// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/policies/schedule/rates_in_force.hpp>

#include <utility>
#include <vector>

using looptorch::detail::RatesInForce;

namespace {

/// Two groups of one parameter each, at the full rate 0.5.
torch::optim::SGD two_groups() {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{torch::zeros({2})});
  groups.emplace_back(std::vector{torch::zeros({2})});
  return torch::optim::SGD(groups, torch::optim::SGDOptions(0.5));
}

double rate(torch::optim::SGD& sgd, std::size_t group) {
  return sgd.param_groups()[group].options().get_lr();
}

}  // namespace

TEST_CASE("rates in force are set, and the full ones restored on request or when they are destroyed") {
  auto sgd = two_groups();
  {
    RatesInForce rates;
    rates.set(sgd, 0, 1, 0.5, 0.1);
    CHECK(rate(sgd, 0) == 0.5);
    CHECK(rate(sgd, 1) == 0.1);
    rates.restore();
    CHECK(rate(sgd, 1) == 0.5);
    rates.set(sgd, 0, 0, 0.5, 0.2);
    RatesInForce moved(std::move(rates));
    CHECK(rate(sgd, 0) == 0.2);
  }
  CHECK(rate(sgd, 0) == 0.5);
}

TEST_CASE("a rate that something else has set meanwhile stays") {
  auto sgd = two_groups();
  RatesInForce rates;
  rates.set(sgd, 0, 0, 0.5, 0.1);
  rates.set(sgd, 0, 1, 0.5, 0.1);
  sgd.param_groups()[0].options().set_lr(0.3);
  rates.restore();
  CHECK(rate(sgd, 0) == 0.3);
  CHECK(rate(sgd, 1) == 0.5);
}

TEST_CASE("rates are put back once, also those that others take the place of") {
  auto first = two_groups(), second = two_groups();
  RatesInForce rates, others;
  rates.set(first, 0, 0, 0.5, 0.1);
  others.set(second, 0, 0, 0.5, 0.2);
  rates = std::move(others);
  CHECK(rate(first, 0) == 0.5);
  CHECK(rate(second, 0) == 0.2);
  rates.restore();
  second.param_groups()[0].options().set_lr(0.2);  // by something else, as high as it happens to be
  rates.restore();
  CHECK(rate(second, 0) == 0.2);
}

TEST_CASE("a group whose index has changed gets its own full rate back") {
  auto sgd = two_groups();
  sgd.param_groups()[1].options().set_lr(0.25);
  RatesInForce rates;
  rates.set(sgd, 0, 0, 0.5, 0.1);
  rates.set(sgd, 0, 1, 0.25, 0.1);
  sgd.param_groups().erase(sgd.param_groups().begin());
  rates.restore();
  CHECK(rate(sgd, 0) == 0.25);
}
