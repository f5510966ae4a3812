// SPDX-License-Identifier: MIT
// Random runs: a Trainer whose policies are switched on or off by a seed ends with the weights, averages,
// counts and metrics of a plain loop with LibTorch's optimizers, also if it was interrupted and resumed. CI
// runs a sample; LOOPTORCH_RANDOM_RUNS sets their number.
// Tests loop/compose: policy_stack
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/state/snapshot/choose_snapshot.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numbers>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace lt = looptorch;

namespace random_runs {

constexpr double kRate = 0.05, kFactor = 0.5, kFinalRatio = 0.1;
constexpr std::int64_t kDecaySteps = 3;

enum class Decay { constant, linear, cosine, step };

struct Averages {
  bool swa = false, warmup = false, buffers = false;
  std::int64_t begin_after = 0, every = 1;
};

/// A run. Steps are windows; an empty option is a policy that is off.
struct Settings {
  std::uint64_t seed = 0;
  std::int64_t batches = 1, accumulate = 1, epochs = 1;
  std::optional<std::int64_t> max_steps = {};
  bool weighted = false, dropout = false, sgd = false, freeze = false, skip_bad = false, best = false;
  std::set<std::int64_t> bad = {};  ///< Batches whose loss is NaN.
  std::optional<double> clip_norm = {}, clip_value = {};
  std::optional<Averages> averages = {};
  std::optional<Decay> decay = {};
  std::int64_t warmup_steps = 0;
  std::optional<std::int64_t> validate_every = {}, patience = {}, unfreeze_at = {};
  std::optional<std::int64_t> interrupt_at = {};  ///< Then new objects resume from the newest snapshot.
  bool interrupt_throws = false;
  std::int64_t snapshot_steps = 1;

  [[nodiscard]] std::int64_t steps_an_epoch() const { return (batches + accumulate - 1) / accumulate; }
  [[nodiscard]] std::int64_t total_steps() const {
    return std::min(steps_an_epoch() * epochs, max_steps.value_or(std::numeric_limits<std::int64_t>::max()));
  }
};

Settings settings_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  const auto in = [&](std::int64_t percent) { return between(1, 100) <= percent; };
  const auto maybe = [&](std::int64_t percent, std::int64_t low, std::int64_t high) {
    const std::int64_t value = between(low, high);
    return in(percent) ? std::optional(value) : std::nullopt;
  };
  Settings run{.seed = seed, .batches = between(1, 9), .accumulate = between(1, 4), .epochs = between(1, 4)};
  run.max_steps = maybe(30, 1, run.total_steps());
  run.weighted = in(50), run.sgd = in(40), run.freeze = in(15), run.skip_bad = in(40);
  if (run.skip_bad && run.batches > 1)
    for (std::int64_t i = 1; i < run.batches; ++i)
      if (in(15)) run.bad.insert(i);
  run.dropout = run.bad.empty() && in(50);  // a skipped window has drawn numbers
  if (in(50)) run.clip_norm = in(50) ? 0.3 : 3.0;
  if (in(30)) run.clip_value = 0.05;
  if (in(50)) run.averages = Averages{in(40), in(30), in(40), between(0, 3), between(1, 3)};
  if (in(60)) run.decay = static_cast<Decay>(between(0, 3)), run.warmup_steps = between(0, 3);
  run.validate_every = maybe(60, 0, 4);
  if (run.validate_every) run.best = in(40), run.patience = maybe(40, 1, 2);
  run.unfreeze_at = maybe(20, 0, 2);
  run.interrupt_at = maybe(60, 1, 8), run.interrupt_throws = in(50), run.snapshot_steps = between(1, 4);
  return run;
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool dropout) : drops(dropout) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::dropout(torch::relu(norm(first(x))), 0.3, drops && is_training()));
  }
  bool drops;
  // A bias before the norm would have gradients of rounding alone, which Adam divides by their size.
  torch::nn::Linear first{torch::nn::LinearOptions(4, 8).bias(false)};
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Linear second{8, 3};
};
TORCH_MODULE(Net);

struct Batch {
  at::Tensor x, y;  // [B, 4], [B]
};

