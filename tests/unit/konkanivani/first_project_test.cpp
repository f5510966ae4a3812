// SPDX-License-Identifier: MIT
// The defects of the project that this example follows, and the test that shows ours free of each:
// - the last partial window leaks into the next epoch: loss_test, "Windows of two micro-batches ..."
// - snapshots lack scaler, step and random state: here, and tests/examples/konkanivani_cli_test.sh
// - the best weights are overwritten by the last: here
// - validation without autocast: model_test, "Validation runs under the autocast ..."
// - a host synchronisation every micro-batch: here, and device/konkanivani_test, but for LibTorch's own in
// CTC
// - greedy CTC ignores lengths: decoding_test, "CTC decoding looks at a clip's own ..."
// - the beam is an argmax: decoding_test, "A wide prefix beam ...", "A wide joint ..."
// - the flag for gradient checkpointing does nothing: model_test, "Checkpointed blocks run twice ..."
// - the decoder has no padding mask: model_test, "A clip's states and scores ..."
// - CTC's targets contain start and end: loss_test, "CTC never sees start or end ..."
// - masks are applied before the logarithm: data_test, "Masks hide log-mel frames ..."
// - 256-wide weights are resumed into a 192-wide model: here, config_test, and the cli_test
// Tests konkanivani/training: run_identity
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support.hpp"
#include "support/temporary_folder.hpp"

#include <konkanivani/model/loss.hpp>
#include <konkanivani/training/run_identity.hpp>

using namespace konkanivani_test;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;
namespace fs = std::filesystem;
namespace lt = looptorch;

namespace {

konkanivani::Vocabulary vocabulary_of(const std::string& characters) {
  return konkanivani::Vocabulary::of(std::vector{characters}, konkanivani::Unit::code_point);
}

/// A run of one step an epoch whose validation has the given error rates.
struct Run {
  lt::FitResult fit(const std::vector<double>& rates, const lt::FitOptions& options = {}) {
    const auto publish = [&](lt::EpochContext& epoch) {
      const auto done = static_cast<size_t>(epoch.run.progress().epoch);
      epoch.run.metrics().publish("validation.cer", rates.at(done - 1));
      weights.push_back(model->parameters().front().detach().clone());
    };
    lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(
        model, optimizer,
        [](konkanivani::KonkaniVani& net, const at::Tensor& mel) {
          return net->ctc_scores(net->encode(mel, ids({20, 9}))).to(at::kFloat).square().mean();
        },
        lt::Autocast<lt::fp16>{}, lt::On{lt::kObserve, publish}, lt::RestoreBest{.metric = "validation.cer"},
        lt::SnapshotEvery{.folder = snapshots, .keep = 1, .best = "validation.cer"});
    auto given = options;
    given.epochs = static_cast<int64_t>(rates.size());
    const auto result = trainer.fit(batches, given);
    best = trainer.policy<lt::SnapshotEvery>().best;
    return result;
  }

  fs::path snapshots;
  konkanivani::KonkaniVani model = tiny_model();
  std::vector<at::Tensor> batches{at::randn({2, 6, 20})};
  std::vector<at::Tensor> weights{};  ///< after each epoch
  lt::BestFew best{};
};

}  // namespace

TEST_CASE("The best epoch's weights outlive the last ones, and are those that are kept") {
  const TemporaryFolder folder;
  Run run{.snapshots = folder / "snapshots"};
  run.fit({0.5, 0.2, 0.9, 0.4});
  CHECK(run.best.step() == 2);
  const auto listed = lt::list_snapshots(run.snapshots);
  REQUIRE(listed.size() == 2);  // the best and, of the others, the last
  CHECK(listed[0].step == 2);
  CHECK(listed[1].step == 4);

  CHECK(run.model->parameters().front().equal(run.weights[1]));
  CHECK_FALSE(run.weights[1].equal(run.weights[3]));
}

