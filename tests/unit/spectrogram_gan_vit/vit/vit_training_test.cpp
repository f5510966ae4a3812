// SPDX-License-Identifier: MIT
// Tests spectrogram_gan_vit/vit: first_model, flags, learning_curve, linear_probe, objective, scores
// Tests spectrogram_gan_vit/vit: show_unfreezing, train_options, training_data, unfreezing
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/captured_stderr.hpp"
#include "support/reference.hpp"
#include "support/temporary_folder.hpp"

#include <spectrogram_gan_vit/vit/first_model.hpp>
#include <spectrogram_gan_vit/vit/flags.hpp>
#include <spectrogram_gan_vit/vit/learning_curve.hpp>
#include <spectrogram_gan_vit/vit/linear_probe.hpp>
#include <spectrogram_gan_vit/vit/objective.hpp>
#include <spectrogram_gan_vit/vit/scores.hpp>
#include <spectrogram_gan_vit/vit/show_unfreezing.hpp>
#include <spectrogram_gan_vit/vit/train_options.hpp>
#include <spectrogram_gan_vit/vit/training_data.hpp>
#include <spectrogram_gan_vit/vit/unfreezing.hpp>

#include <fstream>
#include <map>

using Catch::Contains;
using looptorch::app::CommandLineError;
using looptorch::testing::CapturedStderr;
using looptorch::testing::TemporaryFolder;
using reference::difference;
using spectrogram_vit::UnfreezeStep;
namespace lt = looptorch;
namespace vit = spectrogram_vit;

namespace {

/// Three blocks, in fp64.
vit::ViT three_blocks(double dropout = 0) {
  torch::manual_seed(7);
  vit::ViT model(vit::ViTConfig{.hidden_size = 8,
                                .layers = 3,
                                .heads = 2,
                                .intermediate_size = 12,
                                .hidden_dropout = dropout,
                                .channels = 1,
                                .n_mels = 6,
                                .image = {6, 8},
                                .patch = {3, 2}});
  model->to(at::kDouble);
  return model;
}

/// Clips whose emotions show in their two lowest mel bins.
std::vector<vit::Batch> emotional_batches(std::int64_t count, std::int64_t size = 4) {
  torch::manual_seed(3);
  std::vector<vit::Batch> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto conditions_B2 = at::rand({size, 2}, at::kDouble) * 2 - 1;
    auto spectrograms_B1MF = 0.1 * at::randn({size, 1, 6, 16}, at::kDouble);
    spectrograms_B1MF.slice(2, 0, 2).add_(conditions_B2.view({size, 1, 2, 1}));
    batches.push_back({spectrograms_B1MF, conditions_B2});
  }
  return batches;
}

std::map<std::string, at::Tensor> weights_of(vit::ViT& model) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : model->named_parameters()) weights[item.key()] = item.value().detach().clone();
  return weights;
}

/// The names below `prefix` of which a weight is not the same.
std::set<std::string> changed(vit::ViT& model, const std::map<std::string, at::Tensor>& before) {
  std::set<std::string> names;
  for (const auto& [name, weight] : weights_of(model)) {
    if (weight.equal(before.at(name))) continue;
    const auto block = name.find("blocks.");
    names.insert(block == std::string::npos ? name : name.substr(block, 8));
  }
  return names;
}

double distance(vit::ViT& a, vit::ViT& b) {
  double largest = 0;
  const auto theirs = weights_of(b);
  for (const auto& [name, weight] : weights_of(a))
    largest = std::max(largest, difference(weight, theirs.at(name)));
  return largest;
}

std::string fault_of(const std::string& schedule) {
  try {
    (void)vit::unfreeze_rules(vit::parse_unfreezing(schedule), 12);
  } catch (const CommandLineError& error) {
    return error.what();
  }
  return "none";
}

std::string fault_of(vit::TrainOptions options) {
  try {
    options.check();
  } catch (const CommandLineError& error) {
    return error.what();
  }
  return "none";
}

