// SPDX-License-Identifier: MIT
// Tests base/files: file_lock
// Tests data/cache: cache_build, cache_folder, cached_options, pack_entry, pack_table
// Tests data/cache: sample_codec, sample_pack, sample_store
#include "support/precompiled.hpp"

#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/datasets/concat_dataset.hpp>
#include <looptorch/data/datasets/map_dataset.hpp>
#include <looptorch/data/datasets/subset_dataset.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watchdog.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

using namespace looptorch;
using looptorch::testing::TemporaryFolder;
using testing::Watchdog;
namespace fs = std::filesystem;

namespace {

/// Sample i: a matrix whose size and values depend on i, and a text; counts how many were computed.
struct Clip {
  at::Tensor features;
  std::string text;
};

struct Clips {
  std::int64_t count = 20;
  std::atomic<int>* computed = nullptr;
  std::string origin = "clip";

  std::int64_t size() const { return count; }
  Clip get(std::int64_t index) const {
    if (computed) ++*computed;
    return {torch::arange(100 * (index + 1), at::kFloat).view({-1, 4}) / double(index + 3),
            "text " + std::to_string(index)};
  }
  std::size_t collate(std::span<Clip> clips) const { return clips.size(); }
  std::string identity(std::int64_t index) const { return origin + std::to_string(index); }
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(a.const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

template <class Set>
bool all_right(const Set& set) {
  bool right = true;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const Clip expected = Clips{}.get(i), got = set.get(i);
    right &= got.text == expected.text && same_bits(got.features, expected.features);
  }
  return right;
}

fs::path file_ending(const fs::path& folder, const std::string& end) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == end) return entry.path();
  throw std::runtime_error("no file " + end);
}

void copy_cache(const fs::path& from, const fs::path& to) {
  fs::create_directory(to);
  for (const auto& entry : fs::directory_iterator(from))
    fs::copy_file(entry.path(), to / entry.path().filename());
}

void flip_bit(const fs::path& path, std::uint64_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(std::streamoff(bit / 8));
  const char byte = char(file.get());
  file.seekp(std::streamoff(bit / 8));
  file.put(char(byte ^ (1 << (bit % 8))));
}

enum class Kind : std::uint8_t { speech, noise };

/// A field of every type that can be written.
struct Everything {
  at::Tensor half, empty, undefined, scalar;
  Kind kind = Kind::speech;
  double seconds = 0;
  bool labelled = false;
  std::string text;
  fs::path path;
  std::vector<std::int64_t> tokens;
  std::vector<bool> flags;
  std::optional<std::vector<at::Tensor>> more;
  std::optional<std::string> nothing;
  std::map<std::string, at::Tensor> named;
  std::tuple<int, std::string, std::array<float, 2>> mixed;
  Clip nested;
};

struct EverythingOnce {
  std::int64_t size() const { return 1; }
  std::string identity(std::int64_t) const { return "one"; }
  Everything get(std::int64_t) const {
    return {.half = torch::tensor({{1.5, -0.0}, {double(INFINITY), double(NAN)}})
                        .to(at::kHalf)
                        .t(),  // not contiguous
            .empty = torch::zeros({0, 3}, at::kLong),
            .undefined = {},
            .scalar = torch::tensor(true),
            .kind = Kind::noise,
            .seconds = 0.1,
            .labelled = true,
            .text = std::string("a\0b", 3),
            .path = "/ä/b",
            .tokens = {1, -2, 3},
            .flags = {true, false, true},
            .more = std::vector{torch::ones({2}, at::kComplexDouble), torch::full({1}, 7, at::kByte)},
            .nothing = {},
            .named = {{"x", torch::ones({1})}, {"y", torch::zeros({2})}},
            .mixed = {5, "six", {7, 8}},
            .nested = Clips{}.get(0)};
  }
};

}  // namespace

