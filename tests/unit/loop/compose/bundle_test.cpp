// SPDX-License-Identifier: MIT
// Bundles: a Trainer of bundles is the Trainer of their policies.
#include "support/precompiled.hpp"

#include <looptorch/loop/compose/bundle.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lt = looptorch;
using Catch::Contains;

namespace {

template <class... Parts>
using Listed =
    lt::Trainer<toy::Net, lt::Update<lt::FusedAdamW, lt::Loss (*)(toy::Net&, const toy::Batch&)>, Parts...>;
template <class Bundled, class... Parts>
inline constexpr bool is_plain = std::is_base_of_v<Listed<Parts...>, Bundled>;

using Four = lt::Accumulate<4>;
using Clip = lt::ClipGradNorm;
using Best = lt::AverageWeights;
static_assert(is_plain<Listed<lt::Policies<Four, Clip>, Best>, Four, Clip, Best>);
static_assert(
    is_plain<Listed<Best, lt::Policies<lt::Policies<Four>, lt::Policies<>, Clip>>, Best, Four, Clip>);
static_assert(is_plain<Listed<std::tuple<Four, std::tuple<Clip>>>, Four, Clip>);
static_assert(is_plain<Listed<lt::When<lt::Policies<Four, lt::When<Clip>>>>, lt::When<Four>, lt::When<Clip>>);
static_assert(is_plain<Listed<lt::When<lt::When<Four>>>, lt::When<Four>>);
static_assert(is_plain<Listed<lt::Policies<>, lt::When<std::tuple<>>>>);
static_assert(std::is_same_v<decltype(lt::Policies{Four{}, Clip{}}), lt::Policies<Four, Clip>>);

/// Preflight and programs' checks reach the same engine.
template <class Trainer>
using EngineOf = decltype(lt::detail::TrainerAccess::engine(std::declval<Trainer&>()));
static_assert(std::is_same_v<EngineOf<Listed<lt::Policies<Four, Clip>>>, EngineOf<Listed<Four, Clip>>>);

/// A house's own standard, with a name and without one.
struct House : lt::Policies<lt::Accumulate<>, lt::ClipGradNorm> {
  explicit House(double norm) : Policies(lt::Accumulate<>{2}, lt::ClipGradNorm{norm}) {}
};
static_assert(is_plain<Listed<House, Best>, lt::Accumulate<>, Clip, Best>);
auto house(double norm) { return lt::Policies{lt::Accumulate<>{2}, lt::ClipGradNorm{norm}}; }

/// A toy net under policies, listed as a test lists them.
template <class... Parts>
struct Job {
  explicit Job(Parts... parts) : trainer(net, optimizer, &toy::objective, std::move(parts)...) {}
  [[nodiscard]] std::vector<at::Tensor> parameters() const { return net->parameters(); }

  toy::Net net = toy::net();
  lt::FusedAdamW optimizer{net->parameters(), {.lr = 0.01}};
  Listed<Parts...> trainer;
};

const auto kSchedule = lt::ScheduleLr{.decay = lt::ConstantLr{}, .warmup_steps = 3};

template <class A, class B>
void check_equal(const A& a, const B& b) {
  const auto left = a.parameters(), right = b.parameters();
  for (std::size_t i = 0; i < left.size(); ++i) CHECK(torch::equal(left[i], right[i]));
}

}  // namespace

TEST_CASE("a bundle trains to the bits of its policies, and either resumes the other's snapshot") {
  const auto data = toy::batches(12);
  const auto plain = [] {
    return Job(lt::AverageWeights{}, lt::Accumulate<>{2}, lt::ClipGradNorm{0.1}, kSchedule);
  };
  const auto bundled = [] { return Job(lt::AverageWeights{}, House(0.1), kSchedule); };
  const auto nested = [] {
    return Job(std::tuple(lt::Policies{lt::AverageWeights{}, house(0.1)}, kSchedule));
  };
  auto a = plain();
  auto b = bundled();
  auto c = nested();
  a.trainer.fit(data);
  b.trainer.fit(data);
  c.trainer.fit(data);
  CHECK(a.trainer.progress().step == 6);
  check_equal(a, b);
  check_equal(a, c);
  CHECK(torch::equal(a.trainer.policy<lt::ClipGradNorm>().norm, b.trainer.policy<lt::ClipGradNorm>().norm));

  auto from_plain = bundled();
  auto from_bundle = plain();
  from_plain.trainer.restore(a.trainer.snapshot());
  from_bundle.trainer.restore(c.trainer.snapshot());
  from_plain.trainer.fit(data);
  from_bundle.trainer.fit(data);
  a.trainer.fit(data);
  CHECK(a.trainer.progress().step == 12);
  check_equal(a, from_plain);
  check_equal(a, from_bundle);
}

