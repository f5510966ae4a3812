// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/report/learning_curve.hpp>

#include "support/temporary_folder.hpp"

#include <cmath>
#include <limits>
#include <string>

using Catch::Contains;
using looptorch::LearningCurve;
using looptorch::read_file;
using looptorch::testing::TemporaryFolder;

TEST_CASE("a learning curve has its header once and a row a step") {
  const TemporaryFolder folder;
  const auto file = folder / "curve.csv";
  const LearningCurve curve(file, {"loss", "wer"});
  CHECK_FALSE(std::filesystem::exists(file));
  curve.add(10, {2.5, 1});
  curve.add(20, {0.123456789, std::numeric_limits<double>::quiet_NaN()});
  CHECK(read_file(file) == "step,loss,wer\n10,2.5,1\n20,0.123457,nan\n");
  curve.add(20, {std::copysign(std::numeric_limits<double>::quiet_NaN(), -1.0), 1});
  CHECK(read_file(file) == "step,loss,wer\n10,2.5,1\n20,nan,1\n");
}

TEST_CASE("a resumed run makes later rows again, and loses none before them") {
  const TemporaryFolder folder;
  const auto file = folder / "curve.csv";
  for (const int step : {100, 200, 300}) LearningCurve(file, {"loss"}).add(step, {1.0 * step});
  LearningCurve(file, {"loss"}).add(200, {7});
  CHECK(read_file(file) == "step,loss\n100,100\n200,7\n");
  LearningCurve(file, {"loss"}).add(250, {8});
  CHECK(read_file(file) == "step,loss\n100,100\n200,7\n250,8\n");
  looptorch::write_file_atomically(file, "step,loss\n1,2\n\nno row\n2,3");
  LearningCurve(file, {"loss"}).add(3, {4});
  CHECK(read_file(file) == "step,loss\n1,2\n2,3\n3,4\n");
  looptorch::write_file_atomically(file, "");
  LearningCurve(file, {"loss"}).add(3, {4});
  CHECK(read_file(file) == "step,loss\n3,4\n");
}

TEST_CASE("a file of other columns is refused and left as it is, as are values that do not fit") {
  const TemporaryFolder folder;
  const auto file = folder / "curve.csv";
  LearningCurve(file, {"loss"}).add(1, {2});
  CHECK_THROWS_AS(LearningCurve(file, {"loss", "wer"}).add(2, {1, 1}), looptorch::UsageError);
  CHECK_THROWS_WITH(LearningCurve(file, {"loss", "wer"}).add(2, {1, 1}),
                    file.string() + ": has the columns \"step,loss\", and the curve has \"step,loss,wer\"");
  CHECK(read_file(file) == "step,loss\n1,2\n");
  CHECK_THROWS_WITH(LearningCurve(file, {"loss"}).add(2, {1, 1}),
                    Contains(": 2 values for the 1 columns after \"step\""));
  CHECK_THROWS_WITH(LearningCurve(file, {}), Contains("needs a column beside the step"));
  for (const char* name : {"", "a,b", "a\"", "a\nb"})
    CHECK_THROWS_AS(LearningCurve(file, {name}), looptorch::UsageError);
  CHECK_THROWS_AS(LearningCurve(folder / "none" / "curve.csv", {"loss"}).add(1, {1}), looptorch::FileError);
}

TEST_CASE("a curve whose file cannot be looked at is refused with a FileError") {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  for (const auto& file : {folder / "loop", folder / std::string(300, 'a')})
    CHECK_THROWS_AS(LearningCurve(file, {"loss"}).add(1, {1}), looptorch::FileError);
  CHECK(std::filesystem::is_symlink(folder / "loop"));
}
