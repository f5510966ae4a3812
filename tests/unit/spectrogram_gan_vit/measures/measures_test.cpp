// SPDX-License-Identifier: MIT
// The measures of a generator: Frechet and kernel distance, diversity, and the network that judges.
// Tests spectrogram_gan_vit/clips: patches
// Tests spectrogram_gan_vit/measures: diversity, emotion_net, frechet, kernel_distance
#include "support/precompiled.hpp"

#include "support/reference.hpp"
#include "unit/spectrogram_gan_vit/support.hpp"

#include <spectrogram_gan_vit/measures/diversity.hpp>
#include <spectrogram_gan_vit/measures/emotion_net.hpp>
#include <spectrogram_gan_vit/measures/frechet.hpp>
#include <spectrogram_gan_vit/measures/kernel_distance.hpp>

#include <limits>
#include <span>

using namespace spectrogram_gan_test;
using Catch::Contains;
using reference::difference;
namespace lt = looptorch;

namespace {

const at::Tensor& recorded(const std::string& name) {
  return reference::tensors("spectrogram_gan_frechet").at(name);
}

/// Clips whose loudness is their arousal, and whose rhythm is their valence.
struct ClearClips {
  struct Clip {
    at::Tensor spectrogram_1MF, conditions_2;
  };

  int64_t count;

  [[nodiscard]] int64_t size() const { return count; }
  [[nodiscard]] Clip get(int64_t index, const lt::SampleContext&) const {
    const auto spread = static_cast<double>(index * 37 % 100) / 50 - 1,
               other = static_cast<double>(index * 61 % 97) / 48 - 1;
    const auto wave_F = at::sin(at::arange(64) * (0.5 + 0.3 * spread));
    return {(wave_F + other).expand({1, 16, 64}).contiguous(), at::tensor({spread, other}, at::kFloat)};
  }
  [[nodiscard]] Batch collate(std::span<Clip> clips) const {
    std::vector<at::Tensor> spectrograms, conditions;
    for (const auto& clip : clips)
      spectrograms.push_back(clip.spectrogram_1MF), conditions.push_back(clip.conditions_2);
    return {at::stack(spectrograms), at::stack(conditions)};
  }
};

}  // namespace

TEST_CASE("The Frechet distance is scipy's, for singular covariances too") {
  for (const std::string name : {"tall", "one", "wide"}) {
    INFO(name);
    const auto a = gan::statistics_of(recorded(name + ".a")), b = gan::statistics_of(recorded(name + ".b"));
    const auto expected = recorded(name + ".distance").item<double>();
    CHECK(gan::frechet_distance(a, b) == Approx(expected).epsilon(1e-6));
    CHECK(gan::frechet_distance(b, a) == Approx(expected).epsilon(1e-6));
    CHECK(gan::frechet_distance(a, a) == Approx(0).margin(1e-4));
    CHECK(gan::frechet_distance(a, a) >= 0);
  }
  const auto still = gan::statistics_of(at::zeros({4, 3}));
  CHECK(gan::frechet_distance(still, gan::statistics_of(at::ones({4, 3}))) == Approx(3));
}

