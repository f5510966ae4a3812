// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/summary.hpp>
#include <looptorch/base/files/file.hpp>

#include "support/temporary_folder.hpp"

#include <cstdint>
#include <limits>
#include <string>

TEST_CASE("A summary keeps the order of its figures and writes null for a number that is none") {
  const looptorch::testing::TemporaryFolder folder;
  looptorch::app::Summary summary;
  summary.set("wer", 0.25).set("loss", std::numeric_limits<double>::quiet_NaN());
  summary.set("ratio", std::numeric_limits<double>::infinity());
  summary.set("steps", std::int64_t{7}).set("name", "marks").set("wer", 0.5);
  summary.write(folder / "summary.json");
  CHECK(looptorch::read_file(folder / "summary.json") == summary.text() + "\n");
  const std::string expected =
      "{\n  \"wer\": 0.5,\n  \"loss\": null,\n  \"ratio\": null,\n  \"steps\": 7,\n  \"name\": \"marks\"\n}";
  CHECK(summary.text() == expected);
}

TEST_CASE("A summary writes null for such a number in a list or an object, too") {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  looptorch::app::Summary summary;
  summary.set("areas", looptorch::Json::array({0.5, kNone}));  // a class that never occurred
  summary.set("best",
              looptorch::Json::object().set("step", 4).set("losses", looptorch::Json::array({kNone})));
  const auto written = looptorch::Json::parse(summary.text());
  CHECK(written.at("areas") == looptorch::Json::array({0.5, nullptr}));
  CHECK(written.at("best").dump() == R"({"step":4,"losses":[null]})");
}
