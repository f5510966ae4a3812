// SPDX-License-Identifier: MIT
// A cache of samples on a disk that fails: no locks, no space, read-only, a process that was stopped while it
// wrote. Samples that are there are read, the others are computed, and nothing waits.
#include "support/precompiled.hpp"

#include <looptorch/data/cache/cached_dataset.hpp>

#include "disk_shim.hpp"
#include "support/temporary_folder.hpp"
#include "support/watchdog.hpp"

#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

using namespace looptorch;
using looptorch::testing::DiskFault;
using looptorch::testing::FaultyDisk;
using looptorch::testing::TemporaryFolder;
using testing::Watchdog;
namespace fs = std::filesystem;

namespace {

struct Squares {
  std::int64_t count = 20;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const { return torch::full({1000}, double(index * index)); }
  std::string identity(std::int64_t index) const { return "square " + std::to_string(index); }
};

CacheOptions in(const fs::path& folder) { return {.folder = folder, .settings = "squares"}; }

template <class Set>
bool all_right(const Set& set) {
  bool right = true;
  for (std::int64_t i = 0; i < set.size(); ++i) right &= set.get(i).equal(Squares{}.get(i));
  return right;
}

/// A cache of which ten samples are there.
void fill_half(const fs::path& folder) { CachedDataset(Squares{10}, in(folder)).build(); }

fs::path index_in(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".index") return entry.path();
  throw std::runtime_error("no index");
}

template <class Call>
double seconds_of(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A process that holds the lock on a file until the end.
class Holder {
 public:
  explicit Holder(const fs::path& path) {
    int ready[2];
    if (::pipe(ready) != 0) throw std::runtime_error("no pipe");
    child_ = ::fork();
    if (child_ == 0) {
      const int file = ::open(path.c_str(), O_RDWR);
      const char held = ::flock(file, LOCK_EX) == 0;
      (void)!::write(ready[1], &held, 1);
      for (;;) ::pause();
    }
    char held = 0;
    (void)!::read(ready[0], &held, 1);
    if (!held) throw std::runtime_error("no lock");
  }
  ~Holder() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
};

}  // namespace

TEST_CASE("without locks a cache is only read, and says why nothing is added") {
  const Watchdog watchdog("no locks");
  const TemporaryFolder folder;
  fill_half(folder.path());
  DiskFault fault;
  fault.no_locks = true;  // Lustre without -o flock
  const FaultyDisk disk(fault);
  const CachedDataset cached(Squares{}, in(folder.path()));
  CHECK(all_right(cached));
  const CacheCounts counts = cached.counts();
  CHECK((counts.read == 10 && counts.computed == 10 && counts.not_stored == 10));
  CHECK(counts.not_stored_because == "No locks available");
  CHECK(cached.build().skipped == 10);
}

TEST_CASE("a signal that interrupts waiting for a lock changes nothing") {
  const TemporaryFolder folder;
  DiskFault fault;
  fault.of = "flock";
  fault.error = EINTR;
  fault.at = GENERATE(0, 1, 2, 3);
  {
    const FaultyDisk disk(fault);
    const CachedDataset cached(Squares{}, in(folder.path()));
    CHECK(all_right(cached));
    CHECK(cached.counts().not_stored == 0);
  }
  CHECK(CachedDataset(Squares{}, in(folder.path())).build().present == 20);
}

TEST_CASE("a quota or a full disk ends nothing, whichever file it strikes") {
  const TemporaryFolder folder;
  const std::string call = GENERATE("create ", "write ");
  DiskFault fault;
  fault.of = call + folder.path().string() + "/";
  fault.at = GENERATE(0, 1, 2, 3, 4, 5);
  fault.error = GENERATE(EDQUOT, ENOSPC);
  CAPTURE(fault.of, fault.at, fault.error);
  {
    const FaultyDisk disk(fault);
    const CachedDataset cached(Squares{}, in(folder.path()));
    CHECK(all_right(cached));
    CHECK(all_right(cached));
    CHECK(cached.counts().damaged == 0);
    CHECK((cached.counts().not_stored > 0) == !cached.counts().not_stored_because.empty());
  }
  const CachedDataset later(Squares{}, in(folder.path()));
  CHECK(all_right(later));
  CHECK(later.build().skipped == 0);  // there is room again
  CHECK(later.counts().damaged == 0);
}

