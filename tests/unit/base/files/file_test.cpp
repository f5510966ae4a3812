// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>

#include "support/temporary_folder.hpp"

#include <sys/stat.h>

#include <fstream>
#include <string>

using looptorch::FileError;
using looptorch::InputFile;
using looptorch::read_file;
using looptorch::testing::TemporaryFolder;

TEST_CASE("file: the whole of one is read, or any part") {
  const TemporaryFolder folder;
  std::ofstream(folder / "x") << "0123456789";
  CHECK(read_file(folder / "x") == "0123456789");
  const InputFile file(folder / "x");
  std::string part(3, '\0');
  file.read_at(4, part.data(), part.size());
  CHECK(file.size() == 10);
  CHECK(part == "456");
  CHECK_THROWS_WITH(file.read_at(8, part.data(), part.size()),
                    (folder / "x").string() + ": ends at byte 10, too early");
}

TEST_CASE("file: what is no file, or too large a one, is refused with its path") {
  const TemporaryFolder folder;
  std::ofstream(folder / "x") << "0123456789";
  CHECK_THROWS_WITH(read_file(folder / "x", 9),
                    (folder / "x").string() + ": 10 bytes, more than the 9 allowed");
  CHECK_THROWS_WITH(read_file(folder / "none"),
                    (folder / "none").string() + ": cannot open: No such file or directory");
  CHECK_THROWS_WITH(read_file(folder.path()), folder.path().string() + ": is not a regular file");
}

TEST_CASE("file: a named pipe without a writer is refused without a wait") {
  const TemporaryFolder folder;
  const auto pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_AS(InputFile(pipe), FileError);
  CHECK_THROWS_WITH(InputFile(pipe), pipe.string() + ": is not a regular file");
}

TEST_CASE("file: one that changed since it was opened says so") {
  const TemporaryFolder folder;
  std::ofstream(folder / "x") << "0123456789";
  const InputFile file(folder / "x");
  CHECK_NOTHROW(file.expect_unchanged());
  std::ofstream(folder / "x", std::ios::app) << "more";
  CHECK_THROWS_WITH(file.expect_unchanged(), (folder / "x").string() + ": was changed while it was read");
}