std::vector<Batch> batches_of(const Settings& run, std::uint64_t seed, std::int64_t count) {
  torch::manual_seed(seed);
  std::mt19937_64 random(seed);
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto size = static_cast<std::int64_t>(2 + random() % 4);
    batches.push_back({torch::randn({size, 4}, torch::kDouble), torch::randint(0, 3, {size}, torch::kLong)});
  }
  for (const std::int64_t i : run.bad)
    if (i < count) batches[static_cast<std::size_t>(i)].x[0][0] = std::numeric_limits<double>::quiet_NaN();
  return batches;
}
std::vector<Batch> training_of(const Settings& run) { return batches_of(run, 2 * run.seed, run.batches); }
std::vector<Batch> validation_of(const Settings& run) {
  Settings clean = run;
  clean.bad.clear();
  return batches_of(clean, 2 * run.seed + 1, 3);
}

at::Tensor loss_of(Net& net, const Batch& batch) {
  return torch::nn::functional::cross_entropy(net(batch.x), batch.y);
}
double weight_of(const Settings& run, const Batch& batch) {
  return run.weighted ? static_cast<double>(batch.y.size(0)) : 1.0;
}

struct Outcome {
  std::vector<at::Tensor> weights, averages;
  std::int64_t steps = 0, skipped = 0;
  std::optional<double> validation = {};  ///< The last one.
};

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}
void assign(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
}
std::vector<at::Tensor> state_of(Net& net) {
  auto all = net->parameters();
  for (const at::Tensor& buffer : net->buffers()) all.push_back(buffer);
  return all;
}

/// The run in plain LibTorch.
class HandLoop {
 public:
  explicit HandLoop(const Settings& run) : run_(run) {
    torch::manual_seed(run.seed);
    net_ = Net(run.dropout);
    if (run.sgd)
      optimizer_ = std::make_unique<torch::optim::SGD>(
          net_->parameters(),
          torch::optim::SGDOptions(kRate).momentum(0.9).nesterov(true).weight_decay(0.01));
    else
      optimizer_ = std::make_unique<torch::optim::AdamW>(
          net_->parameters(), torch::optim::AdamWOptions(kRate).weight_decay(0.02));
  }

  Outcome train() {
    torch::manual_seed(run_.seed + 1);
    if (run_.freeze) set_trained(net_->first->parameters(), false);
    for (std::int64_t epoch = 0; epoch < run_.epochs && goes_on(); ++epoch) {
      if (run_.unfreeze_at) set_trained(net_->second->parameters(), epoch >= *run_.unfreeze_at);
      for (std::int64_t i = 0; i < run_.batches && goes_on(); i += run_.accumulate) train_window(i);
      const bool is_whole = out_.steps % run_.steps_an_epoch() == 0;
      if (run_.validate_every == 0 && is_whole) validate();
    }
    if (!best_weights_.empty()) assign(state_of(net_), best_weights_);
    out_.weights = copies_of(state_of(net_));
    out_.averages = averaged_;
    return out_;
  }

 private:
  static void set_trained(const std::vector<at::Tensor>& parameters, bool trained) {
    for (at::Tensor parameter : parameters) parameter.set_requires_grad(trained);
  }
  [[nodiscard]] bool goes_on() const { return !stopped_ && out_.steps < run_.total_steps(); }

  void train_window(std::int64_t first) {
    const auto last = std::min(first + run_.accumulate, run_.batches);
    const auto buffers = copies_of(net_->buffers());
    optimizer_->zero_grad();
    double weight = 0;
    for (std::int64_t i = first; i < last; ++i) weight += weight_of(run_, batch(i));
    bool is_bad = false;
    for (std::int64_t i = first; i < last && !is_bad; ++i) {
      const at::Tensor loss = loss_of(net_, batch(i));
      is_bad = !std::isfinite(loss.item<double>());
      if (!is_bad) (loss * (weight_of(run_, batch(i)) / weight)).backward();
    }
    ++out_.steps;
    if (is_bad)
      assign(net_->buffers(), buffers), ++out_.skipped;
    else
      update();
    if (run_.validate_every.value_or(0) > 0 && out_.steps % *run_.validate_every == 0) validate();
  }

  void update() {
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(kRate * share());
    if (run_.clip_norm) torch::nn::utils::clip_grad_norm_(net_->parameters(), *run_.clip_norm);
    if (run_.clip_value) torch::nn::utils::clip_grad_value_(net_->parameters(), *run_.clip_value);
    optimizer_->step();
    ++applied_;
    if (run_.averages) average(*run_.averages);
  }

