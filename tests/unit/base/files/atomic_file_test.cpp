// SPDX-License-Identifier: MIT
// Tests base/files: output_file
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/text/utf8.hpp>

#include "support/temporary_folder.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::AtomicFile;
using looptorch::FileError;
using looptorch::read_file;
using looptorch::write_file_atomically;
using looptorch::testing::TemporaryFolder;

namespace {

/// While it lives, no file of this process grows beyond `bytes`: a write fails as on a full disk.
struct FileSizeLimit {
  explicit FileSizeLimit(rlim_t bytes) : handler(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old);
    const rlimit limit{bytes, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
  }
  rlimit old{};
  void (*handler)(int);
};

}  // namespace

TEST_CASE("atomic file: contents appear at commit, and replace what was there") {
  const TemporaryFolder folder;
  const auto target = folder / "a.txt";
  write_file_atomically(target, "old");
  {
    AtomicFile file(target);
    file.write("ne");
    file.write("w");
    CHECK(read_file(target) == "old");
    CHECK(folder.entries() == 2);
    file.commit();
  }
  CHECK(read_file(target) == "new");
  CHECK(folder.entries() == 1);
}

TEST_CASE("atomic file: without commit nothing stays") {
  const TemporaryFolder folder;
  { AtomicFile(folder / "a.txt").write("half"); }
  CHECK(folder.entries() == 0);
}

TEST_CASE(
    "atomic file: what a killed process was writing goes with the next process's first file in the folder") {
  const TemporaryFolder folder;
  const auto killed = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      AtomicFile file(folder / "model.bin");
      file.write("half");
      ::_exit(0);  // without a destructor
    }
    REQUIRE(child > 0);
    ::waitpid(child, nullptr, 0);
  };
  killed();
  CHECK(folder.entries() == 1);
  AtomicFile other(folder / "other.bin");  // the first in this folder
  CHECK(folder.entries() == 1);
  killed();
  looptorch::detail::sweep_partial_files(folder.path());
  CHECK(folder.entries() == 1);  // which is being written
  other.commit();
  killed();
  write_file_atomically(folder / "third.bin", "x");  // a folder is looked through once
  CHECK(folder.entries() == 3);
}

TEST_CASE("atomic file: only files with the name of one that is being written are removed") {
  const TemporaryFolder folder;
  for (const char* name : {"a.partial-1", "a.partial-1-", "a.partial-x-1", ".partial-1-2", "a.partial-1-2-3",
                           "a.partial-1-2.txt", "a.txt"}) {
    CAPTURE(name);
    CHECK_FALSE(looptorch::detail::is_partial_file(name));
  }
  for (const char* name : {"a.partial-1-2", "a.b.partial-12-0", "a.partial-1-2.partial-3-4"})
    CHECK(looptorch::detail::is_partial_file(name));
  write_file_atomically(folder / "kept", "x");
  fs::create_directory(folder / "a.partial-1-1");
  fs::create_symlink(folder / "kept", folder / "a.partial-1-2");
  std::ofstream(folder / "a.partial-1-3") << "half";
  looptorch::detail::sweep_partial_files(folder.path());
  CHECK(folder.entries() == 3);
  CHECK_FALSE(fs::exists(folder / "a.partial-1-3"));
  CHECK_NOTHROW(looptorch::detail::sweep_partial_files(folder / "missing"));
}

TEST_CASE("atomic file: a name may be as long as the file system allows") {
  const TemporaryFolder folder;
  std::string letters;
  while (letters.size() + 3 < 252) letters += "\u0915";  // of three bytes
  for (const auto& name : {std::string(255, 'a'), letters + ".txt"}) {
    write_file_atomically(folder / name, "old");
    write_file_atomically(folder / name, "new");
    CHECK(read_file(folder / name) == "new");
    const auto partial = looptorch::detail::sibling_of(folder / name, "partial").filename().string();
    CHECK(partial.size() <= 255);
    CHECK(looptorch::detail::is_partial_file(partial));
    CHECK(looptorch::find_invalid_utf8(partial) == std::string::npos);
  }
  CHECK(folder.entries() == 2);
  CHECK_THROWS_WITH(write_file_atomically(folder / std::string(256, 'a'), "x"),
                    Contains("File name too long"));
}

TEST_CASE("atomic file: permissions follow the umask") {
  const TemporaryFolder folder;
  const auto old = ::umask(027);
  write_file_atomically(folder / "a.txt", "x");
  ::umask(old);
  CHECK(fs::status(folder / "a.txt").permissions() == fs::perms{0640});
}

TEST_CASE("atomic file: a disk that fills up leaves the old file and no other") {
  const TemporaryFolder folder;
  const auto target = folder / "a.bin";
  write_file_atomically(target, "old");
  {
    const FileSizeLimit limit(100'000);
    CHECK_THROWS_WITH(write_file_atomically(target, std::string(1'000'000, 'x')),
                      Contains(target.string() + ": cannot write"));
  }
  CHECK(read_file(target) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("atomic file: what cannot be written is refused before anything is") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(AtomicFile(folder / "missing" / "a"),
                    Contains("cannot create: No such file or directory"));
  CHECK_THROWS_WITH(AtomicFile(folder.path()), Contains("not a regular file"));
  CHECK_THROWS_WITH(AtomicFile("/dev/null"), Contains("/dev/null: exists and is not a regular file"));
}

TEST_CASE("read_file: missing, too large and special files are refused by name") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "12345");
  CHECK(read_file(folder / "a", 5) == "12345");
  CHECK_THROWS_WITH(read_file(folder / "a", 4), Contains("5 bytes, more than the 4 allowed"));
  CHECK_THROWS_WITH(read_file(folder / "b"), Contains("cannot open: No such file or directory"));
  CHECK_THROWS_AS(read_file(folder.path()), FileError);
  CHECK_THROWS_WITH(looptorch::InputFile(folder / "a").read_at(3, std::string(4, ' ').data(), 4),
                    Contains("ends at byte 5"));
}
