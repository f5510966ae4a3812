// SPDX-License-Identifier: MIT
// A window that was kept is rerun bit for bit by other objects; damage and other models are refused.
//
// Tests replay
// Tests resume: replay_window, window_bundle
#include "support/precompiled.hpp"

#include <looptorch/app/fit.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/replay.hpp>
#include <looptorch/trainer.hpp>

#include "support/numbered_samples.hpp"
#include "support/temporary_folder.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace looptorch;
using looptorch::testing::TemporaryFolder;
using numbered::Batch;

namespace {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width = 8) : in(4, width), norm(width), out(width, 3) {
    register_module("in", in);
    register_module("norm", norm);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    return out(torch::dropout(torch::relu(norm(in(x))), 0.3, is_training()));
  }
  torch::nn::Linear in;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear out;
};
TORCH_MODULE(Net);

/// Samples whose 30th is bad: a root of 0 in backward, or a NaN.
struct Samples {
  double bad = 1000;
  [[nodiscard]] std::int64_t size() const { return 48; }
  [[nodiscard]] Batch get(std::int64_t index) const {
    Batch sample = numbered::Samples{48}.get(index);
    if (index == 30) sample.features.fill_(bad);
    return sample;
  }
  [[nodiscard]] Batch collate(std::span<Batch> samples) const {
    return numbered::Samples{48}.collate(samples);
  }
};

at::Tensor rooted(Net& net, const Batch& batch) {
  const at::Tensor scores = net(batch.features) * batch.features.select(1, 0).lt(500).unsqueeze(1);
  return torch::sqrt(scores.pow(2).sum(1)).mean() +
         0 * torch::nn::functional::cross_entropy(scores, batch.labels);
}
at::Tensor mended(Net& net, const Batch& batch) {
  const at::Tensor scores = net(batch.features) * batch.features.select(1, 0).lt(500).unsqueeze(1);
  return torch::sqrt(scores.pow(2).sum(1) + 1e-6).mean();
}

/// The objects of a process, whose weights and random numbers are others than the run's.
template <class Objective, class... Policies>
struct Process {
  Process(std::uint64_t seed, std::int64_t width, double lr, Objective objective, Policies... policies)
      : net(made(seed, width)),
        optimizer(net->parameters(), {.lr = lr}),
        trainer(net, optimizer, objective, Accumulate<3>{}, ClipGradNorm{0.5}, policies...) {}
  static Net made(std::uint64_t seed, std::int64_t width) {
    torch::manual_seed(seed);
    return Net(width);
  }
  auto loader(double bad) {
    return PinnedPrefetchLoader(Samples{bad}, {.batch_size = 4, .workers = 1}, RandomSampler{.seed = 5});
  }
  Net net;
  FusedAdamW optimizer;
  Trainer<Net, Update<FusedAdamW, Objective>, Accumulate<3>, ClipGradNorm, Policies...> trainer;
};

std::filesystem::path only_entry(const std::filesystem::path& folder) {
  return std::filesystem::directory_iterator(folder)->path();
}

/// Runs until Autopsy ends the fit; returns its error.
NonFiniteGradient failed_run(const std::filesystem::path& folder) {
  Process process(1, 8, 1e-2, rooted, Autopsy{.folder = folder});
  try {
    process.trainer.fit(process.loader(1000), {.epochs = 3});
  } catch (const NonFiniteGradient& error) {
    return error;
  }
  FAIL("no error");
  std::abort();
}

}  // namespace

TEST_CASE("replay: a schedule that ends with the fit ends there again") {
  TemporaryFolder folder;
  const ScheduleLr schedule{.decay = CosineDecay{}};
  Process process(1, 8, 1e-2, rooted, Autopsy{.folder = folder.path()}, schedule);
  CHECK_THROWS_AS(process.trainer.fit(process.loader(1000), {.epochs = 3}), NonFiniteGradient);
  Process other(99, 8, 1e-2, rooted, Autopsy{}, schedule);
  CHECK(replay<Batch>(other.trainer, folder.path()).same_bits);
  CHECK(other.trainer.progress().total_steps == 12);
}

