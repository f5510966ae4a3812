// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/training_options.hpp>
#include <looptorch/policies/backend_flags.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using Catch::Contains;
using looptorch::OnError;
using looptorch::app::CommandLineError, looptorch::app::Interrupted, looptorch::app::Precision,
    looptorch::app::throw_if_interrupted, looptorch::app::TrainingOptions;

TEST_CASE("FitOptions have the epochs, the steps where they are limited, and the snapshot") {
  TrainingOptions options{.epochs = 3};
  CHECK(options.fit_options().epochs == 3);
  CHECK_FALSE(options.fit_options().max_steps.has_value());
  CHECK(options.fit_options().resume.empty());
  options.max_steps = 40;
  CHECK(options.fit_options().max_steps == 40);
  CHECK(options.fit_options("run/snapshots/step-00000002").resume.path() == "run/snapshots/step-00000002");
  looptorch::testing::CapturedStderr said;
  options.fit_options().on_resumed({.snapshot = "run/snapshots/step-00000002", .step = 2});
  CHECK(said.text() == "resumes from run/snapshots/step-00000002\n");
  CHECK_FALSE(options.fit_options().resume_changed);
  options.resume_changed = true;
  CHECK(options.fit_options().resume_changed);
}

TEST_CASE("a rehearsal is one epoch of three batches, or of a whole step, and continues from nothing") {
  TrainingOptions options{.epochs = 9, .batch_size = 5};
  CHECK_FALSE(options.fit_options().limit_batches.has_value());
  std::vector<int> samples(40);
  options.keep_few(samples);
  CHECK(samples.size() == 40);
  options.quick = true;
  CHECK(options.fit_options().epochs == 1);
  CHECK(options.fit_options().limit_batches == 3);
  options.keep_few(samples);
  CHECK(samples.size() == 15);
  options.gradient_accumulation = 4;
  CHECK(options.fit_options().limit_batches == 4);
  options.keep_few(samples);  // there are fewer
  CHECK(samples.size() == 15);
  options.resume = "auto";
  CHECK_THROWS_AS(options.snapshot_to_resume("nowhere"), CommandLineError);
}

TEST_CASE("LoaderOptions have the batch size, the workers, the seed, and what becomes of a bad sample") {
  TrainingOptions options{.batch_size = 5, .workers = 7, .seed = 9};
  const auto loading = options.loader_options();
  CHECK(loading.batch_size == 5);
  CHECK(loading.workers == 7);
  CHECK(loading.seed == 9);
  CHECK(loading.prefetch == looptorch::LoaderOptions{}.prefetch);
  CHECK(loading.on_error == OnError::skip);
  options.on_bad_audio = "stop";
  options.prefetch = 6;
  CHECK(options.loader_options().on_error == OnError::fail);
  CHECK(options.loader_options().prefetch == 6);
}

TEST_CASE("The precision says whether Autocast<> is on, and its type") {
  CHECK_FALSE(TrainingOptions{}.mixed_precision());
  for (const auto& [precision, type] : {std::pair(Precision::mixed, std::optional<at::ScalarType>()),
                                        std::pair(Precision::bf16, std::optional(at::kBFloat16)),
                                        std::pair(Precision::fp16, std::optional(at::kHalf))}) {
    CHECK(TrainingOptions{.precision = precision}.mixed_precision());
    CHECK(TrainingOptions{.precision = precision}.autocast_type() == type);
  }
}

TEST_CASE("TF32 and cuDNN's search reach LibTorch, and stay as they are where no flag is given") {
  auto& context = at::globalContext();
  const bool convolutions = context.allowTF32CuDNN(), searches = context.benchmarkCuDNN();
  const auto within = [&](const TrainingOptions& options) {
    const looptorch::BackendScope scope({.tf32 = options.tf32, .cudnn_benchmark = options.cudnn_benchmark});
    return std::vector{context.allowTF32CuBLAS(), context.allowTF32CuDNN(), context.benchmarkCuDNN()};
  };
  CHECK(within({}) == std::vector{context.allowTF32CuBLAS(), convolutions, searches});
  CHECK(within({.tf32 = true, .cudnn_benchmark = true}) == std::vector{true, true, true});
  CHECK(within({.tf32 = false, .cudnn_benchmark = false}) == std::vector{false, false, false});
  CHECK(within({}) == std::vector{context.allowTF32CuBLAS(), convolutions, searches});
}

