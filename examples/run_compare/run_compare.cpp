// SPDX-License-Identifier: MIT
// Compares training runs: writes compare.html from the folders that LogMetrics wrote.
#include <looptorch/app/run/output_folder.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/report/compare_page.hpp>
#include <looptorch/report/recorded_run.hpp>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace report = looptorch::report;

/// Returns the folder's name, or its whole path if another folder has the same name.
std::string name_of(const std::string& folder, const std::vector<std::string>& folders) {
  const auto short_name = [](const std::string& path) {
    return fs::weakly_canonical(path).filename().string();
  };
  int same = 0;
  for (const auto& other : folders) same += short_name(other) == short_name(folder);
  return same == 1 ? short_name(folder) : fs::path(folder).lexically_normal().string();
}

void compare(const std::vector<std::string>& folders, const fs::path& output) {
  std::vector<report::RecordedRun> runs;
  for (const fs::path folder : folders)
    for (const char* const file : {"report.html", "metrics.jsonl", "metrics.csv"})
      app::require_apart(output, "DIR's", folder / file);
  for (const auto& folder : folders) runs.push_back(report::read_run(folder, name_of(folder, folders)));
  looptorch::write_file_atomically(output, report::compare_page(runs));
  std::cout << runs.size() << (runs.size() == 1 ? " run in " : " runs in ") << output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> folders;
  fs::path output = "compare.html";
  app::CommandLine line("run_compare", "Lays training runs side by side in one page.");
  line.positional("DIR", folders, "output of a training program, with its metrics.jsonl and report.html");
  line.option("output", "FILE", output, "page to write");
  return app::run_main(argc, argv, line, [&] { compare(folders, output); });
}
