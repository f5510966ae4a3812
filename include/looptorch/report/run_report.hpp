// SPDX-License-Identifier: MIT
// Rewrites a run's report.html while it trains, in one step, so that a reader never sees half a page.
#pragma once

#include <looptorch/base/example.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/report/example_forms.hpp>
#include <looptorch/report/metric_files.hpp>
#include <looptorch/report/run_page.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::report {

/// Used on the thread of a MetricLog.
class RunReport {
 public:
  /// Writes `folder`/report.html at most every `seconds`.
  RunReport(const std::filesystem::path& folder, PageHead head, double seconds)
      : file_(folder / "report.html"), head_(std::move(head)), seconds_(seconds) {}

  void set_status(std::string status) { head_.status = std::move(status); }

  /// Shows examples in place of earlier ones with this name.
  void set_examples(const std::string& name, std::int64_t step, const std::vector<Example>& examples) {
    Json shown = Json::array();
    for (const Example& example : examples) shown.push_back(page_example(example));
    head_.examples.insert_or_assign(
        name, Json::object().set("name", name).set("step", step).set("shown", std::move(shown)));
  }

  /// Rewrites the page if it is time to, or if this is the `last` time. Throws FileError.
  void update(MetricFiles& files, bool last) {
    const auto now = Clock::now();
    if (!last && std::chrono::duration<double>(now - written_).count() < seconds_) return;
    written_ = now;
    write_file_atomically(file_, run_page(head_, files.rows(), files.names()));
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::filesystem::path file_;
  PageHead head_;
  double seconds_;
  Clock::time_point written_ = Clock::now() - std::chrono::hours(1);
};

}  // namespace looptorch::report
