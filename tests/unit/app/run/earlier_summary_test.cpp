// SPDX-License-Identifier: MIT
// What a resumed run that had ended says of time and memory.
#include "support/precompiled.hpp"

#include <looptorch/app/run/earlier_summary.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include "support/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace app = looptorch::app;
namespace lt = looptorch;

namespace {

/// Returns what a call that took 1 s and 9 bytes writes, after `earlier` was in the file.
lt::Json written(const std::string& earlier, const lt::FitResult& fit) {
  const looptorch::testing::TemporaryFolder folder;
  const auto file = folder / "summary.json";
  if (!earlier.empty()) lt::write_file_atomically(file, earlier);
  const app::EarlierSummary kept(file);
  CHECK_FALSE(std::filesystem::exists(file));
  app::Summary summary;
  summary.set("steps", fit.steps).set("seconds", 1.0).set("peak_bytes", std::int64_t{9});
  for (const auto& [name, cost] : kept.costs_after(fit)) summary.set(name, cost);
  return lt::Json::parse(summary.text());
}

lt::FitResult resumed_at(std::int64_t step, lt::FitStatus status = lt::FitStatus::nothing_left) {
  return {.status = status, .steps = 20, .resumed = lt::ResumeReport{.step = step}};
}

const lt::Json kIdle = lt::Json::parse(R"({"steps": 20, "seconds": 1.0, "peak_bytes": 9})");

}  // namespace

TEST_CASE("a run that had ended keeps what it took, with the parts of its memory") {
  const lt::Json kept = lt::Json::parse(R"({"steps": 20, "seconds": 321.5, "peak_bytes": 700})");
  for (const auto status : {lt::FitStatus::nothing_left, lt::FitStatus::stopped})
    CHECK(written(R"({"steps": 20, "seconds": 321.5, "peak_bytes": 700, "loss": 3})",
                  resumed_at(20, status)) == kept);
  const lt::Json parts = lt::Json::parse(
      R"({"steps": 20, "seconds": 2, "peak_bytes": 9, "memory_peak": 5, "memory": {"weights": 4}})");
  CHECK(written(R"({"memory_peak": 5, "memory": {"weights": 4}, "steps": 20, "seconds": 2})",
                resumed_at(20)) == parts);
  const lt::Json use = lt::Json::parse(
      R"({"steps": 20, "seconds": 1.0, "peak_bytes": 9, "flops_per_second": 2.5, "mfu": 0.5})");
  CHECK(written(R"({"mfu": 0.5, "flops_per_second": 2.5, "steps": 20})", resumed_at(20)) == use);
}

TEST_CASE("a run that trained, or whose earlier summary is another run's, says what this call took") {
  const std::string earlier = R"({"steps": 20, "seconds": 321.5, "peak_bytes": 700})";
  CHECK(written(earlier, {.steps = 20}) == kIdle);  // begun anew
  CHECK(written(earlier, resumed_at(15, lt::FitStatus::completed)) == kIdle);
  CHECK(written(R"({"steps": 10, "seconds": 321.5, "peak_bytes": 700})", resumed_at(20)) == kIdle);
  for (const char* damaged : {"", R"({"steps": 20, "seco)", "[20]", R"({"seconds": 321.5})"})
    CHECK(written(damaged, resumed_at(20)) == kIdle);
}
