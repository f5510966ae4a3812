// SPDX-License-Identifier: MIT
// Audio whose header lies about its length, as a loader meets it.
// Tests data/loader: pinned_prefetch_loader
#include "support/precompiled.hpp"

#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/encode.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/temporary_folder.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace looptorch;
using looptorch::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

struct Clips {
  fs::path folder;
  std::int64_t size() const { return 3; }
  fs::path path(std::int64_t index) const { return folder / (std::to_string(index) + ".flac"); }
  at::Tensor get(std::int64_t index) const { return audio::decode(path(index)).samples_T; }
};

/// Sets FLAC's total of samples, the last 36 bits before the checksum in STREAMINFO, to nearly 2^31.
void announce_too_much(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(22);
  file.write("\x7f\xff\xff\xf0", 4);
}

/// Beyond what the process has now.
void limit_memory(std::uint64_t bytes) {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages;
  const rlimit limit{pages * 4096 + bytes, pages * 4096 + bytes};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace

TEST_CASE("a header that announces 8 GiB is damage of its file, not a lack of memory") {
  const TemporaryFolder folder;
  const Clips clips{folder.path()};
  for (std::int64_t i = 0; i < 3; ++i)
    audio::encode(clips.path(i), {.samples_T = torch::rand({1600}) - 0.5, .sample_rate = 16000});
  announce_too_much(clips.path(1));
  const pid_t child = ::fork();
  if (child == 0) {
    limit_memory(std::uint64_t{1} << 30);
    PinnedPrefetchLoader loader(clips, {.workers = 0, .on_error = OnError::skip});
    std::int64_t batches = 0;
    try {
      for (const at::Tensor& batch : loader) batches += batch.size(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(2);
    }
    const auto& skipped = loader.skipped();
    const bool told = skipped.count == 1 && skipped.first[0].index == 1 &&
                      skipped.first[0].message.find("1.flac: announces ") != std::string::npos;
    ::_exit(batches == 2 && told ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}
