// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/files_at.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

using looptorch::files_at;
using looptorch::testing::TemporaryFolder;

namespace {

std::vector<std::string> names_at(const std::filesystem::path& place) {
  std::vector<std::string> names;
  for (const auto& file : files_at<std::runtime_error>(place, ".json")) names.push_back(file.filename());
  return names;
}

}  // namespace

TEST_CASE("A folder's files of one extension come by name, without those of macOS's archives", "[base]") {
  const TemporaryFolder folder;
  for (const char* name : {"b.json", "a.json", "c.JSON", "._a.json", "json", "d.json.bak"})
    std::ofstream(folder / name) << "{}";
  std::filesystem::create_directory(folder / "below");
  std::ofstream(folder / "below" / "e.json") << "{}";
  CHECK(names_at(folder.path()) == std::vector<std::string>{"a.json", "b.json"});
}

TEST_CASE("A file is itself, whatever its name; what is not there is an error of the caller's", "[base]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "._list") << "{}";
  CHECK(names_at(folder / "._list") == std::vector<std::string>{"._list"});
  CHECK(names_at("/dev/null") == std::vector<std::string>{"null"});
  CHECK_THROWS_WITH(names_at(folder / "none"), (folder / "none").string() + ": No such file or directory");
  std::filesystem::create_directory(folder / "empty");
  CHECK_THROWS_WITH(names_at(folder / "empty"), (folder / "empty").string() + ": holds no .json");
}