/// Clips in memory; of clip i the spectrogram is i everywhere but in its first cell.
struct PlainClips {
  [[nodiscard]] std::int64_t size() const { return 3; }
  [[nodiscard]] spectrogram_gan::Clip get(std::int64_t index) const {
    auto spectrogram_1MF = at::full({1, 16, 44}, static_cast<float>(index));
    spectrogram_1MF[0][0][0] = 100;
    return {.song_id = index, .spectrogram_1MF = spectrogram_1MF, .scale = {}};
  }
  [[nodiscard]] vit::Batch collate(std::span<spectrogram_gan::Clip> clips) const {
    return spectrogram_gan::batch_of(clips);
  }
  [[nodiscard]] std::filesystem::path path(std::int64_t index) const { return std::to_string(index); }
};

}  // namespace

TEST_CASE("The loss is 0.6 times the squared error of valence and 0.4 times that of arousal") {
  const auto predicted = at::tensor({0.5, 0.0, -0.5, 0.2}, at::kDouble).view({2, 2});
  const auto wanted = at::tensor({0.1, 0.3, 0.5, 0.2}, at::kDouble).view({2, 2});
  const auto loss = vit::emotion_loss(predicted, wanted);
  CHECK(loss.item<double>() == Approx(0.6 * (0.16 + 1.0) / 2 + 0.4 * 0.09 / 2));
  CHECK(vit::emotion_loss(predicted.to(at::kBFloat16), wanted.to(at::kFloat)).scalar_type() == at::kFloat);
}

TEST_CASE("Mixup blends each clip and its labels with the next one's, by shares of Beta(alpha, alpha)") {
  const auto batch = emotional_batches(1, 3).front();
  const auto number = [](double share) { return at::scalar_tensor(share, at::kDouble); };
  const auto mixed = vit::mix(batch, number(0.75));
  for (const std::int64_t i : {0, 1, 2}) {
    const auto next = (i + 1) % 3;
    CHECK(difference(mixed.spectrograms_B1MF[i],
                     0.75 * batch.spectrograms_B1MF[i] + 0.25 * batch.spectrograms_B1MF[next]) < 1e-12);
    CHECK(difference(mixed.conditions_B2[i],
                     0.75 * batch.conditions_B2[i] + 0.25 * batch.conditions_B2[next]) < 1e-12);
  }
  CHECK(vit::mix(batch, number(1)).spectrograms_B1MF.equal(batch.spectrograms_B1MF));

  torch::manual_seed(1);
  const auto draw = [] { return vit::draw_share(0.4, at::kCPU).item<double>(); };
  const double first = draw();
  double sum = first, squares = first * first;
  for (int i = 1; i < 2000; ++i) {
    const double share = draw();
    REQUIRE((share >= 0 && share <= 1));
    sum += share, squares += share * share;
  }
  const double mean = sum / 2000;
  CHECK(mean == Approx(0.5).margin(0.03));
  CHECK(squares / 2000 - mean * mean == Approx(1 / (4 * 1.8)).margin(0.01));  // 1 / (4 (2 alpha + 1))
  torch::manual_seed(1);
  CHECK(draw() == first);

  auto model = three_blocks();
  const auto plain = vit::ViTObjective{}(model, batch),
             blended = vit::ViTObjective{.mixup = 0.4}(model, batch);
  CHECK(plain.value.item<double>() ==
        vit::emotion_loss(model(batch.spectrograms_B1MF), batch.conditions_B2).item<double>());
  CHECK(plain.value.item<double>() != blended.value.item<double>());
}

