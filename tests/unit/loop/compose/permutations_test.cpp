// SPDX-License-Identifier: MIT
// The order in which policies are listed does not matter where one is declared: all 120 orders of five policies, each of which changes the
// gradients in a way that depends on who came before, run in one order; and a tenth of them trains to the same bits.
// Tests loop: phase
// Tests loop/compose: order, policy_stack
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <array>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

namespace lt = looptorch;

namespace {

/// Depends on order: it is of one phase with ClipGradNorm, and declares that it comes first.
struct Adds {
  static constexpr lt::Phase phase = lt::Phase::clip;
  using runs_before = lt::Before<lt::ClipGradNorm>;
  void before_update(lt::UpdateContext& update) const {
    for (auto& gradient : update.gradients()) gradient.add_(0.125);
  }
};

const std::tuple kPolicies{Adds{}, lt::Autocast<lt::fp16>{.initial_scale = 4, .growth_interval = 2},
                           lt::ClipGradNorm{0.5}, lt::Accumulate<3>{}, lt::ScheduleLr{.warmup_steps = 2}};
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

using Policies = std::remove_const_t<decltype(kPolicies)>;

template <std::size_t Number>
constexpr auto kListed = order(Number);

/// Which policy runs first, second, ... where they are listed in the order of this number.
template <std::size_t Number>
constexpr std::array<std::size_t, 5> running() {
  constexpr auto& listed = kListed<Number>;
  constexpr auto positions = []<std::size_t... I>(std::index_sequence<I...>) {
    return lt::detail::running_order<std::tuple_element_t<kListed<Number>[I], Policies>...>();
  }(std::make_index_sequence<5>{});
  return {listed[positions[0]], listed[positions[1]], listed[positions[2]], listed[positions[3]], listed[positions[4]]};
}

template <std::size_t Number>
toy::Net trained() {
  constexpr auto& listed = kListed<Number>;
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.05});
  lt::Trainer trainer(net, optimizer, toy::objective, std::get<listed[0]>(kPolicies),
                      std::get<listed[1]>(kPolicies), std::get<listed[2]>(kPolicies),
                      std::get<listed[3]>(kPolicies), std::get<listed[4]>(kPolicies));
  trainer.fit(toy::batches(7), {.epochs = 2});
  return net;
}

}  // namespace

TEST_CASE("every order of five policies runs in the same order") {
  std::set<std::array<std::size_t, 5>> orders;
  lt::detail::for_each_index<kOrders>([&](auto number) {
    orders.insert(order(number));
    STATIC_REQUIRE(running<number>() == running<0>());
  });
  CHECK(orders.size() == kOrders);
}

TEST_CASE("a tenth of the orders of five policies gives the same bits") {
  constexpr std::size_t kStep = 11;  // prime to the factorials: each policy is listed first, last and between
  auto reference = trained<kOrders - 1>();
  std::set<std::size_t> first;
  lt::detail::for_each_index<kOrders / kStep + 1>([&](auto tenth) {
    constexpr std::size_t number = tenth * kStep;
    first.insert(order(number)[0]);
    auto net = trained<number>();
    CHECK(toy::distance(reference, net) == 0.0);
  });
  CHECK(first.size() == 5);
}
