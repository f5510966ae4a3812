// SPDX-License-Identifier: MIT
// What report.html holds. tests/report/page.sh opens it in a browser.
//
// Tests report: run_page, run_history, run_report, curve_points, known_metrics, machine_facts
// Tests report/page: page_script, page_style
#include "support/precompiled.hpp"

#include <looptorch/app/charts/png.hpp>
#include <looptorch/report/machine_facts.hpp>
#include <looptorch/report/run_report.hpp>

#include "support/temporary_folder.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>

namespace report = looptorch::report;
using looptorch::testing::TemporaryFolder;

namespace run_page {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Two epochs of ten steps: a loss that falls, once NaN, a validation at each end, and times.
std::vector<report::MetricRow> rows(report::MetricNames& names) {
  std::vector<report::MetricRow> rows;
  for (std::int64_t step = 1; step <= 20; ++step) {
    report::MetricRow row{step, (step - 1) / 10, 0.5 * double(step)};
    row.values.emplace_back(names.id("loss"), step == 13 ? kNan : 1.0 / double(step));
    row.values.emplace_back(names.id("lr"), 0.001);
    if (step % 10 == 0) {
      row.values.emplace_back(names.id("validation.loss"), 1.0 / double(step));
      row.values.emplace_back(names.id("time/forward"), 2.0);
      row.values.emplace_back(names.id("time/data"), 3.0);
      row.values.emplace_back(names.id("skipped"), double(step / 20));
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace run_page

TEST_CASE("curve_points: long curves keep their spikes and what is no number") {
  std::vector<report::CurvePoint> points;
  for (std::int64_t step = 1; step <= 100000; ++step) points.emplace_back(step, std::sin(double(step)));
  points[5000].second = 100;
  points[70000].second = -100;
  points[80000].second = run_page::kNan;
  const auto kept = report::thinned(points, 3000);
  CHECK((kept.size() > 1500 && kept.size() <= 3000));
  CHECK(std::is_sorted(kept.begin(), kept.end(), [](auto& a, auto& b) { return a.first < b.first; }));
  const auto has = [&](std::int64_t step) {
    return std::any_of(kept.begin(), kept.end(), [&](auto& point) { return point.first == step; });
  };
  CHECK((has(5001) && has(70001) && has(80001)));
  CHECK(report::thinned(points, 100000).size() == 100000);
}

TEST_CASE("curve_points: a curve that is thinned as it grows keeps its spikes, evenly, in bounded memory") {
  report::GrowingCurve curve;
  std::vector<report::CurvePoint> points;
  for (std::int64_t step = 1; step <= 200'000; ++step) {
    double value = std::sin(double(step));
    if (step == 5001) value = 100;
    if (step == 70'001) value = -100;
    if (step == 199'999) value = run_page::kNan;
    points.emplace_back(step, value);
    curve.add(points.back());
    if (step == 5999) CHECK(curve.points().size() == 5999);  // all of them
    if (step % 10'000 == 0) CHECK(curve.points().size() <= 18'000);
  }
  const auto kept = curve.points();
  CHECK(std::is_sorted(kept.begin(), kept.end(), [](auto& a, auto& b) { return a.first < b.first; }));
  const auto has = [&](std::int64_t step) {
    return std::any_of(kept.begin(), kept.end(), [&](auto& point) { return point.first == step; });
  };
  CHECK((has(5001) && has(70'001) && has(199'999)));
  for (std::int64_t begin = 0; begin < 200'000; begin += 10'000) {  // no part of the run is favoured
    const auto of_part = std::count_if(kept.begin(), kept.end(), [&](auto& point) {
      return point.first > begin && point.first <= begin + 10'000;
    });
    CHECK((of_part > 200 && of_part < 1500));
  }
}

TEST_CASE("run_history: means of steps, and the last of what is published") {
  report::MetricNames names;
  const auto rows = run_page::rows(names);
  const auto table = report::RunHistory(rows, names).epochs();
  REQUIRE(table.size() == 2);
  CHECK((table[0].epoch == 1 && table[0].last_step == 10 && table[0].seconds == 5));
  CHECK(table[0].values.at(names.id("loss")) == Approx(0.2928968).epsilon(1e-6));
  CHECK(std::isnan(table[1].values.at(names.id("loss"))));
  CHECK(table[1].values.at(names.id("validation.loss")) == 0.05);
  CHECK(table[0].values.count(names.id("time/forward")) == 0);
}

TEST_CASE("run_page: warnings in words, and nothing that ends the script") {
  report::MetricNames names;
  const auto rows = run_page::rows(names);
  const report::RunHistory history(rows, names);
  CHECK(report::warnings_of(history, names) ==
        std::vector<std::string>{
            "loss was NaN at step 13.", "1 of 20 steps were skipped.",
            "60 % of the time went into waiting for data. Use more workers, or a CachedDataset."});
  const std::string page =
      report::run_page({"title", "completed", {{"--data", "</script><b>"}}}, history, names);
  CHECK_THAT(page, Catch::Contains("completed, step 20, 0:10 in training"));
  CHECK_THAT(page, Catch::Contains("[13,\"NaN\"]"));
  CHECK_THAT(page, Catch::Contains("\\u003c/script>\\u003cb>"));
  for (const char* outside : {"src=", "href=", "@import", "fetch(", "http:", "https:"}) {
    const auto found = page.find(outside);
    CHECK((found == page.npos || page.compare(found, 18, "http://www.w3.org/") == 0));
  }
  CHECK_FALSE(report::machine_facts().empty());
}

TEST_CASE("run_page: says that a device waits for the host, and what helps") {
  const auto warnings = [](double evaluation, std::vector<double> busy) {
    report::MetricNames names;
    const auto device = names.id("device_busy"), forward = names.id("time/forward"),
               evaluated = names.id("time/evaluation");
    std::vector<report::MetricRow> rows;
    for (const double share : busy)
      rows.push_back({static_cast<std::int64_t>(rows.size()) + 1,
                      0,
                      1.0,
                      {{device, share}, {forward, 1 - evaluation}, {evaluated, evaluation}}});
    return report::warnings_of(report::RunHistory(rows, names), names);
  };
  CHECK(warnings(0.25, {0.25, 0.35, 0.45, 0.35}) ==
        std::vector<std::string>{
            "The device had work in 35 % of the time, and for 40 % it waited for the host. Capture the "
            "step as a graph (CaptureGraphs, --capture), or use larger batches."});
  CHECK(warnings(0.25, {0.6, 0.6, 0.6}).empty());
  CHECK(warnings(0.7, {0.25, 0.25, 0.25}).empty());
  CHECK(warnings(0, {0.25, 0.25}).empty());
}

TEST_CASE("for tests/report/page.sh: a page", "[.write_page]") {
  const char* folder = std::getenv("LOOPTORCH_PAGE");
  if (!folder) return;  // all cases of this file are run
  report::MetricNames names;
  report::MetricFiles files(folder, 0, {});
  const auto rows = run_page::rows(names);
  for (report::MetricId id = 0; id < names.size(); ++id) (void)files.names().id(names[id]);
  files.add(rows);
  report::RunReport page(folder, {"A run", "completed", report::machine_facts()}, 1e9);
  std::vector<float> tone(4000);
  for (std::size_t i = 0; i < tone.size(); ++i) tone[i] = 0.5f * std::sin(0.3f * float(i));
  const at::Tensor stripes = torch::arange(0, 256, torch::kUInt8).reshape({1, 256, 1}).expand({64, 256, 3});
  page.set_examples("validation", 10, {looptorch::TextExample{"an earlier one", {{"gone", "gone"}}}});
  page.set_examples("validation", 20,
                    {looptorch::TextExample{"clip 1", {{"turn", "turn"}, {"left", "right"}, {"now", ""}}},
                     looptorch::TextExample{"clip 2", {{"", "two"}, {"<b>three", "<b>three"}}},
                     looptorch::SoundExample{"clip 2", 8000, tone}});
  std::vector<looptorch::Example> weights;
  for (int i = 0; i < 30; ++i)
    weights.emplace_back(looptorch::DistributionExample{"layer " + std::to_string(i), {0, 1, 1, 2.0 * i}});
  page.set_examples("parameters", 20, weights);
  page.set_examples("generated", 20,
                    {looptorch::PictureExample{"mel", 64, 256, looptorch::app::png_of(stripes.contiguous())},
                     looptorch::SoundExample{"tone", 8000, tone},
                     looptorch::DistributionExample{"weights", {-1, 0, 0, 0.5, 1, 1, 1, 2}}});
  page.update(files, /*last=*/true);
}

TEST_CASE("run_report: text that is not UTF-8 is shown with a replacement") {
  const TemporaryFolder folder;
  report::MetricFiles files(folder.path(), 0, {});
  report::RunReport page(folder.path(), {"a\xFF", "under\xFFway", {{"fi\xFFle", "\xFF.wav"}}}, 0);
  page.set_examples("te\xFFxts", 1, {looptorch::TextExample{"ti\xFF", {{"a", "b\xFF"}}, "\xFF"}});
  page.update(files, true);
  const std::string text = looptorch::read_file(folder / "report.html");
  CHECK(looptorch::find_invalid_utf8(text) == text.npos);
  CHECK_THAT(text, Catch::Contains("<title>a\uFFFD</title>") && Catch::Contains("\"under\uFFFDway\"") &&
                       Catch::Contains("[\"fi\uFFFDle\",\"\uFFFD.wav\"]") &&
                       Catch::Contains("[[\"a\",\"b\uFFFD\"]]") && Catch::Contains("te\uFFFDxts"));
}
