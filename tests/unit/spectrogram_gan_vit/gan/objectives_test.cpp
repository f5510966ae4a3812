// SPDX-License-Identifier: MIT
// The players' losses against recorded values, and their game in a Trainer against loops written by hand.
// Tests spectrogram_gan_vit/gan: balance, losses
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/no_leaks.hpp"
#include "support/reference.hpp"
#include "unit/spectrogram_gan_vit/support.hpp"

#include <spectrogram_gan_vit/gan/balance.hpp>
#include <spectrogram_gan_vit/gan/objectives.hpp>

#include <cmath>
#include <limits>
#include <set>

using namespace spectrogram_gan_test;
using Catch::Contains;
using gan::AdversarialLoss;
using gan::DiscriminatorObjective;
using gan::GameOptions;
using gan::GeneratorObjective;
using reference::difference;
using reference::wave;
namespace lt = looptorch;

namespace {

const at::Tensor& recorded(const std::string& name) { return reference::tensors("spectrogram_gan").at(name); }

struct Optimizers {
  explicit Optimizers(gan::Gan& model)
      : discriminator(model->discriminator->parameters(), torch::optim::SGDOptions(0.2).momentum(0.5)),
        generator(model->generator->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5)) {}
  torch::optim::SGD discriminator, generator;
};

/// Batches of 3, 2, 3, 2, ... clips.
std::vector<Batch> unequal_batches(int64_t count) {
  auto result = batches(count, 3);
  for (std::size_t i = 1; i < result.size(); i += 2)
    result[i] = {result[i].spectrograms_B1MF.narrow(0, 0, 2), result[i].conditions_B2.narrow(0, 0, 2)};
  return result;
}

/// Each window joined to one large batch; the discriminator moves, then the generator.
void train_by_hand(gan::Gan& model, Optimizers& optimizers, const std::vector<Batch>& data,
                   std::size_t window, const GameOptions& options) {
  torch::manual_seed(11);
  for (std::size_t i = 0; i < data.size(); i += window) {
    const auto all = join(data, i, std::min(i + window, data.size()));
    model->zero_grad();
    DiscriminatorObjective{options}(model, all).value.backward();
    optimizers.discriminator.step();
    model->zero_grad();
    GeneratorObjective{options}(model, all).value.backward();
    optimizers.generator.step();
  }
}

enum class Gradients { separate, leaking };

/// Micro-batch by micro-batch, both players' backward passes in turn, as the public project did; `leaking`
/// leaves the discriminator what the generator's backward put there.
void train_by_micro_batches(gan::Gan& model, Optimizers& optimizers, const std::vector<Batch>& data,
                            std::size_t window, const GameOptions& options, Gradients gradients) {
  torch::manual_seed(11);
  const auto share = 1.0 / static_cast<double>(window);
  model->zero_grad();
  for (std::size_t i = 0; i < data.size(); i += window) {
    for (std::size_t k = 0; k < window; ++k)
      (DiscriminatorObjective{options}(model, data[i + k]).value * share).backward();
    optimizers.discriminator.step();
    optimizers.discriminator.zero_grad();
    for (std::size_t k = 0; k < window; ++k)
      (GeneratorObjective{options}(model, data[i + k]).value * share).backward();
    optimizers.generator.step();
    optimizers.generator.zero_grad();
    if (gradients == Gradients::separate) optimizers.discriminator.zero_grad();
  }
}

template <class... Policies>
auto trainer_of(gan::Gan& model, Optimizers& optimizers, const GameOptions& options, Policies... policies) {
  return lt::Trainer(
      model, lt::Update{optimizers.discriminator, DiscriminatorObjective{options}, {.name = "discriminator"}},
      lt::Update{optimizers.generator, GeneratorObjective{options}, {.name = "generator"}}, policies...);
}

double distance(gan::Gan& a, gan::Gan& b) {
  double largest = 0;
  const auto pa = a->parameters(), pb = b->parameters();
  for (std::size_t i = 0; i < pa.size(); ++i) largest = std::max(largest, difference(pa[i], pb[i]));
  return largest;
}

}  // namespace

