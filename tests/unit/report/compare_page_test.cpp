// SPDX-License-Identifier: MIT
// What compare.html holds. tests/report/compare.sh opens it in a browser.
//
// Tests report: compare_page, recorded_run
// Tests report/page: chart_script
#include "support/precompiled.hpp"

#include <looptorch/report/compare_page.hpp>
#include <looptorch/report/run_report.hpp>

#include "support/temporary_folder.hpp"

#include <cmath>
#include <cstdlib>
#include <fstream>

namespace report = looptorch::report;
using looptorch::Json;
using looptorch::testing::TemporaryFolder;

namespace compare_page {

/// Writes a run of `steps` with this rate, whose loss is NaN at step 3 if it is `bad`, as LogMetrics does.
void write_run(const std::filesystem::path& folder, int steps, double rate, bool bad) {
  report::MetricFiles files(folder, 0, {});
  std::vector<report::MetricRow> rows;
  for (int step = 1; step <= steps; ++step) {
    report::MetricRow row{step, 0, 0.5 * step};
    row.values.emplace_back(files.names().id("loss"), bad && step == 3 ? NAN : 1.0 / (1 + rate * step));
    row.values.emplace_back(files.names().id("time/forward"), 0.1);
    if (!bad && step % 5 == 0) row.values.emplace_back(files.names().id("validation.loss"), 2.0 / step);
    rows.push_back(row);
  }
  files.add(rows);
  report::Facts facts{{"learning-rate", std::to_string(rate)}, {"device", "cpu"}};
  if (bad) facts.emplace_back("<b>only here", "1");
  report::RunReport page(folder, {"A run", bad ? "stopped" : "completed", facts}, 1e9);
  page.update(files, /*last=*/true);
}

Json content_of(const std::string& page) {
  const auto begin = page.find("id=\"run\">") + 9;
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

/// The row of a table that begins with `name`.
std::vector<std::string> row(const Json& table, const std::string& name) {
  for (const Json& each : table.as_array()) {
    if (each.at(0).as_string() != name) continue;
    std::vector<std::string> cells;
    for (const Json& cell : each.as_array())
      cells.push_back(cell.is_string() ? cell.as_string() : cell.dump());
    return cells;
  }
  return {};
}

}  // namespace compare_page

TEST_CASE("compare_page: curves of all runs, last values, and the settings that differ") {
  const TemporaryFolder folder;
  compare_page::write_run(folder / "a", 20, 0.5, false);
  compare_page::write_run(folder / "b", 4, 0.25, true);
  std::ofstream(folder / "b" / "metrics.jsonl", std::ios::app) << R"({"step":5,"epoch":0,"sec)";  // killed
  const std::vector<report::RecordedRun> runs{report::read_run(folder / "a", "a"),
                                              report::read_run(folder / "b", "b")};
  REQUIRE((runs[0].rows.size() == 20 && runs[1].rows.size() == 4));
  const std::string page = report::compare_page(runs);
  const Json content = compare_page::content_of(page);

  const auto& curves = content.at("curves").as_array();
  REQUIRE(curves.size() == 2);  // no time/forward
  CHECK(curves[0].at("name").as_string() == "loss");
  REQUIRE(curves[0].at("series").as_array().size() == 2);
  CHECK(curves[0].at("series").at(0).at("points").as_array().size() == 20);
  CHECK(curves[0].at("series").at(1).at("points").at(2).dump() == R"([3,"NaN"])");
  CHECK(curves[1].at("series").as_array().size() == 1);  // b has no validation

  using Cells = std::vector<std::string>;
  CHECK(compare_page::row(content.at("last"), "ended") == Cells{"ended", "completed", "stopped"});
  CHECK(compare_page::row(content.at("last"), "step") == Cells{"step", "20", "4"});
  CHECK(compare_page::row(content.at("last"), "loss") == Cells{"loss", Json(1.0 / 11).dump(), "0.5"});
  CHECK(compare_page::row(content.at("last"), "validation.loss") == Cells{"validation.loss", "0.1", "null"});
  CHECK(content.at("differ").as_array().size() == 2);
  CHECK(compare_page::row(content.at("differ"), "learning-rate") ==
        Cells{"learning-rate", "0.500000", "0.250000"});
  CHECK(compare_page::row(content.at("differ"), "<b>only here") == Cells{"<b>only here", "null", "1"});
  CHECK(compare_page::row(content.at("agree"), "device") == Cells{"device", "cpu", "cpu"});
  CHECK(page.find("<b>only") == page.npos);
  for (const char* outside : {"src=", "href=", "@import", "fetch(", "https:"})
    CHECK(page.find(outside) == page.npos);
}

TEST_CASE("recorded_run: without a page, or with one of another program, there are curves alone") {
  const TemporaryFolder folder;
  compare_page::write_run(folder / "a", 2, 0.5, false);
  for (const char* text : {"<html>id=\"run\">{\"facts\":3}</script>", "<html>id=\"run\">{", "nothing"}) {
    std::ofstream(folder / "a" / "report.html") << text;
    const auto run = report::read_run(folder / "a", "a");
    CHECK((run.rows.size() == 2 && run.facts.empty() && run.status.empty()));
  }
  std::filesystem::remove(folder / "a" / "report.html");
  CHECK(report::read_run(folder / "a", "a").rows.size() == 2);
  CHECK_THROWS_AS(report::read_run(folder / "none", "none"), looptorch::FileError);
}

TEST_CASE("for tests/report/compare.sh: runs", "[.write_runs]") {
  const char* folder = std::getenv("LOOPTORCH_RUNS");
  if (!folder) return;  // all cases of this file are run
  const std::filesystem::path runs = folder;
  compare_page::write_run(runs / "fast", 20, 0.5, false);
  compare_page::write_run(runs / "slow", 30, 0.1, false);
  compare_page::write_run(runs / "broken", 12, 0.25, true);
}

TEST_CASE(
    "compare_page: a run's page that cannot be looked at adds nothing, nor does a name that is not UTF-8") {
  const TemporaryFolder folder;
  looptorch::write_file_atomically(folder / "metrics.jsonl",
                                   "{\"step\":1,\"epoch\":0,\"seconds\":1.0,\"loss\":1.0}\n");
  std::filesystem::create_symlink("report.html", folder / "report.html");
  const auto run = report::read_run(folder.path(), "r\xFF");
  CHECK(run.rows.size() == 1);
  CHECK_THAT(report::compare_page({run}), Catch::Contains("r\uFFFD"));
}
