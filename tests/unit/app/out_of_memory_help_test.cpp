// SPDX-License-Identifier: MIT
// What a program says when memory ran out: its own flags, as far as they are not given.
#include "support/precompiled.hpp"

#include <looptorch/app/out_of_memory_help.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/training_flags.hpp>

#include "support/captured_stderr.hpp"
#include "support/parse_words.hpp"

#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <vector>

namespace app = looptorch::app;

namespace {

int run(
    app::CommandLine& line, std::vector<std::string> words, const std::function<void()>& body,
    const std::function<std::int64_t()>& least_batch = [] { return 1; }) {
  words.insert(words.begin(), "program");
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  return app::run_main(static_cast<int>(arguments.size()), arguments.data(), line, body, least_batch);
}

/// Returns what a training program with these flags says that runs out of memory.
std::string said(const std::vector<std::string>& words, const std::function<void()>& body,
                 const app::TrainingFlags& flags = {}) {
  const looptorch::testing::CapturedStderr captured;
  app::TrainingOptions options;
  app::CommandLine line("program", "Trains.");
  app::add_training_flags(line, options, flags);
  CHECK(run(line, words, body) == 2);
  return captured.text();
}

void allocate_far_too_much() { (void)at::empty({std::int64_t{1} << 58}); }

}  // namespace

