// SPDX-License-Identifier: MIT
// How held-out songs take part in training: distances by steps, the curve, the best averaged weights.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/temporary_folder.hpp"
#include "unit/spectrogram_gan_vit/support.hpp"

#include <spectrogram_gan_vit/gan/objectives.hpp>
#include <spectrogram_gan_vit/measures/validation.hpp>

#include <array>
#include <fstream>
#include <sstream>

using namespace spectrogram_gan_test;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using reference::difference;
namespace lt = looptorch;

namespace {

/// Clips whose loudness is their arousal.
struct LoudClips {
  std::int64_t count;
  std::int64_t damaged = -1;  ///< of these, the one that cannot be read

  [[nodiscard]] std::int64_t size() const { return count; }
  [[nodiscard]] Batch get(std::int64_t index) const {
    if (index == damaged) throw lt::UsageError("is damaged");
    const auto arousal = static_cast<double>(index * 37 % 20) / 10 - 1;
    return {at::full({1, 16, 40}, arousal) + 0.1 * reference::wave({1, 16, 40}, arousal).to(at::kFloat),
            at::tensor({0.0, arousal}, at::kFloat)};
  }
  [[nodiscard]] Batch collate(std::span<Batch> clips) const {
    std::vector<at::Tensor> spectrograms, conditions;
    for (const auto& clip : clips)
      spectrograms.push_back(clip.spectrograms_B1MF), conditions.push_back(clip.conditions_B2);
    return {at::stack(spectrograms), at::stack(conditions)};
  }
};

const lt::LoaderOptions kLoading{.batch_size = 4, .workers = 0};

gan::EmotionNet judge() {
  torch::manual_seed(9);
  gan::EmotionNet net(16);
  net->eval();
  return net;
}

gan::HeldOutClips held_out(std::int64_t count = 6) {
  auto net = judge();
  gan::SkippedItems skipped;
  return gan::read_held_out(net, LoudClips{count}, kLoading, skipped);
}

gan::Gan float_gan() {
  auto model = tiny_gan();
  model->to(at::kFloat);
  return model;
}

std::vector<Batch> float_batches(std::int64_t count) {
  auto data = batches(count, 2);
  for (auto& batch : data)
    batch = {batch.spectrograms_B1MF.to(at::kFloat), batch.conditions_B2.to(at::kFloat)};
  return data;
}

std::string content(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("Held-out clips are read batch by batch; those that cannot be read are skipped and listed") {
  auto net = judge();
  gan::SkippedItems skipped;
  const auto all = gan::read_held_out(net, LoudClips{6}, kLoading, skipped);
  CHECK(all.features_ND.sizes() == at::IntArrayRef({6, 64}));
  CHECK(all.conditions_N2[5][1].item<double>() == Approx(-0.5));
  CHECK(skipped.count() == 0);

  lt::LoaderOptions tolerant = kLoading;
  CHECK_THROWS_AS(gan::read_held_out(net, LoudClips{6, 2}, tolerant, skipped), lt::LoaderError);
  tolerant.on_error = lt::OnError::skip;
  const auto rest = gan::read_held_out(net, LoudClips{6, 2}, tolerant, skipped);
  CHECK(rest.features_ND.size(0) == 5);
  CHECK(difference(rest.features_ND[2], all.features_ND[3]) < 1e-5);
  CHECK(rest.conditions_N2[2].equal(all.conditions_N2[3]));
  CHECK(skipped.count(gan::Fault::audio) == 1);
  CHECK_THROWS_WITH(gan::read_held_out(net, LoudClips{2, 1}, tolerant, skipped),
                    "validation needs at least 2 clips, and there are 1; --validate-every 0 does without");
}

TEST_CASE("The distance is that between clips drawn for the emotions of all held-out songs and these songs") {
  auto model = float_gan();
  auto net = judge();
  const auto real = held_out();
  const gan::HeldOutDistance distance(net, real, 4);
  const auto measured = gan::HeldOutDistance(distance)(model, {real.conditions_N2});
  const auto drawn = gan::draw_samples(model->generator, 4, 0, real.conditions_N2);
  const auto features_ND = gan::predict(net, drawn).features_ND;
  const auto frechet =
      gan::frechet_distance(gan::statistics_of(features_ND), gan::statistics_of(real.features_ND));
  CHECK(measured.value.item<double>() == Approx(frechet));
  REQUIRE(measured.metrics.size() == 2);
  CHECK(measured.metrics[0].name == "frechet");
  CHECK(measured.metrics[0].value.number() == Approx(frechet));
  CHECK(measured.metrics[1].name == "kid");
  CHECK(measured.metrics[1].value.number() == Approx(gan::kernel_distance(features_ND, real.features_ND)));
  CHECK(frechet > 0.001);
  const auto shown = distance.shown();  // for the report: the first of what was drawn
  REQUIRE(shown->size() == 6);
  CHECK(std::get<lt::PictureExample>((*shown)[0]).png ==
        lt::app::png_of(gan::picture_of(drawn[0][0]).contiguous()));

  const lt::AutocastScope autocast(at::kCPU, at::kBFloat16);
  CHECK(gan::HeldOutDistance(net, real, 4)(model, {real.conditions_N2}).value.equal(measured.value));
}

TEST_CASE(
    "Validation every N steps sees the averaged weights, changes no number of the run, and the best are kept") {
  const TemporaryFolder folder;
  const auto real = held_out();
  const std::vector<gan::WantedEmotions> wanted{{real.conditions_N2}};
  const auto data = float_batches(3);
  std::vector<std::pair<std::int64_t, double>> seen;
  std::vector<at::Tensor> averages;
  const auto run = [&](gan::Gan& model, bool validates, std::int64_t every) {
    lt::FusedAdam of_discriminator(model->discriminator->parameters(), {.lr = 1e-2});
    lt::FusedAdam of_generator(model->generator->parameters(), {.lr = 1e-2});
    const auto note = [&](lt::WindowContext& window) {
      const auto value = window.run.metrics().find("validation.frechet");
      if (value && window.run.progress().step % every == 0)
        seen.emplace_back(window.run.progress().step, *value);
    };
    lt::Trainer trainer(
        model, lt::Update{of_discriminator, gan::DiscriminatorObjective{{.mismatched = 0.5}}},
        lt::Update{of_generator, gan::GeneratorObjective{}, {.name = "generator"}},
        lt::AverageWeights{.rule = lt::Ema{.decay = 0.5}, .update = "generator"},
        lt::When{validates, lt::Validate{wanted, gan::HeldOutDistance(judge(), real, 4), {.every = every}}},
        lt::On{lt::kObserve, note},
        lt::When{validates, lt::SnapshotEvery{.folder = folder / "snapshots", .best = "validation.frechet"}});
    torch::manual_seed(21);
    trainer.fit(data, {.epochs = 3});
    trainer.policy<lt::AverageWeights>().copy_to(*model);
    return validates ? trainer.policy<lt::SnapshotEvery>().best.step() : -1;
  };
  auto plain = float_gan(), model = float_gan();
  (void)run(plain, false, 2);
  const auto best = run(model, true, 2);
  for (std::size_t i = 0; i < model->parameters().size(); ++i)
    CHECK(model->parameters()[i].equal(plain->parameters()[i]));

  REQUIRE(seen.size() == 4);  // steps 2, 4, 6, 8 of 9
  auto least = seen.front();
  for (const auto& each : seen) least = each.second < least.second ? each : least;
  CHECK(best == least.first);
  auto loaded = float_gan();
  const std::array folders{std::filesystem::path(), folder / "nowhere", folder / "snapshots"};
  REQUIRE(gan::load_averages(loaded, best, folders));
  const gan::HeldOutDistance distance(judge(), real, 4);
  CHECK(distance(loaded, wanted[0]).value.item<double>() == Approx(least.second).epsilon(1e-4));
  CHECK_FALSE(gan::load_averages(loaded, best, std::array{folder / "nowhere"}));
}

TEST_CASE("The network that judges is trained once in a run, and anew by another") {
  const TemporaryFolder folder;
  const auto file = folder / "judge.safetensors";
  const auto made = [&](std::uint64_t seed, bool goes_on) {
    return gan::validation_judge(LoudClips{8}, 16, at::kCPU, {.epochs = 1, .seed = seed, .loading = kLoading},
                                 file, goes_on);
  };
  const auto first = made(1, true);  // there is none to go on with
  CHECK_FALSE(first->is_training());
  const auto same = made(2, true);
  CHECK_FALSE(same->is_training());
  CHECK(same->hidden->weight.equal(first->hidden->weight));
  CHECK_FALSE(made(2, false)->hidden->weight.equal(first->hidden->weight));
}

TEST_CASE(
    "The curve has a line a validation; one that continues from an earlier step writes later lines again") {
  const TemporaryFolder folder;
  const auto file = folder / "curve.csv";
  gan::add_to_curve(file, 100, 2.5, 0.5);
  gan::add_to_curve(file, 200, 1.5, -0.25);
  CHECK(content(file) == "step,frechet,kid\n100,2.5,0.5\n200,1.5,-0.25\n");
  gan::add_to_curve(file, 200, 1.25, 0.125);
  gan::add_to_curve(file, 300, 1, 0);
  CHECK(content(file) == "step,frechet,kid\n100,2.5,0.5\n200,1.25,0.125\n300,1,0\n");
  gan::add_to_curve(file, 150, 2, 0);
  CHECK(content(file) == "step,frechet,kid\n100,2.5,0.5\n150,2,0\n");
}