TEST_CASE("Scores are numpy's over a whole set, however it is cut into batches") {
  const auto predicted = at::tensor({.5, -.2, .1, .4, -.7, .3, .9, -.8, 0., .25}, at::kDouble).view({5, 2});
  const auto wanted = at::tensor({.4, -.5, .3, .6, -.9, .1, .5, -.6, -.2, .2}, at::kDouble).view({5, 2});
  for (const std::int64_t size : {1, 2, 5}) {
    vit::EmotionMeasure measure;
    for (std::int64_t i = 0; i < 5; i += size)
      measure.add(predicted.slice(0, i, i + size), wanted.slice(0, i, i + size));
    const auto scores = measure.result();
    CHECK(scores.at("ccc_valence") == Approx(0.8992355802640721).epsilon(1e-12));
    CHECK(scores.at("ccc_arousal") == Approx(0.8941996514812046).epsilon(1e-12));
    CHECK(scores.at("mse_valence") == Approx(0.058).epsilon(1e-12));
    CHECK(scores.at("mse_arousal") == Approx(0.0425).epsilon(1e-12));
    CHECK(scores.at("r2_valence") == Approx(0.78486646884273).epsilon(1e-12));
    CHECK(scores.at("r2_arousal") == Approx(0.7900197628458498).epsilon(1e-12));
    CHECK(scores.at("ccc") == Approx((0.8992355802640721 + 0.8941996514812046) / 2).epsilon(1e-12));
    CHECK(scores.at("loss") == Approx(0.6 * 0.058 + 0.4 * 0.0425).epsilon(1e-12));
    std::ostringstream table;
    vit::print_scores(table, {{"test", scores}});
    CHECK_THAT(table.str(), Contains("test") && Contains("0.899        0.894        0.058"));
  }
}

TEST_CASE("Scores of weights that have diverged are no result") {
  CHECK_NOTHROW(spectrogram_vit::require_finite({{"loss", 0.5}, {"ccc", std::nan("")}}, "validation"));
  CHECK_THROWS_WITH(spectrogram_vit::require_finite({{"loss", std::nan("")}}, "validation"),
                    Catch::StartsWith("the loss on validation clips is NaN or infinite: "));
}

TEST_CASE("The linear probe is ridge regression on mean mel energies, and knows what is linear in them") {
  torch::manual_seed(2);
  const auto energies = at::randn({60, 6}), weights = at::randn({6, 2});
  const vit::MeanEnergies clips{energies, 0.2 * energies.mm(weights) + 0.3};
  CHECK(vit::LinearProbe(clips, 1e-6).score(clips).at("ccc") > 0.999999);
  // The penalty pulls towards the mean: the normal equations of standardised energies.
  const vit::LinearProbe probe(clips, 10);
  const auto x = energies.to(at::kDouble), y = clips.conditions_N2.to(at::kDouble);
  const auto z = (x - x.mean(0)) / x.std(0, false);
  const auto w = at::linalg_solve(z.t().mm(z) + 10 * at::eye(6, at::kDouble), z.t().mm(y - y.mean(0)));
  CHECK(difference(probe.predict(energies), z.mm(w) + y.mean(0)) < 1e-10);
  CHECK(probe.score(clips).at("ccc") < 0.9999);
}

TEST_CASE("A schedule of unfreezing is read, and one that cannot be is refused by its part") {
  CHECK((vit::parse_unfreezing("2:11,4:10-11") == std::vector<UnfreezeStep>{{2, 11, 11}, {4, 10, 11}}));
  CHECK((vit::default_unfreezing(12) == std::vector<UnfreezeStep>{{8, 11, 11}, {12, 10, 11}, {16, 9, 11}}));
  CHECK((vit::default_unfreezing(2) == std::vector<UnfreezeStep>{{8, 1, 1}, {12, 0, 1}}));
  CHECK(fault_of("8:11,12:10-11") == "none");
  for (const auto& [part, why] :
       std::map<std::string, std::string>{{"8", "it has no colon"},
                                          {"8:", "\"\" is not an integer"},
                                          {"x:1", "\"x\" is not an integer"},
                                          {"8:1-", "\"\" is not an integer"},
                                          {"-1:1", "-1 is less than 0"},
                                          {"8:5-4", "the last block comes before the first"}})
    CHECK(fault_of("1:2," + part) ==
          "--unfreeze: \"" + part + "\" is not EPOCH:BLOCK or EPOCH:FIRST-LAST: " + why);
  CHECK(fault_of("") == "--unfreeze: the schedule is empty");
  CHECK(fault_of("8:12") == "--unfreeze: there is no block 12; the model's are 0 to 11");

  const auto rules = vit::unfreeze_rules(vit::parse_unfreezing("4:10-11,2:11"), 12);
  REQUIRE(rules.size() == 3);
  CHECK(rules[0].patterns == std::vector<std::string>{"head.*"});
  CHECK(rules[1].patterns == std::vector<std::string>{"backbone.blocks.10.*", "backbone.blocks.11.*"});
  CHECK(rules[2].patterns == std::vector<std::string>{"backbone.blocks.11.*", "backbone.norm.*"});
  CHECK(vit::last_epoch(rules) == 4);
  CHECK(vit::last_epoch(vit::train_all()) == 0);
}