TEST_CASE("Hinge and cross-entropy have PyTorch's values and gradients for both players") {
  for (const auto& [loss, name] :
       {std::pair{AdversarialLoss::hinge, "hinge"}, std::pair{AdversarialLoss::bce, "bce"}}) {
    INFO(name);
    const std::string prefix = std::string(name) + ".";
    CHECK(gan::adversarial_loss(name) == loss);
    const auto real = (3 * wave({7}, 0.1)).requires_grad_(), fake = (3 * wave({7}, 1.1)).requires_grad_();
    const auto critic = gan::discriminator_loss(loss, real, fake);
    const auto gradients = torch::autograd::grad({critic}, {real, fake});
    CHECK(difference(critic, recorded(prefix + "discriminator")) < 1e-12);
    CHECK(difference(gradients[0], recorded(prefix + "real")) < 1e-12);
    CHECK(difference(gradients[1], recorded(prefix + "fake")) < 1e-12);
    const auto player = gan::generator_loss(loss, fake);
    CHECK(difference(player, recorded(prefix + "generator")) < 1e-12);
    CHECK(difference(torch::autograd::grad({player}, {fake})[0], recorded(prefix + "player")) < 1e-12);
  }
  CHECK_THROWS_WITH(gan::adversarial_loss("wgan"), "--loss: \"wgan\" is neither hinge nor bce");
}

TEST_CASE("Losses of clear logits stay finite") {
  const auto clear = at::tensor({1e4, -1e4}, at::kFloat);
  for (const auto loss : {AdversarialLoss::hinge, AdversarialLoss::bce}) {
    CHECK(std::isfinite(gan::discriminator_loss(loss, clear, clear).item<double>()));
    CHECK(std::isfinite(gan::generator_loss(loss, clear).item<double>()));
  }
}

TEST_CASE(
    "The gradient penalty has PyTorch's value and gradients, under autocast and in the Trainer's objective") {
  const auto real = wave({3, 1, 2, 4}, 0.2);
  const auto a = wave({8, 5}, 0.5).requires_grad_(), b = wave({5}, 0.6).requires_grad_();
  const auto score = [&](const at::Tensor& x) { return x.flatten(1).matmul(a).tanh().matmul(b); };
  const auto penalty = gan::gradient_penalty(score, real);
  penalty.backward();
  CHECK(difference(penalty, recorded("penalty")) < 1e-12);
  CHECK(difference(a.grad(), recorded("penalty.a")) < 1e-12);
  CHECK(difference(b.grad(), recorded("penalty.b")) < 1e-12);
  CHECK_FALSE(real.requires_grad());

  const auto in_float = [&] {
    return gan::gradient_penalty(
        [&](const at::Tensor& x) { return x.flatten(1).matmul(a.to(at::kFloat)).tanh().sum(1); },
        real.to(at::kFloat));
  };
  const auto plain = in_float();
  const lt::AutocastScope autocast(at::kCPU, at::kBFloat16);
  CHECK(in_float().equal(plain));
}

TEST_CASE("R1 and instance noise change the discriminator's loss as far as they are asked for") {
  auto model = tiny_gan();
  model->eval();
  const auto batch = batches(1, 3).front();
  const auto value = [&](const GameOptions& options) {
    torch::manual_seed(2);
    return DiscriminatorObjective{options}(model, batch).value.item<double>();
  };
  const auto plain = value({});
  const auto judge = [&](const at::Tensor& seen) { return model->discriminator(seen, batch.conditions_B2); };
  const auto penalty = gan::gradient_penalty(judge, batch.spectrograms_B1MF).item<double>();
  CHECK(penalty > 1e-8);
  CHECK(value({.r1 = 10}) == Approx(plain + 5 * penalty).epsilon(1e-12));
  CHECK(value({.instance_noise = true}) == plain);  // of deviation 0
  model->instance_noise.fill_(0.5);
  CHECK(value({}) == plain);
  CHECK(std::abs(value({.instance_noise = true}) - plain) > 1e-6);

  // Of the expected strength.
  const auto zeros = at::zeros({200, 1, 16, 40}, at::kDouble);
  CHECK(gan::through_noise(model, true, zeros).std().item<double>() == Approx(0.5).epsilon(0.02));
}

