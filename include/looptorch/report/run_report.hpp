// SPDX-License-Identifier: MIT
// Rewrites a run's report.html during training. The new page replaces the old one atomically, so that a
// reader never sees half of it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/example.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/report/example_forms.hpp>
#include <looptorch/report/metric_files.hpp>
#include <looptorch/report/run_page.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::report {

/// Writes the page of one run. Called on a MetricLog's thread.
class RunReport {
 public:
  /// Writes `folder`/report.html at most every `seconds`.
  RunReport(const std::filesystem::path& folder, PageHead head, double seconds)
      : file_(folder / "report.html"), head_(std::move(head)), seconds_(seconds) {}

  /// Restores the examples of an earlier process's page, up to `step`, from which the run resumes. Ignores a
  /// page that cannot be read.
  void restore_examples(std::int64_t step) {
    try {
      const Json shown = data_of_page(read_file(file_));
      for (const Json& example : shown.at("examples").as_array())
        if (example.at("step").as_int() <= step)
          head_.examples.insert_or_assign(example.at("name").as_string(), example);
    } catch (const Error&) {  // there is none, or another version's
    }
  }

  /// Begins another fit's page, with the examples of the last one's.
  void begin_again(PageHead head) {
    head.examples = std::move(head_.examples);
    head_ = std::move(head);
  }

  void set_status(std::string status) { head_.status = std::move(status); }

  /// Shows examples in place of earlier ones with this name.
  void set_examples(std::string_view given_name, std::int64_t step, const std::vector<Example>& examples) {
    const std::string name = replace_invalid_utf8(given_name);
    Json shown = Json::array();
    for (const Example& example : examples) shown.push_back(page_example(example));
    head_.examples.insert_or_assign(
        name, Json::object().set("name", name).set("step", step).set("shown", std::move(shown)));
    has_news_ = true;
  }

  /// Rewrites the page if `seconds` have passed, or 1 s if there are new examples, and always if this is the
  /// `last` time. Throws FileError.
  void update(MetricFiles& files, bool last) {
    const auto now = Clock::now();
    const double seconds = has_news_ ? std::min(seconds_, kSecondsWithNews) : seconds_;
    if (!last && std::chrono::duration<double>(now - written_).count() < seconds) return;
    written_ = now, has_news_ = false;
    write_file_atomically(file_, run_page(head_, files.history(), files.names()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kSecondsWithNews = 1;

  std::filesystem::path file_;
  PageHead head_;
  double seconds_;
  bool has_news_ = false;
  Clock::time_point written_ = Clock::now() - std::chrono::hours(1);
};

}  // namespace looptorch::report
