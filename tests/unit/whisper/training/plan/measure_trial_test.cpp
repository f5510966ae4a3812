// SPDX-License-Identifier: MIT
// whisper_finetune --fit: what a choice holds between steps rules out the others that hold the same, and a
// trial that ends early refuses what one to its end does.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "../../parsed_options.hpp"
#include "../../random_recognizer.hpp"

#include <whisper/training/objective.hpp>
#include <whisper/training/plan/measure_trial.hpp>
#include <whisper/training/plan/memory_plan.hpp>
#include <whisper/training/plan/savings.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <string>
#include <vector>

namespace lt = looptorch;
using whisper::FinetuneOptions, whisper::PlanBy, whisper::PlanTrial, whisper::Whisper;

namespace {

constexpr std::int64_t kEnough = 1'000'000'000'000;

struct Objective {
  lt::Loss operator()(Whisper& model, const whisper::Batch& batch) const {
    return {.value = whisper::loss_of(model, batch), .weight = static_cast<double>(batch.label_count)};
  }
};

whisper::Batch hardest(std::int64_t clips) {
  lt::HostMemory::counted();  // this batch, too
  const auto tokens = at::full({2, 12}, 5, at::kLong);
  const whisper::Batch most{.mel_BMT = at::zeros({2, 8, 80}),
                            .tokens_BL = tokens,
                            .labels_BL = tokens,
                            .texts = {},
                            .languages = {}};
  return most.slice(0, clips);
}

/// Measures a small Whisper with the policies of whisper_finetune that take memory. Its numbers are real,
/// since they may be without cost.
PlanTrial measure(const FinetuneOptions& options, std::int64_t cap, PlanBy by) {
  const std::vector<whisper::Batch> batches{hardest(options.training.batch_size)};
  static const auto settings = whisper_test::random_recognizer();
  auto recognizer = settings;
  auto config = recognizer.model->config();
  config.d_model = config.encoder_ffn_dim = config.decoder_ffn_dim = 64;
  config.encoder_layers = config.decoder_layers = 2;
  config.num_mel_bins = 8, config.max_source_positions = 40, config.max_target_positions = 16;
  recognizer.model = whisper::detail::make_model(config, options.memory.dtype());
  auto& model = recognizer.model;
  for (at::Tensor& parameter : model->parameters()) parameter.detach().zero_();  // not yet initialised
  options.memory.apply(model);
  const auto optimizer = options.memory.make_optimizer(model, 1e-3);
  const bool half = options.training.mixed_precision(), sums = options.memory.in_backward();
  lt::Trainer trainer(
      model, *optimizer, Objective{},
      lt::When{half, lt::Autocast<>{.type = options.training.autocast_type(),
                                    .keep_casts = options.recompute != "all"}},
      lt::Checkpointed<whisper::EncoderLayer>{options.checkpoint(options.recompute != "none")},
      lt::Checkpointed<whisper::DecoderLayer>{options.checkpoint(options.recompute == "all")},
      lt::When{!sums, lt::ClipGradNorm{1.0}},
      lt::When{sums, lt::UpdateInBackward<lt::SumsInBf16>{.max_norm = 1.0}},
      lt::Accumulate<>{options.training.gradient_accumulation}, lt::RestoreBest{.metric = "loss"});
  return whisper::measure_run(trainer, recognizer, options, batches, {.device = at::kCPU, .cap = cap}, by,
                              /*whole_program=*/false);
}

struct Choice {
  FinetuneOptions options;
  std::string flags;
  PlanTrial whole;  ///< Measured to its end.
};

const FinetuneOptions& given() {
  static const auto options = whisper_test::parsed({"--batch-size", "2"});
  return options;
}

/// Returns each choice of --fit, once.
const std::vector<Choice>& choices() {
  static const auto all = [] {
    std::map<std::string, Choice> found;
    for (const auto& saving : whisper::savings())
      for (const std::int64_t batch : {2, 1}) {
        auto options = whisper::with_saving(given(), saving, batch);
        auto flags = whisper::flags_between(given(), options);
        if (!whisper::detail::can_be(options) || found.contains(flags)) continue;
        const auto whole = measure(options, kEnough, PlanBy::shapes);
        found.emplace(flags, Choice{options, flags, whole});
      }
    std::vector<Choice> list;
    for (auto& [flags, choice] : found) list.push_back(std::move(choice));
    return list;
  }();
  return all;
}

}  // namespace

TEST_CASE("what a choice of --fit holds between steps is a lower bound, and the same by held_by") {
  REQUIRE(choices().size() > 20);
  std::map<std::string, std::int64_t> least;
  for (const auto& [options, flags, whole] : choices()) {
    INFO(flags);
    const auto held = measure(options, /*cap=*/1, PlanBy::shapes);
    CHECK((!held.smaller_batch_helps && held.needed <= whole.needed));
    const auto [found, is_new] = least.try_emplace(whisper::held_by(options), held.needed);
    CHECK(found->second == held.needed);
  }
  CHECK(least.size() < choices().size() / 2);
}

TEST_CASE("memory that runs out in any library is a choice's refusal, and no other error is") {
  const whisper::MemoryBudget budget{.device = at::kCPU, .cap = 1'000'000};
  const auto refused = [&](auto fail) {
    return whisper::with_refusals(budget, [&]() -> PlanTrial {
      fail();
      return {};
    });
  };
  CHECK(refused([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "no room"); }).ran_out);
  CHECK(refused([] { throw std::bad_alloc(); }).ran_out);
  CHECK(refused([] { TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED"); }).ran_out);
  CHECK_THROWS_AS(refused([] { TORCH_CHECK(false, "another error"); }), c10::Error);
  CHECK_THROWS_AS(refused([] { throw lt::Error("rank 1 ended: std::bad_alloc"); }), lt::Error);
}

TEST_CASE("a trial of --fit that ends early refuses what one to its end refuses, and nothing else") {
  int stopped = 0;
  for (std::size_t i = 0; i < choices().size(); i += 2) {
    const auto& [options, flags, whole] = choices()[i];
    INFO(flags);
    for (const std::int64_t cap : {whole.needed, whole.needed - 1, whole.needed * 9 / 10}) {
      const auto trial = measure(options, cap, PlanBy::shapes);
      CHECK(trial.fits == (whole.needed <= cap));
      CHECK(trial.needed <= whole.needed);
      CHECK((trial.fits || trial.needed > cap));
      CHECK((trial.stopped || !trial.smaller_batch_helps || trial.needed == whole.needed));
      stopped += trial.stopped;
    }
  }
  CHECK(stopped > 10);
}
