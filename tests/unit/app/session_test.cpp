// SPDX-License-Identifier: MIT
// A run from flags to summary: what a Session gives is what the program would have written by hand, to the
// bit, and a run that is cut goes on.
#include "support/precompiled.hpp"

#include <looptorch/app/session.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/trainer.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"

#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace lt = looptorch;
using Catch::Contains;
using lt::testing::CapturedStderr, lt::testing::TemporaryFolder;

namespace {

struct Points {  // y = the sum of x
  struct Point {
    at::Tensor x, y;  // [4], []
  };
  std::int64_t size() const { return 12; }
  Point get(std::int64_t index) const {
    const auto x = torch::arange(4, torch::kFloat) * static_cast<double>(index % 5) / 10;
    return {x, x.sum()};
  }
};

at::Tensor loss_of(torch::nn::Linear& net, const Points::Point& batch) {
  return torch::mse_loss(net(batch.x).squeeze(1), batch.y);
}

/// std::cout goes into a string while it lives.
struct CapturedOut {
  CapturedOut() : before(std::cout.rdbuf(text.rdbuf())) {}
  ~CapturedOut() { std::cout.rdbuf(before); }
  std::ostringstream text;
  std::streambuf* before;
};

app::TrainingOptions settings() {
  return {.epochs = 3,
          .batch_size = 4,
          .gradient_accumulation = 2,
          .learning_rate = 0.05,
          .precision = app::Precision::bf16,
          .device = "cpu",
          .workers = 0,
          .seed = 7};
}

at::Tensor trained_by_session(const app::TrainingOptions& options, const fs::path& output) {
  app::Session session(options, output);
  torch::nn::Linear net(4, 1);
  net->to(session.device());
  lt::FusedAdamW optimizer(net->parameters(), {.lr = options.learning_rate});
  lt::Trainer trainer(net, optimizer, loss_of, lt::ClipGradNorm{1.0}, session.policies(*net));
  const auto result = session.fit(trainer, session.shuffled(Points{}));
  session.finish(*net, {{"loss", result.loss}});
  return net->weight.detach().clone();
}

}  // namespace

TEST_CASE("Session: the run is that of the same policies listed by hand, to the bit") {
  const TemporaryFolder folder;
  const CapturedStderr silent;
  const CapturedOut out;
  auto options = settings();
  options.seed_generators();
  torch::nn::Linear net(4, 1);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.05});
  lt::Trainer trainer(net, optimizer, loss_of, lt::Accumulate<2>{}, lt::Autocast<lt::bf16>{},
                      lt::ClipGradNorm{1.0});
  trainer.fit(lt::PinnedPrefetchLoader(Points{}, {.batch_size = 4, .workers = 0, .seed = 7},
                                       lt::RandomSampler{.seed = 7}),
              {.epochs = 3});
  CHECK(torch::equal(trained_by_session(options, folder / "run"), net->weight.detach()));
  options.seed = 8;
  CHECK_FALSE(torch::equal(trained_by_session(options, folder / "other"), net->weight.detach()));
}

TEST_CASE("Session: the first line says what is on by default") {
  const TemporaryFolder folder;
  auto options = settings();
  {
    CapturedStderr said;
    const lt::app::Session session(options, folder / "plain");
    CHECK(said.text().empty());
  }
  options.on_by_default = "on by default on cuda:0 (GPU): --bf16 (off: --fp32)", options.resume = "auto";
  CapturedStderr said;
  const lt::app::Session session(options, folder / "run");
  CHECK_THAT(said.text(), Catch::StartsWith("on by default on cuda:0 (GPU): --bf16 (off: --fp32)\n"));
}

TEST_CASE("Session: a run whose output has no reader left goes on") {
  const TemporaryFolder folder;
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  {
    const CapturedStderr silent;
    const lt::app::Session session(settings(), folder / "run");
    std::raise(SIGPIPE);  // ends the process by default
  }
  CHECK(std::signal(SIGPIPE, before) == SIG_IGN);
}

TEST_CASE("Session: finish saves the weights, says where, and sums the run up") {
  const TemporaryFolder folder;
  const auto output = folder / "run";
  CapturedStderr said;
  CapturedOut out;
  const auto weight = trained_by_session(settings(), output);
  CHECK(torch::equal(lt::load_safetensors(output / "model.safetensors").tensors.at("weight"), weight));
  const auto summary = lt::load_json(output / "summary.json");
  CHECK(summary.at("steps") == lt::Json(6));
  CHECK(summary.at("seconds").as_number() > 0);
  CHECK(summary.at("peak_bytes").as_number() > 0);
  CHECK(summary.at("flops_per_second").as_number() > 0);
  CHECK_FALSE(summary.contains("mfu"));  // a CPU's peak is not known
  CHECK(summary.contains("loss"));
  CHECK_FALSE(summary.contains("memory"));
  CHECK_THAT(out.text.str(), Contains("\"steps\": 6"));
  CHECK_THAT(said.text(), Contains("the weights are in " + (output / "model.safetensors").string()));
  CHECK(fs::exists(output / "report.html"));

  auto watched = settings();
  watched.memory = true, watched.report = false;
  trained_by_session(watched, folder / "watched");
  CHECK(lt::load_json(folder / "watched" / "summary.json").contains("memory"));
  CHECK_FALSE(fs::exists(folder / "watched" / "report.html"));
}