TEST_CASE("a disk that stays full keeps what is there readable") {
  const TemporaryFolder folder;
  fill_half(folder.path());
  DiskFault fault;
  fault.full_after = 6000;
  const FaultyDisk disk(fault);
  const CachedDataset cached(Squares{}, in(folder.path()));
  CHECK(all_right(cached));
  CHECK((cached.counts().read == 10 && cached.counts().not_stored == 9));
  CHECK(cached.counts().not_stored_because == "No space left on device");
}

TEST_CASE("readers wait for no writer, not for a stopped one either; writers give up") {
  const Watchdog watchdog("stopped writer", std::chrono::seconds(60));
  const TemporaryFolder folder;
  fill_half(folder.path());
  const CachedDataset open_before(Squares{}, in(folder.path()));
  const Holder stopped(index_in(folder.path()));
  const double patience = std::chrono::duration<double>(looptorch::detail::kLockTimeout).count();
  double reading = 0;
  {
    const std::jthread writer([&] { CHECK(open_before.get(15).equal(Squares{}.get(15))); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    reading = seconds_of([&] {
      for (std::int64_t i = 0; i < 10; ++i) CHECK(open_before.get(i).equal(Squares{}.get(i)));
      const CachedDataset opened(Squares{10}, in(folder.path()));
      CHECK(all_right(opened));
    });
  }
  CHECK(reading < patience / 2);
  CHECK(seconds_of([&] { CHECK(all_right(open_before)); }) < patience / 2);  // waits no second time
  CHECK(open_before.counts().not_stored == 11);
  CHECK(open_before.counts().not_stored_because ==
        "another process holds the lock on the index and does not give it back");
}

TEST_CASE("what another process adds is found although it continues writing") {
  const TemporaryFolder folder;
  const CachedDataset reader(Squares{}, in(folder.path()));
  CHECK(reader.get(0).equal(Squares{}.get(0)));
  const pid_t child = ::fork();
  if (child == 0) {
    CachedDataset(Squares{}, in(folder.path())).build();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const Holder writing(index_in(folder.path()));
  CHECK(all_right(reader));
  CHECK((reader.counts().read == 20 && reader.counts().computed == 1));
}

TEST_CASE("samples that do not fit cost one look through the folder, not one each") {
  const TemporaryFolder folder;
  const CachedDataset other(Squares{}, {.folder = folder.path(), .settings = "other"});
  other.build();
  DiskFault fault;
  fault.of = ".lock";
  const FaultyDisk disk(fault);
  const CachedDataset cached(Squares{}, {.folder = folder.path(), .settings = "mine", .max_bytes = 1000});
  const auto before = disk.calls().size();
  CHECK(all_right(cached));
  CHECK(disk.calls().size() - before < 5);  // the other's lock: opened, and tried
  CHECK(cached.counts().not_stored == 20);
  CHECK(cached.counts().not_stored_because == "max_bytes is reached");
}

TEST_CASE("an end that is not aligned, as a killed writer leaves, is no endless search for room") {
  const Watchdog watchdog("unaligned end");
  const TemporaryFolder folder;
  fill_half(folder.path());
  const auto index = index_in(folder.path());
  auto data = index;
  data.replace_extension(".data");
  const auto size = fs::file_size(data);
  for (std::uint64_t more = 1; more < 64; more += 9) {
    fs::resize_file(data, size + more);
    const auto limit = std::int64_t(fs::file_size(data) + fs::file_size(index) + 64 + 4096 + 128);
    const CachedDataset cached(Squares{11},
                               {.folder = folder.path(), .settings = "squares", .max_bytes = limit});
    CHECK(cached.get(10).equal(Squares{}.get(10)));
    CHECK(cached.get(3).equal(Squares{}.get(3)));
  }
}
