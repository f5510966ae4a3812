// SPDX-License-Identifier: MIT
// Makes report.html, a page with a run's curves, epochs, times, warnings and facts, which loads no other
// file. Each metric gets a curve without a change to this file. Only metrics named `time/...`, the seconds of
// each phase, get none: the page shows them as shares of the time.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/report/curve_points.hpp>
#include <looptorch/report/known_metrics.hpp>
#include <looptorch/report/metric_lines.hpp>
#include <looptorch/report/metric_row.hpp>
#include <looptorch/report/page/chart_script.hpp>
#include <looptorch/report/page/page_script.hpp>
#include <looptorch/report/page/page_style.hpp>
#include <looptorch/report/tensorboard/events.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::report {

/// The figures of an epoch.
struct EpochFigures {
  std::int64_t epoch = 0;      ///< From 1.
  std::int64_t last_step = 0;  ///< The last step with a row.
  double seconds = 0;          ///< Time in training when it ended.
  std::map<MetricId, double> values = {};
};

/// True for metrics of which a table shows the last value: those with a dot in their name.
[[nodiscard]] inline bool is_published(const std::string& name) {
  return name.find('.') != std::string::npos;
}

/// True for metrics that a table of epochs has no column for.
[[nodiscard]] inline bool is_of_steps_only(const std::string& name) {
  return name.starts_with(kTimePrefix) || name == kStepSeconds || name == kSkipped;
}

/// Returns the figures of each epoch that has rows.
[[nodiscard]] inline std::vector<EpochFigures> epoch_table(const std::vector<MetricRow>& rows,
                                                           const MetricNames& names) {
  std::vector<EpochFigures> table;
  std::map<MetricId, std::int64_t> counts;
  for (const MetricRow& row : rows) {
    if (table.empty() || table.back().epoch != row.epoch + 1)
      table.push_back({row.epoch + 1}), counts.clear();
    EpochFigures& epoch = table.back();
    epoch.last_step = row.step, epoch.seconds = row.seconds;
    for (const auto& [id, value] : row.values) {
      if (is_of_steps_only(names[id])) continue;
      const auto count = static_cast<double>(++counts[id]);
      double& mean = epoch.values[id];
      mean = is_published(names[id]) ? value : mean + (value - mean) / count;
    }
  }
  return table;
}

/// The contents of a page besides metrics. Bytes that are not UTF-8 are replaced in the page.
struct PageHead {
  std::string title = {};
  std::string status = {};  ///< How the run goes, or ended, in a word or two.
  Facts facts = {};
  std::map<std::string, Json> examples = {};  ///< By name: {"name", "step", "shown"}, of `page_example`s.
};

namespace detail {

inline std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

/// Returns JSON that is safe within a script element.
inline std::string script_json(const Json& json) {
  std::string out;
  for (const char c : json.dump()) out += c == '<' ? "\\u003c" : std::string(1, c);
  return out;
}

/// Returns what begins a page, up to its heading.
inline std::string page_begin(const std::string& plain_title) {
  const std::string title = html_text(replace_invalid_utf8(plain_title));
  std::string page = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" + title;
  return page + "</title>\n<style>" + std::string(page::kStyle) + "</style></head><body>\n<h1>" + title +
         "</h1>\n";
}

/// Returns the end of a page: the data `run`, and the script that draws it.
inline std::string page_end(const Json& run, std::string_view script) {
  return "<script type=\"application/json\" id=\"run\">" + script_json(run) + "</script>\n<script>" +
         std::string(page::kChartScript) + std::string(script) + "</script>\n</body></html>\n";
}

inline Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(number_of(value)); }

inline Json curves_json(const std::vector<Curve>& curves) {
  constexpr std::size_t kMaxPoints = 3000;
  Json json = Json::array();
  for (const Curve& curve : curves) {
    if (curve.name.starts_with(kTimePrefix)) continue;
    Json points = Json::array();
    for (const auto& [step, value] : thinned(curve.points, kMaxPoints))
      points.push_back(Json::array({Json(step), json_number(value)}));
    json.push_back(Json::object().set("name", std::string(curve.name)).set("points", std::move(points)));
  }
  return json;
}

inline Json epochs_json(const std::vector<MetricRow>& rows, const MetricNames& names) {
  const auto table = epoch_table(rows, names);
  Json head = Json::array({Json("epoch"), Json("step"), Json("time")}), lines = Json::array();
  std::vector<MetricId> columns;
  for (MetricId id = 0; id < names.size(); ++id)
    if (!is_of_steps_only(names[id])) {
      columns.push_back(id);
      head.push_back(names[id]);
    }
  for (const EpochFigures& epoch : table) {
    Json line = Json::array({Json(std::to_string(epoch.epoch)), Json(std::to_string(epoch.last_step)),
                             Json(looptorch::detail::clock_text(epoch.seconds))});
    for (const MetricId id : columns) {
      const auto found = epoch.values.find(id);
      line.push_back(found == epoch.values.end() ? Json() : json_number(found->second));
    }
    lines.push_back(std::move(line));
  }
  return Json::object().set("head", std::move(head)).set("rows", std::move(lines));
}

/// Returns each phase's name and seconds.
inline std::vector<std::pair<std::string, double>> time_by_phase(const std::vector<Curve>& curves) {
  std::vector<std::pair<std::string, double>> phases;
  for (const Curve& curve : curves) {
    if (!curve.name.starts_with(kTimePrefix)) continue;
    double seconds = 0;
    for (const auto& [step, value] : curve.points) seconds += value;
    phases.emplace_back(curve.name.substr(kTimePrefix.size()), seconds);
  }
  return phases;
}

