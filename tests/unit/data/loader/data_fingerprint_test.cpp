// SPDX-License-Identifier: MIT
// A dataset's fingerprint says which samples differ, or that their order does, and a resumed fit and a loader
// that goes on refuse other data with that sentence. Composed datasets pass fingerprints on.
#include "support/precompiled.hpp"

#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/datasets/concat_dataset.hpp>
#include <looptorch/data/datasets/map_dataset.hpp>
#include <looptorch/data/datasets/subset_dataset.hpp>
#include <looptorch/data/loader/data_fingerprint.hpp>
#include <looptorch/data/loader/on_device.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using lt::detail::DataFingerprint;

namespace {

using Names = std::vector<std::string>;

Names names(std::int64_t count) {
  Names all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back("line " + std::to_string(i));
  return all;
}

DataFingerprint fingerprint(const Names& names) {
  return {std::ssize(names), [&](std::int64_t index) { return names[static_cast<std::size_t>(index)]; }};
}

std::string difference(const Names& here, const Names& saved) {
  return fingerprint(here).difference(fingerprint(saved).text(), "the snapshot", [](std::int64_t index) {
    return index == 3 ? "" : std::to_string(index) + ".wav";
  });
}

/// Samples that their names tell apart.
struct Named {
  Names names;
  mutable int asked = 0;
  [[nodiscard]] std::int64_t size() const { return std::ssize(names); }
  [[nodiscard]] at::Tensor get(std::int64_t index) const {
    return torch::full({4}, static_cast<double>(index % 5), torch::kDouble);
  }
  [[nodiscard]] std::string fingerprint(std::int64_t index) const {
    ++asked;
    return names[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::string identity(std::int64_t index) const { return std::to_string(index); }
};

/// The same samples, whose names are not told.
struct Nameless {
  Named samples;
  [[nodiscard]] std::int64_t size() const { return samples.size(); }
  [[nodiscard]] at::Tensor get(std::int64_t index) const { return samples.get(index); }
};

struct NamedStream {
  std::string name;
  std::int64_t next_index = 0;
  void begin(std::int64_t) { next_index = 0; }
  std::optional<at::Tensor> next() {
    if (next_index == 12) return std::nullopt;
    return torch::full({4}, static_cast<double>(next_index++), torch::kDouble);
  }
  [[nodiscard]] std::string fingerprint() const { return name; }
};

/// Fits in new objects, with snapshots in `folder`.
template <class Loader>
lt::FitResult fit_into(const std::filesystem::path& folder, Loader&& loader, const lt::FitOptions& options) {
  auto net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  lt::Trainer trainer(
      net, optimizer, [](toy::Net& net, const at::Tensor& batch) { return net(batch).square().mean(); },
      lt::SnapshotEvery{.folder = folder});
  return trainer.fit(loader, options);
}
template <class Loader>
lt::FitResult fit(Loader&& loader, const lt::FitOptions& options) {
  const TemporaryFolder folder;
  return fit_into(folder.path(), loader, options);
}

auto loader(Named samples, std::int64_t batch_size = 2) {
  return lt::PinnedPrefetchLoader(std::move(samples), {.batch_size = batch_size, .workers = 1},
                                  lt::RandomSampler{.seed = 1});
}

}  // namespace

TEST_CASE("a fingerprint names the samples that differ, exactly up to 256 of them") {
  const Names saved = names(20);
  Names here = saved;
  CHECK(fingerprint(here).text() == fingerprint(saved).text());
  here[4] = "another";
  CHECK(difference(here, saved) == "sample 4 (4.wav) of the dataset is another than in the snapshot");
  here[3] = "another";
  CHECK(difference(here, saved) ==
        "2 of 20 samples of the dataset are others than in the snapshot, the first sample 3");
  here = saved;
  std::swap(here[5], here[17]);
  CHECK(difference(here, saved) ==
        "the samples of the dataset are in another order than in the snapshot, from sample 5 (5.wav) on");
  CHECK(difference(names(19), saved) == "the samples of the dataset are others than in the snapshot");
  CHECK(difference(saved, {}) == "the samples of the dataset are others than in the snapshot");
  CHECK(fingerprint(names(100'000)).text().size() < 2100);
}

TEST_CASE("a fingerprint of many samples names a part, and misses no sample") {
  const Names saved = names(1000);
  for (const std::size_t i : {0U, 499U, 927U, 928U, 999U}) {
    Names here = saved;
    here[i] += ".";
    const std::string text = difference(here, saved);
    CAPTURE(text);
    CHECK_THAT(text,
               Contains("some of 1000 samples of the dataset are others than in the snapshot, the first"));
    const auto begin = std::stoul(text.substr(text.find("sample ", text.find("between")) + 7));
    const auto end = std::stoul(text.substr(text.rfind("and ") + 4));
    CHECK(begin <= i);
    CHECK(i <= end);
    CHECK(end - begin < 4);
  }
  Names here = saved;
  std::swap(here[1], here[2]);  // within a part
  CHECK_THAT(difference(here, saved), Contains("another order than in the snapshot, from between sample 0"));
}

TEST_CASE("a resumed fit refuses other samples, another order and another stream, and says which") {
  TemporaryFolder folder, of_stream;
  fit_into(folder.path(), loader({names(10)}), {.max_steps = 3});
  const lt::FitOptions resumed{.max_steps = 4, .resume = folder.path()};
  auto changed = resumed;
  changed.resume_changed = true;  // data are never a setting
  Names here = names(10);
  CHECK(fit(loader({here}), resumed).resumed->changed.empty());
  CHECK_NOTHROW(fit(loader({here}, 1), changed));  // other batches of the same data
  std::swap(here[0], here[9]);
  CHECK_THROWS_WITH(
      fit(loader({here}), resumed),
      Contains("is not of this run: the samples of the dataset are in another order than in the "
               "snapshot, from sample 0 on"));
  here = names(10), here[7] = "another text";
  CHECK_THROWS_AS(fit(loader({here}), changed), lt::SnapshotMismatch);
  CHECK_THROWS_WITH(
      fit(lt::OnDevice(loader({here}), at::kCPU, [](at::Tensor batch) { return batch; }), resumed),
      Contains("sample 7 of the dataset is another"));
  CHECK_THROWS_WITH(fit(loader({names(11)}), resumed),
                    Contains("11 samples") && Contains("10 samples") && !Contains("others than"));

  const auto stream = [](const char* name) {
    return lt::PinnedPrefetchLoader(NamedStream{name}, {.batch_size = 2, .workers = 1});
  };
  fit_into(of_stream.path(), stream("shard 1"), {.max_steps = 3});
  changed.resume = of_stream.path();
  CHECK_NOTHROW(fit(stream("shard 1"), changed));
  CHECK_THROWS_WITH(fit(stream("shard 2"), changed),
                    Contains("the stream's fingerprint is \"shard 2\" here, \"shard 1\" in the snapshot"));
}

TEST_CASE("data without a fingerprint on one side are not compared, and that is said") {
  const auto nameless = [](std::int64_t batch_size) {
    return lt::PinnedPrefetchLoader(Nameless{{names(10)}}, {.batch_size = batch_size, .workers = 1},
                                    lt::RandomSampler{.seed = 1});
  };
  TemporaryFolder with, without;
  fit_into(with.path(), loader({names(10)}), {.max_steps = 3});
  fit_into(without.path(), nameless(2), {.max_steps = 3});
  lt::FitOptions options{.max_steps = 4, .resume = without.path()};
  auto changed = fit(loader({names(10)}), options).resumed->changed;
  const std::string why = " has no fingerprint, so whether its data are the same was not compared";
  CHECK(changed == Names{"the snapshot" + why});
  options.resume_changed = true;
  changed =
      fit(loader({names(10)}, 1), options).resumed->changed;  // the batch size is compared none the less
  CHECK(changed.size() == 2);
  options.resume = with.path();
  CHECK(fit(nameless(2), options).resumed->changed == Names{"the dataset" + why});
}

TEST_CASE("a loader that continues refuses other data, and asks for fingerprints once and only then") {
  const Named samples{names(300)};
  lt::PinnedPrefetchLoader first(samples, {.batch_size = 2, .workers = 1});
  for (auto& batch : first) (void)batch;
  CHECK(samples.asked == 0);
  const lt::StateDict state = first.state_dict();
  (void)first.identity();
  CHECK(samples.asked == 300);
  Named others = samples;
  others.names.back() = "another";
  CHECK_THROWS_WITH(lt::PinnedPrefetchLoader(others, {.batch_size = 2}).load_state_dict(state),
                    Contains("others than in the state"));
  CHECK_NOTHROW(lt::PinnedPrefetchLoader(samples, {.batch_size = 2}).load_state_dict(state));
  CHECK_NOTHROW(lt::PinnedPrefetchLoader(Nameless{samples}, {.batch_size = 2}).load_state_dict(state));
}

TEST_CASE("composed datasets have the fingerprints of those below") {
  TemporaryFolder folder;
  const Named three{names(3)}, four{{"a", "b", "c", "d"}};
  const auto doubled = [](at::Tensor sample) { return sample * 2; };
  CHECK(lt::MapDataset(three, doubled).fingerprint(2) == "line 2");
  CHECK(lt::SubsetDataset(three, {2, 0}).fingerprint(0) == "line 2");
  CHECK(lt::CachedDataset(three, {.folder = folder.path(), .settings = "test"}).fingerprint(1) == "line 1");
  const lt::ConcatDataset both(three, four);
  CHECK(both.fingerprint(2) == "line 2");
  CHECK(both.fingerprint(3) == "a");
  const Nameless nameless{three};
  CHECK(lt::ConcatDataset(nameless, four).fingerprint(3) == "a");
  CHECK(lt::ConcatDataset(nameless, four).fingerprint(0).empty());
  CHECK(lt::ConcatDataset(std::vector<Named>{three, four}).fingerprint(6) == "d");
  static_assert(!lt::FingerprintedDataset<lt::MapDataset<Nameless, decltype(doubled)>>);
  static_assert(!lt::FingerprintedDataset<lt::SubsetDataset<Nameless>>);
  static_assert(!lt::FingerprintedDataset<lt::ConcatDataset<Nameless, Nameless>>);
}