TEST_CASE("a second run reads what the first computed, bit for bit") {
  const TemporaryFolder folder;
  std::atomic<int> computed = 0;
  const Clips clips{.computed = &computed};
  const CacheOptions options{.folder = folder / "cache", .settings = "test"};
  {
    const CachedDataset cached(clips, options);
    static_assert(Dataset<decltype(cached)> && CollatingDataset<decltype(cached)> &&
                  !SeededDataset<decltype(cached)>);
    CHECK(cached.size() == 20);
    CHECK(all_right(cached));
    CHECK(all_right(cached));
    CHECK((cached.counts().computed == 20 && cached.counts().read == 20));
  }
  CHECK(computed == 20);
  const CachedDataset later(clips, options);
  CHECK(all_right(later));
  CHECK(computed == 20);
  const CacheCounts counts = later.counts();
  CHECK((counts.read == 20 && counts.computed == 0 && counts.damaged == 0 && counts.not_stored == 0));
  const auto data = file_ending(folder / "cache", ".data"), index = file_ending(folder / "cache", ".index");
  CHECK(counts.bytes == std::int64_t(fs::file_size(data) + fs::file_size(index)));
  CHECK(fs::file_size(index) == 20 * 64);
}

TEST_CASE("fields of every kind come back, and tensors of every dtype") {
  const TemporaryFolder folder;
  const CachedDataset cached(EverythingOnce{}, {.folder = folder.path(), .settings = "clips"});
  const Everything expected = cached.get(0), got = cached.get(0);
  CHECK(cached.counts().read == 1);
  CHECK(same_bits(got.half, expected.half));
  CHECK(expected.half.strides() == got.half.strides());  // computed or read
  CHECK(got.half.is_contiguous());
  CHECK(got.half.scalar_type() == at::kHalf);
  CHECK((got.empty.sizes() == at::IntArrayRef{0, 3} && got.empty.scalar_type() == at::kLong));
  CHECK(!got.undefined.defined());
  CHECK((got.scalar.dim() == 0 && got.scalar.item<bool>()));
  CHECK((got.kind == Kind::noise && got.seconds == 0.1 && got.labelled && !got.nothing));
  CHECK((got.text == expected.text && got.text.size() == 3 && got.path == "/ä/b"));
  CHECK((got.tokens == expected.tokens && got.flags == expected.flags && got.mixed == expected.mixed));
  REQUIRE((got.more && got.more->size() == 2 && got.named.size() == 2));
  for (std::size_t i = 0; i < 2; ++i) CHECK(same_bits((*got.more)[i], (*expected.more)[i]));
  for (const auto& [name, tensor] : expected.named) CHECK(same_bits(got.named.at(name), tensor));
  CHECK((got.nested.text == "text 0" && same_bits(got.nested.features, expected.nested.features)));
}

TEST_CASE("what a reader does to its sample stays with the reader") {
  const TemporaryFolder folder;
  const CachedDataset cached(Clips{}, {.folder = folder.path(), .settings = "clips"});
  cached.build();
  cached.get(3).features.zero_();
  Clip grown = cached.get(3);
  grown.features.resize_({1000});
  CHECK(all_right(cached));
}

TEST_CASE("settings, version, the sample's type and the identity are the key") {
  const TemporaryFolder folder;
  std::atomic<int> computed = 0;
  const auto computed_with = [&](const CacheOptions& options, const auto& set) {
    computed = 0;
    const CachedDataset cached(set, options);
    for (std::int64_t i = 0; i < 3; ++i) cached.get(i);
    return computed.load();
  };
  const Clips clips{.count = 3, .computed = &computed};
  const CacheOptions options{.folder = folder.path(), .settings = "a"};
  CHECK(computed_with(options, clips) == 3);
  CHECK(computed_with(options, clips) == 0);
  CHECK(computed_with({.folder = folder.path(), .settings = "b"}, clips) == 3);
  CHECK(computed_with({.folder = folder.path(), .settings = "a", .version = 2}, clips) == 3);
  CHECK(computed_with(options, Clips{.count = 3, .computed = &computed, .origin = "other"}) == 3);
  struct Longer {
    const Clips& clips;
    std::int64_t size() const { return 3; }
    std::pair<Clip, int> get(std::int64_t index) const { return {clips.get(index), 1}; }
    std::string identity(std::int64_t index) const { return clips.identity(index); }
  };
  CHECK(computed_with(options, Longer{clips}) == 3);
  CHECK(computed_with(options, clips) == 0);
}

