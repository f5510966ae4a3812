// SPDX-License-Identifier: MIT
// Snapshots that are not of this run: refused with both sides named and nothing touched, or taken over in
// part; and everything that optimizers keep, LibTorch's own and a user's.
// Tests loop: parameter_names
// Tests resume: optimizer_states
// Tests optim/state: optimizer_state
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::bits_equal;
using looptorch::testing::TemporaryFolder;

namespace {

struct WideImpl : torch::nn::Module {
  explicit WideImpl(int64_t width) : width_(width) {
    register_module("first", first = torch::nn::Linear(4, width));
    register_module("second", second = torch::nn::Linear(width, 3));
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  int64_t width_;
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Wide);

lt::Loss objective(Wide& net, const toy::Batch& batch) {
  return {.value = torch::nn::functional::cross_entropy(net(batch.features), batch.labels),
          .weight = batch.labels.size(0)};
}

struct Setting {
  int64_t width = 6;
  lt::FusedAdamWOptions adamw = {.lr = 0.1};
  std::int64_t accumulate = 2;
  bool clip = true, average = true;
  int64_t batches = 8;
};

/// One kind of Trainer whose parts can be switched.
struct Job {
  Job(const fs::path& folder, Setting how)
      : batches(toy::batches(how.batches)),
        net((torch::manual_seed(3), how.width)),
        optimizer(net->parameters(), how.adamw),
        trainer(net, optimizer, objective, lt::Accumulate<>{how.accumulate},
                lt::When{how.clip, lt::ClipGradNorm{1.0}}, lt::When{how.average, lt::AverageWeights{}},
                lt::SnapshotEvery{.folder = folder, .keep = 0}) {}

  lt::FitResult fit(lt::FitOptions options) { return trainer.fit(batches, options); }

  std::vector<toy::Batch> batches;
  Wide net;
  lt::FusedAdamW optimizer;
  lt::Trainer<Wide, lt::Update<lt::FusedAdamW, lt::Loss (*)(Wide&, const toy::Batch&)>, lt::Accumulate<>,
              lt::When<lt::ClipGradNorm>, lt::When<lt::AverageWeights>, lt::SnapshotEvery>
      trainer;
};

/// A snapshot of a run of the usual setting, in the middle of its second epoch, where `change` may damage it.
struct Saved {
  Saved() { Job(folder.path(), {}).fit({.max_steps = 6}); }
  [[nodiscard]] fs::path path() const { return folder / "step-00000006"; }
  TemporaryFolder folder;
};

/// Resuming in this setting is refused with all these words, and leaves the run as it was.
void check_refused(const Setting& how, const std::vector<std::string>& words) {
  Saved saved;
  TemporaryFolder other;
  Job job(other.path(), how);
  const auto before = lt::detail::copied(job.trainer.snapshot().state);
  std::vector<at::Tensor> weights;
  for (const auto& weight : job.net->parameters()) weights.push_back(weight.detach().clone());
  try {
    job.fit({.max_steps = 10, .resume = saved.path()});
    FAIL("it was not refused");
  } catch (const lt::SnapshotMismatch& error) {
    CHECK_THAT(error.what(), Contains("step-00000006 is not of this run: "));
    for (const auto& word : words) CHECK_THAT(error.what(), Contains(word));
    CHECK_FALSE(error.differences.empty());
  }
  for (std::size_t i = 0; i < weights.size(); ++i) CHECK(bits_equal(weights[i], job.net->parameters()[i]));
  const auto after = job.trainer.snapshot().state;
  for (const char* part : {"run", "random", "modes", "averaged"})
    CHECK(looptorch::testing::maps_equal(before.under(part).values(), after.under(part).values()));
  CHECK(job.optimizer.state_of(job.net->first->weight).empty());
}

}  // namespace

TEST_CASE("what a snapshot refuses, with both sides named and nothing touched") {
  SECTION("another shape") {
    check_refused({.width = 5}, {"the model; 3 unfit: first.bias [6] instead of [5]",
                                 "first.weight [6, 4] instead of [5, 4]"});
  }
  SECTION("another option of the optimizer") {
    check_refused({.adamw = {.lr = 0.1, .weight_decay = 0.5}},
                  {"the optimizer of update: in group 0 weight_decay is 0.5 here, 0.01 in the snapshot"});
  }
  SECTION("another rate") {
    check_refused({.adamw = {.lr = 0.2}}, {"the learning rate of group 0 is 0.2 here, 0.1 in the snapshot"});
  }
  SECTION("another window") {
    check_refused({.accumulate = 4}, {"4 micro-batches a window here, 2 in the snapshot"});
  }
  SECTION("a policy removed") {
    check_refused(
        {.clip = false},
        {"the policies differ: only in the snapshot: looptorch::ClipGradNorm; only in the Trainer: none"});
  }
  SECTION("another dataset length") {
    check_refused({.batches = 7}, {"the loader's batches is 7 here, 8 in the snapshot"});
  }
  SECTION("several at once") {
    check_refused({.width = 5, .accumulate = 1, .batches = 7},
                  {"the model; 3 unfit", "1 micro-batches a window here", "the loader's batches is 7"});
  }
}

TEST_CASE("another optimizer, and a policy added, in another kind of Trainer") {
  Saved saved;
  TemporaryFolder other;
  auto net = Wide(6);
  lt::FusedSGD sgd(net->parameters(), {.lr = 0.1});
  lt::Trainer trainer(net, sgd, objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0}, lt::AverageWeights{},
                      lt::ClipGradValue{1.0}, lt::StopEarly{}, lt::SnapshotEvery{.folder = other.path()});
  CHECK_THROWS_WITH(
      trainer.fit(toy::batches(8), {.max_steps = 10, .resume = saved.path()}),
      Contains(
          "the optimizer of update is looptorch::FusedSGD here, looptorch::FusedAdamW in the snapshot") &&
          Contains("only in the Trainer: looptorch::ClipGradValue, looptorch::StopEarly"));
}

