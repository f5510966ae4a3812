// SPDX-License-Identifier: MIT
// Compares training runs: writes compare.html from the folders that LogMetrics wrote.
#include <looptorch/app/run/output_folder.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/report/compare_page.hpp>
#include <looptorch/report/recorded_run.hpp>

#include <cstddef>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace report = looptorch::report;

/// Returns each folder's name, or its whole path if another folder has the same name.
std::vector<std::string> names_of(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  std::map<std::string, int> folders_of;
  for (const fs::path folder : folders)
    ++folders_of[names.emplace_back(fs::weakly_canonical(folder).filename().string())];
  for (std::size_t i = 0; i < names.size(); ++i)
    if (folders_of[names[i]] > 1) names[i] = fs::path(folders[i]).lexically_normal().string();
  return names;
}

void compare(const std::vector<std::string>& folders, const fs::path& output) {
  std::vector<report::RecordedRun> runs;
  for (const fs::path folder : folders)
    for (const char* const file : {"report.html", "metrics.jsonl", "metrics.csv"})
      app::require_apart(output, "DIR's", folder / file);
  const std::vector<std::string> names = names_of(folders);
  for (std::size_t i = 0; i < folders.size(); ++i) runs.push_back(report::read_run(folders[i], names[i]));
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