TEST_CASE("a changed file is computed anew, by time and size or by contents") {
  const TemporaryFolder folder;
  const fs::path file = folder / "clip.txt";
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  struct Texts {
    fs::path file;
    std::int64_t size() const { return 1; }
    std::string get(std::int64_t) const {
      std::ifstream in(file);
      return std::string(std::istreambuf_iterator<char>(in), {});
    }
  };
  write("one");
  const auto by_file = [&](std::int64_t) { return file_identity(file); };
  const auto by_content = [&](std::int64_t) { return content_identity(file); };
  const CachedDataset files(Texts{file}, {.folder = folder / "a", .settings = "clips"}, by_file);
  const CachedDataset contents(Texts{file}, {.folder = folder / "b", .settings = "clips"}, by_content);
  CHECK((files.get(0) == "one" && contents.get(0) == "one"));
  CHECK((files.get(0) == "one" && contents.get(0) == "one"));
  CHECK((files.counts().computed == 1 && contents.counts().computed == 1));

  const auto time = fs::last_write_time(file);
  write("two");
  fs::last_write_time(file, time + std::chrono::seconds(1));  // same size
  CHECK((files.get(0) == "two" && contents.get(0) == "two"));
  write("three");
  fs::last_write_time(file, time + std::chrono::seconds(1));  // same time
  CHECK((files.get(0) == "three" && contents.get(0) == "three"));
  CHECK((files.counts().computed == 3 && contents.counts().computed == 3));
  fs::last_write_time(file, time + std::chrono::seconds(9));
  CHECK((files.get(0) == "three" && contents.get(0) == "three"));
  CHECK((files.counts().computed == 4 && contents.counts().computed == 3));

  CHECK_THROWS_AS(file_identity(folder / "none"), FileError);
  CHECK_THROWS_AS(content_identity(folder / "none"), FileError);
  CHECK(file_identity(folder / "./clip.txt") == file_identity(file));
}

TEST_CASE("contents of several megabytes differ wherever they differ") {
  const TemporaryFolder folder;
  std::string text(3'000'000, 'x');
  std::ofstream(folder / "a") << text;
  const std::string first = content_identity(folder / "a");
  text[2'999'999] = 'y';
  std::ofstream(folder / "b") << text;
  CHECK(content_identity(folder / "b") != first);
  text[2'999'999] = 'x';
  std::ofstream(folder / "b") << text;
  CHECK(content_identity(folder / "b") == first);
}

TEST_CASE("any flipped bit is found, counted and healed") {
  const TemporaryFolder folder;
  const Clips clips{.count = 4};
  CHECK(all_right(CachedDataset(clips, {.folder = folder / "made", .settings = "clips"})));
  looptorch::SplitMix64 random(5);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    const CacheOptions options{.folder = folder / std::to_string(round), .settings = "clips"};
    copy_cache(folder / "made", options.folder);
    const fs::path target = file_ending(options.folder, round % 3 == 0 ? ".index" : ".data");
    flip_bit(target, random.below(8 * fs::file_size(target)));
    const CachedDataset cached(clips, options);
    REQUIRE(all_right(cached));
    const CacheCounts counts = cached.counts();
    REQUIRE(counts.damaged <= 1);  // none where the flip is between tensors
    REQUIRE(counts.computed == counts.damaged);
    found += counts.damaged > 0;
    const CachedDataset later(clips, options);
    REQUIRE(all_right(later));
    REQUIRE(later.counts().read == 4);  // healed
  }
  CHECK(found > 250);
}

