// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/charts/curve_table.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/report/learning_curve.hpp>

#include "support/temporary_folder.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

using looptorch::app::CurveTable;
using looptorch::testing::TemporaryFolder;

TEST_CASE("What a learning curve wrote is read by column, as a curve and as JSON") {
  const TemporaryFolder folder;
  const auto file = folder / "curve.csv";
  const looptorch::LearningCurve written(file, {"loss", "wer"});
  written.add(8, {1.25, 0.5});
  written.add(16, {std::numeric_limits<double>::quiet_NaN(), 0.25});
  const CurveTable table(file);
  CHECK(table.names() == std::vector<std::string>{"step", "loss", "wer"});
  CHECK(table.rows() == 2);
  CHECK(table.column("wer") == std::vector<double>{0.5, 0.25});
  CHECK(std::isnan(table.column("loss")[1]));
  const auto curve = table.curve("rate", "step", "wer");
  CHECK(curve.name == "rate");
  CHECK(curve.x == std::vector<double>{8, 16});
  CHECK(curve.y == std::vector<double>{0.5, 0.25});
  CHECK(table.to_json() ==
        looptorch::Json::parse(
            R"([{"step": 8, "loss": 1.25, "wer": 0.5}, {"step": 16, "loss": null, "wer": 0.25}])"));
  CHECK(table.to_json().dump().find("8.0") == std::string::npos);
}

TEST_CASE("A table that is none says where") {
  const TemporaryFolder folder;
  const auto file = folder / "curve.csv";
  const auto name = file.string();
  CHECK_THROWS_AS(CurveTable(file), looptorch::FileError);
  looptorch::write_file_atomically(file, "");
  CHECK_THROWS_WITH(CurveTable(file), name + ": is empty");
  looptorch::write_file_atomically(file, "step,loss\n1,2\n3\n");
  CHECK_THROWS_WITH(CurveTable(file), name + ":3: has 1 fields, the header 2");
  looptorch::write_file_atomically(file, "step,loss\n1,\"2\n");
  CHECK_THROWS_WITH(CurveTable(file), name + ":2: a quoted field without an end");
  looptorch::write_file_atomically(file, "step,loss\n");
  CHECK(CurveTable(file).rows() == 0);
  CHECK_THROWS_WITH(CurveTable(file).column("wer"), name + ": has no column \"wer\", only step, loss");
}
