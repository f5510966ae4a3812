// SPDX-License-Identifier: MIT
// Reads a CSV file of numbers, such as LearningCurve (report/learning_curve.hpp) writes, and returns its
// columns. Programs use it for charts and summaries.
#pragma once

#include <looptorch/app/charts/line_chart.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/manifest/manifest_rows.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch::app {

/// The columns of a CSV file, by the names in its first row. A field that is no number is NaN.
class CurveTable {
 public:
  /// Throws UsageError for an empty file, for a row that breaks the rules of CSV, and for one whose number of
  /// fields is not the header's. Throws FileError.
  explicit CurveTable(std::filesystem::path file) : file_(std::move(file)) {
    const auto contents = read_file(file_, kMaxBytes);
    TableRows rows(contents, ',');
    if (!rows.has_next()) throw UsageError(file_.string() + ": is empty");
    names_ = next_row(rows);
    columns_.resize(names_.size());
    while (rows.has_next()) {
      const auto line = rows.line();
      const auto row = next_row(rows);
      if (row.size() != names_.size())
        throw UsageError(
            message(file_.string(), ":", line, ": has ", row.size(), " fields, the header ", names_.size()));
      for (std::size_t i = 0; i < row.size(); ++i) columns_[i].push_back(number_of(row[i]));
    }
  }

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] std::size_t rows() const { return columns_.front().size(); }

  /// Throws UsageError, which lists the names, if there is no such column.
  [[nodiscard]] const std::vector<double>& column(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) return columns_[static_cast<std::size_t>(found - names_.begin())];
    std::string known;
    for (const auto& one : names_) known += (known.empty() ? "" : ", ") + one;
    throw UsageError(message(file_.string(), ": has no column \"", name, "\", only ", known));
  }

  /// Returns a curve of two columns.
  [[nodiscard]] Curve curve(const std::string& name, const std::string& x, const std::string& y) const {
    return {.name = name, .x = column(x), .y = column(y)};
  }

  /// Returns the rows as objects, `[{"step": 8, "loss": 1.25}, ...]`; values that are no number are null.
  [[nodiscard]] Json to_json() const {
    auto list = Json::array();
    for (std::size_t row = 0; row < rows(); ++row) {
      auto entry = Json::object();
      for (std::size_t i = 0; i < names_.size(); ++i) entry.set(names_[i], json_of(columns_[i][row]));
      list.push_back(std::move(entry));
    }
    return list;
  }

 private:
  [[nodiscard]] std::vector<std::string> next_row(TableRows& rows) const {
    const auto line = rows.line();
    try {
      return rows.next();
    } catch (const Error& error) {
      throw UsageError(message(file_.string(), ":", line, ": ", error.what()));
    }
  }

  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 26;

  static double number_of(const std::string& field) {
    double value = 0;
    const auto* end = field.data() + field.size();
    const auto [stop, code] = std::from_chars(field.data(), end, value);
    return code == std::errc{} && stop == end ? value : std::numeric_limits<double>::quiet_NaN();
  }

  static Json json_of(double value) {
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (!std::isfinite(value)) return {};
    if (value == std::nearbyint(value) && std::abs(value) < kExact) return static_cast<std::int64_t>(value);
    return value;
  }

  std::filesystem::path file_;
  std::vector<std::string> names_;
  std::vector<std::vector<double>> columns_;
};

}  // namespace looptorch::app