TEST_CASE("strict = false takes what fits, and lists what does not") {
  Saved saved;
  TemporaryFolder other;
  Job job(other.path(), {.width = 5, .adamw = {.lr = 0.2, .weight_decay = 0.5}, .clip = false, .batches = 7});
  const auto first = job.net->first->weight.detach().clone();
  const auto snapshot = lt::read_snapshot(saved.path());
  const auto report = job.trainer.restore(snapshot, false);
  CHECK(bits_equal(job.net->second->bias.detach(), snapshot.model.at("second.bias")));
  CHECK(bits_equal(job.net->first->weight.detach(), first));
  CHECK(bits_equal(job.optimizer.state_of(job.net->second->bias).get<at::Tensor>("exp_avg"),
                   snapshot.optimizer.get<at::Tensor>("0.state.second.bias.exp_avg")));
  CHECK(job.optimizer.state_of(job.net->first->weight).empty());
  CHECK(job.optimizer.param_groups()[0].options().get_lr() == 0.2);
  CHECK(job.trainer.progress().step == 6);
  CHECK(report.step == 6);
  std::string text;
  for (const auto& each : report.differences) text += each + "\n";
  CHECK_THAT(text, Contains("3 unfit") && Contains("weight_decay") && Contains("learning rate") &&
                       Contains("ClipGradNorm") && Contains("averages of 3 weights"));

  Job again(other.path(), {.width = 5, .adamw = {.lr = 0.2}, .batches = 7});
  const auto result = again.fit({.max_steps = 9, .resume = saved.path(), .strict = false});
  CHECK(result.steps == 9);
  CHECK(result.resumed->differences.size() > 2);
  CHECK(again.trainer.progress().batch == 6);  // the epoch began anew: the range is another
}

TEST_CASE("a Trainer without SnapshotEvery cannot resume, and one without a snapshot neither") {
  auto net = toy::net();
  lt::FusedSGD optimizer(net->parameters());
  lt::Trainer trainer(net, optimizer, toy::objective);
  CHECK_THROWS_AS(trainer.fit(toy::batches(2), {.resume = "runs"}), lt::UsageError);
  TemporaryFolder folder;
  CHECK_THROWS_WITH(Job(folder.path(), {}).fit({.resume = folder.path()}),
                    Contains("holds no snapshot to resume from"));
  CHECK_THROWS_AS(Job(folder.path(), {}).fit({.resume = folder / "step-00000004"}), lt::SnapshotError);
  CHECK_THROWS_AS(Job(folder.path(), {}).fit({.resume = folder / "nowhere"}), lt::SnapshotError);
  Saved saved;
  fs::resize_file(saved.path() / "optimizer.safetensors", 64);
  CHECK_THROWS_WITH(Job(folder.path(), {}).fit({.resume = saved.path()}), Contains("optimizer.safetensors"));
  CHECK_THROWS_WITH(Job(folder.path(), {}).fit({.resume = saved.folder.path()}),
                    Contains("no snapshot to resume from") && Contains("optimizer.safetensors"));
}