TEST_CASE("The kernel distance is the unbiased estimate, to the last digits") {
  const auto& of = reference::tensors("spectrogram_gan_kid");
  for (const std::string name : {"few", "one", "wide", "two"}) {
    INFO(name);
    const auto &a = of.at(name + ".a"), &b = of.at(name + ".b");
    const auto expected = of.at(name + ".distance").item<double>();
    CHECK(gan::kernel_distance(a, b) == Approx(expected).epsilon(1e-12));
    CHECK(gan::kernel_distance(b, a) == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("Of few clips of one population the kernel distance is 0 on average, the Frechet distance is not") {
  torch::manual_seed(5);
  double kernel = 0, frechet = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const auto a = at::randn({12, 4}), b = at::randn({12, 4});
    kernel += gan::kernel_distance(a, b) / kRounds;
    frechet += gan::frechet_distance(gan::statistics_of(a), gan::statistics_of(b)) / kRounds;
  }
  const auto apart = gan::kernel_distance(at::randn({12, 4}), at::randn({12, 4}) + 1);
  INFO(kernel << " " << frechet << " " << apart);
  CHECK(std::abs(kernel) < 0.1);
  CHECK(apart > 1);
  CHECK(frechet > 0.8);
}

TEST_CASE("Features that have no kernel distance are refused") {
  CHECK_THROWS_WITH(gan::kernel_distance(at::zeros({1, 3}), at::zeros({4, 3})),
                    Contains("at least 2 clips, got [1, 3]"));
  CHECK_THROWS_WITH(gan::kernel_distance(at::zeros({4, 3}), at::zeros({3})), Contains("got [3]"));
  CHECK_THROWS_WITH(
      gan::kernel_distance(at::zeros({4, 3}), at::full({3, 3}, std::numeric_limits<double>::infinity())),
      Contains("NaN or infinite"));
  CHECK_THROWS_WITH(gan::kernel_distance(at::zeros({4, 3}), at::zeros({4, 2})),
                    "kernel_distance: 3 features and 2");
}

TEST_CASE("Features that have no distance are refused") {
  CHECK_THROWS_WITH(gan::statistics_of(at::zeros({1, 3})), Contains("at least 2 clips, got [1, 3]"));
  CHECK_THROWS_WITH(gan::statistics_of(at::zeros({3})), Contains("got [3]"));
  CHECK_THROWS_WITH(gan::statistics_of(at::full({3, 2}, std::numeric_limits<double>::quiet_NaN())),
                    Contains("NaN or infinite"));
  CHECK_THROWS_WITH(
      gan::frechet_distance(gan::statistics_of(at::zeros({4, 3})), gan::statistics_of(at::zeros({4, 2}))),
      "frechet_distance: 3 features and 2");
}

TEST_CASE("Copies of training clips are found, and clips that are all alike") {
  torch::manual_seed(1);
  const auto clips = [](int64_t count) { return at::randn({count, 1, 16, 64}); };
  const auto train = clips(40), held_out = clips(12);
  const auto of = [&](const at::Tensor& generated) {
    return gan::diversity_of(gan::patches_of(generated), gan::patches_of(held_out), gan::patches_of(train));
  };
  const auto fresh = of(clips(12));
  CHECK(fresh.copies == 0);
  CHECK(fresh.spread == Approx(1).epsilon(0.05));
  CHECK(fresh.generated_to_train == Approx(fresh.held_out_to_train).epsilon(0.05));
  const auto mixed = of(at::cat({clips(9), train.narrow(0, 5, 3) + 0.1 * clips(3)}));
  CHECK(mixed.copies == Approx(0.25));
  const auto alike = of(clips(1).repeat({12, 1, 1, 1}) + 0.01 * clips(12));
  CHECK(alike.spread < 0.05);
  CHECK_THROWS_WITH(gan::mean_distance(gan::patches_of(clips(1))), Contains("one clip alone"));
}

TEST_CASE("A picture has no distance from itself, however far from 0 it is") {
  torch::manual_seed(2);
  const auto patches = at::randn({40, 400}) + 16;
  CHECK(gan::nearest_distances(patches, patches).max().item<double>() == 0);
  CHECK(gan::mean_distance(patches.narrow(0, 0, 1).repeat({40, 1})) == 0);
}

TEST_CASE("Distances are those of patches, by brute force") {
  const auto pictures = reference::wave({3, 1, 32, 128}, 0.2);
  const auto patches = gan::patches_of(pictures);
  CHECK(patches.sizes() == at::IntArrayRef({3, 16 * 64}));
  CHECK(patches[1][64 + 2].item<double>() ==
        Approx(pictures[1][0].slice(0, 2, 4).slice(1, 4, 6).mean().item<double>()).margin(1e-6));
  const auto distance = [&](int64_t i, int64_t j) {
    return (patches[i] - patches[j]).square().mean().sqrt().item<double>();
  };
  const auto nearest = gan::nearest_distances(patches.narrow(0, 0, 1), patches.narrow(0, 1, 2));
  CHECK(nearest[0].item<double>() == Approx(std::min(distance(0, 1), distance(0, 2))).epsilon(1e-4));
  CHECK(gan::mean_distance(patches) ==
        Approx((distance(0, 1) + distance(0, 2) + distance(1, 2)) / 3).epsilon(1e-4));
  CHECK(gan::patches_of(at::zeros({2, 1, 8, 10})).sizes() == at::IntArrayRef({2, 80}));
}

TEST_CASE("The network that judges learns to predict, and its features tell clips from noise") {
  const auto trained = [](uint64_t seed, int64_t epochs) {
    return gan::train_emotion_net(
        ClearClips{96}, 16, at::kCPU,
        {.epochs = epochs, .seed = seed, .loading = {.batch_size = 16, .workers = 0}});
  };
  auto net = trained(1, 8);
  CHECK_FALSE(net->is_training());
  const ClearClips others{60};
  std::vector<ClearClips::Clip> clips;
  for (int64_t i = 0; i < 60; ++i) clips.push_back(others.get(100 + i, {}));
  const auto batch = others.collate(clips);
  const auto predicted = gan::predict(net, batch.spectrograms_B1MF, 16);
  CHECK(predicted.features_ND.sizes() == at::IntArrayRef({60, 64}));
  const auto ccc = gan::concordance(predicted.conditions_N2, batch.conditions_B2);
  INFO(ccc.valence << " " << ccc.arousal);
  CHECK(ccc.valence > 0.5);
  CHECK(ccc.arousal > 0.5);

  const auto statistics = [&](const at::Tensor& x) {
    return gan::statistics_of(gan::predict(net, x).features_ND);
  };
  const auto half = statistics(batch.spectrograms_B1MF.narrow(0, 0, 30)),
             rest = statistics(batch.spectrograms_B1MF.narrow(0, 30, 30)),
             noise = statistics(at::randn({30, 1, 16, 64}));
  CHECK(gan::frechet_distance(half, rest) < gan::frechet_distance(half, noise) / 2);

  const auto same = trained(1, 1), again = trained(1, 1), other = trained(2, 1);
  CHECK(same->output->weight.equal(again->output->weight));
  CHECK_FALSE(same->output->weight.equal(other->output->weight));
}

TEST_CASE("Concordance is that of each emotion by itself") {
  const auto wanted = at::rand({20, 2}) * 2 - 1;
  auto predicted = wanted.clone();
  predicted.select(1, 1).neg_();
  const auto ccc = gan::concordance(predicted, wanted);
  CHECK(ccc.valence == Approx(1));
  CHECK(ccc.arousal < 0);
}
