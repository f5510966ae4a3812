// SPDX-License-Identifier: MIT
// Rows as text and back, and the last value of several.
//
// Tests report: metric_row, metric_lines, arriving_numbers
#include "support/precompiled.hpp"

#include <looptorch/report/metric_lines.hpp>

#include <cmath>
#include <limits>

namespace report = looptorch::report;

TEST_CASE("metric_lines: a row reads back equal, NaN and infinities too") {
  report::MetricNames names;
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  report::MetricRow row{12, 1, 0.5};
  row.values = {{names.id("loss"), 0.1},
                {names.id("a \"name\", with all"), std::nan("")},
                {names.id("scale"), kInfinite},
                {names.id("down"), -kInfinite}};
  const std::string line = report::json_line(row, names);
  CHECK(line ==
        "{\"step\":12,\"epoch\":1,\"seconds\":0.5,\"loss\":0.1,\"a \\\"name\\\", with all\":\"NaN\","
        "\"scale\":\"Infinity\",\"down\":\"-Infinity\"}\n");
  const auto read = report::read_json_line(line, names);
  REQUIRE(read);
  CHECK((read->step == 12 && read->epoch == 1 && read->seconds == 0.5 && names.size() == 4));
  CHECK((read->values[0].second == 0.1 && std::isnan(read->values[1].second)));
  CHECK((read->values[2].second == kInfinite && read->values[3].second == -kInfinite));
  CHECK(report::csv_header(names) == "step,epoch,seconds,loss,\"a \"\"name\"\", with all\",scale,down\n");
  row.values.erase(row.values.begin());
  CHECK(report::csv_line(row, 5) == "12,1,0.5,,NaN,Infinity,-Infinity,\n");
}

TEST_CASE("metric_lines: what is no row is none") {
  report::MetricNames names;
  for (const char* line : {"", "{", "[]", "{\"step\":1}", "{\"step\":\"1\",\"epoch\":0,\"seconds\":0.0}"})
    CHECK_FALSE(report::read_json_line(line, names));
  CHECK(report::written_name("epoch") == "metric.epoch");
  CHECK(report::written_name("loss") == "loss");
}

TEST_CASE("metric_row: means of what was added, numbers on a device among them") {
  const auto number = [](double value) { return torch::tensor(value, torch::kDouble); };
  const report::ArrivingNumbers slots({number(10), number(4), torch::tensor({2}), number(0)});
  CHECK(slots.arrived());
  report::UnreadRow row{3, 0, 0.25};
  row.values.push_back({.id = 0, .number = 1, .weight = 2, .now = 0, .before = 1});
  row.values.push_back({.id = 1, .number = 6, .weight = 0, .weight_now = 2});
  row.values.push_back({.id = 2, .number = 0, .weight = 0, .now = 3, .weight_now = 3});
  row.values.push_back({.id = 3, .number = 8});
  row.values.push_back({.id = 3, .number = 9});
  const auto read = report::read_row(row, &slots);
  CHECK(read.values == std::vector<std::pair<report::MetricId, double>>{{0, 3.5}, {1, 3}, {3, 9}});
}