  [[nodiscard]] double share() const {
    if (!run_.decay) return 1;
    if (applied_ < run_.warmup_steps) return double(applied_) / double(run_.warmup_steps);
    const std::int64_t step = applied_ - run_.warmup_steps;
    const double done =
        double(step) / double(std::max<std::int64_t>(run_.total_steps() - run_.warmup_steps, 1));
    switch (*run_.decay) {
      case Decay::linear:
        return std::max(1 - done, 0.0);
      case Decay::cosine:
        return kFinalRatio + (1 - kFinalRatio) * (1 + std::cos(std::numbers::pi * std::min(done, 1.0))) / 2;
      case Decay::step:
        return std::pow(kFactor, double(step / kDecaySteps));
      case Decay::constant:
        break;
    }
    return 1;
  }

  void average(const Averages& rule) {
    if (applied_ <= rule.begin_after || (applied_ - rule.begin_after) % rule.every != 0) return;
    const auto now = rule.buffers ? state_of(net_) : net_->parameters();
    const auto count = double(averages_made_++);
    if (count == 0) return void(averaged_ = copies_of(now));
    const double decay = rule.swa      ? count / (count + 1)
                         : rule.warmup ? std::min(0.7, (1 + count) / (10 + count))
                                       : 0.7;
    const at::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < now.size(); ++i)
      if (now[i].is_floating_point()) averaged_[i].mul_(decay).add_(now[i], 1 - decay);
  }

  void validate() {
    const at::NoGradGuard no_gradients;
    const auto own = copies_of(state_of(net_));
    for (std::size_t i = 0; i < averaged_.size(); ++i)
      if (own[i].is_floating_point()) state_of(net_)[i].copy_(averaged_[i]);
    net_->eval();
    double sum = 0, weight = 0;
    for (const Batch& batch : validation_) {
      sum += loss_of(net_, batch).item<double>() * weight_of(run_, batch);
      weight += weight_of(run_, batch);
    }
    net_->train();
    const double loss = sum / weight;
    if (loss < best_loss_) {
      if (run_.best) best_weights_ = copies_of(state_of(net_));
      best_loss_ = loss, worse_ = 0;
    } else if (++worse_ >= run_.patience.value_or(std::numeric_limits<std::int64_t>::max())) {
      stopped_ = true;
    }
    assign(state_of(net_), own);
    out_.validation = loss;
  }

  [[nodiscard]] const Batch& batch(std::int64_t i) const { return training_[static_cast<std::size_t>(i)]; }

  const Settings& run_;
  std::vector<Batch> training_ = training_of(run_), validation_ = validation_of(run_);
  Net net_{nullptr};
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<at::Tensor> averaged_, best_weights_;  // parameters, then perhaps buffers
  std::int64_t applied_ = 0, averages_made_ = 0, worse_ = 0;
  double best_loss_ = std::numeric_limits<double>::infinity();
  bool stopped_ = false;
  Outcome out_;
};

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

lt::ScheduleLr schedule_of(const Settings& run) {
  lt::ScheduleLr schedule{.decay = lt::ConstantLr{}, .warmup_steps = run.warmup_steps};
  if (run.decay == Decay::linear) schedule.decay = lt::LinearDecay{};
  if (run.decay == Decay::cosine) schedule.decay = lt::CosineDecay{.final_ratio = kFinalRatio};
  if (run.decay == Decay::step) schedule.decay = lt::StepDecay{.every = kDecaySteps, .factor = kFactor};
  return schedule;
}
lt::AverageWeights averages_of(const Settings& run) {
  const Averages rule = run.averages.value_or(Averages{});
  lt::AverageWeights averages{
      .begin_after = rule.begin_after, .every = rule.every, .average_buffers = rule.buffers};
  if (rule.swa)
    averages.rule = lt::Swa{};
  else
    averages.rule = lt::Ema{.decay = 0.7, .warmup = rule.warmup};
  return averages;
}