TEST_CASE("Session: a fit leaves the file that repeats it, and what trains nothing leaves none") {
  const TemporaryFolder folder;
  const CapturedStderr silent;
  const CapturedOut out;
  auto options = settings();
  trained_by_session(options, folder / "without");
  CHECK_FALSE(fs::exists(folder / "without" / "run.conf"));  // its flags are unknown
  options.config = "epochs=3\n";
  trained_by_session(options, folder / "run");
  CHECK(lt::read_file(folder / "run" / "run.conf") == "epochs=3\n");
  options.replay = (folder / "nothing").string();
  CHECK_THROWS(trained_by_session(options, folder / "replayed"));
  CHECK_FALSE(fs::exists(folder / "replayed"));
}

TEST_CASE(
    "Session: a rehearsal has a few batches, and says before, after and in its summary that it was one") {
  const TemporaryFolder folder;
  CapturedStderr said;
  const CapturedOut out;
  auto options = settings();
  options.batch_size = 1, options.quick = true;
  trained_by_session(options, folder / "run");
  const auto summary = lt::load_json(folder / "run" / "summary.json");
  CHECK(summary.at("steps") == lt::Json(2));  // three batches of twelve, two a step
  CHECK(summary.at("rehearsal") == lt::Json(true));
  CHECK_THAT(said.text(), Contains("--quick: a rehearsal, with 3 batches of each part") &&
                              Contains("the rehearsal is through: " + (folder / "run").string()));
  CHECK_NOTHROW(trained_by_session(options, folder / "run"));
}

TEST_CASE("Session: a rehearsal does not replace the result of a run") {
  const TemporaryFolder folder;
  const CapturedStderr silent;
  const CapturedOut out;
  auto options = settings();
  trained_by_session(options, folder / "run");
  const auto weights = lt::read_file(folder / "run" / "model.safetensors");
  options.batch_size = 1, options.quick = true;
  CHECK_THROWS_WITH(trained_by_session(options, folder / "run"),
                    Contains("run holds the result of a run, which the rehearsal would replace"));
  CHECK(lt::read_file(folder / "run" / "model.safetensors") == weights);
}

TEST_CASE("Session: a run does not resume a rehearsal, whose short epoch it would take for a whole one") {
  const TemporaryFolder folder;
  const CapturedStderr silent;
  const CapturedOut out;
  auto options = settings();
  options.batch_size = 1, options.quick = true, options.snapshot_every = 1;
  trained_by_session(options, folder / "run");
  options.quick = false, options.resume = "auto";
  CHECK_THROWS_AS(trained_by_session(options, folder / "run"), lt::SnapshotMismatch);
  CHECK_THROWS_WITH(trained_by_session(options, folder / "run"),
                    Contains("--quick is off here and on in the snapshot"));
}

TEST_CASE("Session: a run that is cut continues to the same bits, and says so when it does") {
  const TemporaryFolder folder;
  const CapturedOut out;
  at::Tensor whole;
  {
    const CapturedStderr silent;
    whole = trained_by_session(settings(), folder / "whole");
  }
  auto options = settings();
  options.snapshot_every = 1, options.max_steps = 4;
  {
    const CapturedStderr silent;
    trained_by_session(options, folder / "cut");
  }
  options.max_steps = 0, options.resume = "auto";
  CapturedStderr said;
  CHECK(torch::equal(trained_by_session(options, folder / "cut"), whole));
  CHECK_THAT(said.text(), Contains("resumes from " + (folder / "cut/snapshots/step-00000004").string()));
}