TEST_CASE("contents that lack something are refused before anything is touched") {
  Saved saved;
  TemporaryFolder other;
  Job job(other.path(), {});
  auto contents = lt::read_snapshot(saved.path());
  lt::StateDict state;
  for (const auto& [key, value] : contents.state.values())
    if (key != "run.update.0.loss.known_sum") state.set(key, value);
  contents.state = state;
  const auto first = job.net->first->weight.detach().clone();
  CHECK_THROWS_WITH(job.trainer.restore(contents), Contains("known_sum"));
  CHECK_THROWS_AS(job.trainer.restore(contents, false), lt::StateError);
  CHECK(bits_equal(job.net->first->weight.detach(), first));
  CHECK(job.trainer.progress().step == 0);
}

TEST_CASE("moments without a parameter, and of a kind the optimizer does not keep, are refused by name") {
  Saved saved;
  const auto intact = lt::read_snapshot(saved.path());
  const auto check = [&](const std::string& key, const std::string& why) {
    TemporaryFolder made, other;
    auto contents = intact;
    contents.optimizer.set(key, torch::zeros({6}, torch::kDouble));
    lt::write_snapshot(made.path(), contents);
    Job job(other.path(), {});
    const auto first = job.net->first->weight.detach().clone();
    CHECK_THROWS_AS(job.trainer.restore(contents), lt::SnapshotMismatch);
    CHECK_THROWS_WITH(job.fit({.max_steps = 10, .resume = made.path()}), Contains(why));
    CHECK(bits_equal(job.net->first->weight.detach(), first));
    CHECK(job.trainer.restore(contents, false).differences.size() == 1);
  };
  check("0.state.nobody.exp_avg",
        "the optimizer of update: the snapshot has the state of nobody, which is in no parameter group");
  check("0.state.first.bias.nobody.exp_avg", "first.bias: FusedAdamW keeps nothing named 'nobody.exp_avg'");
  check("0.state.first.bias.sum", "first.bias: FusedAdamW keeps nothing named 'sum'");
  check("1.state.first.bias.exp_avg", "the snapshot's optimizers hold '1', and there are 1 of them");
  check("nobody.exp_avg", "the snapshot's optimizers hold 'nobody'");
  check("outside.0", "0 parameters outside the model here, 1 in the snapshot");
}

