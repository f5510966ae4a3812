// SPDX-License-Identifier: MIT
// Reads a run from the folder that LogMetrics wrote: its metrics and, from report.html, its settings and
// machine. compare.html is made from such runs.
#pragma once

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/report/metric_lines.hpp>
#include <looptorch/report/metric_row.hpp>
#include <looptorch/report/tensorboard/events.hpp>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch::report {

/// A run as its folder records it, whether it has ended, is under way or was killed.
struct RecordedRun {
  std::string name = {};
  std::string status = {};  ///< How it ended, or "under way"; empty where no report.html tells.
  MetricNames names = {};
  std::vector<MetricRow> rows = {};
  Facts facts = {};  ///< Settings, sizes, machine; none without a report.html.
};

namespace detail {

/// Adds the facts in a page's JSON. An incomplete page, or one of another program, adds nothing.
inline void read_page(RecordedRun& run, std::string_view page) try {
  constexpr std::string_view kBegin = "id=\"run\">";
  const auto begin = page.find(kBegin);
  if (begin == page.npos) return;
  const auto end = page.find("</script>", begin);
  const Json json = Json::parse(page.substr(begin + kBegin.size(), end - begin - kBegin.size()));
  Facts facts;
  for (const Json& fact : json.at("facts").as_array())
    facts.emplace_back(fact.at(0).as_string(), fact.at(1).as_string());
  run.status = json.get("status", "").as_string();
  run.facts = std::move(facts);
} catch (const JsonError&) {
}

}  // namespace detail

/// Reads `folder`/metrics.jsonl and, if it is there, report.html. A line that a killed process left
/// unfinished is skipped. Throws FileError if metrics.jsonl cannot be read.
[[nodiscard]] inline RecordedRun read_run(const std::filesystem::path& folder, std::string name) {
  RecordedRun run{.name = std::move(name)};
  const std::string text = read_file(folder / "metrics.jsonl");
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = rest.find('\n');
    if (end == rest.npos) break;
    if (auto row = read_json_line(rest.substr(0, end), run.names)) run.rows.push_back(*std::move(row));
    rest.remove_prefix(end + 1);
  }
  std::error_code ignored;
  if (const auto page = folder / "report.html"; std::filesystem::exists(page, ignored))
    detail::read_page(run, read_file(page));
  return run;
}

}  // namespace looptorch::report
