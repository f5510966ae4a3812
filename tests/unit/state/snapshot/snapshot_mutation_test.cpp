// SPDX-License-Identifier: MIT
// Every byte of a small snapshot changed, every file cut at every length, lost, added: all of it is found.
// And manifests and states that were made up, thousands of them from a seed (support/mutations.hpp).
// Tests state/snapshot: snapshot, snapshot_manifest, state_json
#include "support/precompiled.hpp"

#include <looptorch/state/snapshot/snapshot.hpp>

#include "support/mutations.hpp"
#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using looptorch::read_file;
using looptorch::SnapshotError;
using looptorch::verify_snapshot;
using looptorch::detail::SnapshotManifest;
using looptorch::testing::small_contents;
using looptorch::testing::TemporaryFolder;

namespace {

std::vector<fs::path> files_of(const fs::path& snapshot) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(snapshot)) files.push_back(entry.path());
  return files;
}

/// True if it is refused by a SnapshotError that names something in the snapshot.
bool is_found(const fs::path& snapshot) {
  try {
    verify_snapshot(snapshot);
    return false;
  } catch (const SnapshotError& error) {
    return std::string(error.what()).find(snapshot.string()) == 0;
  }
}

/// A file whose bytes are changed in place.
class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : file_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {}
  void put(std::size_t at, int byte) const {
    const auto value = static_cast<char>(byte);
    REQUIRE(::pwrite(file_.get(), &value, 1, static_cast<off_t>(at)) == 1);
  }
  void cut(std::size_t size) const { REQUIRE(::ftruncate(file_.get(), static_cast<off_t>(size)) == 0); }

 private:
  looptorch::detail::FileDescriptor file_;
};

}  // namespace

TEST_CASE("snapshot: every changed byte is found") {
  const TemporaryFolder folder;
  const auto snapshot = write_snapshot(folder.path(), small_contents(7));
  std::size_t changed = 0, found = 0;
  for (const auto& path : files_of(snapshot)) {
    const auto bytes = read_file(path);
    const OpenFile file(path);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (const int change : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff}) {
        file.put(i, bytes[i] ^ change);
        ++changed, found += is_found(snapshot);
      }
      file.put(i, bytes[i]);
    }
  }
  CHECK(changed > 15'000);
  CHECK(found == changed);
  CHECK_FALSE(is_found(snapshot));
}

TEST_CASE("snapshot: every truncation, every longer file, every lost and every surplus file is found") {
  const TemporaryFolder folder;
  const auto snapshot = write_snapshot(folder.path(), small_contents(7));
  std::size_t changed = 0, found = 0;
  const auto count = [&] { ++changed, found += is_found(snapshot); };
  for (const auto& path : files_of(snapshot)) {
    const auto bytes = read_file(path);
    {
      const OpenFile file(path);
      file.put(bytes.size(), 0), count();
      for (auto size = bytes.size(); size-- > 0;) file.cut(size), count();
    }
    fs::remove(path), count();
    looptorch::write_file_atomically(path, bytes);
    for (const char* name : {"another.safetensors", ".hidden", "model.safetensors.index.json"}) {
      looptorch::write_file_atomically(snapshot / name, bytes), count();
      fs::remove(snapshot / name);
    }
  }
  CHECK(changed > 1'800);
  CHECK(found == changed);
  CHECK_FALSE(is_found(snapshot));
}

TEST_CASE("snapshot: any two files swapped are found") {
  const TemporaryFolder folder;
  const auto snapshot = write_snapshot(folder.path(), small_contents(7));
  const auto files = files_of(snapshot);
  for (const auto& one : files) {
    for (const auto& two : files) {
      if (one >= two) continue;
      const auto swap = [&] {
        fs::rename(one, folder / "x"), fs::rename(two, one), fs::rename(folder / "x", two);
      };
      swap();
      CHECK(is_found(snapshot));
      swap();
    }
  }
  CHECK_FALSE(is_found(snapshot));
}

TEST_CASE("snapshot: a manifest that was made up is refused by a typed error, or read") {
  const TemporaryFolder folder;
  const auto snapshot = write_snapshot(folder.path(), small_contents(7));
  const auto text = read_file(snapshot / "manifest.json");
  looptorch::testing::run_mutations([&](unsigned seed) {
    looptorch::testing::Mutator mutator(seed);
    auto changed = text.substr(0, text.rfind(",\n  \"checksum\""));
    if (seed % 4 != 0) mutator.mutate(changed);
    looptorch::testing::write_damaged(snapshot / "manifest.json", SnapshotManifest::sealed(changed));
    verify_snapshot(snapshot);
  });
}

TEST_CASE("snapshot: a state that was made up is refused by a typed error, or read") {
  const TemporaryFolder folder;
  const auto snapshot = write_snapshot(folder.path(), small_contents(7));
  const auto text = read_file(snapshot / "state.json");
  auto manifest = SnapshotManifest::parse(snapshot, read_file(snapshot / "manifest.json"));
  looptorch::testing::run_mutations([&](unsigned seed) {
    looptorch::testing::Mutator mutator(seed);
    auto changed = text;
    if (seed % 4 != 0) mutator.mutate(changed);
    manifest.files.back().bytes = changed.size();
    manifest.files.back().checksum = looptorch::detail::checksum_of(changed);
    looptorch::testing::write_damaged(snapshot / "state.json", changed);
    looptorch::testing::write_damaged(snapshot / "manifest.json", manifest.text());
    verify_snapshot(snapshot);
  });
}

TEST_CASE("snapshot: a header that was made up is refused by a typed error, or read") {
  const TemporaryFolder folder;
  const auto snapshot = write_snapshot(folder.path(), small_contents(7));
  const auto text = read_file(snapshot / "model.safetensors");
  auto manifest = SnapshotManifest::parse(snapshot, read_file(snapshot / "manifest.json"));
  auto& listed = manifest.files.front();
  looptorch::testing::run_mutations([&](unsigned seed) {
    looptorch::testing::Mutator mutator(seed);
    auto changed = text;
    if (seed % 2 != 0) mutator.mutate_bytes(changed);
    std::uint64_t length = 0;
    std::memcpy(&length, changed.data(), std::min<std::size_t>(8, changed.size()));
    const auto head = changed.substr(0, 8 + std::min<std::size_t>(length, changed.size()));
    listed.bytes = changed.size();
    listed.checksum = looptorch::detail::file_checksum(head, listed.tensors);
    looptorch::testing::write_damaged(snapshot / "model.safetensors", changed);
    looptorch::testing::write_damaged(snapshot / "manifest.json", manifest.text());
    verify_snapshot(snapshot);
  });
}