TEST_CASE("Session: a second fit continues the first one, also in a run that was resumed") {
  const TemporaryFolder folder;
  const CapturedStderr silent;
  const CapturedOut out;
  auto options = settings();
  options.snapshot_every = 1, options.max_steps = 1;
  trained_by_session(options, folder / "run");
  options.max_steps = 3, options.resume = "auto";
  app::Session session(options, folder / "run");
  torch::nn::Linear net(4, 1);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = options.learning_rate});
  std::vector<std::int64_t> steps;
  lt::Trainer trainer(
      net, optimizer, loss_of, lt::ClipGradNorm{1.0}, session.policies(*net),
      lt::On{lt::kObserve, [&](lt::WindowContext& window) { steps.push_back(window.run.progress().step); }});
  session.fit(trainer, session.shuffled(Points{}));
  options.max_steps = 5;
  session.set_options(options);
  session.fit(trainer, session.shuffled(Points{}));
  CHECK(steps == std::vector<std::int64_t>{2, 3, 4, 5});
}

TEST_CASE(
    "Session: a refused snapshot is not said to be gone on from; with --resume and none, it says that") {
  const TemporaryFolder folder;
  const CapturedOut out;
  auto options = settings();
  options.snapshot_every = 1, options.resume = "auto";
  {
    CapturedStderr said;
    trained_by_session(options, folder / "run");
    CHECK_THAT(said.text(), Contains("no snapshot to resume from: starts a new run"));
  }
  options.learning_rate = 0.1, options.epochs = 9;
  CapturedStderr said;
  CHECK_THROWS_WITH(trained_by_session(options, folder / "run"), Contains("learning rate"));
  CHECK_THAT(said.text(), !Contains("resumes from"));
}

TEST_CASE("Session: one run at a time in a folder, none in that of the data, and a refused one leaves none") {
  const TemporaryFolder folder;
  const auto options = settings();
  {
    const app::Session session(options, folder / "run");
    CHECK(session.output() == folder / "run");
    CHECK(session.snapshots() == folder / "run" / "snapshots");
    CHECK_FALSE(session.resumes());
    CHECK_THROWS_WITH(app::Session(options, folder / "run"), Contains("another run writes"));
  }
  CHECK_FALSE(fs::exists(folder / "run"));
  fs::create_directories(folder / "data");
  CHECK_THROWS_WITH(app::Session(options, folder / "data", {folder / "data"}),
                    Contains("the folder of the data"));
}

TEST_CASE("Session: a run that resumes or replays a window does not begin anew") {
  const TemporaryFolder folder;
  const CapturedStderr silent;
  const CapturedOut out;
  auto options = settings();
  options.snapshot_every = 1, options.resume = "auto";
  CHECK(app::Session(options, folder / "run").begins_anew());
  trained_by_session(options, folder / "run");
  CHECK_FALSE(app::Session(options, folder / "run").begins_anew());
  options.resume.clear(), options.replay = folder / "run" / "bad-windows";
  const app::Session replays(options, folder / "run");
  CHECK_FALSE(replays.resumes());
  CHECK_FALSE(replays.begins_anew());
}

TEST_CASE("Session: a new run does not overwrite what it begins with; one that resumes may lie beside it") {
  const TemporaryFolder folder;
  const CapturedStderr silent;
  const CapturedOut out;
  auto options = settings();
  options.snapshot_every = 1, options.resume = "auto";
  {
    const app::Session session(options, folder / "run");
    CHECK_NOTHROW(session.require_apart("--weights", folder / "other"));
    CHECK_THROWS_WITH(session.require_apart("--weights", folder / "run"),
                      Contains("run would overwrite --weights " + (folder / "run").string()));
  }
  trained_by_session(options, folder / "run");
  CHECK_NOTHROW(app::Session(options, folder / "run").require_apart("--weights", folder / "run"));
}

TEST_CASE("Session: an interrupted fit is noted first, and then ends the program") {
  const TemporaryFolder folder;
  const CapturedStderr silent;
  const auto options = settings();
  app::Session session(options, folder / "run");
  torch::nn::Linear net(4, 1);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.05});
  lt::Trainer trainer(net, optimizer, loss_of, session.policies(*net),
                      lt::On{lt::kObserve, [](lt::WindowContext& window) {
                               if (window.run.progress().step == 2)
                                 window.run.interrupt("SIGTERM was received");
                             }});
  std::int64_t noted = -1;
  CHECK_THROWS_AS(session.fit(trainer, session.shuffled(Points{}),
                              [&](const lt::FitResult& result) { noted = result.steps; }),
                  app::Interrupted);
  CHECK(noted == 2);
  CHECK_FALSE(fs::exists(folder / "run" / "summary.json"));
}

TEST_CASE("Session: owns its options, which can be replaced before loaders are made") {
  const TemporaryFolder folder;
  const CapturedStderr silent;
  auto options = settings();
  options.batch_size = 2;
  app::Session session(options, folder / "run");
  options.batch_size = 4;
  CHECK(session.options().batch_size == 2);
  CHECK(session.loader(Points{}).options().batch_size == 2);
  session.set_options(options);
  CHECK(session.loader(Points{}).options().batch_size == 4);
}
