// SPDX-License-Identifier: MIT
// What a resumed run may have otherwise: always, on request, or never. Precision, rates and schedules need
// FitOptions::resume_changed, which lists each of them; another model is refused in any case.
// Tests loop: resume_rule
// Tests resume: differences, listed_policies, state_names
#include "support/precompiled.hpp"

#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/optim/muon.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/profile.hpp>
#include <looptorch/trainer.hpp>

#include "support/policy_pairs.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using Sentences = std::vector<std::string>;

/// A user's policy that counts micro-batches: it has a state and a scope, and changes nothing that is learnt.
struct CountForwards {
  static constexpr lt::ResumeRule resume_rule = lt::ResumeRule::always;
  struct State {
    std::int64_t count = 0;
  };
  std::int64_t unit = 1;

  int forward_scope(const lt::ForwardContext&, State& state) const { return static_cast<int>(++state.count); }
  void state_dict(lt::StateDict& out, State& state) const {
    out.set("unit", unit);
    out.set("count", state.count);
  }
  void load_state_dict(const lt::StateDict& in, State& state) const {
    if (in.get<std::int64_t>("unit") != unit) throw lt::StateError("another unit");
    state.count = in.get<std::int64_t>("count");
  }
};

namespace {

struct SettingsNetImpl : torch::nn::Module {
  explicit SettingsNetImpl(std::int64_t width) {
    register_module("first", first = torch::nn::Linear(4, width));
    register_module("second", second = torch::nn::Linear(width, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(SettingsNet);

lt::Loss settings_objective(SettingsNet& net, const toy::Batch& batch) {
  return {.value = torch::nn::functional::cross_entropy(net(batch.features), batch.labels),
          .weight = batch.labels.size(0)};
}

struct Settings {
  std::int64_t width = 6, accumulate = 2;
  double lr = 0.1, weight_decay = 0.01;
  std::string precision = "fp32";
  std::int64_t growth_interval = 2000;
  lt::ScheduleLr schedule = {.decay = lt::LinearDecay{.total_steps = 20}, .warmup_steps = 2};
  bool clips = true, flushes = false, counts = false;
  std::int64_t unit = 1;
};

/// One kind of Trainer whose settings differ. Batches of fp32, the same in each.
struct SettingsRun {
  SettingsRun(const fs::path& folder, const Settings& with)
      : net((torch::manual_seed(3), with.width)),
        optimizer(net->parameters(), {.lr = with.lr, .weight_decay = with.weight_decay}),
        trainer(net, optimizer, settings_objective, lt::Accumulate<>{with.accumulate},
                lt::When{with.precision == "bf16", lt::Autocast<lt::bf16>{}},
                lt::When{with.precision == "fp16",
                         lt::Autocast<lt::fp16>{.growth_interval = with.growth_interval}},
                lt::When{with.clips, lt::ClipGradNorm{1.0}}, lt::When{with.flushes, lt::CacheFlushEvery<2>{}},
                lt::When{with.counts, CountForwards{with.unit}}, with.schedule,
                lt::SnapshotEvery{.folder = folder, .keep = 0}) {
    for (toy::Batch& batch : batches) batch.features = batch.features.to(at::kFloat);
  }
  lt::FitResult fit(const lt::FitOptions& options) { return trainer.fit(batches, options); }

  std::vector<toy::Batch> batches = toy::batches(8);
  SettingsNet net;
  lt::FusedAdamW optimizer;
  lt::Trainer<SettingsNet, lt::Update<lt::FusedAdamW, lt::Loss (*)(SettingsNet&, const toy::Batch&)>,
              lt::Accumulate<>, lt::When<lt::Autocast<lt::bf16>>, lt::When<lt::Autocast<lt::fp16>>,
              lt::When<lt::ClipGradNorm>, lt::When<lt::CacheFlushEvery<2>>, lt::When<CountForwards>,
              lt::ScheduleLr, lt::SnapshotEvery>
      trainer;
};

/// A snapshot of a run with these settings, in the middle of its second epoch.
struct SavedSettings {
  explicit SavedSettings(const Settings& with = {}) {
    SettingsRun(folder.path(), with).fit({.max_steps = 6});
  }
  [[nodiscard]] fs::path path() const { return folder / "step-00000006"; }
  TemporaryFolder folder;
};

lt::FitOptions going_on(const SavedSettings& saved, bool changed) {
  return {.max_steps = 9, .resume = saved.path(), .resume_changed = changed};
}

/// Going on is refused with these sentences, and goes on with them on request, as these changes.
void check_on_request(const Settings& before, const Settings& now, const Sentences& sentences,
                      const Sentences& changes) {
  const SavedSettings saved(before);
  TemporaryFolder other;
  SettingsRun refused(other.path(), now);
  try {
    refused.fit(going_on(saved, false));
    FAIL("it was not refused");
  } catch (const lt::SnapshotMismatch& error) {
    CHECK(error.differences == sentences);
    CHECK(error.settings_only);
    for (const auto& sentence : sentences) CHECK_THAT(error.what(), Contains(sentence));
    CHECK_THAT(error.what(), Contains("resume_changed (a program's --resume-changed) goes on with this"));
  }
  CHECK(refused.trainer.progress().step == 0);
  SettingsRun run(other.path(), now);
  const auto result = run.fit(going_on(saved, true));
  CHECK(result.steps == 9);
  REQUIRE(result.resumed);
  CHECK(result.resumed->changed == changes);
  CHECK(result.resumed->differences.empty());
  CHECK(run.trainer.progress().batch % 2 == 0);
}

/// Going on lists nothing, and ends with the bits of the run that was left alone.
void check_free(const Settings& before, const Settings& now) {
  const SavedSettings saved(before);
  TemporaryFolder other, alone;
  SettingsRun uncut(alone.path(), before), run(other.path(), now);
  uncut.fit({.max_steps = 9});
  const auto result = run.fit(going_on(saved, false));
  CHECK(result.resumed->changed.empty());
  for (std::size_t i = 0; i < uncut.net->parameters().size(); ++i)
    CHECK(at::equal(uncut.net->parameters()[i], run.net->parameters()[i]));
}

const std::string kBf16 = "looptorch::Autocast<looptorch::bf16>",
                  kFp16 = "looptorch::Autocast<looptorch::fp16>";

std::string policies_differ(const std::string& saved, const std::string& here) {
  return "the policies differ: only in the snapshot: " + saved + "; only in the Trainer: " + here;
}

}  // namespace

TEST_CASE("precision may differ on request: none, bf16, fp16, and how its loss scale changes") {
  check_on_request({}, {.precision = "bf16"}, {policies_differ("none", kBf16)},
                   {"policies: none -> " + kBf16});
  check_on_request({.precision = "fp16"}, {}, {policies_differ(kFp16, "none")},
                   {"policies: " + kFp16 + " -> none"});
  check_on_request({.precision = "bf16"}, {.precision = "fp16"}, {policies_differ(kBf16, kFp16)},
                   {"policies: " + kBf16 + " -> " + kFp16});
  check_on_request(
      {.precision = "fp16"}, {.precision = "fp16", .growth_interval = 10},
      {kFp16 +
       ": the loss scale is x 2 after 10 windows, x 0.5 on overflow here, x 2 after 2000 windows, x 0.5 on "
       "overflow in the state"},
      {kFp16 +
       ": the loss scale: x 2 after 2000 windows, x 0.5 on overflow -> x 2 after 10 windows, x 0.5 on "
       "overflow"});
}

TEST_CASE("rates, schedules, options of an optimizer and the length of a window may differ on request") {
  check_on_request({}, {.lr = 0.2},
                   {"the optimizer of update: the learning rate of group 0 is 0.2 here, 0.1 in the snapshot"},
                   {"the optimizer of update: the learning rate of group 0: 0.1 -> 0.2"});
  check_on_request({}, {.weight_decay = 0.5},
                   {"the optimizer of update: in group 0 weight_decay is 0.5 here, 0.01 in the snapshot"},
                   {"the optimizer of update: in group 0 weight_decay: 0.01 -> 0.5"});
  check_on_request(
      {}, {.schedule = {.decay = lt::CosineDecay{.final_ratio = 0.1}, .warmup_steps = 1}},
      {"looptorch::ScheduleLr: the schedule is CosineDecay {0.1, 0}, warm-up 1 here, LinearDecay {0, 20}, warm-up 2 "
       "in the state"},
      {"looptorch::ScheduleLr: the schedule: LinearDecay {0, 20}, warm-up 2 -> CosineDecay {0.1, 0}, warm-up 1"});
  check_on_request({}, {.accumulate = 4}, {"4 micro-batches a window here, 2 in the snapshot"},
                   {"micro-batches a window: 2 -> 4"});
}

namespace {

/// Returns what `resume_changed` reports when a run of one optimizer resumes with other options; `before`
/// changes the snapshot first.
template <class Optimizer, class Options>
Sentences changed_options(const Options& saved, const Options& here,
                          const std::function<void(lt::SnapshotContents&)>& before = {}) {
  const TemporaryFolder folder;
  toy::Net net = toy::net();
  const auto with = [&](const Options& options, auto&& use) {
    Optimizer optimizer(net->parameters(), options);
    lt::Trainer trainer(net, optimizer, toy::objective, lt::SnapshotEvery{.folder = folder.path()});
    return use(trainer);
  };
  (void)with(saved, [](auto& trainer) { return trainer.fit(toy::batches(2)); });
  lt::SnapshotContents contents = lt::read_snapshot(lt::find_newest_snapshot(folder.path()).path);
  if (before) before(contents);
  return with(here, [&](auto& trainer) {
    if (!before) CHECK_THROWS_AS(trainer.restore(contents), lt::SnapshotMismatch);
    return trainer.restore(contents, true, true).changed;
  });
}

}  // namespace

TEST_CASE("options that only one optimizer has may differ on request") {
  const std::string where = "the optimizer of update: in group 0 ";
  CHECK(changed_options<lt::Adafactor>(lt::AdafactorOptions{.beta1 = 0.9},
                                       lt::AdafactorOptions{.relative_step = false,
                                                            .scale_parameter = false,
                                                            .clip_threshold = 2,
                                                            .decay = -0.5,
                                                            .beta1 = 0.8}) ==
        Sentences{where + "beta1: 0.9 -> 0.8", where + "clip_threshold: 1 -> 2",
                  where + "decay: -0.8 -> -0.5", where + "relative_step: true -> false",
                  where + "scale_parameter: true -> false"});
  const lt::MuonOptions muon{.eps = 1e-8, .adamw = true};
  lt::MuonOptions other = muon;
  other.coefficients[2] = 2, other.steps = 6, other.rate = lt::MuonRate::like_adamw;
  CHECK(changed_options<lt::Muon>(muon, other) ==
        Sentences{where + "coefficients.2: 2.0315 -> 2", where + "rate: 0 -> 1", where + "steps: 5 -> 6"});
  CHECK(changed_options<lt::AdamW8bit>(
            lt::AdamW8bitOptions{},
            lt::AdamW8bitOptions{.min_size = 2048, .corrected = true, .coded = false}) ==
        Sentences{where + "coded: true -> false", where + "corrected: false -> true",
                  where + "min_size: 4096 -> 2048"});
  CHECK(changed_options<lt::AdamWBf16>(lt::AdamWBf16Options{}, lt::AdamWBf16Options{.exact = true}) ==
        Sentences{where + "exact: false -> true"});
}

TEST_CASE("options that an earlier version did not save are not compared") {
  const auto drop = [](lt::SnapshotContents& contents) {
    lt::StateDict kept;
    for (const auto& [key, value] : contents.optimizer.values())
      if (!key.ends_with(".options.relative_step")) kept.set(key, value);
    CHECK(kept.values().size() + 1 == contents.optimizer.values().size());
    contents.optimizer = kept;
  };
  CHECK(changed_options<lt::Adafactor>(lt::AdafactorOptions{}, lt::AdafactorOptions{.relative_step = false},
                                       drop)
            .empty());
}

TEST_CASE("a changed rate is in force at once, and the schedule's state begins anew where it is of another") {
  const SavedSettings saved;
  TemporaryFolder other;
  SettingsRun run(other.path(), {.lr = 0.2, .schedule = {.decay = lt::ConstantLr{}}});
  auto options = going_on(saved, true);
  options.max_steps = 7;
  (void)run.fit(options);
  CHECK(run.optimizer.param_groups()[0].options().get_lr() == 0.2);
  CHECK(run.trainer.updates()[0].full_rates == std::vector<double>{0.2});
  CHECK(run.trainer.policy<lt::ScheduleLr>().ratio == 1.0);
  CHECK(run.trainer.progress().step == 7);
  CHECK(run.trainer.progress().batch == 6);
}

TEST_CASE("policies that save memory or time, and a user's own that says so, may always differ") {
  check_free({}, {.flushes = true});
  check_free({.flushes = true}, {});
  check_free({.counts = true}, {});
  check_free({}, {.counts = true});
  check_free({.counts = true}, {.counts = true, .unit = 2});
  const SavedSettings saved({.counts = true});
  TemporaryFolder other;
  SettingsRun same(other.path(), {.counts = true});
  (void)same.fit(going_on(saved, false));
  CHECK(same.trainer.policy<CountForwards>().count == 18);  // 6 steps of 2 micro-batches, then 3
}

TEST_CASE(
    "another model, another optimizer and a policy that learns differently stay refused, on request too") {
  const SavedSettings saved;
  TemporaryFolder other;
  const auto refused = [&](const Settings& now, const std::string& why) {
    SettingsRun run(other.path(), now);
    try {
      run.fit(going_on(saved, true));
      FAIL("it was not refused");
    } catch (const lt::SnapshotMismatch& error) {
      CHECK_THAT(error.what(), Contains(why));
      CHECK_FALSE(error.settings_only);
    }
    CHECK(run.trainer.progress().step == 0);
  };
  refused({.width = 5}, "first.weight [6, 4] instead of [5, 4]");
  refused({.clips = false}, policies_differ("looptorch::ClipGradNorm", "none"));
  refused({.width = 5, .lr = 0.2},
          "; and, of what may differ on request, the optimizer of update: the learning rate");
}

TEST_CASE("strict = false takes over what fits, settings included, and lists them as before") {
  const SavedSettings saved;
  TemporaryFolder other;
  SettingsRun run(other.path(), {.lr = 0.2, .precision = "bf16", .clips = false});
  const auto result = run.fit({.max_steps = 7, .resume = saved.path(), .strict = false});
  CHECK(result.resumed->differences.size() == 3);
  CHECK(result.resumed->changed.empty());
}

TEST_CASE(
    "snapshots of versions that saved neither schedule nor batch size are resumed with the same settings") {
  const SavedSettings saved;
  TemporaryFolder other, alone;
  auto contents = lt::read_snapshot(saved.path());
  lt::StateDict state;
  for (const auto& [key, value] : contents.state.values())
    if (!key.ends_with(".schedule") && !key.ends_with(".rules") && !key.starts_with("listed.on_request") &&
        key != "batch_size")
      state.set(key, value);
  CHECK(state.values().size() < contents.state.values().size());
  contents.state = state;
  SettingsRun run(other.path(), {});
  const auto report = run.trainer.restore(contents);
  CHECK(report.changed.empty());
  CHECK(run.trainer.progress().step == 6);
  TemporaryFolder made;
  lt::write_snapshot(made.path(), contents);
  SettingsRun changed(alone.path(), {.precision = "bf16"});
  CHECK_THROWS_AS(changed.trainer.restore(contents), lt::SnapshotMismatch);
  CHECK(changed.trainer.restore(contents, true, true).changed == Sentences{"policies: none -> " + kBf16});
  const auto result = changed.fit({.max_steps = 7, .resume = made.path(), .resume_changed = true});
  CHECK(result.resumed->changed == Sentences{"policies: none -> " + kBf16});
}

TEST_CASE("docs/snapshots.md has a row for all that is compared, and for the library's policies") {
  std::ifstream file(LOOPTORCH_SOURCE_DIR "/docs/snapshots.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::map<lt::ResumeRule, std::string> words{{lt::ResumeRule::never, "never"},
                                                    {lt::ResumeRule::on_request, "on request"},
                                                    {lt::ResumeRule::always, "always"}};
  for (const auto& row : lt::detail::kResumeFields)
    CHECK_THAT(page.str(), Contains("| " + std::string(row.words) + " | " + words.at(row.may) + " |"));
  const auto check = [&]<class P>(const policy_pairs::Entry<P>& policy) {
    std::string name(policy.name);
    if (name == "Autocast<fp16>" || name == "Autocast<bf16>") name = "Autocast";
    const std::string row = name == "On" ? "`On` in `kObserve`" : "`" + name + "`";
    const std::string head = "\n| " + words.at(lt::detail::resume_rule_of<P>()) + " | `";
    const auto begin = page.str().find(head);
    REQUIRE(begin != std::string::npos);
    const std::string policies = page.str().substr(begin + 1, page.str().find('\n', begin + 1) - begin - 1);
    INFO(row << " is missing in " << policies);
    CHECK((policies.find(row + ",") != std::string::npos || policies.find(row + " |") != std::string::npos));
  };
  std::apply([&](const auto&... policies) { (check(policies), ...); }, policy_pairs::kCatalogue);
}