TEST_CASE("LibTorch's optimizers take nothing that lacks what they keep, or has more") {
  namespace o = torch::optim;
  const auto parameter = torch::ones({2}, torch::requires_grad());
  const auto moment = torch::ones({2});
  const auto why = [&](auto&& optimizer, const lt::StateDict& in) -> std::string {
    try {
      (void)lt::detail::stage_parameter_state(optimizer, optimizer.param_groups()[0], parameter, in);
      return "none";
    } catch (const lt::StateError& error) {
      return error.what();
    }
  };
  const auto state = [&](std::initializer_list<const char*> moments, std::int64_t step = 3) {
    lt::StateDict in;
    in.set("step", step);
    for (const char* name : moments) in.set(name, moment);
    return in;
  };
  const auto lacks = [](const std::string& name) {
    return "the optimizer keeps '" + name + "' for it, and the snapshot has none";
  };
  o::Adam adam({parameter}, o::AdamOptions()), amsgrad({parameter}, o::AdamOptions().amsgrad(true));
  CHECK(why(adam, {}) == "none");
  CHECK(why(adam, state({"exp_avg", "exp_avg_sq"})) == "none");
  CHECK(why(adam, state({})) == lacks("exp_avg"));
  CHECK(why(adam, state({"exp_avg"})) == lacks("exp_avg_sq"));
  CHECK(why(amsgrad, state({"exp_avg", "exp_avg_sq"})) == lacks("max_exp_avg_sq"));
  CHECK(why(adam, state({"exp_avg", "exp_avg_sq", "sum"})) ==
        "the snapshot has 'sum' for it, which the optimizer does not keep");
  CHECK(why(adam, state({"exp_avg", "exp_avg_sq"}, -1)) == "'step' counts from 0, and is -1");
  auto undefined = state({"exp_avg", "exp_avg_sq"});
  undefined.set("exp_avg", at::Tensor());
  CHECK(why(adam, undefined) == "'exp_avg' is an undefined tensor");
  lt::StateDict stepless;
  for (const char* name : {"exp_avg", "exp_avg_sq"}) stepless.set(name, moment);
  CHECK(why(adam, stepless) == lacks("step"));
  CHECK(why(o::AdamW({parameter}, o::AdamWOptions()), state({"exp_avg_sq"})) == lacks("exp_avg"));
  o::RMSprop plain({parameter}, o::RMSpropOptions()),
      centered({parameter}, o::RMSpropOptions().centered(true)),
      momentum({parameter}, o::RMSpropOptions().momentum(0.5));
  CHECK(why(plain, state({"square_avg"})) == "none");
  CHECK(why(plain, state({})) == lacks("square_avg"));
  CHECK(why(centered, state({"square_avg"})) == lacks("grad_avg"));
  CHECK(why(momentum, state({"square_avg"})) == lacks("momentum_buffer"));
  CHECK(why(o::Adagrad({parameter}, o::AdagradOptions()), state({})) == lacks("sum"));
}

// ---- Every optimizer, one update each ----

namespace {

/// A user's own, which saves itself as a whole.
struct SignMomentum : torch::optim::SGD {
  explicit SignMomentum(std::vector<at::Tensor> parameters)
      : SGD(std::move(parameters), torch::optim::SGDOptions(0.01)), mine(torch::zeros({})) {}
  at::Tensor step(LossClosure closure = nullptr) override {
    mine += 1;
    for (auto& parameter : param_groups()[0].params())
      if (parameter.grad().defined()) parameter.mutable_grad() *= 1 / mine.to(at::kDouble);
    return SGD::step(std::move(closure));
  }
  void state_dict(lt::StateDict& out) const { out.set("mine", mine); }
  void load_state_dict(const lt::StateDict& in) { mine = in.get<at::Tensor>("mine").clone(); }
  at::Tensor mine;
};

struct ManyImpl : torch::nn::Module {
  ManyImpl() {
    for (int i = 0; i < 9; ++i)
      each.push_back(register_module("part" + std::to_string(i), torch::nn::Linear(4, 3)));
    to(torch::kDouble);
  }
  std::vector<torch::nn::Linear> each;
};
TORCH_MODULE(Many);

/// Nine players, each with an optimizer of another kind; the last one also trains a parameter outside the
/// model.
struct Players {
  explicit Players(const fs::path& folder) { options.folder = folder; }

  static auto part(int i, at::Tensor scale = {}) {
    return [i, scale](Many& net, const toy::Batch& batch) {
      auto logits = torch::dropout(net->each[i](batch.features), 0.2, true);
      if (scale.defined()) logits = logits * scale;
      return torch::nn::functional::cross_entropy(logits, batch.labels);
    };
  }
  std::vector<at::Tensor> of(int i) { return net->each[i]->parameters(); }

