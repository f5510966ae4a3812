// SPDX-License-Identifier: MIT
// Samples that hang, fail for ever, draw from the wrong generator, or meet what is no fault of theirs.
// Tests data/loader: loader_log, pinned_prefetch_loader, in_flight_samples
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/captured_stderr.hpp"
#include "support/watchdog.hpp"
#include "unit/data/values.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <thread>

using namespace looptorch;
using testing::Watchdog;
using namespace values;

namespace {

/// Sample i is i; some hang until they are let go.
struct Hanging {
  std::atomic<bool>* released;
  std::int64_t hangs_at = 17;

  std::int64_t size() const { return 40; }
  std::int64_t get(std::int64_t index) const {
    while (index == hangs_at && !*released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return index;
  }
  std::filesystem::path path(std::int64_t index) const { return "clips/" + std::to_string(index); }
};

/// Never ends, and fails from `good` samples on.
struct Endless {
  std::int64_t good = 0, at = 0;
  void begin(std::int64_t) { at = 0; }
  std::optional<std::int64_t> next() { return at++; }
  std::int64_t transform(std::int64_t value) const {
    if (value >= good) throw std::runtime_error("no key " + std::to_string(value));
    return value;
  }
};

template <class Loader>
std::string error_of(Loader& loader) {
  try {
    for (auto& batch : loader) (void)batch;
  } catch (const LoaderError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a sample that hangs ends the epoch in a timeout that names it, and the loop continues elsewhere") {
  const Watchdog watchdog("timeout");
  static std::atomic<bool> released = false;  // outlives the worker that is left behind
  static const Hanging hanging{&released};
  PinnedPrefetchLoader loader(hanging, {.batch_size = 4, .workers = 2, .timeout = 0.2}, {}, kKeep);
  std::int64_t batches = 0;
  try {
    for (auto& batch : loader) batches += !batch.empty();
    FAIL("no exception");
  } catch (const LoaderTimeout& error) {
    CHECK(std::string(error.what()) ==
          "batch 4 of epoch 0 did not come within 0.2 s: its worker hangs at sample 17 (clips/17)");
    CHECK((error.epoch == 0 && error.batch == 4 && error.sample == 17 && error.path == "clips/17"));
    CHECK(loader.position() == LoaderPosition{0, 4});
    loader.begin_epoch(error.epoch);
    loader.skip(error.batch + 1);
  }
  CHECK(batches == 4);
  for (auto& batch : loader) batches += !batch.empty();
  CHECK(batches == 9);
  released = true;
}

TEST_CASE("a collate that hangs is distinguished from a sample that does") {
  const Watchdog watchdog("hanging collate");
  static std::atomic<bool> released = false;
  static const Hanging hanging{&released, -1};
  PinnedPrefetchLoader loader(hanging, {.workers = 1, .timeout = 0.1}, {},
                              [](std::span<std::int64_t> samples) {
                                while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                return Values(samples.begin(), samples.end());
                              });
  CHECK_THROWS_WITH(loader.begin(),
                    "batch 0 of epoch 0 did not come within 0.1 s: its worker hangs outside of any sample, "
                    "in a collate or a stream's next");
  released = true;
}

TEST_CASE("a timeout that is not reached changes nothing, and one that cannot work is refused") {
  const Watchdog watchdog("no timeout");
  static std::atomic<bool> released = true;
  for (const double timeout : {30.0, std::numeric_limits<double>::infinity()}) {
    PinnedPrefetchLoader loader(Hanging{&released}, {.batch_size = 4, .timeout = timeout}, {}, kKeep);
    CHECK(error_of(loader) == "none");
    CHECK(loader.stats().batches == 10);
  }
  CHECK_THROWS_WITH(PinnedPrefetchLoader(Hanging{&released}, {.timeout = -1}, {}, kKeep),
                    "PinnedPrefetchLoader: timeout is -1; it must be 0 (none) or a number of seconds");
  CHECK_THROWS_WITH(
      PinnedPrefetchLoader(Hanging{&released}, {.workers = 0, .timeout = 1}, {}, kKeep),
      "PinnedPrefetchLoader: timeout needs workers; with workers = 0 the reader itself loads the sample");
}

TEST_CASE("an endless stream of which nothing can be had ends in an error that lists the last failures") {
  const Watchdog watchdog("endless failures", std::chrono::seconds(60));
  const std::int64_t workers = GENERATE(0, 3);
  const LoaderOptions options{.batch_size = 8, .workers = workers, .on_error = OnError::skip};
  PinnedPrefetchLoader loader(Endless{}, options, {}, kKeep);
  CHECK_THROWS_WITH(loader.begin(),
                    "1000 samples in a row failed in epoch 0, with no batch between; the last of "
                    "them; sample 997: no key 997; sample 998: no key 998; sample 999: no key 999");
  CHECK(loader.skipped().count == 1000);
  PinnedPrefetchLoader later(Endless{100}, options, {}, kKeep);
  CHECK_THAT(error_of(later), Catch::StartsWith("1000 samples in a row failed"));
  CHECK(later.stats().batches == 13);  // the last of 4 samples
}

TEST_CASE("errors of the accelerator are the run's, not the sample's") {
  struct Sticky {
    bool typed;
    std::int64_t size() const { return 3; }
    std::int64_t get(std::int64_t index) const {
      if (index == 1 && typed)
        throw looptorch::detail::AcceleratorError({}, 700, "device error: an illegal memory access");
      if (index == 1) TORCH_CHECK(false, "CUDA error: an illegal memory access was encountered");
      return index;
    }
  };
  for (const bool typed : {false, true}) {
    PinnedPrefetchLoader loader(Sticky{typed}, {.workers = 1, .on_error = OnError::skip}, {}, kKeep);
    CHECK_THAT(error_of(loader), Catch::Contains("sample 1 (epoch 0, batch 1): ") &&
                                     Catch::Contains(" error: an illegal memory access"));
    CHECK(loader.skipped().count == 0);
  }
}

TEST_CASE("a fork refuses the epoch of its parent, leaves it without waiting, and reads its own") {
  std::atomic<bool> released = true;
  std::optional<PinnedPrefetchLoader<Hanging>> loader;
  loader.emplace(Hanging{&released}, LoaderOptions{.batch_size = 2, .workers = 2});
  auto batch = loader->begin();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);  // ends a child that hangs
    try {
      ++batch;
    } catch (const UsageError& error) {
      int count = 0;
      for (auto& own : *loader) count += static_cast<int>(own.numel());
      batch = {}, loader.reset();
      ::_exit(std::string(error.what()).find("fork()") != std::string::npos ? count : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 40));
  int count = 0;
  for (; batch != loader->end(); ++batch) ++count;
  CHECK(count == 20);
}

TEST_CASE("a loader makes no CUDA context of itself") {
  struct Ones {
    std::int64_t size() const { return 3; }
    at::Tensor get(std::int64_t) const { return torch::ones({2}); }
  };
  PinnedPrefetchLoader loader(Ones{}, {.workers = 1});
  for (const at::Tensor& batch : loader) CHECK(batch.is_pinned() == looptorch::detail::uses_accelerator());
  PinnedPrefetchLoader asked(Ones{}, {.workers = 1, .pin = true});
  for (const at::Tensor& batch : asked)
    CHECK(batch.is_pinned() == looptorch::detail::accelerator_here().has_value());
}

TEST_CASE("samples that draw from LibTorch's generator cause one warning if workers share it") {
  const Watchdog watchdog("draws");
  struct Noise {
    bool seeded = false;
    std::atomic<int>* fingerprints = nullptr;
    std::int64_t size() const { return 8; }
    std::string fingerprint(std::int64_t index) const { return ++*fingerprints, std::to_string(index); }
    at::Tensor get(std::int64_t, const SampleContext& context) const {
      return seeded ? torch::randn({2}, at::make_generator<at::CPUGeneratorImpl>(context.seed))
                    : torch::randn({2});
    }
  };
  std::atomic<int> fingerprints = 0;
  const auto told = [&](bool seeded, std::int64_t workers) {
    const testing::CapturedStderr captured;
    PinnedPrefetchLoader loader(Noise{seeded, &fingerprints}, {.batch_size = 2, .workers = workers});
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const at::Tensor& batch : loader) CHECK(torch::randn_like(batch).numel() == 4);  // the reader may
    return captured.text();
  };
  const std::string text = told(false, 2);
  CHECK_THAT(text, Catch::StartsWith("looptorch: a loader of 8 samples: its samples draw from LibTorch's "
                                     "default random generator"));
  CHECK(std::ranges::count(text, '\n') == 1);
  CHECK(told(true, 2).empty());
  CHECK(told(false, 0).empty());  // in order, on the reader's thread
  CHECK(fingerprints == 0);       // a warning does not read all samples
}
