// SPDX-License-Identifier: MIT
// Draws columns of learning curves, the curve.csv of gan_train and vit_train, as a PNG file.
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/data/manifest/manifest_rows.hpp>

#include "pictures/line_chart.hpp"
#include "pictures/png.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace sg = spectrogram_gan;

struct Options {
  std::vector<std::string> files;
  fs::path output;
  std::string columns, x = "step", title;
};

/// A table's names and numbers; a field that is no number is NaN.
struct Table {
  std::vector<std::string> names;
  std::vector<std::vector<double>> columns;

  /// Throws looptorch::UsageError, which lists the names, if there is no such column.
  [[nodiscard]] const std::vector<double>& column(const std::string& name, const std::string& file) const {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return columns[static_cast<std::size_t>(found - names.begin())];
    std::string known;
    for (const auto& one : names) known += (known.empty() ? "" : ", ") + one;
    throw looptorch::UsageError(looptorch::message(file, ": has no column \"", name, "\", only ", known));
  }
};

double number_of(const std::string& field) {
  double value = 0;
  const auto* end = field.data() + field.size();
  const auto [stop, code] = std::from_chars(field.data(), end, value);
  return code == std::errc{} && stop == end ? value : std::numeric_limits<double>::quiet_NaN();
}

Table read_table(const std::string& file) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 26;
  const auto contents = looptorch::read_file(file, kMaxBytes);
  looptorch::TableRows rows(contents, ',');
  if (!rows.has_next()) throw looptorch::UsageError(file + ": is empty");
  Table table{.names = rows.next(), .columns = {}};
  table.columns.resize(table.names.size());
  while (rows.has_next()) {
    const auto row = rows.next();
    if (row.size() != table.names.size())
      throw looptorch::UsageError(looptorch::message(file, ":", rows.line(), ": has ", row.size(),
                                                     " fields, the header ", table.names.size()));
    for (std::size_t i = 0; i < row.size(); ++i) table.columns[i].push_back(number_of(row[i]));
  }
  return table;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char character : text) {
    if (character == ',')
      parts.emplace_back();
    else
      parts.back() += character;
  }
  return parts;
}

void draw(const Options& options) {
  std::vector<sg::Curve> curves;
  for (const auto& file : options.files) {
    const auto table = read_table(file);
    const auto& x = table.column(options.x, file);
    const auto run = fs::absolute(file).parent_path().filename().string();
    for (const auto& name : split(options.columns))
      curves.push_back({.name = run + " " + name, .x = x, .y = table.column(name, file)});
  }
  sg::write_png(options.output, sg::line_chart(curves, {.x_name = options.x, .title = options.title}));
  std::cout << curves.size() << " curves in " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("draw_curves", "Draws columns of learning curves, each FILE's by its folder's name.");
  line.positional("FILE", options.files, "curve.csv of gan_train or vit_train");
  line.required("output", "PNG", options.output, "picture to write");
  line.required("columns", "NAMES", options.columns, "columns to draw: frechet, or ccc_valence,ccc_arousal");
  line.option("x", "NAME", options.x, "column of the horizontal axis");
  line.option("title", "TEXT", options.title, "above the curves");
  return app::run_main(argc, argv, line, [&] { draw(options); });
}
