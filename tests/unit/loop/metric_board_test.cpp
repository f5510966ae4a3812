// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/loop/metric_board.hpp>

namespace lt = looptorch;

TEST_CASE("a metric board counts publications and keeps the last value") {
  lt::MetricBoard board;
  CHECK_FALSE(board.find("a"));
  CHECK(board.publications("a") == 0);
  board.publish("a", 1.0);
  board.publish("a", 2.0);
  CHECK(board.find("a") == 2.0);
  CHECK(board.publications("a") == 2);
}

TEST_CASE("waiting for a metric that is not published is an error that lists the published ones") {
  lt::MetricBoard board;
  CHECK_THROWS_WITH(board.require_published("validation.loss", "StopEarly"),
                    Catch::Contains("StopEarly waits for the metric 'validation.loss'") &&
                        Catch::Contains("list a Validate"));
  board.announce("validation.");
  CHECK_NOTHROW(board.require_published("validation.loss", "StopEarly"));
  CHECK_THROWS_AS(board.require_published("test.loss", "StopEarly"), lt::UsageError);
  board.publish("validation.loss", 1.0);
  board.publish("a.b", 1.0);
  CHECK_NOTHROW(board.require_published("validation.loss", "StopEarly"));
  CHECK_THROWS_WITH(board.require_published("validation.los", "StopEarly"),
                    Catch::Contains("published are: a.b, validation.loss"));
}

TEST_CASE("names that policies wait for are refused once it is known which names a prefix has") {
  lt::MetricBoard board;
  const std::vector<std::string> names{"validation.loss", "validation.accuracy"};
  board.announce("validation.");
  CHECK_NOTHROW(board.refuse_awaited_outside("validation.", names));
  board.await("validation.loss", "RestoreBest");
  board.await("validation.acuracy", "StopEarly");
  board.await("test.loss", "ScheduleLr");
  CHECK(board.awaits_outside("validation.", names));
  CHECK_FALSE(board.awaits_outside("other.", {}));
  CHECK_THROWS_AS(board.refuse_awaited_outside("validation.", names), lt::UsageError);
  CHECK_THROWS_WITH(board.refuse_awaited_outside("validation.", names),
                    Catch::Contains("StopEarly waits for the metric 'validation.acuracy'") &&
                        Catch::Contains("are published: validation.loss, validation.accuracy") &&
                        Catch::EndsWith("announces it in on_fit_begin; did you mean 'validation.accuracy'?"));
  CHECK(board.describe_missing().find("ScheduleLr waits for the metric 'test.loss'") == 0);

  SECTION("a name that is announced by itself may come") {
    board.announce("validation.acuracy");
    CHECK_FALSE(board.awaits_outside("validation.", names));
  }
  SECTION("a name that was published is there") {
    board.publish("validation.acuracy", 1.0);
    CHECK_NOTHROW(board.refuse_awaited_outside("validation.", names));
  }
  SECTION("who waited in an earlier fit waits no longer") {
    board.forget_awaited();
    CHECK_NOTHROW(board.refuse_awaited_outside("validation.", names));
    CHECK(board.describe_missing().empty());
  }
}

TEST_CASE("a missing metric's sentence names a near one") {
  lt::MetricBoard board;
  board.publish("validation.loss", 1.0);
  CHECK_THROWS_WITH(board.require_published("valid.loss", "StopEarly"),
                    Catch::Contains("did you mean 'validation.loss'?"));
  board.await("valid.loss", "StopEarly");
  CHECK(board.describe_missing() ==
        "StopEarly waits for the metric 'valid.loss', which is not published; published "
        "are: validation.loss; did you mean 'validation.loss'?");
}

TEST_CASE("a metric board comes back from its state") {
  lt::MetricBoard board, again;
  board.publish("a.b", 1.5);
  board.publish("a.b", 2.5);
  board.publish("c", -1.0);
  lt::StateDict state;
  board.save(state);
  again.publish("left over", 0.0);
  again.load(state);
  CHECK(again.values() == board.values());
  CHECK(again.publications("a.b") == 2);
}