inline std::string percent(double share) { return std::to_string(std::lround(100 * share)) + " %"; }

/// Returns a sentence if the device waited for the host in a fifth of the time or more; else an empty text.
/// `apart` is the share of the time in which it was idle for another reason: data, evaluations, snapshots.
inline std::string host_warning(const std::vector<CurvePoint>& device_busy, double apart) {
  constexpr std::size_t kFew = 3;
  double busy = 0;
  for (const auto& [step, share] : device_busy) busy += share / static_cast<double>(device_busy.size());
  const double waiting = 1 - busy - apart;
  if (device_busy.size() < kFew || !(waiting >= 0.2)) return {};
  return "The device had work in " + percent(busy) + " of the time, and for " + percent(waiting) +
         " it waited for the host. Capture the step as a graph (CaptureGraphs, --capture), or use larger "
         "batches.";
}

inline std::vector<std::string> warnings_of_curves(const std::vector<Curve>& curves) {
  std::vector<std::string> warnings;
  for (const auto& [name, points] : curves) {
    for (const auto& [step, value] : points)
      if (!std::isfinite(value)) {
        warnings.push_back(std::string(name) + " was " + number_of(value) + " at step " +
                           std::to_string(step) + ".");
        break;
      }
    if (name == kSkipped && !points.empty() && points.back().second > 0)
      warnings.push_back(number_of(points.back().second) + " of " + std::to_string(points.back().first) +
                         " steps were skipped.");
  }
  double whole = 0, waiting = 0, apart = 0;
  for (const auto& [phase, seconds] : time_by_phase(curves)) {
    whole += seconds, waiting += phase == "data" ? seconds : 0;
    apart += phase == "data" || phase == "evaluation" || phase == "snapshot" ? seconds : 0;
  }
  if (whole > 1 && waiting > 0.2 * whole)
    warnings.push_back(percent(waiting / whole) +
                       " of the time went into waiting for data. Use more workers, or a CachedDataset.");
  for (const auto& [name, points] : curves)
    if (name == kDeviceBusy)
      if (std::string text = host_warning(points, whole > 0 ? apart / whole : 0); !text.empty())
        warnings.push_back(std::move(text));
  return warnings;
}

}  // namespace detail

/// Returns what the script of a page draws. Throws an Error for a text that is no such page.
[[nodiscard]] inline Json data_of_page(const std::string& page) {
  constexpr std::string_view kBegin = "<script type=\"application/json\" id=\"run\">";
  const auto begin = page.find(kBegin), end = page.find("</script>", begin);
  if (end == page.npos) throw Error("no page of a run");
  return Json::parse(page.substr(begin + kBegin.size(), end - begin - kBegin.size()));
}

/// Returns what a reader should know first, a sentence or two each.
[[nodiscard]] inline std::vector<std::string> warnings_of(const std::vector<MetricRow>& rows,
                                                          const MetricNames& names) {
  return detail::warnings_of_curves(curves_of(rows, names));
}

/// Returns the page.
[[nodiscard]] inline std::string run_page(const PageHead& head, const std::vector<MetricRow>& rows,
                                          const MetricNames& names) {
  const std::vector<Curve> curves = curves_of(rows, names);
  Json facts = Json::array(), time = Json::array();
  for (const auto& [name, value] : head.facts)
    facts.push_back(Json::array({Json(replace_invalid_utf8(name)), Json(replace_invalid_utf8(value))}));
  const std::string status = replace_invalid_utf8(head.status);
  for (const auto& [phase, seconds] : detail::time_by_phase(curves))
    time.push_back(Json::array({Json(phase), Json(seconds)}));
  Json run = Json::object(), examples = Json::array();
  for (const auto& [name, shown] : head.examples) examples.push_back(shown);
  run.set("curves", detail::curves_json(curves)).set("epochs", detail::epochs_json(rows, names));
  run.set("time", std::move(time)).set("facts", std::move(facts)).set("status", status);
  run.set("examples", std::move(examples));
  std::string page = detail::page_begin(head.title.empty() ? "A training run" : head.title);
  page += "<p class=\"soft\">" + detail::html_text(status);
  if (!rows.empty())
    page += ", step " + std::to_string(rows.back().step) + ", " +
            looptorch::detail::clock_text(rows.back().seconds) + " in training";
  page += "</p>\n";
  for (const std::string& warning : detail::warnings_of_curves(curves))
    page += "<p class=\"warning\">" + detail::html_text(warning) + "</p>\n";
  page +=
      "<h2>Curves</h2>\n<p class=\"soft\">Drag across a curve to see those steps in all of them; a double "
      "click goes back.</p>\n<div id=\"curves\" class=\"cards\"></div>\n"
      "<h2>Epochs</h2>\n<p class=\"soft\">Means over an epoch's steps, each counted once; where a name has a "
      "dot, the last value.</p>\n<div id=\"epochs\" class=\"scroll\"></div>\n"
      "<div id=\"examples\"></div>\n"
      "<h2>Where the time went</h2>\n<div id=\"time\"></div>\n"
      "<h2>What was run</h2>\n<div id=\"facts\" class=\"scroll\"></div>\n";
  return page + detail::page_end(run, page::kReportScript);
}

}  // namespace looptorch::report
