// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/run/output_folder.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>

namespace app = looptorch::app;
namespace fs = std::filesystem;
using Catch::Matchers::Contains;

TEST_CASE("app: a run has its output folder for itself, and never that of its data") {
  const looptorch::testing::TemporaryFolder root;
  const fs::path output = root.path() / "runs" / "one", data = root.path() / "data";
  fs::create_directories(data);
  {
    const app::OutputFolder folder(output, {data, root.path() / "missing"});
    CHECK(fs::is_directory(output));
    CHECK_THROWS_WITH(app::OutputFolder(output),
                      Contains("runs/one: another run writes its results there: end it first"));
    CHECK_NOTHROW(app::OutputFolder(root.path() / "runs" / "two"));
  }
  CHECK_FALSE(fs::exists(output));  // made for nothing
  fs::create_directories(output);
  CHECK_NOTHROW(app::OutputFolder(output));
  CHECK_THROWS_WITH(app::OutputFolder(root.path() / "runs" / ".." / "data", {data}),
                    Contains(": is the folder of the data"));
}