TEST_CASE(
    "A snapshot holds loss scale, step, moments, random state and the best, and a run continues from it") {
  const TemporaryFolder folder;
  Run run{.snapshots = folder / "snapshots"};
  run.fit({0.5, 0.2, 0.9});
  const auto contents = lt::read_snapshot(run.snapshots / "step-00000003");
  CHECK(contents.step == 3);
  std::string keys, moments;
  for (const auto& [key, value] : contents.state.values()) keys += key + "\n";
  for (const auto& [key, value] : contents.optimizer.values()) moments += key + "\n";
  for (const auto* part :
       {".scale\n", ".growth_tracker\n", "run.progress.step\n", "random.", ".best.value\n"})
    CHECK_THAT(keys, Contains(part));
  for (const auto* part : {"exp_avg", "exp_avg_sq"}) CHECK_THAT(moments, Contains(part));

  Run alone{.snapshots = folder / "alone"};
  alone.batches = run.batches;
  alone.fit({0.5, 0.2, 0.9, 0.4, 0.1});
  Run resumed{.snapshots = run.snapshots};
  resumed.batches = run.batches;
  torch::manual_seed(99);
  const auto result = resumed.fit({0.5, 0.2, 0.9, 0.4, 0.1}, {.resume = run.snapshots});
  CHECK(result.steps == 5);
  CHECK(resumed.best.step() == 5);
  for (const auto& [name, tensor] : lt::state_dict(alone.model)) {
    INFO(name);
    CHECK(tensor.equal(lt::state_dict(resumed.model).at(name)));
  }
}

TEST_CASE("Another size and other characters are refused before a snapshot is read") {
  const TemporaryFolder folder;
  const auto config = tiny_config();
  const auto characters = vocabulary_of("abcd");
  konkanivani::save_identity(config, characters, folder / "snapshots");
  const auto step = folder / "snapshots" / "step-00000001";  // not there: nothing but its name is looked at
  const auto check = [&](const konkanivani::ModelConfig& size, const konkanivani::Vocabulary& vocabulary) {
    konkanivani::require_same_run(size, vocabulary, step);
  };
  CHECK_NOTHROW(check(config, characters));
  auto narrow = config;
  narrow.d_model = 12;
  CHECK_THROWS_WITH(check(narrow, characters),
                    (folder / "snapshots" / "config.json").string() +
                        ": holds another model than the one asked for: d_model 16 instead of 12");
  CHECK_THROWS_WITH(check(config, vocabulary_of("abxy")),
                    Contains("vocabulary.json: the training texts have other characters than the run's; only "
                             "there: \"c\" \"d\"; only in these texts: \"x\" \"y\""));
  const auto clusters =
      konkanivani::Vocabulary::of(std::vector<std::string>{"abcd"}, konkanivani::Unit::grapheme);
  CHECK_THROWS_WITH(check(config, clusters), Contains("graphemes in the other"));
}

// Reading a value waits for a GPU. Lengths are looked at, twice, on a CPU only: device/konkanivani_test.
TEST_CASE("Forward, loss and backward read no value from the device") {
  static thread_local int reads;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        const std::string_view name = function.name();
        reads += name == "aten::_local_scalar_dense" || name == "aten::nonzero" || name == "aten::equal";
        return nullptr;
      }));
  const auto targets = konkanivani::make_targets(std::vector<std::vector<int64_t>>{{5, 6, 7}, {8}});
  for (const int64_t subsampling : {4, 2, 1}) {
    for (const auto positions : {konkanivani::Positions::sinusoidal, konkanivani::Positions::relative}) {
      auto config = tiny_config();
      config.subsampling = subsampling;
      config.positions = positions;
      config.dropout = 0.1;
      auto model = tiny_model(config);
      const auto mel = at::randn({2, 6, 40}), lengths = ids({40, 21});
      reads = 0;
      const auto loss =
          konkanivani::joint_loss(model, model->encode(mel, lengths), targets, {.ctc_weight = 0.3});
      loss.sum.backward();
      CHECK(reads == 2);
      (void)loss.sum.item<double>();
      CHECK(reads == 3);  // so that one would have shown
    }
  }
  at::removeCallback(handle);
}
