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
  CHECK_THROWS_WITH(board.require("validation.loss", "StopEarly"),
                    Catch::Contains("StopEarly waits for the metric 'validation.loss'") &&
                        Catch::Contains("list a Validate"));
  board.announce("validation.");
  CHECK_NOTHROW(board.require("validation.loss", "StopEarly"));
  CHECK_THROWS_AS(board.require("test.loss", "StopEarly"), lt::UsageError);
  board.publish("validation.loss", 1.0);
  board.publish("a.b", 1.0);
  CHECK_NOTHROW(board.require("validation.loss", "StopEarly"));
  CHECK_THROWS_WITH(board.require("validation.los", "StopEarly"),
                    Catch::Contains("published are: a.b, validation.loss"));
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
