// SPDX-License-Identifier: MIT
// Tests base/files: output_file
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>

#include "support/temporary_folder.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
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
