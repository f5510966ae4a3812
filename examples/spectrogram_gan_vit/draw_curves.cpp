// SPDX-License-Identifier: MIT
// Draws columns of curve.csv files, the learning curves of gan_train and vit_train, as a PNG file.
#include <looptorch/app/charts/curve_table.hpp>
#include <looptorch/app/charts/line_chart.hpp>
#include <looptorch/app/charts/png.hpp>
#include <looptorch/app/run/output_folder.hpp>
#include <looptorch/app/run_main.hpp>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> files;
  fs::path output;
  std::string columns, x = "step", title;
};

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
  std::vector<app::Curve> curves;
  for (const auto& file : options.files) app::require_apart(options.output, "FILE", file);
  for (const auto& file : options.files) {
    const app::CurveTable table(file);
    const auto run = fs::absolute(file).parent_path().filename().string();
    for (const auto& name : split(options.columns))
      curves.push_back(table.curve(run + " " + name, options.x, name));
  }
  app::write_png(options.output, app::line_chart(curves, {.x_name = options.x, .title = options.title}));
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