TEST_CASE("replay: other objects do the window again, bit for bit: the same operator, losses and gradients") {
  TemporaryFolder folder;
  const NonFiniteGradient error = failed_run(folder.path());
  REQUIRE(error.finding);
  CHECK(error.finding->samples == std::vector<std::int64_t>{30});
  CHECK(std::string(error.what()).find("The window is kept in " + only_entry(folder.path()).string()) !=
        std::string::npos);
  Process other(99, 8, 1e-2, rooted, Autopsy{});
  for (int time = 0; time < 2; ++time) {  // and again
    const Replayed replayed = replay<Batch>(other.trainer, folder.path());
    INFO(replayed.text());
    CHECK((replayed.same_bits && replayed.was_bad && !replayed.is_clean()));
    CHECK(replayed.finding.text() == error.finding->text());
    CHECK(replayed.recorded_finding == error.finding->text());
    CHECK((replayed.place.step == error.step && replayed.place.first_batch == error.first_batch));
    CHECK(other.trainer.progress().step == error.step);
    for (const at::Tensor& parameter : other.net->parameters()) CHECK(!parameter.grad().defined());
  }
}

TEST_CASE("app::fit trains, or replays and ends the program with a code that says how") {
  TemporaryFolder folder;
  (void)failed_run(folder.path());
  const app::TrainingOptions options{.max_steps = 2, .replay = folder.path().string()};
  const auto code_of = [&](auto& process) {
    try {
      (void)app::fit(process.trainer, process.loader(1000), options);
    } catch (const app::ReplayEnded& ended) {
      CHECK(std::string(ended.what()).find("replayed step ") == 0);
      return static_cast<int>(ended.exit_code);
    }
    return -1;
  };
  Process same(99, 8, 1e-2, rooted, Autopsy{});
  Process fixed(99, 8, 1e-2, mended, Autopsy{});
  CHECK((code_of(same) == app::kError && code_of(fixed) == app::kDone));
  Process trained(99, 8, 1e-2, mended, Autopsy{});
  CHECK(app::fit(trained.trainer, trained.loader(1000), {.max_steps = 2}).steps == 2);
  CHECK(options.snapshot_to_resume(folder.path()).path.empty());
}

TEST_CASE("replay: after a fix the window is clean, and other settings are listed") {
  TemporaryFolder folder;
  const NonFiniteGradient error = failed_run(folder.path());
  Process fixed(99, 8, 1e-2, mended, Autopsy{});
  const Replayed replayed = replay<Batch>(fixed.trainer, folder.path());
  CHECK((replayed.is_clean() && replayed.was_bad && !replayed.same_bits && replayed.changed.empty()));
  CHECK(replayed.text().find("the window is clean now. When it was kept: aten::div") != std::string::npos);
  Process slower(99, 8, 1e-3, rooted, Autopsy{});
  CHECK(replay<Batch>(slower.trainer, folder.path()).changed.size() == 1);
  Process trained(99, 8, 1e-2, mended, Autopsy{});
  (void)replay<Batch>(trained.trainer, folder.path());
  CHECK(trained.trainer.fit(trained.loader(1000), {.epochs = 3}).steps > error.step);  // from the window on
}

