// SPDX-License-Identifier: MIT
// The order in which policies are listed never matters: all 120 orders of five policies, each of which
// changes the gradients in a way that depends on who came before.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <array>
#include <set>
#include <tuple>

#ifndef __clang__
#pragma GCC optimize("O0")  // 120 Trainers: it is the compiler's time that counts here
#endif

namespace lt = looptorch;

namespace {

/// Depends on order: each adds or multiplies.
struct Adds {
  static constexpr lt::Phase phase = lt::Phase::clip;
  void before_update(lt::UpdateContext& update) const {
    for (auto& gradient : update.gradients()) gradient.add_(0.125);
  }
};
struct Doubles {
  static constexpr lt::Phase phase = lt::Phase::clip;  // a tie with Adds, broken by name
  void before_update(lt::UpdateContext& update) const { update.scale_gradients(2.0); }
};
struct Squares {
  static constexpr lt::Phase phase = lt::Phase::unscale;
  void before_update(lt::UpdateContext& update) const {
    for (auto& gradient : update.gradients()) gradient.mul_(gradient);
  }
};

const std::tuple kPolicies{Adds{}, Doubles{}, Squares{}, lt::ClipGradNorm{0.5}, lt::Accumulate<3>{}};
constexpr std::size_t kOrders = 120;

/// The order with this number of five things: its factorial digits choose among those that are left.
constexpr std::array<std::size_t, 5> order(std::size_t number) {
  std::array<std::size_t, 5> left{0, 1, 2, 3, 4}, result{};
  for (std::size_t i = 0; i < 5; ++i) {
    const std::size_t choice = number % (5 - i);
    number /= 5 - i;
    result[i] = left[choice];
    for (std::size_t j = choice; j + 1 < 5 - i; ++j) left[j] = left[j + 1];
  }
  return result;
}

template <std::size_t Number>
toy::Net trained() {
  constexpr auto listed = order(Number);
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, std::get<listed[0]>(kPolicies),
                      std::get<listed[1]>(kPolicies), std::get<listed[2]>(kPolicies),
                      std::get<listed[3]>(kPolicies), std::get<listed[4]>(kPolicies));
  trainer.fit(toy::batches(7), {.epochs = 2});
  return net;
}

}  // namespace

TEST_CASE("every order of five policies gives the same bits") {
  auto reference = trained<0>();
  std::set<std::array<std::size_t, 5>> orders;
  lt::detail::for_each_index<kOrders>([&](auto number) {
    orders.insert(order(number));
    auto net = trained<number>();
    CHECK(toy::distance(reference, net) == 0.0);
  });
  CHECK(orders.size() == kOrders);
}