// Labels of real music do not fill the square: an emotion drawn from it is wrong because no clip has it.
TEST_CASE("A wrong emotion is that of another clip of the batch, any of them") {
  const auto valence_B = at::linspace(-1, 1, 5, at::kDouble);
  const auto conditions_B2 = at::stack({valence_B, valence_B}, 1);  // labels on a diagonal
  torch::manual_seed(3);
  std::set<int64_t> shifts;
  for (int draw = 0; draw < 60; ++draw) {
    const auto others_B2 = gan::conditions_of_others(conditions_B2);
    CHECK(std::get<0>(others_B2.sort(0)).equal(conditions_B2));
    CHECK(others_B2.ne(conditions_B2).all().item<bool>());
    shifts.insert(others_B2.select(1, 0).argmin().item<int64_t>());
  }
  CHECK(shifts == std::set<int64_t>{1, 2, 3, 4});
}

TEST_CASE("Real spectrograms with another clip's emotion join what the discriminator has to reject") {
  auto model = tiny_gan();
  model->eval();
  const auto batch = batches(1, 4).front();
  const auto value = [&](double mismatched) {
    torch::manual_seed(2);
    return DiscriminatorObjective{{.mismatched = mismatched}}(model, batch).value.item<double>();
  };
  torch::manual_seed(2);
  (void)model->generate(batch.conditions_B2);
  const auto other_B2 = gan::conditions_of_others(batch.conditions_B2);
  const auto real_B = model->discriminator(batch.spectrograms_B1MF, batch.conditions_B2);
  const auto wrong_B = model->discriminator(batch.spectrograms_B1MF, other_B2);
  const auto all = gan::discriminator_loss(AdversarialLoss::hinge, real_B, wrong_B).item<double>();
  CHECK(value(1) == Approx(all).epsilon(1e-12));
  CHECK(value(0.25) == Approx(0.75 * value(0) + 0.25 * all).epsilon(1e-12));
  CHECK(std::abs(value(0) - all) > 1e-6);

  const Batch alone{batch.spectrograms_B1MF.narrow(0, 0, 1), batch.conditions_B2.narrow(0, 0, 1)};
  const auto value_alone = [&](double mismatched) {
    torch::manual_seed(2);
    return DiscriminatorObjective{{.mismatched = mismatched}}(model, alone).value.item<double>();
  };
  CHECK(value_alone(0.5) == value_alone(0));  // one clip has no other's emotion
}

TEST_CASE("The discriminator learns to predict emotions from real spectrograms, the generator to show them") {
  auto model = tiny_gan();
  model->eval();
  const auto batch = batches(1, 4).front();
  const auto difference_of = [&](const auto& objective) {
    const auto value = [&](double auxiliary) {
      torch::manual_seed(2);
      return objective(GameOptions{.auxiliary = auxiliary})(model, batch).value;
    };
    return (value(3) - value(0)).template item<double>() / 3;
  };
  const auto error_of = [&](const at::Tensor& spectrograms) {
    const auto predicted_B2 = model->discriminator->judge(spectrograms, batch.conditions_B2).emotions_B2;
    return (predicted_B2 - batch.conditions_B2).square().mean().item<double>();
  };
  torch::manual_seed(2);
  const auto fake = model->generate(batch.conditions_B2);
  CHECK(difference_of([](const GameOptions& options) { return DiscriminatorObjective{options}; }) ==
        Approx(error_of(batch.spectrograms_B1MF)));
  CHECK(difference_of([](const GameOptions& options) { return GeneratorObjective{options}; }) ==
        Approx(error_of(fake)));
  // The prediction does not depend on what was wanted.
  CHECK(difference(model->discriminator->judge(fake, batch.conditions_B2).emotions_B2,
                   model->discriminator->judge(fake, -batch.conditions_B2).emotions_B2) == 0);
}

