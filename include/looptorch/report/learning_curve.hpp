// SPDX-License-Identifier: MIT
// Writes a learning curve as a CSV file, with a row for each measured step. If a resumed run measures a step
// again, the new row replaces the old one and all later rows. Adding a row rewrites the file, which takes
// some milliseconds: add one per validation, not per step.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch {

/// Appends rows to a CSV file:
///
///     LearningCurve curve(output / "curve.csv", {"loss", "wer"});  // "step,loss,wer"
///     curve.add(step, {loss, wer});
class LearningCurve {
 public:
  /// Takes the columns after the first one, "step". Touches no file before the first `add`. Throws
  /// UsageError for no column, and for one whose name is empty or contains a comma, a quote or a line end.
  LearningCurve(std::filesystem::path file, const std::vector<std::string>& columns)
      : file_(std::move(file)), header_("step"), columns_(columns.size()) {
    if (columns.empty())
      throw UsageError(file_.string() + ": a learning curve needs a column beside the step");
    for (const auto& column : columns) {
      if (column.empty() || column.find_first_of(",\"\r\n") != std::string::npos)
        throw UsageError(
            message(file_.string(), ": a column of a learning curve cannot be called \"", column, '"'));
      header_ += ',' + column;
    }
  }

  /// Adds the row of a step; numbers have six significant digits, and NaN no sign. Drops rows of this step
  /// and of later ones, which a run that went back to a snapshot makes again. Throws UsageError for another
  /// number of values than columns, and for a file that begins with other columns, which stays unchanged.
  /// Throws FileError.
  void add(std::int64_t step, const std::vector<double>& values) const {
    if (values.size() != columns_)
      throw UsageError(message(file_.string(), ": ", values.size(), " values for the ", columns_,
                               " columns after \"step\""));
    auto text = header_ + '\n' + rows_before(step) + std::to_string(step);
    for (const double value : values) text += std::isnan(value) ? ",nan" : message(',', value);
    write_file_atomically(file_, text + '\n');
  }

 private:
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 28;

  /// Returns the file's rows of earlier steps.
  [[nodiscard]] std::string rows_before(std::int64_t step) const {
    if (!detail::may_exist(file_)) return {};
    const auto contents = read_file(file_, kMaxBytes);
    std::string_view rest = contents;
    const auto first = take_line(rest);
    if (!contents.empty() && first != header_)
      throw UsageError(
          message(file_.string(), ": has the columns \"", first, "\", and the curve has \"", header_, '"'));
    std::string rows;
    while (!rest.empty()) {
      const auto line = take_line(rest);
      std::int64_t at = 0;
      const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), at);
      if (error == std::errc() && at < step) rows.append(line) += '\n';
    }
    return rows;
  }

  static std::string_view take_line(std::string_view& text) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    return line;
  }

  std::filesystem::path file_;
  std::string header_;
  std::size_t columns_;
};

}  // namespace looptorch
