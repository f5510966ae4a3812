// SPDX-License-Identifier: MIT
// whisper_finetune --fit: what is tried in which order, what is chosen, and what is said.
// Tests whisper/training/plan: memory_size, plan_trial, saved_plan, savings
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/config_fields.hpp>

#include "../../parsed_options.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/training/plan/measure_trial.hpp>
#include <whisper/training/plan/memory_plan.hpp>
#include <whisper/training/plan/memory_size.hpp>
#include <whisper/training/plan/saved_plan.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using Catch::Matchers::Contains;
using whisper::choose_plan, whisper::FinetuneOptions, whisper::PlanTrial, whisper::parse_bytes;
using whisper_test::parsed;

namespace {

constexpr std::int64_t kCap = 4'000'000'000;

/// What runs need in a made-up world: a GB for each byte a parameter, and one for each clip of a batch that
/// is not recomputed.
std::int64_t gigabytes(const FinetuneOptions& options) {
  const auto& memory = options.memory;
  if (memory.lora > 0)
    return 2 - (memory.bf16_weights ? 2 : 0) - (memory.int8_base ? 1 : 0) + options.training.batch_size / 2;
  const std::int64_t weights = memory.holds_bf16() ? 2 : 4;
  const std::int64_t moments = memory.optimizer == "adamw"       ? 8
                               : memory.optimizer == "adamw8bit" ? 2
                               : memory.optimizer == "adafactor" ? 0
                                                                 : 4;
  const std::int64_t gradients = memory.in_backward() ? 0 : weights;
  return weights + moments + gradients + (options.recompute == "all" ? 0 : options.training.batch_size);
}

struct Choosing {
  std::vector<std::string> flags;  ///< In the order in which they were tried.
  std::ostringstream log;

  whisper::PlanChoice choose(const FinetuneOptions& given, std::int64_t most,
                             const whisper::PlanQuestion& question = {}) {
    return choose_plan(
        given, kCap,
        [&](const FinetuneOptions& options) {
          flags.push_back(whisper::flags_between(given, options));
          const auto needed = gigabytes(options);
          const bool smaller_batch_helps = options.recompute != "all" || options.memory.lora > 0;
          return PlanTrial{.needed = needed * 1'000'000'000,
                           .fits = needed <= most,
                           .smaller_batch_helps = smaller_batch_helps};
        },
        log, question);
  }
};

}  // namespace

TEST_CASE("--fit takes the first choice that fits, in order of cost") {
  const auto chosen = [](std::int64_t most, const std::vector<std::string>& words) {
    Choosing choosing;
    return choosing.choose(parsed(words), most).flags;
  };
  const std::vector<std::string> eight{"--batch-size", "8"};
  CHECK(chosen(24, eight).empty());
  CHECK(chosen(20, eight) == "--optimizer adamw8bit");
  CHECK(chosen(16, eight) == "--gradient-checkpointing all");
  CHECK(chosen(10, eight) == "--gradient-checkpointing all --optimizer adamw8bit");
  CHECK(chosen(8, eight) == "--gradient-checkpointing all --optimizer adamwbf16 --bf16-weights");
  CHECK(chosen(6, eight) == "--gradient-checkpointing all --optimizer adamw8bit --bf16-weights");
  CHECK(chosen(4, eight) ==
        "--gradient-checkpointing all --optimizer adamw8bit --bf16-weights --update-in-backward sums");
  CHECK(chosen(3, eight) ==
        "--gradient-checkpointing all --optimizer adafactor --bf16-weights --update-in-backward sums");
  CHECK(chosen(1, eight) ==
        "--gradient-checkpointing all --bf16-weights --lora 8 --batch-size 2 --gradient-accumulation 4");
  CHECK(
      chosen(-1, eight) ==
      "--gradient-checkpointing all --bf16-weights --lora 8 --int8-base --batch-size 1 --gradient-accumulation 8");
}

