// SPDX-License-Identifier: MIT
// The thread and the files that it writes.
//
// Tests report: metric_log, metric_files, appended_file
#include "support/precompiled.hpp"

#include <looptorch/report/metric_log.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"

#include <fstream>

namespace report = looptorch::report;
using looptorch::testing::TemporaryFolder;

namespace metric_log {

report::RowBatch batch_of(std::vector<std::string> names, std::int64_t step, std::vector<double> values) {
  report::RowBatch batch{.new_names = std::move(names)};
  report::UnreadRow row{step, 0, 0.5 * double(step)};
  for (std::size_t i = 0; i < values.size(); ++i)
    row.values.push_back({.id = report::MetricId(i), .number = values[i]});
  batch.rows.push_back(row);
  return batch;
}

}  // namespace metric_log

using metric_log::batch_of;

TEST_CASE("MetricLog: rows in order, and a column that comes later") {
  const TemporaryFolder folder;
  {
    report::MetricLog log(folder / "log", 0, {});
    CHECK(log.seconds_at_begin() == 0);
    log.add(batch_of({"loss"}, 1, {2}));
    log.flush();
    CHECK(looptorch::read_file(folder / "log" / "metrics.csv") == "step,epoch,seconds,loss\n1,0,0.5,2\n");
    log.add(batch_of({"more"}, 2, {1, 7}));
  }
  CHECK(looptorch::read_file(folder / "log" / "metrics.csv") ==
        "step,epoch,seconds,loss,more\n1,0,0.5,2,\n2,0,1,1,7\n");
  CHECK(looptorch::read_file(folder / "log" / "metrics.jsonl") ==
        "{\"step\":1,\"epoch\":0,\"seconds\":0.5,\"loss\":2.0}\n"
        "{\"step\":2,\"epoch\":0,\"seconds\":1.0,\"loss\":1.0,\"more\":7.0}\n");
}

TEST_CASE("MetricLog: continues after a step, and drops what comes after it") {
  const TemporaryFolder folder;
  const auto write = [&](std::int64_t from, std::vector<std::int64_t> steps) {
    report::MetricLog log(folder.path(), from, {});
    bool is_first = true;
    for (const std::int64_t step : steps)
      log.add(batch_of(
          std::exchange(is_first, false) ? std::vector<std::string>{"loss"} : std::vector<std::string>{},
          step, {double(10 * step)}));
  };
  const auto steps = [&] {
    std::string text;
    std::ifstream file(folder / "metrics.csv");
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) text += line.substr(0, line.find(',')) + ' ';
    return text;
  };
  write(0, {1, 2, 3, 4});
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << "{\"step\":5,\"ep";  // cut off
  write(2, {2, 3});
  CHECK(steps() == "1 2 3 ");
  write(0, {1});
  CHECK(steps() == "1 ");
}

TEST_CASE("MetricFiles: closed files are continued where the run stands, if nothing has changed them") {
  const TemporaryFolder folder;
  const report::MetricFormats formats;
  const auto files = std::make_shared<report::MetricFiles>(folder.path(), 0, formats);
  const auto append = [&](std::vector<std::string> names, std::int64_t step) {
    report::MetricLog(files).add(batch_of(std::move(names), step, {double(10 * step)}));
  };
  CHECK_FALSE(files->continue_in(folder.path(), 1, formats));  // it was not closed
  append({"loss"}, 1);
  REQUIRE(files->continue_in(folder.path(), 1, formats));
  CHECK(files->seconds() == 0.5);
  append({"loss"}, 2);
  CHECK(looptorch::read_file(folder / "metrics.csv") == "step,epoch,seconds,loss\n1,0,0.5,10\n2,0,1,20\n");
  CHECK(report::detail::event_files(folder.path()).size() == 1);

  const auto refuses = [&](const std::filesystem::path& where, std::int64_t step,
                           report::MetricFormats kinds) {
    files->close();
    return !files->continue_in(where, step, kinds);
  };
  CHECK(refuses(folder.path(), 1, formats));
  CHECK(refuses(folder.path(), 0, formats));
  CHECK(refuses(folder / "other", 2, formats));
  CHECK(refuses(folder.path(), 2, {.csv = false}));
  CHECK_FALSE(refuses(folder.path(), 2, formats));
  for (const auto& file : {folder / "metrics.jsonl", folder / "metrics.csv",
                           report::detail::event_files(folder.path()).front()}) {
    CAPTURE(file);
    files->close();
    std::ofstream(file, std::ios::app) << "x";
    CHECK_FALSE(files->continue_in(folder.path(), 2, formats));
  }
}

TEST_CASE("MetricLog: a file that cannot be written is said once, and nothing is thrown") {
  const TemporaryFolder folder;
  looptorch::testing::CapturedStderr captured;
  {
    report::MetricLog log(folder.path(), 0, {.csv = false, .tensorboard = false});
    log.add([](report::MetricFiles&) { throw looptorch::FileError("metrics.csv: cannot write: full"); });
    log.add(batch_of({"loss"}, 1, {2}));
    log.add([](report::MetricFiles&) { throw looptorch::FileError("again"); });
  }
  CHECK(captured.text() ==
        "metrics: metrics.csv: cannot write: full. The run goes on, and no more of them are written\n");
}

TEST_CASE("MetricLog: a page that cannot be written leaves the other files as they are") {
  const TemporaryFolder folder;
  looptorch::testing::CapturedStderr captured;
  {
    report::MetricLog log(folder.path(), 0, {}, [](report::MetricFiles&, bool) {
      throw looptorch::FileError("report.html: cannot write: full");
    });
    log.add(batch_of({"loss"}, 1, {2}));
    log.add(batch_of({}, 2, {3}));
  }
  CHECK(looptorch::read_file(folder / "metrics.csv") == "step,epoch,seconds,loss\n1,0,0.5,2\n2,0,1,3\n");
  CHECK(captured.text() == "metrics: report.html: cannot write: full. The run goes on without this page\n");
}

TEST_CASE("MetricLog: a name that is not UTF-8 is written with a replacement") {
  const TemporaryFolder folder;
  { report::MetricLog(folder.path(), 0, {}).add(batch_of({"lo\xFFss"}, 1, {2})); }
  CHECK(looptorch::read_file(folder / "metrics.csv") == "step,epoch,seconds,lo\uFFFDss\n1,0,0.5,2\n");
}

TEST_CASE("MetricLog: a file that cannot be looked at is refused with a FileError") {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("metrics.jsonl", folder / "metrics.jsonl");
  CHECK_THROWS_AS(report::MetricLog(folder.path(), 1, {}), looptorch::FileError);
}

TEST_CASE("MetricFiles: a metric that is named before any row has a number gets its column") {
  const TemporaryFolder folder;
  report::MetricFiles files(folder.path(), 0, {});
  const auto loss = files.names().id("loss");
  files.add({{1, 0, 0.5, {}}});  // a mean over nothing
  CHECK_FALSE(std::filesystem::exists(folder.path() / "metrics.jsonl"));
  files.add({{2, 0, 1.0, {{loss, 3.0}}}});
  CHECK(looptorch::read_file(folder.path() / "metrics.csv") == "step,epoch,seconds,loss\n2,0,1,3\n");
}
