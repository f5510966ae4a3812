// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/run/output_folder.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>

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

TEST_CASE("app: an output folder holds no file that the run reads, by whatever name") {
  const looptorch::testing::TemporaryFolder root;
  const fs::path output = root.path() / "run", below = output / "best";
  fs::create_directories(below);
  for (const fs::path& file : {output / "model.safetensors", below / "model.safetensors"}) {
    std::ofstream(file) << "x";
    CHECK_THROWS_WITH(app::OutputFolder(output, {file}),
                      Contains("run: holds " + file.string() + ", which the run reads and could overwrite"));
    CHECK_NOTHROW(app::OutputFolder(root.path() / "ru", {file}));  // no folder's beginning is one
  }
  fs::create_directories(root.path() / "two");
  CHECK_NOTHROW(app::OutputFolder(root.path() / "two", {output / "model.safetensors"}));
  fs::create_symlink(output, root.path() / "link");
  CHECK_THROWS(app::OutputFolder(root.path() / "link" / "", {output / "model.safetensors"}));
  CHECK_THROWS(app::OutputFolder(output, {root.path() / "link" / "model.safetensors"}));
  CHECK_NOTHROW(app::OutputFolder(output, {below, fs::path(), output / "missing"}));  // data may lie below
}

TEST_CASE("app: an output is not what a flag names, and does not hold it") {
  const looptorch::testing::TemporaryFolder root;
  const fs::path page = root.path() / "report.html", other = root.path() / "compare.html";
  std::ofstream(page) << "x";
  CHECK_THROWS_WITH(app::require_apart(page, "DIR", root.path() / "." / "report.html"),
                    Contains("--output " + page.string() + " would overwrite DIR "));
  CHECK_THROWS_WITH(app::require_apart(root.path(), "--weights", page), Contains("overwrite --weights "));
  CHECK_THROWS(app::require_apart(root.path(), "--weights", root.path()));
  CHECK_THROWS(app::require_apart(root.path() / "gone" / "", "--weights", root.path() / "gone" / "x"));
  CHECK_NOTHROW(app::require_apart(other, "DIR", page));
  CHECK_NOTHROW(app::require_apart(root.path(), "--weights", ""));
}