  lt::SnapshotContents run(lt::FitOptions fit) {
    namespace o = torch::optim;
    o::Adam adam(of(0), o::AdamOptions(0.01).amsgrad(true));
    o::AdamW adamw(of(1), o::AdamWOptions(0.01));
    o::SGD sgd(of(2), o::SGDOptions(0.01).momentum(0.9));
    o::RMSprop rmsprop(of(3), o::RMSpropOptions(0.01).centered(true).momentum(0.5));
    o::Adagrad adagrad(of(4), o::AdagradOptions(0.01).lr_decay(0.1));
    lt::FusedAdam fused_adam(of(5), {.lr = 0.01, .amsgrad = true});
    lt::FusedSGD fused_sgd(of(6), {.lr = 0.01, .momentum = 0.9, .dampening = 0.1});
    SignMomentum mine(of(7));
    auto last = of(8);
    last.push_back(scale);
    lt::FusedAdamW fused_adamw(last, {.lr = 0.01});
    lt::Trainer trainer(net, lt::Update{adam, part(0)}, lt::Update{adamw, part(1), {.every = 2}},
                        lt::Update{sgd, part(2)}, lt::Update{rmsprop, part(3)}, lt::Update{adagrad, part(4)},
                        lt::Update{fused_adam, part(5)}, lt::Update{fused_sgd, part(6)},
                        lt::Update{mine, part(7)}, lt::Update{fused_adamw, part(8, scale)}, options);
    trainer.fit(toy::batches(5, 9), fit);
    return lt::read_snapshot(lt::find_newest_snapshot(options.folder).path);
  }

  lt::SnapshotEvery options;
  Many net = (torch::manual_seed(11), Many());
  at::Tensor scale = torch::ones({}, torch::kDouble).requires_grad_();
};

}  // namespace

TEST_CASE(
    "every optimizer continues bit for bit: LibTorch's, ours, a user's, and a parameter outside the model") {
  TemporaryFolder one, two;
  const auto data_seed = [] { torch::manual_seed(1); };
  data_seed();
  const auto uncut = Players(one.path()).run({.max_steps = 8});
  data_seed();
  (void)Players(two.path()).run({.max_steps = 3});
  torch::manual_seed(99);
  {
    TemporaryFolder made, other;
    auto contents = lt::read_snapshot(two / "step-00000003");
    lt::StateDict lacking;
    for (const auto& [key, value] : contents.optimizer.values())
      if (key != "1.state.part1.bias.exp_avg") lacking.set(key, value);
    contents.optimizer = lacking;
    lt::write_snapshot(made.path(), contents);
    CHECK_THROWS_WITH(
        Players(other.path()).run({.max_steps = 8, .resume = made.path()}),
        Contains("the optimizer of update 2: part1.bias: the optimizer keeps 'exp_avg' for it"));
  }
  const auto resumed = Players(two.path()).run({.max_steps = 8, .resume = two.path()});
  CHECK(bits_equal(uncut, resumed));
  for (const char* key :
       {"0.state.part0.weight.max_exp_avg_sq", "1.state.part1.bias.exp_avg",
        "2.state.part2.weight.momentum_buffer", "3.state.part3.weight.grad_avg", "4.state.part4.bias.sum",
        "5.state.part5.bias.max_exp_avg_sq", "6.state.part6.weight.momentum_buffer", "7.whole.mine",
        "8.state.outside.0.exp_avg", "outside.0"})
    CHECK(uncut.optimizer.contains(key));
  CHECK(uncut.optimizer.get<std::int64_t>("0.state.part0.weight.step") == 8);
  CHECK(uncut.optimizer.get<at::Tensor>("outside.0").item<double>() != 1.0);
}

TEST_CASE("An optimizer that saves itself as a whole and refuses a state changes nothing") {
  struct Picky : SignMomentum {
    using SignMomentum::SignMomentum;
    void load_state_dict(const lt::StateDict& in) {
      mine.fill_(-1);  // half of it
      if (in.get<at::Tensor>("mine").item<float>() == 99) throw lt::StateError("mine cannot be 99");
      SignMomentum::load_state_dict(in);
    }
  };
  TemporaryFolder folder;
  toy::Net net = toy::net();
  Picky optimizer(net->parameters());
  lt::Trainer trainer(net, optimizer, toy::objective, lt::SnapshotEvery{.folder = folder.path()});
  trainer.fit(toy::batches(3));
  auto contents = lt::read_snapshot(lt::find_newest_snapshot(folder.path()).path);
  contents.optimizer.set("0.whole.mine", torch::full({}, 99.0));
  const auto weight = net->first->weight.detach().clone(), mine = optimizer.mine.clone();
  CHECK_THROWS_AS(trainer.restore(contents), lt::SnapshotMismatch);
  CHECK_THROWS_WITH(trainer.restore(contents), Contains("the optimizer of update: mine cannot be 99"));
  CHECK(bits_equal(net->first->weight.detach(), weight));
  CHECK(bits_equal(optimizer.mine, mine));
}