TEST_CASE("replay: another model, a damaged bundle and a plain snapshot are refused, and nothing changes") {
  TemporaryFolder folder;
  (void)failed_run(folder.path());
  const auto bundle = only_entry(folder.path());
  Process wider(99, 9, 1e-2, rooted, Autopsy{});
  const at::Tensor before = wider.net->in->weight.clone();
  CHECK_THROWS_AS(replay<Batch>(wider.trainer, bundle), SnapshotMismatch);
  CHECK(wider.net->in->weight.equal(before));

  Process same(99, 8, 1e-2, rooted, Autopsy{});
  write_snapshot(folder / "plain", same.trainer.snapshot());
  CHECK_THROWS_AS(replay<Batch>(same.trainer, folder / "plain"), UsageError);
  CHECK_THROWS_AS(replay<numbered::Batch>(same.trainer, folder / "nothing"), SnapshotError);
  CHECK_THROWS_WITH(replay<Batch>(same.trainer, folder / "nothing"),
                    Catch::Contains("nothing: holds no bundle of a window to replay, as Autopsy keeps them"));
  for (const auto& file : std::filesystem::directory_iterator(bundle)) {
    const auto size = std::filesystem::file_size(file.path());
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(static_cast<std::streamoff>(size / 2));
    const char byte = static_cast<char>(bytes.get() ^ 1);
    bytes.seekp(static_cast<std::streamoff>(size / 2));
    bytes.put(byte);
    bytes.close();
    CHECK_THROWS_AS(replay<Batch>(same.trainer, bundle), SnapshotError);
    std::fstream back(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    back.seekp(static_cast<std::streamoff>(size / 2));
    back.put(static_cast<char>(byte ^ 1));
  }
  CHECK(replay<Batch>(same.trainer, bundle).same_bits);
}

TEST_CASE("replay: what SkipBadWindows skipped is kept, and the fit continues as without") {
  TemporaryFolder folder;
  std::vector<std::string> told;
  const auto skip = [&](std::filesystem::path keep_in) {
    return SkipBadWindows{.report = [&](const std::string& text) { told.push_back(text); },
                          .folder = keep_in};
  };
  Process kept(1, 8, 1e-2, mended, skip(folder.path()));
  Process plain(1, 8, 1e-2, mended, skip({}));
  torch::manual_seed(2);
  kept.trainer.fit(kept.loader(NAN), {.epochs = 2});
  REQUIRE(told.size() == 4);
  CHECK(told[1].find("kept it in ") == 0);
  torch::manual_seed(2);
  plain.trainer.fit(plain.loader(NAN), {.epochs = 2});
  for (std::size_t i = 0; i < kept.net->parameters().size(); ++i)
    CHECK(kept.net->parameters()[i].equal(plain.net->parameters()[i]));
  for (const auto& bundle : std::filesystem::directory_iterator(folder.path())) {
    Process other(99, 8, 1e-2, mended, skip({}));
    const Replayed replayed = replay<Batch>(other.trainer, bundle.path());
    INFO(replayed.text());
    CHECK((replayed.same_bits && replayed.finding.cause == Finding::Cause::batch));
    CHECK(replayed.finding.samples == std::vector<std::int64_t>{30});
  }
}

TEST_CASE("replay: the second of two updates, whose first is made already") {
  TemporaryFolder folder;
  struct Two {
    Net net;
    FusedAdamW one, other;
    explicit Two(std::uint64_t seed)
        : net(Process<decltype(&rooted)>::made(seed, 8)),
          one(net->out->parameters(), {.lr = 1e-2}),
          other(net->in->parameters(), {.lr = 1e-2}) {}
  };
  const auto run = [&](Two& two, auto use) {
    Trainer trainer(two.net, Update{two.one, mended}, Update{two.other, rooted}, Accumulate<3>{},
                    Autopsy{.folder = folder.path()});
    use(trainer);
  };
  std::optional<std::string> found;
  Two first(1);
  run(first, [&](auto& trainer) {
    try {
      trainer.fit(PinnedPrefetchLoader(Samples{}, {.batch_size = 4}, RandomSampler{.seed = 5}),
                  {.epochs = 2});
    } catch (const NonFiniteGradient& error) {
      found = error.finding->text();
    }
  });
  REQUIRE(found);
  Two second(7);
  run(second, [&](auto& trainer) {
    const Replayed replayed = replay<Batch>(trainer, folder / "update-2");
    CHECK((replayed.update == 1 && replayed.same_bits && replayed.finding.text() == *found));
    CHECK(replay<Batch>(trainer, folder.path()).bundle == replayed.bundle);
    const auto later = folder / "rank-1" / "update-1" / replayed.bundle.filename();
    std::filesystem::create_directories(later.parent_path());
    std::filesystem::copy(replayed.bundle, later, std::filesystem::copy_options::recursive);
    CHECK(replay<Batch>(trainer, folder.path()).bundle == later);  // the first by name, of one step
  });
}