TEST_CASE("Accumulation 2 is the loop written by hand with the large batch, to fp64 precision") {
  for (const auto& options :
       {GameOptions{.auxiliary = 0.5}, GameOptions{.loss = AdversarialLoss::bce, .auxiliary = 2},
        GameOptions{.r1 = 2, .auxiliary = 1}}) {
    for (const int64_t length : {4, 5}) {
      INFO("bce " << (options.loss == AdversarialLoss::bce) << ", r1 " << options.r1 << ", length "
                  << length);
      auto ours = tiny_gan(), theirs = tiny_gan(), first = tiny_gan();
      for (auto* model : {&ours, &theirs})
        (*model)->discriminator->eval();  // no power iterations: one a batch
      const auto data = unequal_batches(length);
      Optimizers our_optimizers(ours), their_optimizers(theirs);
      auto trainer = trainer_of(ours, our_optimizers, options, lt::Accumulate<2>{}, lt::testing::NoLeaks{});
      torch::manual_seed(11);
      const auto result = trainer.fit(data);
      train_by_hand(theirs, their_optimizers, data, 2, options);
      CHECK(result.steps == (length + 1) / 2);
      CHECK(distance(ours, theirs) < 1e-12);
      CHECK(distance(ours, first) > 1e-3);
      for (const auto& parameter : ours->parameters()) CHECK_FALSE(parameter.grad().defined());
    }
  }
}

// The public project's generator left gradients in the discriminator, which joined its next window.
TEST_CASE("Nothing of the generator's backward reaches the discriminator, as it did in the public project") {
  // The latter is what gan_train plays.
  for (const auto& options : {GameOptions{}, GameOptions{.mismatched = 0.5, .auxiliary = 1}}) {
    auto ours = tiny_gan(), careful = tiny_gan(), leaking = tiny_gan();
    const auto data = batches(6, 2);
    Optimizers a(ours), b(careful), c(leaking);
    auto trainer = trainer_of(ours, a, options, lt::Accumulate<2>{});
    torch::manual_seed(11);
    trainer.fit(data);
    train_by_micro_batches(careful, b, data, 2, options, Gradients::separate);
    train_by_micro_batches(leaking, c, data, 2, options, Gradients::leaking);
    CHECK(distance(ours, careful) < 1e-12);
    CHECK(distance(ours, leaking) > 1e-4);
    CHECK(difference(ours->discriminator->hidden->norm->u, careful->discriminator->hidden->norm->u) < 1e-12);
  }
}

TEST_CASE("Each player's parameters are moved by its own update alone") {
  for (const bool is_discriminator : {true, false}) {
    auto model = tiny_gan(), before = tiny_gan();
    Optimizers optimizers(model);
    lt::Trainer trainer(model,
                        lt::Update{optimizers.discriminator,
                                   DiscriminatorObjective{},
                                   {.when = [&](const lt::Run&) { return is_discriminator; }}},
                        lt::Update{optimizers.generator, GeneratorObjective{}, {.when = [&](const lt::Run&) {
                                     return !is_discriminator;
                                   }}});
    trainer.fit(batches(2, 2));
    const auto moved = [](const torch::nn::Module& a, const torch::nn::Module& b) {
      return difference(a.parameters().front(), b.parameters().front()) > 0;
    };
    CHECK(moved(*model->discriminator, *before->discriminator) == is_discriminator);
    CHECK(moved(*model->generator, *before->generator) == !is_discriminator);
  }
}