TEST_CASE("--fit keeps the clips of a step, and what is given beside it") {
  for (const std::int64_t batch : {1, 6, 7, 12}) {
    Choosing choosing;
    const auto given =
        parsed({"--batch-size", std::to_string(batch), "--gradient-accumulation", "3", "--freeze-encoder"});
    const auto choice = choosing.choose(given, 0);
    const auto& training = choice.options.training;
    CHECK(training.batch_size * training.gradient_accumulation == 3 * batch);
    CHECK(training.batch_size == 1);
    CHECK(choice.options.memory.freeze_encoder);
  }
  Choosing adapters;
  CHECK(adapters.choose(parsed({"--lora", "4", "--batch-size", "1"}), 0).options.memory.lora == 4);
}

TEST_CASE("--fit tries nothing twice, with the batches that are given first, and says what and why") {
  Choosing choosing;
  (void)choosing.choose(parsed({"--batch-size", "2"}), 10);
  CHECK(choosing.flags ==
        std::vector<std::string>{"", "--optimizer adamw8bit", "--bf16", "--optimizer adamw8bit --bf16",
                                 "--gradient-checkpointing encoder",
                                 "--gradient-checkpointing encoder --optimizer adamw8bit --bf16",
                                 "--gradient-checkpointing all",
                                 "--gradient-checkpointing all --optimizer adamw8bit"});
  const auto log = choosing.log.str();
  CHECK_THAT(log, Contains("--fit 4 GB: nothing beside the flags that are given, 2 x 1 clips: needs 18 GB"));
  CHECK_THAT(log, Contains("all layers recomputed, 2 x 1 clips: needs at least 16 GB"));
  CHECK_THAT(log,
             Contains("chooses all layers recomputed, 8-bit moments, 2 x 1 clips: needs 10 GB; of 7 that "
                      "cost less none fits; the same as --gradient-checkpointing all --optimizer adamw8bit"));
}

TEST_CASE("--fit takes smaller batches before adapters, only where they help, and half a batch at a time") {
  Choosing choosing;
  auto given = parsed({"--batch-size", "8", "--gradient-accumulation", "16"});
  given.has_bf16 = false;
  CHECK_THROWS_AS(choosing.choose(given, -2), looptorch::app::DoesNotFit);
  std::vector<std::string> with_moments;
  for (const auto& flags : choosing.flags)
    if (flags.starts_with("--optimizer adamw8bit") && !flags.ends_with("--fp16"))
      with_moments.push_back(flags);
  CHECK(with_moments ==
        std::vector<std::string>{"--optimizer adamw8bit",
                                 "--optimizer adamw8bit --batch-size 4 --gradient-accumulation 32",
                                 "--optimizer adamw8bit --batch-size 2 --gradient-accumulation 64",
                                 "--optimizer adamw8bit --batch-size 1 --gradient-accumulation 128"});
  const auto first_of = [&](const char* word) {
    const auto found = std::find_if(choosing.flags.begin(), choosing.flags.end(),
                                    [&](const auto& flags) { return flags.find(word) != flags.npos; });
    return found - choosing.flags.begin();
  };
  CHECK(first_of("--batch-size 4") < first_of("--batch-size 1"));
  CHECK(first_of("--batch-size 1") < first_of("--lora"));
  CHECK(first_of("--lora") < first_of("--int8-base"));
  for (const auto& flags : choosing.flags)  // is all held between steps in this world
    if (flags.find("checkpointing all") != flags.npos && flags.find("--lora") == flags.npos)
      CHECK(flags.find("--batch-size") == flags.npos);
}

