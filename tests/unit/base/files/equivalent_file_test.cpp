// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/equivalent_file.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using looptorch::EquivalentFiles;
using looptorch::testing::TemporaryFolder;

namespace {

using Files = std::vector<fs::path>;

const std::string kComposed = "r\u00e9sum\u00e9", kDecomposed = "re\u0301sume\u0301";

void write(const fs::path& file) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "audio";
}

}  // namespace

TEST_CASE("a file is found by an equivalent name, in either direction and in folders on its way") {
  const TemporaryFolder folder;
  EquivalentFiles files;
  const auto [listed, on_disk] = GENERATE(table<std::string, std::string>(
      {{kComposed, kDecomposed}, {kDecomposed, kComposed}, {kComposed, kComposed}}));
  write(folder / on_disk / "clips" / (on_disk + ".wav"));
  CHECK(files.find(folder / listed / "clips" / (listed + ".wav")) ==
        Files{folder / on_disk / "clips" / (on_disk + ".wav")});
  CHECK(files.find(folder / listed / "clips" / "other.wav").empty());
  CHECK(files.find(folder / listed / "clips").empty());  // no file
  CHECK(files.find(folder / "none" / (listed + ".wav")).empty());
}

TEST_CASE("folders of both spellings are searched, and all files of equivalent names are returned") {
  const TemporaryFolder folder;
  EquivalentFiles files;
  write(folder / kComposed / "a.wav");
  write(folder / kDecomposed / "b.wav");
  CHECK(files.find(folder / kComposed / "b.wav") == Files{folder / kDecomposed / "b.wav"});
  write(folder / kDecomposed / "a.wav");
  CHECK(files.find(folder / kComposed / "a.wav").size() == 2);
}

TEST_CASE("names that are not UTF-8 are not confused") {
  const TemporaryFolder folder;
  write(folder / "caf\xe9.wav");
  EquivalentFiles files;
  CHECK(files.find(folder / "caf\ufffd.wav").empty());
  CHECK(files.find(folder / "caf\xe8.wav").empty());
  CHECK(files.find(folder / "caf\xe9.wav").size() == 1);
}

TEST_CASE("a relative path is looked up in the current folder") {
  const TemporaryFolder folder;
  write(folder / kDecomposed);
  const auto before = fs::current_path();
  fs::current_path(folder.path());
  const auto found = EquivalentFiles().find(kComposed);
  fs::current_path(before);
  CHECK(found == Files{kDecomposed});
}
