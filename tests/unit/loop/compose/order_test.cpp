// SPDX-License-Identifier: MIT
// Order follows from phases and declarations alone: policies of other type names, in any order of listing,
// run in the same order and train to the same bits.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/policy_pairs.hpp"
#include "support/toy.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace lt = looptorch;
namespace d = looptorch::detail;

namespace {

constexpr int kRoles = 3;

/// Changes gradients as role 0, 1 or 2 does, and runs after the role before. The letter is all that its name
/// has: `shift` says which letter plays which role.
template <char Letter, int Shift>
struct Actor {
  static constexpr int role = (Letter - 'a' + Shift) % kRoles;
  template <int Role>
  using Of = Actor<static_cast<char>('a' + (Role - Shift + kRoles) % kRoles), Shift>;

  static constexpr lt::Phase phase = lt::Phase::clip;
  using runs_after = std::conditional_t<role == 0, lt::After<>, lt::After<Of<(role + kRoles - 1) % kRoles>>>;

  void before_update(lt::UpdateContext& update) const {
    for (at::Tensor& gradient : update.gradients()) {
      if (role == 0) gradient.add_(0.125);
      if (role == 1) gradient.mul_(3);
      if (role == 2) gradient.clamp_(-0.5, 0.25);
    }
  }
};

template <int Shift, std::size_t... Listed>
toy::Net trained() {
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.05});
  lt::Trainer trainer(net, optimizer, toy::objective, Actor<static_cast<char>('a' + Listed), Shift>{}...);
  trainer.fit(toy::batches(5));
  return net;
}

/// The roles in running order, where letters are listed in this order.
template <int Shift, std::size_t... Listed>
constexpr std::array<int, kRoles> roles() {
  constexpr std::array<int, kRoles> listed{Actor<static_cast<char>('a' + Listed), Shift>::role...};
  constexpr auto order = d::running_order<Actor<static_cast<char>('a' + Listed), Shift>...>();
  return {listed[order[0]], listed[order[1]], listed[order[2]]};
}

template <int Shift>
void check_renamed(toy::Net& reference) {
  constexpr std::array<int, kRoles> declared{0, 1, 2};
  STATIC_REQUIRE(roles<Shift, 0, 1, 2>() == declared);
  STATIC_REQUIRE(roles<Shift, 0, 2, 1>() == declared);
  STATIC_REQUIRE(roles<Shift, 1, 0, 2>() == declared);
  STATIC_REQUIRE(roles<Shift, 1, 2, 0>() == declared);
  STATIC_REQUIRE(roles<Shift, 2, 0, 1>() == declared);
  STATIC_REQUIRE(roles<Shift, 2, 1, 0>() == declared);
  for (auto& net : {trained<Shift, 0, 1, 2>(), trained<Shift, 1, 2, 0>(), trained<Shift, 2, 1, 0>()}) {
    auto found = net;
    CHECK(toy::distance(reference, found) == 0.0);
  }
}

// Entries: policies, families, templates; what follows from two declarations follows too.
template <class...>
struct Measures {
  static constexpr lt::Phase phase = lt::Phase::clip;
  void on_window_end(lt::WindowContext&) const {}
};
struct BehindFamily {
  using runs_after = lt::After<lt::AccumulateFamily>;
};
struct BeforeTemplate {
  static constexpr lt::Phase phase = lt::Phase::clip;
  using runs_before = lt::Before<lt::Every<Measures>>;
};
struct BehindTemplate {
  static constexpr lt::Phase phase = lt::Phase::clip;
  using runs_after = lt::After<lt::Every<Measures>>;
};
static_assert(d::running_order<BehindFamily, lt::Accumulate<2>>() == std::array<std::size_t, 2>{1, 0});
static_assert(d::running_order<BehindFamily, lt::Accumulate<>>() == std::array<std::size_t, 2>{1, 0});
static_assert(d::running_order<BehindTemplate, Measures<int>, BeforeTemplate>() ==
              std::array<std::size_t, 3>{2, 1, 0});
