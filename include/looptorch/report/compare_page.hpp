// SPDX-License-Identifier: MIT
// Makes compare.html: one page that compares several runs. It has a chart for each metric with the curves of
// all runs, their last values, and the settings that differ. The page loads no other file.
#pragma once

#include <looptorch/base/json/json.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/report/curve_points.hpp>
#include <looptorch/report/known_metrics.hpp>
#include <looptorch/report/metric_lines.hpp>
#include <looptorch/report/recorded_run.hpp>
#include <looptorch/report/run_page.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::report {
namespace page {

/// Follows kChartScript (chart_script.hpp) in the page.
inline constexpr std::string_view kCompareScript = R"js(
const heads = (name) => [name, ...runs.map((each) => each.name)];
const paint = (parent) => parent.querySelectorAll('tr:first-child th').forEach((cell, i) => {
  if (i === 0) return;
  cell.classList.add(`run${(i - 1) % 7}`);
  cell.prepend(make('i'));
});
const compare = (id, name, rows) => fill(id, (parent) => {
  if (!rows.length) return parent.append(make('p', {class: 'soft'}, 'None.'));
  table(parent, heads(name), rows);
  paint(parent);
});
fill('curves', (parent) => run.curves.forEach((curve) => charts.push(new Chart(curve, parent))));
compare('last', 'last value', run.last);
compare('differ', 'setting', run.differ);
compare('agree', 'setting', run.agree);
document.querySelectorAll('#differ td, #agree td').forEach((cell) => cell.classList.add('wide'));
)js";

}  // namespace page

namespace detail {

/// Returns a metric's points in `run`; none if it has no such metric.
inline std::vector<CurvePoint> points_of(const RecordedRun& run, std::string_view name) {
  for (MetricId id = 0; id < run.names.size(); ++id)
    if (run.names[id] == name) return curve_points(run.rows, id);
  return {};
}

inline void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

/// Returns the metrics that any run has, except phases' times: losses first, then in the order of the first
/// run that has them.
inline std::vector<std::string> metrics_of(const std::vector<RecordedRun>& runs) {
  std::vector<std::string> names;
  for (const RecordedRun& run : runs)
    for (MetricId id = 0; id < run.names.size(); ++id)
      if (!run.names[id].starts_with(kTimePrefix)) add_once(names, run.names[id]);
  std::stable_partition(names.begin(), names.end(), [](const auto& name) { return name.ends_with("loss"); });
  return names;
}

inline Json overlaid_curves(const std::vector<RecordedRun>& runs) {
  constexpr std::size_t kMaxPoints = 3000;
  Json curves = Json::array();
  for (const std::string& name : metrics_of(runs)) {
    Json series = Json::array();
    for (std::size_t i = 0; i < runs.size(); ++i) {
      Json points = Json::array();
      for (const auto& [step, value] : thinned(points_of(runs[i], name), kMaxPoints))
        points.push_back(Json::array({Json(step), json_number(value)}));
      if (!points.as_array().empty())
        series.push_back(
            Json::object().set("run", static_cast<std::int64_t>(i)).set("points", std::move(points)));
    }
    curves.push_back(Json::object().set("name", name).set("series", std::move(series)));
  }
  return curves;
}

/// Returns a row of a table: a name, and a cell for each run.
template <class Cell>
Json compared_row(std::string_view name, const std::vector<RecordedRun>& runs, Cell&& cell) {
  Json row = Json::array({Json(std::string(name))});
  for (const RecordedRun& run : runs) row.push_back(cell(run));
  return row;
}

/// Returns how far each run came, and its last value of each metric.
inline Json last_values(const std::vector<RecordedRun>& runs) {
  Json rows = Json::array();
  rows.push_back(compared_row("ended", runs, [](const RecordedRun& run) { return Json(run.status); }));
  rows.push_back(compared_row("step", runs, [](const RecordedRun& run) {
    return run.rows.empty() ? Json() : Json(std::to_string(run.rows.back().step));
  }));
  rows.push_back(compared_row("time in training", runs, [](const RecordedRun& run) {
    return run.rows.empty() ? Json() : Json(looptorch::detail::clock_text(run.rows.back().seconds));
  }));
  for (const std::string& name : metrics_of(runs))
    rows.push_back(compared_row(name, runs, [&](const RecordedRun& run) {
      const auto points = points_of(run, name);
      return points.empty() ? Json() : json_number(points.back().second);
    }));
  return rows;
}

/// Returns the settings of all runs as rows: those that differ, and those that agree.
inline std::pair<Json, Json> compared_settings(const std::vector<RecordedRun>& runs) {
  std::vector<std::string> names;
  for (const RecordedRun& run : runs)
    for (const auto& [name, value] : run.facts) add_once(names, name);
  Json differ = Json::array(), agree = Json::array();
  for (const std::string& name : names) {
    std::vector<std::string> values;
    const auto cell = [&](const RecordedRun& run) {
      for (const auto& [known, value] : run.facts)
        if (known == name) return values.push_back(value), Json(value);
      return values.push_back("\n"), Json();  // which no setting is
    };
    Json row = compared_row(name, runs, cell);
    const bool all_same = std::equal(values.begin() + 1, values.end(), values.begin());
    (all_same ? agree : differ).push_back(std::move(row));
  }
  return {std::move(differ), std::move(agree)};
}

}  // namespace detail

/// Returns the page; `runs` must not be empty.
[[nodiscard]] inline std::string compare_page(const std::vector<RecordedRun>& runs) {
  Json names = Json::array(), content = Json::object();
  for (const RecordedRun& run : runs)
    names.push_back(Json::object().set("name", replace_invalid_utf8(run.name)));
  auto [differ, agree] = detail::compared_settings(runs);
  content.set("runs", std::move(names)).set("curves", detail::overlaid_curves(runs));
  content.set("last", detail::last_values(runs));
  content.set("differ", std::move(differ)).set("agree", std::move(agree));
  return detail::page_begin(std::to_string(runs.size()) + " runs compared") +
         "<h2>Settings that differ</h2>\n<div id=\"differ\" class=\"scroll\"></div>\n"
         "<details><summary>Settings that agree</summary><div id=\"agree\" class=\"scroll\"></div></details>\n"
         "<h2>Curves</h2>\n<p class=\"soft\">Drag across a curve to see those steps in all of them; a double "
         "click goes back.</p>\n<div id=\"curves\" class=\"cards\"></div>\n"
         "<h2>Last values</h2>\n<div id=\"last\" class=\"scroll\"></div>\n" +
         detail::page_end(content, page::kCompareScript);
}

}  // namespace looptorch::report