TEST_CASE("A frozen backbone is not touched before its epoch, then block by block, with the moments kept") {
  const auto data = emotional_batches(3);
  const auto rules = vit::unfreeze_rules(vit::parse_unfreezing("1:2,2:1-2"), 3);
  auto ours = three_blocks(), theirs = three_blocks(), forgetful = three_blocks();
  const auto weights = weights_of(ours);
  vit::freeze_backbone(ours);
  lt::FusedAdamW optimizer(ours->parameters(), {.lr = 1e-2});
  lt::Trainer trainer(ours, optimizer, vit::ViTObjective{}, lt::UnfreezeAt(rules));
  trainer.fit(data, {.epochs = 1});
  CHECK(changed(ours, weights) == std::set<std::string>{"head.weight", "head.bias"});
  for (const auto& parameter : ours->backbone->parameters()) CHECK_FALSE(parameter.grad().defined());
  trainer.fit(data, {.epochs = 2});
  const std::set<std::string> top{"head.weight", "head.bias", "backbone.norm.weight", "backbone.norm.bias",
                                  "blocks.2"};
  CHECK(changed(ours, weights) == top);
  trainer.fit(data, {.epochs = 3});
  auto more = top;
  more.insert("blocks.1");
  CHECK(changed(ours, weights) == more);

  // By hand, with one optimizer throughout; and with a new one at each step of the schedule, as in the
  // project that this example follows.
  const auto by_hand = [&](vit::ViT& model, bool forgets) {
    vit::freeze_backbone(model);
    auto adam = std::make_unique<lt::FusedAdamW>(model->parameters(), lt::FusedAdamWOptions{.lr = 1e-2});
    for (int epoch = 0; epoch < 3; ++epoch) {
      if (forgets)
        adam = std::make_unique<lt::FusedAdamW>(model->parameters(), lt::FusedAdamWOptions{.lr = 1e-2});
      for (auto& item : model->named_parameters()) {
        const bool due = (epoch >= 1 && (item.key().starts_with("backbone.blocks.2.") ||
                                         item.key().starts_with("backbone.norm."))) ||
                         (epoch >= 2 && item.key().starts_with("backbone.blocks.1."));
        if (due) item.value().requires_grad_(true);
      }
      for (const auto& batch : data) {
        model->zero_grad();
        vit::ViTObjective{}(model, batch).value.backward();
        adam->step();
      }
    }
  };
  by_hand(theirs, false);
  by_hand(forgetful, true);
  CHECK(distance(ours, theirs) < 1e-12);
  CHECK(distance(ours, forgetful) > 1e-4);
}

