// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/mapped_file.hpp>

#include "support/temporary_folder.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

using Catch::Contains;
using looptorch::FileError;
using looptorch::InputFile;
using looptorch::MappedFile;
using looptorch::write_file_atomically;
using looptorch::testing::TemporaryFolder;

namespace {

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

}  // namespace

TEST_CASE("mapped file: holds the contents, longer than the file is open") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "contents");
  const MappedFile file{InputFile(folder / "a")};
  CHECK(text_of(file) == "contents");
}

TEST_CASE("mapped file: an empty file has no memory") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "empty", "");
  const MappedFile file{InputFile(folder / "empty")};
  CHECK(file.data() == nullptr);
  CHECK(file.size() == 0);
}

TEST_CASE("mapped file: what is written to it reaches neither the file nor another mapping") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "contents");
  const MappedFile ours{InputFile(folder / "a")}, theirs{InputFile(folder / "a")};
  ours.data()[0] = std::byte{'C'};
  CHECK(text_of(ours) == "Contents");
  CHECK(text_of(theirs) == "contents");
  CHECK(looptorch::read_file(folder / "a") == "contents");
}

TEST_CASE("mapped file: a file that is replaced by a rename stays as it was mapped") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  const MappedFile file{InputFile(folder / "a")};
  write_file_atomically(folder / "a", "newer");
  CHECK(text_of(file) == "old");
}

TEST_CASE("mapped file: a file that changed since it was opened is refused by name") {
  const TemporaryFolder folder;
  const auto path = folder / "a";
  const auto refuses = [&](auto change) {
    write_file_atomically(path, "contents");
    const InputFile file(path);
    REQUIRE_NOTHROW(file.expect_unchanged());
    change();
    CHECK_THROWS_AS(file.expect_unchanged(), FileError);
    CHECK_THROWS_WITH(MappedFile(file), Contains(path.string() + ": was changed while it was read"));
  };
  refuses([&] { std::ofstream(path, std::ios::app) << "more"; });
  refuses([&] { std::filesystem::resize_file(path, 3); });
  refuses([&] {  // another time alone
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::hours(1));
  });
}