TEST_CASE("Settings that the device cannot have are refused, and those that do nothing there are named") {
  looptorch::testing::CapturedStderr said;
  CHECK(TrainingOptions{.precision = Precision::bf16, .device = "cpu", .workers = 0}.choose_device() ==
        at::kCPU);
  CHECK(said.text().empty());
  CHECK_THROWS_AS(TrainingOptions{.device = "tpu"}.choose_device(), looptorch::UsageError);
  const TrainingOptions half{.precision = Precision::fp16, .device = "cpu"};
  CHECK_THROWS_AS(half.choose_device(), CommandLineError);
  CHECK_THROWS_WITH(
      half.choose_device(),
      "--fp16 needs an accelerator, since CPUs compute fp16 slowly or not at all: give --bf16 or "
      "--mixed-precision");
  const TrainingOptions ahead{.device = "cpu", .workers = 0, .prefetch = 4};
  CHECK_THROWS_WITH(ahead.choose_device(),
                    "--prefetch 4 needs threads that read ahead: give --workers 1 or more");
  const TrainingOptions capped{.memory_cap = 4, .device = "cpu"};
  CHECK_THROWS_WITH(capped.choose_device(), "--memory-cap is what --preflight allows: give --preflight, too");
  CHECK(said.text().empty());
  CHECK(TrainingOptions{.tf32 = true, .device = "cpu"}.choose_device() == at::kCPU);
  CHECK(said.text() == "--tf32 has no effect on cpu, only on CUDA devices\n");
  (void)TrainingOptions{.tf32 = true, .cudnn_benchmark = true, .device = "cpu"}.choose_device();
  CHECK_THAT(said.text(),
             Contains("--tf32 and --cudnn-benchmark have no effect on cpu, only on CUDA devices\n"));
}

TEST_CASE("Snapshots are taken where they are asked for and where a run continues") {
  CHECK_FALSE(TrainingOptions{}.takes_snapshots());
  CHECK(TrainingOptions{.snapshot_every = 2}.takes_snapshots());
  CHECK(TrainingOptions{.resume = "auto"}.takes_snapshots());
}

TEST_CASE("The snapshot to resume from is the one that --resume names") {
  const looptorch::testing::TemporaryFolder folder;
  CHECK(TrainingOptions{}.snapshot_to_resume(folder.path()).path.empty());
  CHECK(TrainingOptions{.resume = "auto"}.snapshot_to_resume(folder.path()).path.empty());
  CHECK_THROWS_WITH(TrainingOptions{.resume = folder.path().string()}.snapshot_to_resume(folder / "run"),
                    Contains("holds no snapshot to resume from"));
  CHECK_THROWS_WITH(TrainingOptions{.resume_changed = true}.snapshot_to_resume(folder.path()),
                    "--resume-changed says how a run goes on: give --resume, too");
}

TEST_CASE("A run that has nothing to resume says so, and one that replays a window does not") {
  const auto said = [](const TrainingOptions& options) {
    looptorch::testing::CapturedStderr captured;
    options.print_resume({});
    return captured.text();
  };
  CHECK(said({.resume = "auto"}) == "no snapshot to resume from: starts a new run\n");
  CHECK(said({.resume = "auto", .replay = "bad-windows"}).empty());
  CHECK(said({}).empty());
}

TEST_CASE("Seeds: the generators repeat, and derived seeds differ from the run's and from each other") {
  const TrainingOptions options{.seed = 4};
  options.seed_generators();
  const auto first = at::randn({8});
  options.seed_generators();
  CHECK(at::equal(at::randn({8}), first));
  TrainingOptions{.seed = 5}.seed_generators();
  CHECK_FALSE(at::equal(at::randn({8}), first));
  CHECK(std::set{options.unsigned_seed(), options.derived_seed(1), options.derived_seed(2)}.size() == 3);
}

TEST_CASE("A fit that was interrupted becomes an error that says how to continue") {
  looptorch::FitResult result{.status = looptorch::FitStatus::completed, .steps = 7};
  CHECK_NOTHROW(throw_if_interrupted(result));
  result.status = looptorch::FitStatus::interrupted;
  result.reason = "SIGTERM was received";
  CHECK_THROWS_AS(throw_if_interrupted(result), Interrupted);
  CHECK_THROWS_WITH(throw_if_interrupted(result),
                    "SIGTERM was received: stopped after 7 steps; go on with --resume auto");
}