TEST_CASE("Unfreezing is shown, and early stopping waits until all of the schedule was trained") {
  const auto data = emotional_batches(2);
  const TemporaryFolder folder;
  const auto epochs_of = [&](const std::vector<lt::UnfreezeRule>& rules) {
    auto model = three_blocks();
    vit::freeze_backbone(model);
    lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-12});  // nothing ever gets better by much
    const auto note = [&](lt::EpochContext& epoch) { vit::add_to_curve(folder.path(), epoch); };
    lt::Trainer trainer(
        model, optimizer, vit::ViTObjective{}, lt::UnfreezeAt(rules),
        vit::ShowUnfreezing{.last_epoch = vit::last_epoch(rules)}, lt::Validate{data, vit::EmotionMeasure{}},
        lt::On{lt::kObserve, note},
        lt::StopEarly{
            .metric = "stopping.ccc", .patience = 2, .min_delta = 0.01, .better = lt::Better::higher});
    const auto result = trainer.fit(data, {.epochs = 30});
    CHECK(result.status == lt::FitStatus::stopped);
    return result.epochs;
  };
  const CapturedStderr captured;
  CHECK(epochs_of(vit::train_all()) == 3);  // the first value, and two that are no better
  CHECK(epochs_of(vit::unfreeze_rules(vit::parse_unfreezing("3:2,5:1-2"), 3)) == 5 + 3);
  CHECK_THAT(captured.text(), Contains("epoch 1 trains 3 of 3 blocks and the head, ") &&
                                  Contains("epoch 1 trains 0 of 3 blocks and the head, 18 of ") &&
                                  Contains("epoch 4 trains 1 of 3 blocks and the head, ") &&
                                  Contains("epoch 6 trains 2 of 3 blocks and the head, "));
  std::ifstream curve(folder / "curve.csv");
  std::string header, row;
  std::getline(curve, header);
  CHECK(header ==
        "step,epoch,training_loss,loss,ccc_valence,ccc_arousal,mse_valence,mse_arousal,r2_valence,"
        "r2_arousal,trained_blocks");
  std::vector<std::string> blocks;
  while (std::getline(curve, row)) blocks.push_back(row.substr(row.rfind(',') + 1));
  CHECK(blocks == std::vector<std::string>{"0", "0", "0", "1", "1", "2", "2", "2"});
}

TEST_CASE("Blocks that run again in backward leave a run's weights the same to the bit, with dropout too") {
  const auto trained = [](bool checkpointing) {
    auto model = three_blocks(0.2);
    lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-2});
    torch::manual_seed(5);
    lt::Trainer trainer(model, optimizer, vit::ViTObjective{.mixup = 0.4}, lt::Accumulate<2>{},
                        lt::When{checkpointing, lt::Checkpointed<vit::ViTBlock>{}});
    trainer.fit(emotional_batches(4), {.epochs = 2});
    return model;
  };
  auto with = trained(true), without = trained(false);
  CHECK(distance(with, without) == 0);
}

TEST_CASE("Training clips are recorded ones, then generated ones, with masks that differ by epoch alone") {
  const TemporaryFolder folder;
  lt::save_safetensors(folder / "spectrograms-00000.safetensors",
                       {{"spectrograms", at::randn({2, 1, 16, 44})}, {"conditions", at::full({2, 2}, 0.5F)}},
                       {{"origin", "generated"}});
  std::ofstream(folder / "labels.csv") << "sample,valence,arousal\n0,0.5,0.5\n1,0.5,0.5\n";
  const PlainClips recorded;
  std::optional<spectrogram_gan::GeneratedClips> generated, none;
  generated.emplace(folder.path(), spectrogram_gan::SpectrogramOptions{.mel_bins = 16, .seconds = 1});

  const auto mean_M = at::arange(16).to(at::kFloat);
  const vit::TrainingClips plain(recorded, generated, std::nullopt, mean_M);
  REQUIRE(plain.size() == 5);
  CHECK(vit::TrainingClips(recorded, none, std::nullopt, mean_M).size() == 3);
  CHECK(plain.get(2, {}).song_id == 2);
  CHECK(plain.get(3, {}).song_id == -1);
  CHECK(plain.get(4, {}).valence == 0.5);
  CHECK(plain.path(1) == "1");
  CHECK(plain.path(4) == folder / "spectrograms-00000.safetensors");
  CHECK(plain.get(2, {.seed = 9}).spectrogram_1MF.equal(recorded.get(2).spectrogram_1MF));

  const vit::TrainingClips masked(
      recorded, generated,
      lt::audio::SpecAugmentOptions{.time_masks = 1, .max_frames = 30, .mel_masks = 1, .max_bins = 8},
      mean_M);
  const auto cells = [&](std::int64_t index, std::uint64_t seed) {
    return masked.get(index, {.seed = seed}).spectrogram_1MF;
  };
  CHECK(cells(3, 9).equal(cells(3, 9)));
  CHECK_FALSE(cells(3, 9).equal(cells(3, 10)));
  CHECK_FALSE(cells(3, 9).equal(generated->get(0).spectrogram_1MF));
  // A cell is the clip's or its mel bin's mean.
  const auto some = cells(3, 9), own = generated->get(0).spectrogram_1MF, mean_MF = mean_M.view({16, 1});
  const auto is_own = (some - own).abs() < 1e-5, is_mean = (some - mean_MF).abs() < 1e-5;
  CHECK((is_own | is_mean).all().item<bool>());
  CHECK(is_mean.any().item<bool>());
  CHECK(some.sizes() == at::IntArrayRef({1, 16, 44}));
}

