// SPDX-License-Identifier: MIT
// A cache keyed by contents is used wherever it and the files were copied to.
#include "support/precompiled.hpp"

#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/cache/cached_identity.hpp>

#include "support/temporary_folder.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace fs = std::filesystem;
using looptorch::CachedDataset, looptorch::content_identity, looptorch::ContentIdentities,
    looptorch::remembered_content_identity;
using looptorch::testing::TemporaryFolder;

namespace {

void write(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

struct Sizes {
  std::vector<fs::path> files;
  std::int64_t size() const { return std::ssize(files); }
  std::int64_t get(std::int64_t index) const {
    return static_cast<std::int64_t>(fs::file_size(files[static_cast<std::size_t>(index)]));
  }
  std::string identity(std::int64_t index) const {
    return remembered_content_identity(files[static_cast<std::size_t>(index)]);
  }
};

/// Returns how many of two files' samples are computed, of settings in a cache.
std::int64_t computed(const fs::path& data, const fs::path& cache, const std::string& settings = "sizes") {
  const CachedDataset cached(Sizes{{data / "a.wav", data / "b.wav"}},
                             {.folder = cache, .settings = settings});
  CHECK(cached.get(0) == 3'000'000);
  CHECK(cached.get(1) == 5);
  return cached.counts().computed;
}

void copy_older(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    write(to / entry.path().filename(), looptorch::read_file(entry.path()));
    fs::last_write_time(to / entry.path().filename(), fs::last_write_time(entry) - std::chrono::hours(50));
  }
}

}  // namespace

TEST_CASE("a cache that was copied with its data is used, whatever the paths and times") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "here");
  std::string sound(3'000'000, 'x');
  write(folder / "here/a.wav", sound);
  write(folder / "here/b.wav", "short");
  CHECK(computed(folder / "here", folder / "cache") == 2);
  CHECK(computed(folder / "here", folder / "cache") == 0);
  copy_older(folder / "here", folder / "there/deeper");
  copy_older(folder / "cache", folder / "uploaded");
  CHECK(computed(folder / "there/deeper", folder / "uploaded") == 0);
  CHECK(computed(folder / "there/deeper", folder / "uploaded", "other settings") == 2);

  sound[1'500'000] = 'y';  // one byte, in the middle
  write(folder / "there/deeper/a.wav", sound);
  CHECK(computed(folder / "there/deeper", folder / "uploaded") == 1);
  CHECK(computed(folder / "here", folder / "uploaded") == 0);
}

TEST_CASE("a file is read once, until the file system shows a change") {
  const TemporaryFolder folder;
  const fs::path file = folder / "a.wav";
  write(file, "one");
  ContentIdentities identities;
  const std::string first = identities(file);
  CHECK(first == content_identity(file));
  CHECK(identities(file) == first);
  const auto time = fs::last_write_time(file);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(20));  // longer than a tick of the file system's clock
  write(file, "two");
  fs::last_write_time(file, time);  // of the same size and time of writing; its time of change is another
  CHECK(identities(file) == content_identity(file));
  CHECK(identities(file) != first);
  write(folder / "b.wav", "three");
  fs::rename(folder / "b.wav", file);
  CHECK(identities(file) == content_identity(file));
  CHECK_THROWS_AS(identities(folder / "none"), looptorch::FileError);
}

TEST_CASE("threads that ask for one file get one answer") {
  const TemporaryFolder folder;
  const fs::path file = folder / "a.wav";
  write(file, std::string(1'000'000, 'z'));
  ContentIdentities identities;
  std::vector<std::string> answers(4);
  {
    std::vector<std::jthread> threads;
    for (auto& answer : answers) threads.emplace_back([&] { answer = identities(file); });
  }
  for (const auto& answer : answers) CHECK(answer == content_identity(file));
}