namespace {

std::vector<std::string> log_;  // NOLINT: what `says` writes to

auto says(std::string word) {
  return lt::On{lt::kObserve, [word = std::move(word)](lt::WindowContext&) { log_.push_back(word); }};
}
template <class... Parts>
std::vector<std::string> said(Parts... parts) {
  log_.clear();
  Job(std::move(parts)...).trainer.fit(toy::batches(1));
  return std::exchange(log_, {});
}

}  // namespace

TEST_CASE("policies of bundles stand where their bundle does") {
  CHECK(said(says("a"), lt::Policies{says("b"), std::tuple(says("c"), says("d"))}, lt::Policies{},
             says("e")) == std::vector<std::string>{"a", "b", "c", "d", "e"});
}

TEST_CASE("When switches all policies of a bundle, and those within are on if every flag is true") {
  for (const bool outer : {false, true})
    for (const bool inner : {false, true}) {
      std::vector<std::string> expected{"always"};
      if (outer) expected.push_back("outer");
      if (outer && inner) expected.insert(expected.end(), {"both", "twice"});
      CHECK(said(says("always"),
                 lt::When{outer, lt::Policies{says("outer"), lt::When{inner, std::tuple(says("both"))}}},
                 lt::When{outer, lt::When{inner, says("twice")}}) == expected);
    }
}

TEST_CASE("policies in bundles are moved, not copied") {
  struct Counts {
    std::unique_ptr<int> windows;
    void on_window_end(lt::WindowContext&) const { ++*windows; }
  };
  auto counter = std::make_unique<int>(0);
  const int& windows = *counter;
  Job job(lt::When{true, lt::Policies{std::tuple(Counts{std::move(counter)}), lt::Accumulate<2>{}}});
  job.trainer.fit(toy::batches(6));
  CHECK(windows == 3);
}

TEST_CASE("without takes a policy out of a bundle, also one that is switched or in a bundle within it") {
  const auto standard = [] {
    return lt::Policies{says("first"), lt::When{true, lt::ClipGradNorm{1.0}},
                        lt::Policies{lt::Accumulate<2>{}}, lt::When{true, lt::Policies{lt::ShowProgress{}}}};
  };
  using Kept = decltype(standard().without<lt::Accumulate<2>>().without<lt::ClipGradNorm>());
  STATIC_REQUIRE(std::is_same_v<Kept, lt::Policies<decltype(says("first")), lt::When<lt::ShowProgress>>>);
  Job job(standard().without<lt::Accumulate<2>>().without<lt::ShowProgress>(), lt::Accumulate<3>{});
  CHECK(job.trainer.fit(toy::batches(6)).steps == 2);
}

TEST_CASE("conflicts across bundles that are switched are found as fit begins") {
  const auto run = [](bool small, bool large) {
    Job job(lt::When{small, lt::Policies{lt::Accumulate<2>{}}},
            lt::Policies{lt::When{large, lt::Accumulate<3>{}}});
    return job.trainer.fit(toy::batches(6)).steps;
  };
  CHECK(run(true, false) == 3);
  CHECK(run(false, true) == 2);
  CHECK_THROWS_WITH(run(true, true), Contains("Accumulate<2>") && Contains("Accumulate<3>") &&
                                         Contains("listed twice, or in two forms"));
}

TEST_CASE("a Trainer of bundles takes its update by reference, by pointer or as such, and can be moved") {
  auto net = toy::net();
  const auto adamw = std::make_shared<lt::FusedAdamW>(net->parameters(), lt::FusedAdamWOptions{});
  lt::Trainer by_reference(net, *adamw, toy::objective, house(1.0));
  lt::Trainer by_pointer(net, adamw, toy::objective, house(1.0));
  lt::Trainer by_update(net, lt::Update{*adamw, toy::objective}, house(1.0),
                        lt::Update{*adamw, toy::objective});
  CHECK(by_reference.fit(toy::batches(4)).steps == 2);
  CHECK(by_pointer.fit(toy::batches(4)).steps == 2);
  auto moved = std::move(by_pointer);
  CHECK(moved.fit(toy::batches(6)).steps == 5);
  CHECK(by_update.updates().size() == 2);
}