/// Trains until the run ends or is interrupted. Returns nothing in the latter case; the next call resumes.
std::optional<Outcome> train_once(const Settings& run, lt::AnyOptimizer& optimizer, Net& net,
                                  const std::filesystem::path& folder, std::uint64_t seed, bool& interrupt) {
  const auto training = training_of(run), validation = validation_of(run);
  torch::manual_seed(seed);
  const auto objective = [&run](Net& model, const Batch& batch) {
    return lt::Loss{.value = loss_of(model, batch), .weight = weight_of(run, batch)};
  };
  const auto interrupts = [&](lt::WindowContext& window) {
    if (!interrupt || window.run.progress().step < run.interrupt_at) return;
    interrupt = false;
    if (run.interrupt_throws) throw Killed();
    window.run.interrupt("a test");
  };
  lt::Trainer trainer(
      net, optimizer, objective, lt::Accumulate<>{run.accumulate},
      lt::When{run.clip_norm.has_value(), lt::ClipGradNorm{run.clip_norm.value_or(1)}},
      lt::When{run.clip_value.has_value(), lt::ClipGradValue{run.clip_value.value_or(1)}},
      lt::When{run.averages.has_value(), averages_of(run)}, lt::When{run.decay.has_value(), schedule_of(run)},
      lt::When{run.skip_bad, lt::SkipBadWindows{.max_skipped = 1000, .report = [](const std::string&) {}}},
      lt::When{run.freeze, lt::Freeze{"first.*"}},
      lt::When{run.unfreeze_at.has_value(),
               lt::UnfreezeAt{{.epoch = run.unfreeze_at.value_or(0), .patterns = {"second.*"}}}},
      lt::When{run.validate_every.has_value(),
               lt::Validate{validation, {.every = run.validate_every.value_or(0)}}},
      lt::When{run.best, lt::RestoreBest{.out = nullptr}},
      lt::When{run.patience.has_value(), lt::StopEarly{.patience = run.patience.value_or(1)}},
      lt::When{run.interrupt_at.has_value(),
               lt::SnapshotEvery{.folder = folder, .steps = run.snapshot_steps}},
      lt::On{lt::kObserve, interrupts});
  lt::FitOptions options{.epochs = run.epochs, .max_steps = run.max_steps};
  if (run.interrupt_at) options.resume = lt::choose_snapshot("auto", folder);
  lt::FitResult result;
  try {
    result = trainer.fit(training, options);
  } catch (const Killed&) {
    return std::nullopt;
  }
  if (result.status == lt::FitStatus::interrupted) return std::nullopt;
  Outcome outcome{.weights = copies_of(state_of(net)), .steps = result.steps, .skipped = result.skipped};
  if (const auto& averages = trainer.template policy<lt::AverageWeights>(); averages.count() > 0) {
    averages.copy_to(*net);
    outcome.averages = copies_of(state_of(net));
  }
  outcome.validation = trainer.metrics().find("validation.loss");
  return outcome;
}

Outcome train(const Settings& run) {
  const lt::testing::TemporaryFolder folder;
  bool interrupt = run.interrupt_at.has_value();
  for (std::uint64_t process = 0;; ++process) {
    // Once there is a snapshot, nothing depends on the seeds.
    const std::uint64_t seed = run.seed + (lt::list_snapshots(folder.path()).empty() ? 0 : 1000 * process);
    torch::manual_seed(seed);
    Net net(run.dropout);
    std::unique_ptr<lt::AnyOptimizer> optimizer;
    if (run.sgd)
      optimizer = std::make_unique<lt::FusedSGD>(
          net->parameters(),
          lt::FusedSGDOptions{.lr = kRate, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
    else
      optimizer = std::make_unique<lt::FusedAdamW>(net->parameters(),
                                                   lt::FusedAdamWOptions{.lr = kRate, .weight_decay = 0.02});
    if (auto outcome = train_once(run, *optimizer, net, folder.path(), seed + 1, interrupt))
      return *std::move(outcome);
  }
}

/// Compares as many tensors as `expected` has.
void check_close(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& actual) {
  REQUIRE(actual.size() >= expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(at::allclose(expected[i].to(at::kDouble), actual[i].to(at::kDouble), 1e-9, 1e-9));
}

std::uint64_t number_of_runs() {
  const char* const number = std::getenv("LOOPTORCH_RANDOM_RUNS");
  return number ? std::strtoull(number, nullptr, 10) : 60;
}

}  // namespace random_runs

TEST_CASE("random runs end as a plain loop does, also if they were interrupted") {
  for (std::uint64_t seed = 1; seed <= random_runs::number_of_runs(); ++seed) {
    INFO("seed " << seed);
    const auto run = random_runs::settings_of(seed);
    const auto by_hand = random_runs::HandLoop(run).train(), trained = random_runs::train(run);
    CHECK(trained.steps == by_hand.steps);
    CHECK(trained.skipped == by_hand.skipped);
    random_runs::check_close(by_hand.weights, trained.weights);
    if (!run.best) random_runs::check_close(by_hand.averages, trained.averages);  // else they are the best
    REQUIRE(trained.validation.has_value() == by_hand.validation.has_value());
    if (by_hand.validation) CHECK(*trained.validation == Approx(*by_hand.validation).epsilon(1e-9));
  }
}