TEST_CASE("out of memory: a program's last line has the flags that help") {
  const auto cpu = said({}, allocate_far_too_much);
  CHECK_THAT(cpu, Catch::Matchers::Matches("program: .*DefaultCPUAllocator: can't allocate memory.*[\n]"));
  const std::string all =
      ". Memory ran out: give a smaller --batch-size with a larger --gradient-accumulation, "
      "--gradient-checkpointing or --bf16; --preflight tries before a run what fits; --resume auto resumes from "
      "the last snapshot. See docs/errors.md#out-of-memory\n";
  CHECK_THAT(cpu, Catch::Matchers::EndsWith(all));
  CHECK_THAT(said({}, [] { throw std::bad_alloc(); }), Catch::Matchers::EndsWith(all));
  std::string on_device = all;
  on_device.insert(on_device.find("--gradient-checkpointing"), "--retry-on-oom, ");
  CHECK_THAT(said({}, [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to"); }),
             Catch::Matchers::EndsWith(on_device));
  CHECK_THAT(said({}, [] { throw std::system_error(ENOMEM, std::generic_category(), "mmap"); }),
             Catch::Matchers::EndsWith(all));
  CHECK(said({}, [] { throw looptorch::Error("other"); }) == "program: other\n");
}

TEST_CASE("out of memory: a batch size may be a word") {
  const looptorch::testing::CapturedStderr captured;
  std::string clips = "auto";
  app::CommandLine line("program", "Trains.");
  line.option("batch-size", "N|auto", clips, "clips");
  CHECK(run(line, {}, [] { throw std::bad_alloc(); }) == 2);
  CHECK(captured.text() ==
        "program: std::bad_alloc. Memory ran out: give a smaller --batch-size. See "
        "docs/errors.md#out-of-memory\n");
}

TEST_CASE("out of memory: flags that are given, or that a program lacks, are not named") {
  using enum app::TrainingFlag;
  const auto fail = [] { throw std::bad_alloc(); };
  CHECK(said({"--batch-size", "1", "--bf16", "--gradient-checkpointing"}, fail) ==
        "program: std::bad_alloc. Memory ran out; --preflight tries before a run what fits; --resume auto "
        "resumes from the last snapshot. See docs/errors.md#out-of-memory\n");
  CHECK(
      said({}, fail, {.only = {batch_size}}) ==
      "program: std::bad_alloc. Memory ran out: give a smaller --batch-size. See docs/errors.md#out-of-memory\n");
  CHECK(said({}, fail, {.only = {seed}}) ==
        "program: std::bad_alloc. Memory ran out. See docs/errors.md#out-of-memory\n");

  CHECK(said({"--fp32"}, fail, {.only = {precision}}) ==
        "program: std::bad_alloc. Memory ran out: give --bf16 instead of --fp32. See "
        "docs/errors.md#out-of-memory\n");
  CHECK(said({"--preflight"}, fail, {.only = {preflight}}) ==
        "program: std::bad_alloc. Memory ran out. See docs/errors.md#out-of-memory\n");

  const looptorch::testing::CapturedStderr captured;
  std::string recompute = "none", fit;
  std::int64_t clips = 0;  // as other settings say
  app::CommandLine line("program", "Trains.");
  line.choice("gradient-checkpointing", recompute, {"none", "all"}, "layers");
  line.option("fit", "SIZE", fit, "chooses");
  line.option("batch-size", "N", clips, "clips");
  CHECK(run(line, {}, fail) == 2);
  CHECK(
      captured.text() ==
      "program: std::bad_alloc. Memory ran out: give a smaller --batch-size, --gradient-checkpointing or --fit "
      "SIZE, which chooses flags that fit. See docs/errors.md#out-of-memory\n");
}

TEST_CASE("out of memory on a CUDA card: what it computes is named, and what torn blocks need") {
  const auto help = [](const std::string& error, app::Capability capability) {
    app::TrainingOptions options;
    app::CommandLine line("program", "Trains.");
    app::add_training_flags(line, options, {.only = {app::TrainingFlag::precision}});
    return app::out_of_memory_help(line, 1, error, [capability] {
      return app::CudaFacts{.machine = app::CudaMachine{.gpus = {{"H100", {9, 0}}, {"card", capability}}}};
    });
  };
  const auto error = [](const std::string& card, const std::string& unused) {
    return "CUDA out of memory. Tried to allocate 20.00 MiB. GPU " + card +
           " has a total capacity of 3.94 GiB of which 6.50 MiB is free. Of the allocated memory 3.00 GiB is "
           "allocated by PyTorch, and " +
           unused + " is reserved by PyTorch but unallocated.";
  };
  const std::string link = ". See docs/errors.md#out-of-memory";
  for (const app::Capability old : {app::Capability{5, 2}, app::Capability{6, 1}, app::Capability{7, 5}})
    CHECK(help(error("1", "20.00 MiB"), old) == "Memory ran out: give --fp16" + link);
  CHECK(help(error("1", "20.00 MiB"), {8, 0}) == "Memory ran out: give --bf16" + link);
  CHECK(help(error("0", "20.00 MiB"), {6, 1}) == "Memory ran out: give --bf16" + link);
  CHECK(help(error("7", "20.00 MiB"), {6, 1}) == "Memory ran out: give --bf16" + link);
  CHECK(help("DefaultCPUAllocator: can't allocate memory", {6, 1}) == "Memory ran out: give --bf16" + link);
  const std::string mends = "; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment";
  CHECK_THAT(help(error("0", "400.00 MiB"), {9, 0}), Catch::Contains(mends));
  CHECK_THAT(help(error("0", "1.10 GiB"), {9, 0}), Catch::Contains(mends));
  CHECK_THAT(help(error("0", "300.00 MiB"), {9, 0}), !Catch::Contains(mends));
  CHECK_THAT(help(error("0", "900.00 KiB"), {9, 0}), !Catch::Contains(mends));
}

TEST_CASE("out of memory on a device: --retry-on-oom is named where it is off and a batch can be split") {
  const auto help = [](const std::vector<std::string>& words, const std::string& error) {
    app::TrainingOptions options;
    app::CommandLine line("program", "Trains.");
    using enum app::TrainingFlag;
    app::add_training_flags(line, options, {.only = {batch_size, retry_on_oom}});
    REQUIRE(looptorch::testing::parse_words(line, words));
    return app::out_of_memory_help(line, 1, error);
  };
  const std::string error = "CUDA out of memory. Tried to allocate 20.00 MiB.";
  CHECK(help({}, error) ==
        "Memory ran out: give a smaller --batch-size or --retry-on-oom. See "
        "docs/errors.md#out-of-memory");
  CHECK_THAT(help({"--retry-on-oom"}, error), !Catch::Contains("retry"));
  CHECK_THAT(help({"--batch-size", "1"}, error), !Catch::Contains("retry"));
  CHECK(help({"--retry-on-oom"},
             "memory ran out in step 0 with single samples, also once the cache was emptied; " + error) ==
        "Memory ran out. See docs/errors.md#out-of-memory");
  CHECK_THAT(help({}, "DefaultCPUAllocator: can't allocate memory"), !Catch::Contains("retry"));
}

TEST_CASE("out of memory: a batch that the program does not take any smaller is not named") {
  const auto given = [](const std::string& clips, std::int64_t least) {
    const looptorch::testing::CapturedStderr captured;
    std::int64_t of_clips = 0;
    app::CommandLine line("program", "Trains.");
    line.option("batch-size", "N", of_clips, "clips");
    CHECK(run(
              line, {"--batch-size", clips}, [] { throw std::bad_alloc(); }, [least] { return least; }) == 2);
    return captured.text();
  };
  const std::string begin = "program: std::bad_alloc. Memory ran out",
                    end = ". See docs/errors.md#out-of-memory\n";
  CHECK(given("2", 2) == begin + end);
  CHECK(given("1", 2) == begin + end);
  CHECK(given("3", 2) == begin + ": give a smaller --batch-size" + end);
  CHECK(given("0", 2) == begin + ": give a smaller --batch-size" + end);  // as other settings say
  CHECK(given("2", 1) == begin + ": give a smaller --batch-size" + end);
}

TEST_CASE("out of memory: of two limits of a batch the one that a resumed run can divide is named") {
  const auto given = [](const std::string& frames, const std::string& clips) {
    const looptorch::testing::CapturedStderr captured;
    std::int64_t of_frames = 0, of_clips = 0;
    std::string resume;
    app::CommandLine line("program", "Trains.");
    line.option("batch-frames", "N", of_frames, "frames").option("batch-size", "N", of_clips, "clips");
    line.option("resume", "WHAT", resume, "goes on");
    CHECK(run(line, {"--batch-frames", frames, "--batch-size", clips}, [] { throw std::bad_alloc(); }) == 2);
    return captured.text();
  };
  const std::string resume = "; --resume auto resumes from the last snapshot",
                    link = ". See docs/errors.md#out-of-memory\n";
  const std::string by_clips =
      "program: std::bad_alloc. Memory ran out: give a smaller --batch-size" + resume + link;
  CHECK(given("600", "8") == by_clips);
  CHECK(given("0", "8") == by_clips);
  CHECK(given("600", "0") == "program: std::bad_alloc. Memory ran out: give a smaller --batch-frames" +
                                 resume + " if --batch-frames stays as it is" + link);
  CHECK(given("600", "1") == "program: std::bad_alloc. Memory ran out" + resume + link);
}
