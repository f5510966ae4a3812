// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/rank_reduction.hpp>

#include "support/catch.hpp"

namespace lt = looptorch;

namespace rank_reduction_test {

TEST_CASE("A reduction gives all ranks what they say together") {
  struct Said {
    bool redo = false;
    double weight = 0.0;
    std::int64_t batches = 0;
    double result = 0.0;
    std::optional<std::string> alone, different, alike;
    std::string list;
  };
  std::vector<Said> ranks(3);
  ranks[1].redo = true;
  ranks[0].weight = 0.25, ranks[1].weight = 0.5, ranks[2].weight = 1.0;
  ranks[2].batches = 7;
  ranks[0].result = 0.5, ranks[1].result = 3.0;
  ranks[1].alone = "a signal";
  ranks[1].different = "x", ranks[2].different = "y";
  for (Said& said : ranks) said.alike = "enough";
  ranks[0].list = "a b", ranks[2].list = "c";

  std::vector<lt::RankReduction> reductions(3);
  std::vector<std::string> messages;
  double only_here = 2.5;
  for (std::size_t i = 0; i < 3; ++i) {
    reductions[i].any("redo", ranks[i].redo);
    reductions[i].sum("weight", ranks[i].weight);
    reductions[i].max("batches", ranks[i].batches);
    reductions[i].broadcast("result", ranks[i].result);
    reductions[i].first_text("alone", ranks[i].alone);
    reductions[i].first_text("different", ranks[i].different);
    reductions[i].first_text("alike", ranks[i].alike);
    reductions[i].append("list", ranks[i].list);
    if (i == 1) reductions[i].sum("metric accuracy", only_here);
    messages.push_back(reductions[i].message());
  }
  for (std::size_t i = 0; i < 3; ++i) {
    reductions[i].take(messages);
    CHECK(ranks[i].redo);
    CHECK(ranks[i].weight == 1.75);
    CHECK(ranks[i].batches == 7);
    CHECK(ranks[i].result == 0.5);
    CHECK(ranks[i].alone == "rank 1: a signal");
    CHECK(ranks[i].different == "rank 1: x");
    CHECK(ranks[i].alike == "enough");
    CHECK(ranks[i].list == "a bc");
    std::map<std::string, double> metrics;
    reductions[i].each_number("metric ",
                              [&](const std::string& name, double value) { metrics[name] = value; });
    CHECK(metrics == std::map<std::string, double>{{"accuracy", 2.5}});
  }
}

TEST_CASE("A reduction refuses differences and a name that comes twice") {
  lt::RankReduction first, second;
  first.require_equal("the model", "3 tensors");
  second.require_equal("the model", "4 tensors");
  const std::vector<std::string> messages{first.message(), second.message()};
  CHECK_THROWS_WITH(second.take(messages),
                    "the model must be the same on all ranks: rank 0 has 3 tensors, rank 1 has 4 tensors");
  CHECK_THROWS_AS(first.take(messages), lt::RanksDiffer);
  double value = 0.0;
  first.sum("weight", value);
  CHECK_THROWS_WITH(first.sum("weight", value), Catch::Contains("'weight'"));
}

}  // namespace rank_reduction_test