TEST_CASE("a cache that was cut off anywhere gives right samples and continues") {
  const TemporaryFolder folder;
  const Clips clips{.count = 4};
  const CacheOptions made{.folder = folder / "made", .settings = "clips"};
  CHECK(all_right(CachedDataset(clips, made)));
  for (const char* end : {".data", ".index"}) {
    const fs::path whole = file_ending(folder / "made", end);
    const auto size = fs::file_size(whole);
    for (std::uint64_t length = 0; length < size; length += std::max<std::uint64_t>(1, size / 61)) {
      const CacheOptions options{.folder = folder / ("cut" + std::to_string(length) + end),
                                 .settings = "clips"};
      copy_cache(folder / "made", options.folder);
      fs::resize_file(options.folder / whole.filename(), length);
      const CachedDataset cached(clips, options);
      REQUIRE(all_right(cached));
      REQUIRE(cached.counts().computed >= 1);
      REQUIRE(cached.counts().read + cached.counts().computed == 4);
      const CachedDataset later(clips, options);
      REQUIRE(all_right(later));
      REQUIRE(later.counts().read == 4);
    }
  }
}

TEST_CASE("a folder that is emptied while it is open is filled again") {
  const TemporaryFolder folder;
  const CachedDataset cached(Clips{}, {.folder = folder.path(), .settings = "clips"});
  cached.build();
  fs::resize_file(file_ending(folder.path(), ".index"), 0);
  fs::resize_file(file_ending(folder.path(), ".data"), 0);
  CHECK(all_right(cached));
  CHECK(all_right(CachedDataset(Clips{}, {.folder = folder.path(), .settings = "clips"})));
  CHECK(cached.build().skipped == 0);
}

TEST_CASE("writers that are killed at any moment leave whole samples only") {
  const Watchdog watchdog("killed writers", std::chrono::seconds(60));
  const TemporaryFolder folder;
  const CacheOptions options{.folder = folder.path(), .settings = "clips"};
  std::int64_t computed_later = 0;
  for (int round = 0; round < 40; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      const CachedDataset cached(Clips{.count = 400, .origin = "round " + std::to_string(round) + "/"},
                                 options);
      for (std::int64_t i = 0;; i = (i + 1) % 400) cached.get(i);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(1500 + 777 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const CachedDataset cached(Clips{.count = 400, .origin = "round " + std::to_string(round) + "/"},
                               options);
    REQUIRE(all_right(cached));
    REQUIRE(cached.counts().damaged == 0);
    computed_later += cached.counts().computed;
  }
  CHECK(computed_later > 0);         // some were killed in the middle
  CHECK(computed_later < 40 * 400);  // what they had written was of use
}

TEST_CASE("two processes fill one cache together") {
  const Watchdog watchdog("two processes", std::chrono::seconds(60));
  const TemporaryFolder folder;
  const CacheOptions options{.folder = folder.path(), .settings = "clips"};
  struct Slow : Clips {
    Clip get(std::int64_t index) const {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return Clips::get(index);
    }
  };
  const Slow slow{{.count = 300}};
  std::vector<pid_t> children;
  for (int process = 0; process < 2; ++process) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    const CachedDataset cached(slow, options);
    for (std::int64_t i = 0; i < 300; ++i) cached.get(process == 0 ? i : 299 - i);
    const bool shared = cached.counts().read > 100;  // what the other has written, found while open
    ::_exit(all_right(cached) && shared ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(fs::file_size(file_ending(folder.path(), ".index")) == 300 * 64);  // none twice
  const CachedDataset cached(slow, options);
  CHECK(all_right(cached));
  CHECK(cached.counts().read == 300);
}

TEST_CASE("many threads read and compute at once") {
  const Watchdog watchdog("many threads");
  const TemporaryFolder folder;
  const CachedDataset cached(Clips{.count = 50}, {.folder = folder.path(), .settings = "clips"});
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i)
      threads.emplace_back([&] { wrong += !all_right(cached) || !all_right(cached); });
  }
  CHECK(wrong == 0);
  CHECK(fs::file_size(file_ending(folder.path(), ".index")) == 50 * 64);
}