TEST_CASE("The discriminator waits while it wins, and its turn comes back") {
  auto model = tiny_gan();
  Optimizers optimizers(model);
  lt::Trainer trainer(model,
                      lt::Update{optimizers.discriminator,
                                 DiscriminatorObjective{},
                                 {.name = "discriminator", .when = gan::UnlessWinning{.accuracy = 0.8}}},
                      lt::Update{optimizers.generator, GeneratorObjective{}});
  const auto data = batches(1, 2);
  const auto applied = [&] { return trainer.updates()[0].applied; };
  const auto say_always = [&](double logit) { model->discriminator->output->bias.data().fill_(logit); };
  trainer.fit(data, {.epochs = 1});
  CHECK(applied() == 1);

  model->accepted.fill_(0.95);
  model->fooled.fill_(0.05);  // right about 95 %
  say_always(-100);           // and it rejects all that the generator makes
  trainer.fit(data, {.epochs = 4});
  CHECK(applied() == 1);
  CHECK(trainer.updates()[1].applied == 4);
  CHECK(model->fooled.item<double>() == Approx(0.05 * std::pow(0.9, 3)).epsilon(1e-5));
  CHECK(model->accepted.item<double>() == Approx(0.95));

  say_always(100);  // now the generator fools it: 0.13, 0.22, 0.30, 0.37; the limit is 0.35
  trainer.fit(data, {.epochs = 8});
  CHECK(applied() == 1);
  trainer.fit(data, {.epochs = 9});
  CHECK(applied() == 2);
  CHECK(model->accepted.item<double>() == Approx(0.955));

  say_always(-100);  // one that rejects everything, real ones too, does not win
  model->accepted.fill_(0.1);
  model->fooled.fill_(0);
  trainer.fit(data, {.epochs = 10});
  CHECK(applied() == 3);
  CHECK(gan::UnlessWinning{.accuracy = 1}(lt::Run(*model, {})));
}

TEST_CASE("How the game stands is part of a snapshot, so that the next turn is the same") {
  auto model = tiny_gan(), other = tiny_gan();
  Optimizers optimizers(model), others(other);
  auto trainer = trainer_of(model, optimizers, {}), again = trainer_of(other, others, {});
  trainer.fit(batches(5, 2));
  again.restore(trainer.snapshot());
  CHECK(model->fooled.item<double>() != 0.5);
  CHECK(other->fooled.equal(model->fooled));
  CHECK(model->accepted.item<double>() != 0.5);
  CHECK(other->accepted.equal(model->accepted));
  CHECK(difference(other->discriminator->hidden->norm->v, model->discriminator->hidden->norm->v) == 0);
}

