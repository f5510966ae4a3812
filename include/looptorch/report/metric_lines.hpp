// SPDX-License-Identifier: MIT
// Writes rows of metrics as JSON Lines and as CSV, and reads JSON Lines back. A number has the fewest digits
// that read back equal. NaN and infinities are "NaN", "Infinity" and "-Infinity": strings in JSON, which has
// no such numbers, and without quotes in CSV.
#pragma once

#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/report/metric_row.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch::report {

/// The names of metrics, by id.
class MetricNames {
 public:
  /// Returns the id of `name`, a new one if it has none yet.
  MetricId id(std::string_view name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) return names_.emplace_back(name), static_cast<MetricId>(names_.size() - 1);
    return static_cast<MetricId>(found - names_.begin());
  }
  [[nodiscard]] const std::string& operator[](MetricId id) const { return names_[id]; }
  [[nodiscard]] std::size_t size() const { return names_.size(); }

 private:
  std::vector<std::string> names_;
};

/// Returns the name that is written: with "metric." in front if it is empty or names a field of the row.
[[nodiscard]] inline std::string written_name(std::string_view name) {
  const bool taken = name == "step" || name == "epoch" || name == "seconds" || name.empty();
  return (taken ? "metric." : "") + replace_invalid_utf8(name);
}

/// Returns a number as text.
[[nodiscard]] inline std::string number_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::array<char, 32> digits;
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

/// Returns {"step":1,"epoch":0,"seconds":0.5,"loss":2.25} and a line end.
[[nodiscard]] inline std::string json_line(const MetricRow& row, const MetricNames& names) {
  Json line = Json::object();
  line.set("step", row.step).set("epoch", row.epoch).set("seconds", row.seconds);
  for (const auto& [id, value] : row.values)
    line.set(names[id], std::isfinite(value) ? Json(value) : Json(number_of(value)));
  return line.dump() + "\n";
}

namespace detail {

/// Returns the number that a member of a line holds; nothing for anything else.
inline std::optional<double> number_in(const Json& value) {
  if (value.is_number()) return value.as_number();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.as_string();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

}  // namespace detail

/// Returns the row of a line, and adds new names; nothing for a line that is no row, such as an unfinished
/// one of a killed process.
[[nodiscard]] inline std::optional<MetricRow> read_json_line(std::string_view text, MetricNames& names) try {
  const Json line = Json::parse(text);
  MetricRow row{line.at("step").as_int(), line.at("epoch").as_int(), line.at("seconds").as_number()};
  for (const auto& [name, value] : line.as_object()) {
    if (name == "step" || name == "epoch" || name == "seconds") continue;
    if (const auto number = detail::number_in(value)) row.values.emplace_back(names.id(name), *number);
  }
  return row;
} catch (const JsonError&) {
  return std::nullopt;
}

/// Returns a cell of a CSV file (RFC 4180): in quotes where it has to be.
[[nodiscard]] inline std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + '"';
}

/// Returns the first line of a CSV file with all metrics, and a line end.
[[nodiscard]] inline std::string csv_header(const MetricNames& names) {
  std::string line = "step,epoch,seconds";
  for (MetricId id = 0; id < names.size(); ++id) line += ',' + csv_cell(names[id]);
  return line + '\n';
}

/// Returns a row for a file of `columns` metrics; what was not measured is empty.
[[nodiscard]] inline std::string csv_line(const MetricRow& row, std::size_t columns) {
  std::vector<std::string> cells(columns);
  for (const auto& [id, value] : row.values) cells[id] = number_of(value);
  std::string line =
      std::to_string(row.step) + ',' + std::to_string(row.epoch) + ',' + number_of(row.seconds);
  for (const std::string& cell : cells) line += ',' + cell;
  return line + '\n';
}

}  // namespace looptorch::report