TEST_CASE("beyond the size limit samples are computed on the fly, and what is there stays") {
  const TemporaryFolder folder;
  std::atomic<int> computed = 0;
  const Clips clips{.computed = &computed};
  const CacheOptions options{.folder = folder.path(), .settings = "clips", .max_bytes = 20'000};
  const CachedDataset cached(clips, options);
  CHECK(all_right(cached));
  const CacheCounts first = cached.counts();
  CHECK((first.not_stored > 5 && first.not_stored < 15 && first.bytes <= 20'000 && first.bytes > 15'000));
  computed = 0;
  CHECK(all_right(cached));
  CHECK(computed == first.not_stored);
  CHECK(cached.counts().read == 20 - first.not_stored);
  CHECK(cached.counts().bytes == first.bytes);
  const CacheBuildResult built = CachedDataset(clips, options).build();
  CHECK(built.skipped == first.not_stored);
  CHECK(built.present == 20 - first.not_stored);
  const CachedDataset tiny(clips, {.folder = folder / "tiny", .settings = "clips", .max_bytes = 1});
  CHECK(all_right(tiny));
  CHECK((tiny.counts().bytes == 0 && tiny.counts().not_stored == 20));
}

TEST_CASE("at the limit, packs of other settings that no process has open are removed, the oldest first") {
  const TemporaryFolder folder;
  const auto options = [&](const char* settings, std::int64_t limit = 0) {
    return CacheOptions{.folder = folder.path(), .settings = settings, .max_bytes = limit};
  };
  const auto count_left = [&](const char* settings) {
    const CachedDataset cached(Clips{}, options(settings));
    return cached.build().present;
  };
  const auto age = [&](std::chrono::seconds by) {
    for (const auto& entry : fs::directory_iterator(folder.path()))
      fs::last_write_time(entry.path(), fs::last_write_time(entry.path()) - by);
  };
  CachedDataset(Clips{}, options("old")).build();
  age(std::chrono::seconds(10));
  CachedDataset(Clips{}, options("young")).build();
  age(std::chrono::seconds(10));
  const CachedDataset used(Clips{}, options("used"));
  used.build();
  const std::int64_t size = used.counts().bytes;
  age(std::chrono::seconds(100));
  const CachedDataset fresh(Clips{}, options("fresh", 3 * size + 1'000));
  CHECK(fresh.build().skipped == 0);
  CHECK(all_right(fresh));
  CHECK(used.build().present == 20);
  CHECK(count_left("young") == 20);
  CHECK(count_left("old") == 0);

  const CachedDataset crowded(Clips{}, options("crowded", size));
  CHECK(crowded.build().skipped == 20);  // those in use are more than the limit
  CHECK(all_right(crowded));
  CHECK(all_right(used));
  CHECK(used.counts().computed == 20);
}

TEST_CASE("a disk that takes no more is no error: samples are computed") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10'000, 10'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const CachedDataset cached(Clips{}, {.folder = folder.path(), .settings = "clips"});
    const bool right = all_right(cached) && all_right(cached);
    const CacheCounts counts = cached.counts();
    ::_exit(right && counts.not_stored > 0 && counts.read > 0 && counts.damaged == 0 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  const CachedDataset later(Clips{}, {.folder = folder.path(), .settings = "clips"});
  CHECK(later.build().skipped == 0);  // there is room again
  CHECK(all_right(later));
  CHECK(later.counts().damaged == 0);
}

TEST_CASE("a folder that cannot be written is read from") {
  const TemporaryFolder folder;
  const CacheOptions options{.folder = folder.path(), .settings = "clips"};
  CachedDataset(Clips{.count = 15}, options).build();
  for (const auto& entry : fs::directory_iterator(folder.path()))
    fs::permissions(entry.path(), fs::perms(0444));
  fs::permissions(folder.path(), fs::perms(0555));
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);  // root may write anywhere
    const CachedDataset cached(Clips{}, options);
    const looptorch::testing::Warnings warnings;
    const bool right = all_right(cached);
    const CacheCounts counts = cached.counts();
    const bool as_said = counts.read == 15 && counts.computed == 5 && counts.not_stored == 5 &&
                         warnings.texts.size() == 1 &&
                         warnings.texts[0] == "looptorch: the cache " + folder.path().string() +
                                                  " cannot store a sample: Permission denied. Samples that "
                                                  "are not stored are computed each time";
    try {
      CachedDataset(Clips{}, {.folder = folder.path(), .settings = "clips", .version = 2});
    } catch (const FileError&) {  // nothing is there to be read
      ::_exit(right && as_said ? 0 : 1);
    }
    ::_exit(3);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST_CASE("building is parallel, reports, and takes up what is there") {
  const Watchdog watchdog("build");
  struct Timed : Clips {
    std::atomic<int>*running, *most;
    Clip get(std::int64_t index) const {
      const int now = ++*running;
      for (int seen = *most; now > seen && !most->compare_exchange_weak(seen, now);) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      --*running;
      return Clips::get(index);
    }
  };
  const TemporaryFolder folder;
  std::atomic<int> running = 0, most = 0;
  const Timed timed{{.count = 40}, &running, &most};
  const CachedDataset cached(timed, {.folder = folder.path(), .settings = "clips"});
  cached.get(7);
  std::vector<CacheProgress> reports;
  const CacheBuildResult result =
      cached.build({.workers = 4,
                    .progress = [&](const CacheProgress& progress) { reports.push_back(progress); },
                    .interval = std::chrono::milliseconds(5)});
  CHECK((result.present == 1 && result.added == 39 && result.skipped == 0 && result.failures.empty()));
  CHECK(most > 1);
  CHECK(most <= 4);
  CHECK(reports.size() > 2);
  CHECK((reports.back().done == 40 && reports.back().total == 40 && reports.back().added == 39));
  for (std::size_t i = 1; i < reports.size(); ++i) CHECK(reports[i].done >= reports[i - 1].done);
  CHECK(all_right(cached));
  CHECK(cached.counts().computed == 40);
  CHECK(cached.build().present == 40);
  CHECK_THROWS_WITH(cached.build({.workers = 0}),
                    "CachedDataset: build with 0 workers; it must be at least 1");
  CHECK(CachedDataset(Clips{.count = 0}, {.folder = folder.path(), .settings = "clips"}).build().added == 0);
  struct Interrupted {};
  const CachedDataset other(timed, {.folder = folder.path(), .settings = "clips", .version = 2});
  CHECK_THROWS_AS(other.build({.progress = [](const CacheProgress&) { throw Interrupted{}; },
                               .interval = std::chrono::milliseconds(1)}),
                  Interrupted);
  CHECK(running == 0);  // the workers have ended
}

TEST_CASE("a sample that fails ends a build with its index, or is listed") {
  struct Failing : Clips {
    Clip get(std::int64_t index) const {
      if (index % 7 == 3) TORCH_CHECK(false, "clip ", index, " is silent");
      return Clips::get(index);
    }
  };
  const TemporaryFolder folder;
  const CachedDataset cached(Failing{}, {.folder = folder.path(), .settings = "clips"});
  try {
    cached.build();
    FAIL("no exception");
  } catch (const CacheBuildError& error) {
    CHECK(error.index % 7 == 3);
    const std::string index = std::to_string(error.index);
    CHECK(std::string(error.what()) == "sample " + index + ": clip " + index + " is silent");
    CHECK_THROWS_AS(std::rethrow_if_nested(error), c10::Error);
  }
  const CacheBuildResult result = cached.build({.skip_failures = true});
  REQUIRE(result.failures.size() == 3);
  CHECK((result.failures[0].index == 3 && result.failures[1].index == 10 && result.failures[2].index == 17));
  CHECK(result.failures[1].what == "clip 10 is silent");
  CHECK((result.present + result.added == 17 && result.skipped == 0));
  CHECK_THROWS_AS(cached.get(10), c10::Error);
  CHECK(cached.get(11).text == "text 11");
}

TEST_CASE("the progress lines say how far and how fast, each on its own where they cannot be rewritten") {
  std::FILE* file = std::tmpfile();
  const auto print = print_cache_progress(file);
  print({.done = 5, .total = 40, .added = 4, .seconds = 2});
  print({.done = 12, .total = 40, .added = 11, .seconds = 10});
  print({.done = 20, .total = 40, .added = 19, .seconds = 19.5});
  print({.done = 40, .total = 40, .added = 39, .seconds = 19.6});
  std::rewind(file);
  char text[200] = {};
  CHECK(std::fread(text, 1, sizeof(text), file) > 0);
  std::fclose(file);
  CHECK(std::string(text) == "cache: 12 of 40 samples, 1 a second\ncache: 40 of 40 samples, 2 a second\n");
}

TEST_CASE("a cache stands between dataset and loader, with the dataset's collate") {
  const Watchdog watchdog("cached loader");
  const TemporaryFolder folder;
  std::atomic<int> computed = 0;
  PinnedPrefetchLoader loader(
      CachedDataset(Clips{.computed = &computed}, {.folder = folder.path(), .settings = "clips"}),
      {.batch_size = 3, .workers = 3}, RandomSampler{.seed = 1});
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::size_t samples = 0;
    for (const std::size_t batch : loader) samples += batch;
    CHECK(samples == 20);
  }
  CHECK(computed == 20);
}

TEST_CASE("what draws stands above the cache: features are read, augmentation differs from epoch to epoch") {
  const TemporaryFolder folder;
  std::atomic<int> computed = 0;
  const MapDataset noisy(
      CachedDataset(Clips{.computed = &computed}, {.folder = folder.path(), .settings = "clips"}),
      [](Clip clip, const SampleContext& context) {
        clip.features += double(context.seed % 1000);
        return clip;
      });
  static_assert(SeededDataset<decltype(noisy)> && CollatingDataset<decltype(noisy)>);
  for (const std::uint64_t seed : {5, 6, 5})
    CHECK(noisy.get(4, {.seed = seed}).features.equal(Clips{}.get(4).features + double(seed)));
  CHECK(computed == 1);
}

TEST_CASE("a cache takes the identities that a subset or a concatenation passes on") {
  const TemporaryFolder folder;
  const Clips clips;
  CachedDataset(clips, {.folder = folder.path(), .settings = "clips"}).build();
  const CachedDataset some(SubsetDataset(clips, {5, 2}), {.folder = folder.path(), .settings = "clips"});
  CHECK(some.build().present == 2);
  CHECK(some.get(1).text == "text 2");
  const CachedDataset both(ConcatDataset(clips, Clips{.count = 1, .origin = "new"}),
                           {.folder = folder.path(), .settings = "clips"});
  const CacheBuildResult built = both.build();
  CHECK((built.present == 20 && built.added == 1));
}

TEST_CASE("what is computed does not depend on the caller's threads or gradients") {
  struct Parameters {
    at::Tensor weight = torch::ones({4}, torch::requires_grad());
    std::int64_t size() const { return 2; }
    std::string identity(std::int64_t index) const { return std::to_string(index); }
    Clip get(std::int64_t) const { return {weight * at::get_num_threads(), ""}; }
  };
  const TemporaryFolder folder;
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  const CachedDataset cached(Parameters{}, {.folder = folder.path(), .settings = "clips"});
  const Clip fresh = cached.get(0), read = cached.get(0);
  CHECK(at::get_num_threads() == 3);
  CHECK(fresh.features.equal(torch::ones({4})));
  CHECK((!fresh.features.requires_grad() && read.features.equal(fresh.features)));
  cached.build();
  CHECK(at::get_num_threads() == 3);
  int later = 0;
  std::thread([&later] { later = at::get_num_threads(); }).join();
  CHECK(later == 3);
  at::set_num_threads(before);
}

TEST_CASE("wrong options and tensors that cannot be kept are refused") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(CachedDataset(Clips{}, {}), "CachedDataset: no folder was given");
  CHECK_THROWS_WITH(CachedDataset(Clips{}, {.folder = folder.path()}),
                    Catch::StartsWith("CachedDataset: no settings were given; name the dataset and what"));
  CHECK_THROWS_WITH(CachedDataset(Clips{}, {.folder = folder.path(), .settings = "clips", .max_bytes = -1}),
                    "CachedDataset: max_bytes is -1; it must be 0 (no limit) or more");
  std::ofstream(folder / "file") << "x";
  CHECK_THROWS_AS(CachedDataset(Clips{}, {.folder = folder / "file", .settings = "clips"}), FileError);
  struct Sparse : Clips {
    Clip get(std::int64_t) const { return {torch::eye(3).to_sparse(), ""}; }
  };
  const CachedDataset sparse(Sparse{}, {.folder = folder.path(), .settings = "clips"});
  CHECK_THROWS_WITH(sparse.get(0), Catch::Contains("not a plain one of the CPU: SparseCPUFloatType"));
}

struct Opaque {
  explicit Opaque(int) {}
};
struct Pointing {
  at::Tensor tensor;
  const char* text;
};
struct Custom {
  at::Tensor tensor;
  int number;
  template <class Visit>
  void each_tensor(Visit&& visit) {
    visit(tensor);
  }
};
class Closed {
 public:
  template <class Visit>
  void each_tensor(Visit&& visit) {
    visit(tensor_);
  }

 private:
  at::Tensor tensor_;
};
static_assert(looptorch::detail::Storable<Custom> && !looptorch::detail::Storable<Closed>);
static_assert(looptorch::detail::Storable<Everything> && looptorch::detail::Storable<at::Tensor>);
static_assert(!looptorch::detail::Storable<Opaque> && !looptorch::detail::Storable<Pointing>);
static_assert(!looptorch::detail::Storable<std::string_view> &&
              !looptorch::detail::Storable<std::vector<std::unique_ptr<int>>>);

struct Defaults {
  std::optional<int> number = 5;
  std::vector<std::string> words = {"default"};
  std::map<int, int> counts = {{1, 1}};
  at::Tensor tensor = torch::ones({2});
};
struct OtherThanDefaults {
  std::int64_t size() const { return 1; }
  Defaults get(std::int64_t) const { return {std::nullopt, {"x", "y"}, {{7, 7}}, at::Tensor()}; }
  std::string identity(std::int64_t) const { return "one"; }
};

TEST_CASE("a cached sample has what was written, not its members' default values") {
  const TemporaryFolder folder;
  const CachedDataset cached(OtherThanDefaults{}, {.folder = folder.path(), .settings = "none"});
  for (int i = 0; i < 2; ++i) {  // as it is made, and as it is read
    const Defaults sample = cached.get(0);
    CHECK_FALSE(sample.number);
    CHECK((sample.words == std::vector<std::string>{"x", "y"}));
    CHECK((sample.counts == std::map<int, int>{{7, 7}}));
    CHECK_FALSE(sample.tensor.defined());
  }
}
