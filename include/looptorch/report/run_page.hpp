// SPDX-License-Identifier: MIT
// Makes report.html, a page with a run's curves, epochs, times, warnings and facts, which loads no other
// file. Every metric gets a curve, so a new metric needs no change to this header. Only the seconds of each
// phase (`time/...`) have no curve: the page shows them as shares of the time.
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
#include <looptorch/report/run_history.hpp>
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

inline Json curves_json(const RunHistory& history, const MetricNames& names) {
  constexpr std::size_t kMaxPoints = 3000;
  Json json = Json::array();
  for (MetricId id = 0; id < history.metrics().size(); ++id) {
    if (names[id].starts_with(kTimePrefix)) continue;
    Json points = Json::array();
    for (const auto& [step, value] : thinned(history.metrics()[id].curve.points(), kMaxPoints))
      points.push_back(Json::array({Json(step), json_number(value)}));
    json.push_back(Json::object().set("name", names[id]).set("points", std::move(points)));
  }
  return json;
}

inline Json epochs_json(const RunHistory& history, const MetricNames& names) {
  Json head = Json::array({Json("epoch"), Json("step"), Json("time")}), lines = Json::array();
  std::vector<MetricId> columns;
  for (MetricId id = 0; id < names.size(); ++id)
    if (!is_of_steps_only(names[id])) {
      columns.push_back(id);
      head.push_back(names[id]);
    }
  for (const EpochFigures& epoch : history.epochs()) {
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
inline std::vector<std::pair<std::string, double>> time_by_phase(const RunHistory& history,
                                                                 const MetricNames& names) {
  std::vector<std::pair<std::string, double>> phases;
  for (MetricId id = 0; id < history.metrics().size(); ++id)
    if (names[id].starts_with(kTimePrefix))
      phases.emplace_back(names[id].substr(kTimePrefix.size()), history.metrics()[id].sum);
  return phases;
}

inline std::string percent(double share) { return std::to_string(std::lround(100 * share)) + " %"; }

/// Returns a sentence if the device waited for the host in a fifth of the time or more; else an empty text.
/// `apart` is the share of the time in which it was idle for another reason: data, evaluations, snapshots.
inline std::string host_warning(const MetricHistory& device_busy, double apart) {
  constexpr std::int64_t kFew = 3;
  if (device_busy.count < kFew) return {};
  const double busy = device_busy.sum / static_cast<double>(device_busy.count);
  const double waiting = 1 - busy - apart;
  if (!(waiting >= 0.2)) return {};
  return "The device had work in " + percent(busy) + " of the time, and for " + percent(waiting) +
         " it waited for the host. Capture the step as a graph (CaptureGraphs, --capture), or use larger "
         "batches.";
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
[[nodiscard]] inline std::vector<std::string> warnings_of(const RunHistory& history,
                                                          const MetricNames& names) {
  std::vector<std::string> warnings;
  for (MetricId id = 0; id < history.metrics().size(); ++id) {
    const MetricHistory& metric = history.metrics()[id];
    if (const auto& point = metric.first_non_finite)
      warnings.push_back(names[id] + " was " + number_of(point->second) + " at step " +
                         std::to_string(point->first) + ".");
    if (names[id] == kSkipped && metric.count > 0 && metric.last.second > 0)
      warnings.push_back(number_of(metric.last.second) + " of " + std::to_string(metric.last.first) +
                         " steps were skipped.");
  }
  double whole = 0, waiting = 0, apart = 0;
  for (const auto& [phase, seconds] : detail::time_by_phase(history, names)) {
    whole += seconds, waiting += phase == "data" ? seconds : 0;
    apart += phase == "data" || phase == "evaluation" || phase == "snapshot" ? seconds : 0;
  }
  if (whole > 1 && waiting > 0.2 * whole)
    warnings.push_back(detail::percent(waiting / whole) +
                       " of the time went into waiting for data. Use more workers, or a CachedDataset.");
  for (MetricId id = 0; id < history.metrics().size(); ++id)
    if (names[id] == kDeviceBusy)
      if (std::string text = detail::host_warning(history.metrics()[id], whole > 0 ? apart / whole : 0);
          !text.empty())
        warnings.push_back(std::move(text));
  return warnings;
}

/// Returns the page.
[[nodiscard]] inline std::string run_page(const PageHead& head, const RunHistory& history,
                                          const MetricNames& names) {
  Json facts = Json::array(), time = Json::array();
  for (const auto& [name, value] : head.facts)
    facts.push_back(Json::array({Json(replace_invalid_utf8(name)), Json(replace_invalid_utf8(value))}));
  const std::string status = replace_invalid_utf8(head.status);
  for (const auto& [phase, seconds] : detail::time_by_phase(history, names))
    time.push_back(Json::array({Json(phase), Json(seconds)}));
  Json run = Json::object(), examples = Json::array();
  for (const auto& [name, shown] : head.examples) examples.push_back(shown);
  run.set("curves", detail::curves_json(history, names)).set("epochs", detail::epochs_json(history, names));
  run.set("time", std::move(time)).set("facts", std::move(facts)).set("status", status);
  run.set("examples", std::move(examples));
  std::string page = detail::page_begin(head.title.empty() ? "A training run" : head.title);
  page += "<p class=\"soft\">" + detail::html_text(status);
  if (!history.is_empty())
    page += ", step " + std::to_string(history.last_step()) + ", " +
            looptorch::detail::clock_text(history.seconds()) + " in training";
  page += "</p>\n";
  for (const std::string& warning : warnings_of(history, names))
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