TEST_CASE("what a prediction lets through and a real window does not is passed over, and said") {
  Choosing choosing;
  std::vector<std::string> proven;
  const auto given = parsed({"--batch-size", "2"});
  const auto choice = choose_plan(
      given, kCap, [](const FinetuneOptions&) { return PlanTrial{.needed = 1'000'000'000, .fits = true}; },
      choosing.log, {},
      [&](const FinetuneOptions& options) {
        proven.push_back(whisper::flags_between(given, options));
        return proven.size() == 1 ? PlanTrial{.needed = 2'000'000'000, .ran_out = true}
                                  : PlanTrial{.needed = 1'100'000'000, .fits = true};
      });
  CHECK(proven == std::vector<std::string>{"", "--optimizer adamw8bit"});
  CHECK(choice.needed == 1'100'000'000);
  CHECK_THAT(choosing.log.str(),
             Contains("2 x 1 clips: by its shapes it needs 1 GB, and a real window needs more than 2 GB\n") &&
                 Contains("chooses 8-bit moments, 2 x 1 clips: needs 1.1 GB; of 1 that cost less none"));
}

TEST_CASE("--fit without a size takes what the device has free") {
  CHECK(parsed({"--fit"}).memory.fit == whisper::kFitFree);
  CHECK(parsed({"--fit", "--bf16"}).memory.fit == whisper::kFitFree);
  CHECK(parsed({"--fit", "4 GB"}).memory.fit == "4 GB");
  CHECK(parsed({"--fit=4GB"}).memory.fit == "4GB");
  const auto host = looptorch::memory_capacity(at::kCPU);
  REQUIRE(host);
  const auto free = whisper::memory_budget(whisper::kFitFree, at::kCPU);
  CHECK(std::abs(free.cap - host->available) < host->total / 4);  // other programs run beside
  CHECK_THAT(free.words(), Contains("what cpu has free, of the host's memory; 10 % of it stay free"));
  const auto four = whisper::memory_budget("4GB", at::kCPU);
  CHECK((four.cap == kCap && four.tensors() == kCap && four.allowed() == 3'920'000'000));
  const auto card = whisper::memory_budget("4GB", at::Device(at::kCUDA, 0));
  CHECK((card.tensors() == 3'100'000'000 && card.allowed() == 2'945'000'000));
  CHECK(card.words() == "--fit 4 GB: 900 MB of it are the device's context, and 5 % of the rest stay free");
  CHECK_THROWS_WITH(whisper::memory_budget(whisper::kFitFree, at::Device(at::kMeta)),
                    "--fit: what meta has free cannot be told here: give a size, as --fit 4GB");
}

TEST_CASE("if nothing fits, --fit says in a sentence what the least needs, and what to do") {
  Choosing choosing;
  CHECK_THROWS_AS(choosing.choose(parsed({}), -2), looptorch::app::DoesNotFit);
  CHECK_THROWS_WITH(
      choosing.choose(parsed({}), -2),
      "--fit 4 GB: nothing fits, and the least that was measured, --gradient-checkpointing all --bf16-weights --lora 8 "
      "--int8-base --batch-size 1 --gradient-accumulation 8, needs -1 GB: give more, shorter clips "
      "(--max-audio-seconds), or a smaller model");
}

TEST_CASE("--fit says what a choice needs beside its steps") {
  CHECK(PlanTrial{.needed = 1'200'000'000}.parts().empty());
  CHECK(PlanTrial{.needed = 1'200'000'000, .transcribes = true}.parts() == " (to transcribe)");
  CHECK(PlanTrial{.needed = 1'200'000'000, .best_weights = 150'000'000, .snapshot = 450'000'000}.parts() ==
        " (steps 600 MB, the best weights 150 MB, a snapshot while it is written 450 MB)");
}

TEST_CASE("--fit keeps --fp16, and on a card without bf16 takes nothing else") {
  const auto tried = [](const std::vector<std::string>& words, bool has_bf16) {
    auto given = parsed(words);
    given.has_bf16 = has_bf16;
    Choosing choosing;
    CHECK_THROWS_AS(choosing.choose(given, -1), looptorch::app::DoesNotFit);
    return std::pair(choosing.flags, choosing.log.str());
  };
  const std::vector<std::string> one{"--batch-size", "1"};
  const auto [flags, log] = tried(one, false);
  CHECK(flags ==
        std::vector<std::string>{
            "", "--optimizer adamw8bit", "--fp16", "--optimizer adamw8bit --fp16",
            "--gradient-checkpointing encoder",
            "--gradient-checkpointing encoder --optimizer adamw8bit --fp16", "--gradient-checkpointing all",
            "--gradient-checkpointing all --optimizer adamw8bit", "--gradient-checkpointing all --fp16",
            "--gradient-checkpointing all --optimizer adamw8bit --fp16",
            "--gradient-checkpointing all --lora 8", "--gradient-checkpointing all --lora 8 --int8-base"});
  CHECK_THAT(
      log, Contains("all layers recomputed, fp16 autocast, 8-bit moments, 1 x 1 clips") && !Contains("bf16"));
  for (const bool has_bf16 : {true, false}) {
    const auto [with_fp16, words] = tried({"--batch-size", "1", "--fp16"}, has_bf16);
    CHECK(with_fp16 ==
          std::vector<std::string>{
              "", "--optimizer adamw8bit", "--gradient-checkpointing encoder",
              "--gradient-checkpointing encoder --optimizer adamw8bit", "--gradient-checkpointing all",
              "--gradient-checkpointing all --optimizer adamw8bit", "--gradient-checkpointing all --lora 8",
              "--gradient-checkpointing all --lora 8 --int8-base"});
    CHECK_THAT(words, !Contains("bf16"));
  }
}

TEST_CASE("--fit passes over what a library cannot compute on the card, and says which") {
  CHECK(whisper::unsupported_status(
            "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx(...)`") ==
        "CUBLAS_STATUS_NOT_SUPPORTED");
  CHECK(whisper::unsupported_status("cuDNN error: CUDNN_STATUS_ARCH_MISMATCH") ==
        "CUDNN_STATUS_ARCH_MISMATCH");
  CHECK(whisper::unsupported_status("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED").empty());
  std::ostringstream log;
  const auto predict = [](const FinetuneOptions& options) {
    const bool fits = options.training.precision == looptorch::app::Precision::bf16 ||
                      (options.recompute == "all" && options.memory.optimizer == "adamw8bit");
    return PlanTrial{.needed = 1'000'000'000, .fits = fits};
  };
  const auto budget = whisper::memory_budget("4GB", at::kCPU);
  const auto prove = [&](const FinetuneOptions& options) {
    return whisper::with_refusals(budget, [&] {
      TORCH_CHECK(options.training.precision != looptorch::app::Precision::bf16,
                  "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx(...)`");
      return PlanTrial{.needed = 1, .fits = true};
    });
  };
  const auto choice = choose_plan(parsed({"--batch-size", "1"}), kCap, predict, log, {}, prove);
  CHECK(choice.flags == "--gradient-checkpointing all --optimizer adamw8bit");
  CHECK_THAT(log.str(), Contains("bf16 autocast, 1 x 1 clips: by its shapes it needs 1 GB, and a real "
                                 "window cannot be computed here: CUBLAS_STATUS_NOT_SUPPORTED"));
  CHECK_THROWS_AS(whisper::with_refusals(budget, []() -> PlanTrial { TORCH_CHECK(false, "another"); }),
                  c10::Error);
  CHECK(whisper::with_refusals(budget, []() -> PlanTrial {
          TORCH_CHECK_WITH(OutOfMemoryError, false, "");
        }).ran_out);
}

TEST_CASE("--fit names a precision instead of the one that is given, since the two exclude each other") {
  Choosing choosing;
  const auto flags = [&](const char* given) { return choosing.choose(parsed({given}), 6).flags; };
  const std::string others = "--gradient-checkpointing all --optimizer adamw8bit --bf16-weights";
  CHECK(flags("--bf16") == others + " --fp32 instead of --bf16");
  CHECK(flags("--mixed-precision") == others + " --fp32 instead of --mixed-precision");
  CHECK(flags("--fp32") == others);

  const auto with_bf16 = [](const FinetuneOptions& given) {
    auto chosen = given;
    chosen.training.precision = looptorch::app::Precision::bf16;
    return whisper::flags_between(given, chosen);
  };
  CHECK(with_bf16(parsed({})) == "--bf16");
  CHECK(with_bf16(parsed({"--fp32"})) == "--bf16 instead of --fp32");
}

TEST_CASE("a run that is resumed tries what it can continue with alone") {
  const whisper::PlanQuestion resumed{.asking = "preflight:", .resumed = true};
  const auto tried = [&](std::vector<std::string> words) {
    Choosing choosing;
    words.insert(words.end(), {"--batch-size=2", "--resume=auto"});
    CHECK_THROWS_WITH(choosing.choose(parsed(words), -1, resumed),
                      Contains("preflight: 4 GB: nothing fits, ") && !Contains("shorter clips") &&
                          Contains(": give more; what else saves memory needs a run anew"));
    return choosing.flags;
  };
  CHECK(tried({}) == std::vector<std::string>{
                         "", "--gradient-checkpointing encoder", "--gradient-checkpointing all",
                         "--batch-size 1 --gradient-accumulation 2",
                         "--gradient-checkpointing encoder --batch-size 1 --gradient-accumulation 2"});
  CHECK(tried({"--resume-changed"}) ==
        std::vector<std::string>{
            "", "--bf16", "--gradient-checkpointing encoder", "--gradient-checkpointing all",
            "--gradient-checkpointing all --bf16", "--batch-size 1 --gradient-accumulation 2",
            "--batch-size 1 --gradient-accumulation 2 --bf16",
            "--gradient-checkpointing encoder --batch-size 1 --gradient-accumulation 2"});
  for (const auto& flag : tried({"--optimizer=adamw8bit", "--bf16-weights", "--update-in-backward=sums"}))
    CHECK((flag.empty() || flag.starts_with("--gradient-checkpointing") || flag.starts_with("--batch-size")));
}

TEST_CASE("--fit says of a run that ran out of memory only that it needs more") {
  std::ostringstream log;
  const auto attempt = [](const FinetuneOptions& options) {
    return options.memory.lora > 0
               ? PlanTrial{.needed = 5'000'000'000, .smaller_batch_helps = false}
               : PlanTrial{.needed = 3'900'000'000, .smaller_batch_helps = true, .ran_out = true};
  };
  CHECK_THROWS_WITH(choose_plan(parsed({"--batch-size", "1"}), kCap, attempt, log),
                    Contains("--fit 4 GB: nothing fits, and each choice needs more than 3.9 GB: give more"));
  CHECK_THAT(log.str(),
             Contains("1 x 1 clips: needs more than 3.9 GB\n") &&
                 Contains("adapters alone, all layers recomputed, 1 x 1 clips: needs at least 5 GB\n"));
}

TEST_CASE("a trial that ended early reports a lower bound") {
  std::ostringstream log;
  std::int64_t needed = 9'000'000'000;
  const auto attempt = [&](const FinetuneOptions&) {
    return PlanTrial{.needed = needed -= 10'000'000, .stopped = true};
  };
  CHECK_THROWS_WITH(
      choose_plan(parsed({"--batch-size", "1"}), kCap, attempt, log),
      Contains("nothing fits, and the least that was measured, ") && Contains(", needs at least 8."));
  CHECK_THAT(log.str(), Contains("given, 1 x 1 clips: needs at least 8.99 GB\n"));
}

TEST_CASE("the least is of the choices whose steps were measured, beside what stays free") {
  std::ostringstream log;
  std::int64_t needed = 4'100'000'000;
  const auto attempt = [&](const FinetuneOptions& options) {
    if (options.memory.lora > 0) return PlanTrial{.needed = 3'700'000'000, .ran_out = true};
    if (options.memory.bf16_weights) return PlanTrial{.needed = 3'650'000'000, .smaller_batch_helps = false};
    return PlanTrial{.needed = needed -= 100'000'000};
  };
  CHECK_THROWS_WITH(
      choose_plan(parsed({"--batch-size", "1", "--freeze-encoder"}), kCap, attempt, log, {.margin = 0.1}),
      "--fit 4 GB, of which 10 % stay free: nothing fits, and the least that was measured, "
      "--gradient-checkpointing all --optimizer adamw8bit --bf16, needs 3.3 GB: give more, shorter clips "
      "(--max-audio-seconds), or a smaller model");
}

TEST_CASE("sizes have units of 10^9 and 10^6 bytes") {
  CHECK(parse_bytes("4GB") == 4'000'000'000);
  CHECK(parse_bytes("1.8GB") == 1'800'000'000);
  CHECK(parse_bytes("900MB") == 900'000'000);
  CHECK(parse_bytes("2") == 2'000'000'000);
  CHECK(parse_bytes("4gb") == 4'000'000'000);
  CHECK(parse_bytes("4 GB") == 4'000'000'000);
  CHECK(parse_bytes("4G") == 4'000'000'000);
  CHECK(parse_bytes("900m") == 900'000'000);
  for (const char* wrong : {"", "GB", "-1GB", "4GiB", "0", "4 ", "MB", "99999999999GB"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(parse_bytes(wrong), Contains("is no size, such as 4GB or 900MB"));
  }
}

TEST_CASE("--fit: a run that is resumed continues with the choice that it began with") {
  const looptorch::testing::TemporaryFolder folder;
  const auto snapshot = folder.path() / "snapshots" / "step-2";
  std::filesystem::create_directories(snapshot);
  const auto given = parsed({"--batch-size", "8", "--gradient-accumulation", "3"});
  std::ostringstream log;
  CHECK_FALSE(whisper::saved_plan(snapshot, given, kCap, log));  // begun without --fit
  Choosing choosing;
  const auto chosen = choosing.choose(given, 1);
  REQUIRE(chosen.options.training.batch_size < 8);
  CHECK(whisper::plan_remedy(snapshot).empty());
  CHECK(whisper::plan_remedy("").empty());  // of a window that --replay refuses
  whisper::save_plan(folder.path(), chosen);
  CHECK_THAT(whisper::plan_remedy(snapshot),
             Contains(". The run was begun by --fit, which chose: " + chosen.saving) &&
                 Contains("fit.json): give --fit again"));
  const auto kept = whisper::saved_plan(snapshot, given, kCap, log);
  REQUIRE(kept);
  CHECK((kept->flags == chosen.flags && kept->saving == chosen.saving));
  CHECK(whisper::flags_between(chosen.options, kept->options).empty());
  CHECK_THAT(log.str(), Contains("--fit 4 GB: goes on with adapters alone, ") &&
                            Contains("2 x 12 clips, as the run began; the same as " + chosen.flags));

  CHECK_THROWS_WITH(
      whisper::saved_plan(snapshot, parsed({"--batch-size", "3"}), kCap, log),
      Contains("--batch-size 3 is no multiple of the batches that --fit chose for this run: 2"));
  looptorch::write_file_atomically(folder.path() / "fit.json", R"({"saving": "hope", "batch_size": 2})");
  CHECK_THROWS_WITH(whisper::saved_plan(snapshot, given, kCap, log),
                    Contains("fit.json: --fit chooses no \"hope\": remove the file to choose anew"));
  looptorch::write_file_atomically(folder.path() / "fit.json", R"({"batch_size": 0})");
  CHECK_THROWS_AS(whisper::saved_plan(snapshot, given, kCap, log), looptorch::ConfigError);
  whisper::forget_plan(folder.path());
  CHECK_FALSE(whisper::saved_plan(snapshot, given, kCap, log));
}

TEST_CASE("a card's default precision leaves alone what says its own, and fp16 what cannot scale losses") {
  whisper::FinetuneOptions options;
  CHECK_FALSE(options.not_by_default().precision);
  CHECK_FALSE(options.not_by_default().fp16);
  options.memory.update_in_backward = "sums";
  CHECK(options.not_by_default().fp16);
  CHECK_FALSE(options.not_by_default().precision);
  options = {};
  options.memory.optimizer = "adamwbf16";
  CHECK(options.not_by_default().precision);
  options = {};
  options.memory.fit = "4GB";
  CHECK(options.not_by_default().precision);
}