TEST_CASE("Settings that contradict each other are refused, and presets set the rest") {
  vit::TrainOptions options;
  CHECK_THAT(fault_of(options), Contains("--pretrained names a Hugging Face folder"));
  options.pretrained = "folder";
  CHECK(fault_of(options) == "none");
  CHECK(options.training.learning_rate == 1e-4);
  CHECK(options.rate_of_backbone() == Approx(1e-5));
  CHECK(options.training.gradient_accumulation == 4);
  CHECK(options.patience == 5);
  CHECK(options.unfreezing(12).size() == 4);
  options.dropout = 0.1;
  CHECK_THAT(fault_of(options), Contains("--dropout needs --from-scratch"));
  options = vit::TrainOptions::small();
  CHECK(fault_of(options) == "none");
  CHECK(options.rate_of_backbone() == options.training.learning_rate);
  CHECK(options.unfreezing(4).front().patterns == std::vector<std::string>{"*"});
  options.unfreeze = "2:1";
  CHECK_THAT(fault_of(options), Contains("--unfreeze needs --pretrained"));
  options.unfreeze.clear(), options.pretrained = "folder";
  CHECK_THAT(fault_of(options), Contains("choose one"));

  const auto completed = [](vit::TrainOptions open) {
    open.complete();
    return std::pair(open.training.batch_size, open.n_mels);
  };
  options = {};
  options.pretrained = "folder";
  CHECK((completed(options) == std::pair<std::int64_t, std::int64_t>{12, 128}));
  options.gpu_memory = 10;
  CHECK((completed(options) == std::pair<std::int64_t, std::int64_t>{6, 96}));
  options.training.batch_size = 3, options.n_mels = 64;
  CHECK((completed(options) == std::pair<std::int64_t, std::int64_t>{3, 64}));
  options = vit::TrainOptions::small();
  CHECK((completed(options) == std::pair<std::int64_t, std::int64_t>{12, 64}));
  options.gpu_memory = 8;
  CHECK_THAT(fault_of(options), Contains("--preset small and --gpu-memory"));

  vit::TrainOptions parsed;
  lt::app::CommandLine line("vit_train", "");
  vit::add_flags(line, parsed);
  const auto parse = [&](const std::vector<std::string>& flags) {
    parsed = {};
    std::vector<std::string> words{"vit_train", "--data", "d", "--output", "o"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    return line.parse(static_cast<int>(arguments.size()), arguments.data());
  };
  CHECK_THROWS_WITH(parse({"--preset", "small", "--backbone-rate", "0.1"}),
                    Contains("--backbone-rate needs --pretrained"));
  CHECK_THROWS_WITH(parse({"--mask-frames", "9"}), Contains("--mask-frames needs --spec-augment"));
  CHECK_THROWS_WITH(parse({"--mask-bins", "9"}), Contains("--mask-bins needs --spec-augment"));
  CHECK(parse({"--backbone-rate", "0.1", "--mask-frames", "9", "--spec-augment"}));
  REQUIRE(parse({"--epochs", "3", "--preset", "small"}));
  CHECK(parsed.training.epochs == 3);
  CHECK(parsed.n_mels == 64);
  CHECK(parsed.data == "d");
}