TEST_CASE("Instance noise falls to 0 over the run, and continues where a run continues") {
  auto model = tiny_gan();
  Optimizers optimizers(model);
  std::vector<double> seen;
  const auto note = [&](lt::UpdateContext& update) {
    if (update.index() == 0) seen.push_back(model->instance_noise.item<double>());
  };
  auto trainer = trainer_of(model, optimizers, {.instance_noise = true}, gan::AnnealInstanceNoise{0.8},
                            lt::On{lt::kUpdate, note});
  trainer.fit(batches(2, 1), {.epochs = 2});
  CHECK(seen.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(seen[i] == Approx(0.8 * (1 - static_cast<double>(i) / 4)));
  CHECK(model->instance_noise.item<double>() == 0);
  trainer.fit(batches(2, 1), {.epochs = 4});
  CHECK(seen[4] == Approx(0.8 * 0.5));
  auto wrong = trainer_of(model, optimizers, {}, gan::AnnealInstanceNoise{-1});
  CHECK_THROWS_WITH(wrong.fit(batches(1, 1)), Contains("a deviation of -1, below 0"));
}

TEST_CASE("A loss that is not finite ends the run and names the player") {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto message_of = [](auto& trainer, const std::vector<Batch>& data) {
    try {
      trainer.fit(data);
    } catch (const lt::NonFiniteLoss& error) {
      CHECK(error.step == 0);
      return std::string(error.what());
    }
    return std::string("none");
  };
  {
    auto model = tiny_gan();
    Optimizers optimizers(model);
    auto trainer = trainer_of(model, optimizers, {});
    auto data = batches(2, 2);
    data[0].spectrograms_B1MF[0][0][3][5] = nan;
    CHECK_THAT(message_of(trainer, data), Contains("the loss of discriminator is NaN or infinite in step 0"));
  }
  {
    auto model = tiny_gan();
    model->generator->output->bias.data().fill_(nan);
    Optimizers optimizers(model);
    lt::Trainer trainer(model,
                        lt::Update{optimizers.discriminator,
                                   DiscriminatorObjective{},
                                   {.name = "discriminator", .when = [](const lt::Run&) { return false; }}},
                        lt::Update{optimizers.generator, GeneratorObjective{}, {.name = "generator"}});
    CHECK_THAT(message_of(trainer, batches(2, 2)),
               Contains("the loss of generator is NaN or infinite in step 0"));
  }
}

TEST_CASE("The averages are the generator's alone, and losses tell what the discriminator says") {
  auto model = tiny_gan();
  Optimizers optimizers(model);
  auto trainer = trainer_of(model, optimizers, {},
                            lt::AverageWeights{.rule = lt::Ema{.decay = 0.5}, .update = "generator"});
  const auto result = trainer.fit(batches(4, 2));
  CHECK(result.losses.size() == 2);
  const auto& metrics = trainer.updates()[0].metrics;
  CHECK(std::isfinite(metrics.at("real").mean()));
  CHECK(std::isfinite(metrics.at("fake").mean()));
  CHECK(metrics.at("emotion_error_real").mean() > 0);
  CHECK(trainer.updates()[1].metrics.at("emotion_error_generated").mean() > 0);
  const auto generator = model->generator->output->weight.clone();
  const auto discriminator = model->discriminator->hidden->weight.clone();
  trainer.policy<lt::AverageWeights>().copy_to(*model);
  CHECK(difference(model->generator->output->weight, generator) > 0);
  CHECK(model->discriminator->hidden->weight.equal(discriminator));
}

TEST_CASE("Each player learns in its turn: to tell real from generated, and to be taken for real") {
  auto model = tiny_gan();
  model->to(at::kFloat);
  auto data = batches(16, 8);
  for (auto& batch : data)
    batch = {batch.spectrograms_B1MF.to(at::kFloat), batch.conditions_B2.to(at::kFloat)};
  lt::FusedAdam of_discriminator(model->discriminator->parameters(), {.lr = 5e-3, .betas = {0.5, 0.999}});
  lt::FusedAdam of_generator(model->generator->parameters(), {.lr = 5e-3, .betas = {0.5, 0.999}});
  bool is_generators_turn = false;
  lt::Trainer trainer(
      model,
      lt::Update{of_discriminator,
                 DiscriminatorObjective{},
                 {.when = [&](const lt::Run&) { return !is_generators_turn; }}},
      lt::Update{
          of_generator, GeneratorObjective{}, {.when = [&](const lt::Run&) { return is_generators_turn; }}},
      lt::ClipGradNorm{1.0});
  const auto test = batches(3, 32).back();
  const auto conditions_B2 = test.conditions_B2.to(at::kFloat), real = test.spectrograms_B1MF.to(at::kFloat);
  const auto logit = [&](const at::Tensor& seen, const at::Tensor& conditions) {
    const torch::NoGradGuard no_grad;
    return model->discriminator(seen, conditions).mean().item<double>();
  };
  trainer.fit(data, {.epochs = 4});
  const auto of_real = logit(real, conditions_B2),
             of_fake = logit(model->generate(conditions_B2), conditions_B2);
  INFO(of_real << " " << of_fake);
  CHECK(of_real > of_fake + 0.5);
  is_generators_turn = true;
  trainer.fit(data, {.epochs = 8});
  CHECK(logit(model->generate(conditions_B2), conditions_B2) > of_fake + 0.3);
}