static_assert(d::kPrecedence<BehindTemplate, Measures<int, char>, BeforeTemplate>[2][0]);
static_assert(!d::kPrecedence<BehindTemplate, BeforeTemplate>[1][0]);
static_assert(d::running_order<BehindTemplate, BeforeTemplate>() == std::array<std::size_t, 2>{0, 1});

// ---- The library's own ----

using Catalogue = std::remove_const_t<decltype(policy_pairs::kCatalogue)>;
template <std::size_t I>
using policy_t = policy_pairs::policy_t<I>;

template <std::size_t... I>
constexpr auto catalogue_precedence(std::index_sequence<I...>) {
  return d::kPrecedence<policy_t<I>...>;
}
constexpr auto kBefore = catalogue_precedence(std::make_index_sequence<policy_pairs::kSize>{});

/// What the check of pairs asks of a policy: as values, since a template for each pair takes 12 s to compile.
struct Entry {
  std::string_view name;
  std::array<bool, 6> hooks;                      // those whose calls another policy may notice
  std::array<bool, policy_pairs::kSize> refused;  // by pairs with later policies
};
template <std::size_t I, std::size_t J>
constexpr bool refused() {
  if constexpr (I < J)
    return policy_pairs::refused<policy_t<I>, policy_t<J>>();
  else
    return false;
}
template <std::size_t I, std::size_t... J>
constexpr Entry entry(std::index_sequence<J...>) {
  using P = policy_t<I>;
  return {std::get<I>(policy_pairs::kCatalogue).name,
          {d::before_update_hook::valid<P>(), d::after_update_hook::valid<P>(),
           d::forward_scope_hook::valid<P>(), d::on_window_end_hook::valid<P>(),
           d::on_epoch_end_hook::valid<P>(), d::evaluation_scope_hook::valid<P>()},
          {refused<I, J>()...}};
}
template <std::size_t... I>
constexpr std::array<Entry, sizeof...(I)> entries(std::index_sequence<I...> all) {
  return {entry<I>(all)...};
}
constexpr auto kEntries = entries(std::make_index_sequence<policy_pairs::kSize>{});

bool share_a_hook(const Entry& a, const Entry& b) {
  for (std::size_t hook = 0; hook < a.hooks.size(); ++hook)
    if (a.hooks[hook] && b.hooks[hook]) return true;
  return false;
}

/// Pairs of one phase that share a hook, and neither of which notices what the other does.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kIndependent{{
    {"BackendFlags", "WatchMemory"},      // switches hold no memory
    {"CacheFlushEvery", "RetryOnOom"},    // one frees what nobody uses, the other counts
    {"CacheFlushEvery", "ShowProgress"},  // which shows nothing of the cache
    {"CacheFlushEvery", "SkipBadWindows"},
    {"Checkpointed", "LogMetrics"},  // one asks once whether its layers were entered
    {"Checkpointed", "WatchMemory"},
    {"Checkpointed", "WatchRounding"},
    {"LogMetrics", "RetryOnOom"},    // whose retries are in no row
    {"LogMetrics", "ShowProgress"},  // both read what the window has published
}};

bool is_decided(std::size_t i, std::size_t j) {
  const Entry& a = kEntries[i];
  const Entry& b = kEntries[j];
  if (kBefore[i][j] || kBefore[j][i] || a.refused[j] || !share_a_hook(a, b)) return true;
  return std::find(kIndependent.begin(), kIndependent.end(), std::pair{a.name, b.name}) != kIndependent.end();
}

}  // namespace

TEST_CASE("policies of other names, in any order of listing, give the same bits") {
  auto reference = trained<0, 0, 1, 2>();
  check_renamed<0>(reference);
  check_renamed<1>(reference);
  check_renamed<2>(reference);
}

TEST_CASE("each pair of the library's policies that share a hook has an order, or is known to need none") {
  for (std::size_t i = 0; i < policy_pairs::kSize; ++i)
    for (std::size_t j = i + 1; j < policy_pairs::kSize; ++j) {
      INFO(kEntries[i].name << " and " << kEntries[j].name);
      CHECK(is_decided(i, j));
    }
}

TEST_CASE("no pair of the library's policies contradicts itself") {
  for (std::size_t i = 0; i < policy_pairs::kSize; ++i) CHECK(!kBefore[i][i]);
}
