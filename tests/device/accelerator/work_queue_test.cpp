// SPDX-License-Identifier: MIT
// The order in which a simulated device runs what was issued to its streams.
#include "support/accelerator/order/work_queue.hpp"

#include "support/precompiled.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace sim = looptorch_test::accelerator;

namespace {

/// Issues work named by letters and notes the order in which it runs.
struct Program {
  sim::WorkQueue queue;
  sim::Timeline timeline;
  std::string ran;

  void issue(int stream, char name) {
    const sim::Time time = timeline.tick(stream);
    queue.push({stream, time, timeline.stream(stream), [this, name] { ran += name; }});
    queue.run_some();
  }
  void wait(int later, int earlier) { timeline.stream_waits(later, timeline.stream(earlier)); }
};

/// a and b on one stream; c and d on another, d after a; e on a third, after d.
std::string run(std::optional<std::uint64_t> seed) {
  Program program;
  program.queue.take_order_from(seed);
  program.issue(1, 'a');
  const sim::Clock behind_a = program.timeline.stream(1);
  program.issue(2, 'c');
  program.issue(1, 'b');
  program.timeline.stream_waits(2, behind_a);
  program.issue(2, 'd');
  program.wait(3, 2);
  program.issue(3, 'e');
  program.queue.run_all();
  return program.ran;
}

TEST_CASE("sim: without a seed work runs as it was issued") { CHECK(run(std::nullopt) == "acbde"); }

TEST_CASE("sim: seeds give every order that streams and events allow, and no other") {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string order = run(seed);
    const auto at = [&](char name) { return order.find(name); };
    REQUIRE(order.size() == 5);
    REQUIRE(at('a') < at('b'));
    REQUIRE(at('c') < at('d'));
    REQUIRE(at('a') < at('d'));
    REQUIRE(at('d') < at('e'));
    CHECK(run(seed) == order);
    orders.insert(order);
  }
  std::size_t allowed = 0;
  std::string order = "abcde";
  do {
    const auto at = [&](char name) { return order.find(name); };
    allowed += at('a') < at('b') && at('c') < at('d') && at('a') < at('d') && at('d') < at('e');
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(orders.size() == allowed);
}

TEST_CASE("sim: a wait runs what it covers, with all that this comes after") {
  Program program;
  program.issue(1, 'a');
  program.issue(2, 'b');
  program.wait(3, 1);
  program.issue(3, 'c');
  CHECK(program.queue.holds(program.timeline.stream(3)));
  program.queue.run_until(program.timeline.stream(3));
  CHECK(program.ran == "ac");
  CHECK_FALSE(program.queue.holds(program.timeline.stream(3)));
  CHECK(program.queue.size() == 1);
}

}  // namespace
