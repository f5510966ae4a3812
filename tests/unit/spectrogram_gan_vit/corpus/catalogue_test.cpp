// SPDX-License-Identifier: MIT
// What the corpus' sound has of its labels, measured on the sound.
// Tests spectrogram_gan_vit/corpus: dice, instruments, render, score, traits
#include "support/precompiled.hpp"

#include <looptorch/data/loader/intra_op.hpp>
#include <looptorch/metrics/regression.hpp>

#include "support/temporary_folder.hpp"

#include <spectrogram_gan_vit/clips/spectrogram.hpp>
#include <spectrogram_gan_vit/corpus/catalogue.hpp>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>

using namespace spectrogram_gan;
using looptorch::testing::TemporaryFolder;

namespace {

constexpr double kSeconds = 6;

at::Tensor sound_of(const Traits& traits, double seconds, std::uint64_t seed) {
  auto samples = perform(traits, seconds, seed);
  return torch::from_blob(samples.data(), {static_cast<std::int64_t>(samples.size())}).clone();
}

/// The clips of a corpus, made once.
struct RenderedCorpus {
  at::Tensor samples_NT, valence_N, arousal_N;
  std::vector<CorpusClip> clips;
};

const RenderedCorpus& rendered() {
  static const RenderedCorpus all = [] {
    RenderedCorpus all;
    all.clips = plan_corpus(1, {140, 1, 60});
    std::vector<at::Tensor> samples;
    std::vector<double> valence, arousal;
    for (const auto& clip : all.clips) {
      samples.push_back(sound_of(clip.traits, kSeconds, clip.seed));
      valence.push_back((clip.valence_mean - 5) / 4);
      arousal.push_back((clip.arousal_mean - 5) / 4);
    }
    all.samples_NT = torch::stack(samples);
    all.valence_N = torch::tensor(valence, torch::kDouble);
    all.arousal_N = torch::tensor(arousal, torch::kDouble);
    return all;
  }();
  return all;
}

double correlation(const at::Tensor& a, const at::Tensor& b) {
  return torch::corrcoef(torch::stack({a.to(torch::kDouble), b.to(torch::kDouble)}))[0][1].item<double>();
}

/// A number a clip, or several.
at::Tensor measure(const std::function<at::Tensor(const at::Tensor&)>& of_samples) {
  const looptorch::detail::SingleIntraOpThread one_thread;
  std::vector<at::Tensor> values;
  for (const auto& samples_T : rendered().samples_NT.unbind()) values.push_back(of_samples(samples_T));
  return torch::stack(values).to(torch::kDouble);
}

/// Magnitudes `[K, F]` of windows of 4096 samples, 5.4 Hz a row.
at::Tensor magnitudes(const at::Tensor& samples_T) {
  return torch::stft(samples_T, 4096, 2048, 4096, torch::hann_window(4096), /*center=*/false, "reflect",
                     /*normalized=*/false, /*onesided=*/true, /*return_complex=*/true)
      .abs();
}

at::Tensor frequencies() { return torch::arange(2049, torch::kFloat) * (22050.0 / 4096); }

at::Tensor level_db(const at::Tensor& samples_T) { return 10 * samples_T.square().mean().log10(); }

at::Tensor centroid(const at::Tensor& samples_T) {
  const auto power_K = magnitudes(samples_T).square().sum(1);
  return (power_K * frequencies()).sum() / power_K.sum();
}

/// Notes and beats that begin, a second: peaks of what was not there 23 ms before.
at::Tensor onsets(const at::Tensor& samples_T) {
  const auto strength_KF =
      torch::stft(samples_T, 1024, 512, 1024, torch::hann_window(1024), false, "reflect", false, true, true)
          .abs();
  const auto rise_F = strength_KF.add(0.01 * strength_KF.mean()).log().diff().clamp_min(0).mean(0);
  const auto around_F = torch::avg_pool1d(rise_F.view({1, 1, -1}), 17, 1, 8).flatten();
  const auto inner_F = rise_F.slice(0, 1, -1);
  const auto is_peak = inner_F.gt(rise_F.slice(0, 0, -2)) & inner_F.gt(rise_F.slice(0, 2)) &
                       inner_F.gt(1.5 * around_F.slice(0, 1, -1));
  return is_peak.sum() / kSeconds;
}

/// The share of strength above 6 kHz.
at::Tensor treble(const at::Tensor& samples_T) {
  const auto strength_K = magnitudes(samples_T).sum(1);
  return strength_K.slice(0, 1115).sum() / strength_K.sum();
}

/// The deviation of the level, in decibels, from one 12 ms to another.
at::Tensor unevenness(const at::Tensor& samples_T) {
  return samples_T.unfold(0, 256, 256).square().mean(1).add(1e-7).log10().mul(10).std();
}

/// The mean pitch, in octaves, between 150 and 1000 Hz.
at::Tensor register_of(const at::Tensor& samples_T) {
  const auto power_K = magnitudes(samples_T).square().sum(1).slice(0, 28, 186);
  return (power_K * frequencies().slice(0, 28, 186).log2()).sum() / power_K.sum();
}

/// Strength of the 12 pitch classes between 100 and 2000 Hz.
at::Tensor pitch_classes(const at::Tensor& samples_T) {
  const auto strength_K = magnitudes(samples_T).sum(1).slice(0, 19, 372);
  const auto pitch_K = (frequencies().slice(0, 19, 372) / 440).log2() * 12 + 69;
  return torch::zeros({12}).index_add_(0, pitch_K.round().remainder(12).to(torch::kLong), strength_K);
}

/// Plomp and Levelt's roughness between the 12 strongest peaks of each window, as a share of their strength.
at::Tensor roughness(const at::Tensor& samples_T) {
  const auto all_KF = magnitudes(samples_T).slice(0, 12, 600);
  const auto inner = all_KF.slice(0, 1, -1);
  const auto is_peak = inner.gt(all_KF.slice(0, 0, -2)).logical_and(inner.gt(all_KF.slice(0, 2)));
  const auto [strength_PF, place_PF] = (inner * is_peak).topk(12, 0);
  const auto hertz_PF = (place_PF + 13) * (22050.0 / 4096);
  const auto apart = (hertz_PF.unsqueeze(0) - hertz_PF.unsqueeze(1)).abs();
  const auto lower = torch::minimum(hertz_PF.unsqueeze(0), hertz_PF.unsqueeze(1));
  const auto x = apart * (0.24 / (0.0207 * lower + 18.96));
  const auto rough = (x * -3.51).exp() - (x * -5.75).exp();
  const auto weight = strength_PF.unsqueeze(0) * strength_PF.unsqueeze(1);
  return (weight * rough).sum() / strength_PF.square().sum();
}

/// Statistics of a z-scored picture that know nothing of the corpus: of each of 32 bands its mean, deviation
/// and change from frame to frame.
at::Tensor statistics(const at::Tensor& picture_MF) {
  const auto bands = picture_MF.reshape({32, 4, -1}).mean(1);
  return torch::cat({bands.mean(1), bands.std(1, false), bands.diff().abs().mean(1)});
}

/// Learns from the rows before `train` and judges the others, by ridge regression.
double concordance_of_ridge(at::Tensor features_NC, const at::Tensor& labels_N, std::int64_t train) {
  features_NC = features_NC.to(torch::kDouble);
  const auto [deviation, mean] = torch::std_mean(features_NC.slice(0, 0, train), 0);
  features_NC = (features_NC - mean) / deviation.clamp_min(1e-6);
  features_NC = torch::cat({features_NC, torch::ones({features_NC.size(0), 1}, torch::kDouble)}, 1);
  const auto seen = features_NC.slice(0, 0, train);
  const auto normal = seen.t().mm(seen) + 30 * torch::eye(seen.size(1), torch::kDouble);
  const auto weights = torch::linalg_solve(normal, seen.t().mv(labels_N.slice(0, 0, train)));
  looptorch::RegressionMetrics metrics;
  metrics.add(features_NC.slice(0, train).mv(weights), labels_N.slice(0, train));
  return metrics.moments().concordance();
}

}  // namespace

TEST_CASE("A clip is fixed by the corpus' seed and its id; another seed gives another") {
  const auto once = plan_clip(1, Split::test, 4), again = plan_clip(1, Split::test, 4);
  CHECK(once.id == 15);
  const auto sound = perform(once.traits, 3, once.seed);
  CHECK(sound == perform(again.traits, 3, again.seed));
  const auto other = plan_clip(2, Split::test, 4), next = plan_clip(1, Split::test, 5);
  CHECK(sound != perform(other.traits, 3, other.seed));
  CHECK(sound != perform(next.traits, 3, next.seed));
  CHECK(std::vector(sound.begin(), sound.begin() + 100) !=
        std::vector(sound.begin() + 100, sound.begin() + 200));
}

TEST_CASE("Ids, and so splits, are disjoint; a larger corpus holds the smaller one") {
  const auto small = plan_corpus(7, {50, 5, 10}), large = plan_corpus(7, {500, 40, 60});
  std::map<std::int64_t, CorpusClip> by_id;
  for (const auto& clip : large) CHECK(by_id.emplace(clip.id, clip).second);
  CHECK(by_id.size() == 600);
  for (const auto& clip : small) {
    const auto& same = by_id.at(clip.id);
    CHECK(same.split == clip.split);
    CHECK(same.seed == clip.seed);
    CHECK(same.valence_mean == clip.valence_mean);
    CHECK(same.traits.tempo == clip.traits.tempo);
  }
  std::set<std::uint64_t> seeds;
  for (const auto& clip : large) seeds.insert(clip.seed);
  CHECK(seeds.size() == 600);
}

TEST_CASE("Labels fill the square, on DEAM's scale, and are read back as they were drawn") {
  const auto clips = plan_corpus(3, {900, 50, 50});
  std::set<int> cells;
  for (const auto& clip : clips) {
    CHECK(clip.valence_mean >= 1);
    CHECK(clip.valence_mean <= 9);
    cells.insert(static_cast<int>((clip.valence_mean - 1) / 2.01) * 4 +
                 static_cast<int>((clip.arousal_mean - 1) / 2.01));
  }
  CHECK(cells.size() == 16);

  const TemporaryFolder folder;
  std::ofstream(folder / "annotations.csv") << annotations_of(clips);
  std::filesystem::create_directory(folder / "audio");
  for (const auto& clip : clips) std::ofstream(folder / ("audio/" + std::to_string(clip.id) + ".flac"));
  const auto songs = load_annotations(folder / "annotations.csv", folder / "audio");
  REQUIRE(songs.size() == clips.size());
  for (std::size_t i = 0; i < clips.size(); ++i) {
    CHECK(songs[i].id == clips[i].id);
    CHECK(songs[i].split == clips[i].split);
    CHECK(songs[i].valence == Approx((clips[i].valence_mean - 5) / 4).margin(1e-9));
    CHECK(songs[i].arousal == Approx((clips[i].arousal_mean - 5) / 4).margin(1e-9));
  }
}

TEST_CASE("Traits follow the labels in the directions of the README, without giving them away") {
  const auto clips = plan_corpus(5, {600, 1, 1});
  const auto column = [&](const auto& of) {
    std::vector<double> values;
    for (const auto& clip : clips) values.push_back(static_cast<double>(of(clip)));
    return torch::tensor(values, torch::kDouble);
  };
  const auto valence = column([](const CorpusClip& clip) { return clip.valence_mean; });
  const auto arousal = column([](const CorpusClip& clip) { return clip.arousal_mean; });
  const auto of_valence = [&](auto Traits::*trait) {
    return correlation(column([&](const CorpusClip& clip) { return clip.traits.*trait; }), valence);
  };
  const auto of_arousal = [&](auto Traits::*trait) {
    return correlation(column([&](const CorpusClip& clip) { return clip.traits.*trait; }), arousal);
  };
  for (const auto rising :
       {&Traits::tempo, &Traits::level, &Traits::brightness, &Traits::activity, &Traits::drums}) {
    CHECK(of_arousal(rising) > 0.85);
    CHECK(of_arousal(rising) < 0.999);
    CHECK(std::abs(of_valence(rising)) < 0.25);
  }
  CHECK(of_arousal(&Traits::attack) < -0.8);
  CHECK(of_arousal(&Traits::gate) < -0.85);
  CHECK(of_valence(&Traits::mode) < -0.85);  // from Ionian to Phrygian
  CHECK(of_valence(&Traits::melody_pitch) > 0.85);
  CHECK(of_valence(&Traits::roughness) < -0.85);
  CHECK(std::abs(of_arousal(&Traits::mode)) < 0.15);
  for (const auto free : {&Traits::tonic, &Traits::beats}) {
    CHECK(std::abs(of_arousal(free)) < 0.15);
    CHECK(std::abs(of_valence(free)) < 0.15);
  }
  for (const auto free : {&Traits::lead, &Traits::accompaniment}) CHECK(std::abs(of_valence(free)) < 0.15);
  CHECK(std::abs(of_arousal(&Traits::room)) < 0.15);
}

TEST_CASE("No clip is clipped, silent, or so for long") {
  const looptorch::detail::SingleIntraOpThread one_thread;
  const auto& all = rendered().samples_NT;
  CHECK(all.isfinite().all().item<bool>());
  CHECK(all.abs().amax(1).max().item<double>() < 0.999);
  CHECK(all.abs().amax(1).min().item<double>() > 0.02);
  const auto quietest_second = all.unfold(1, 22050, 11025).square().mean(2).sqrt().amin(1);
  CHECK(quietest_second.min().item<double>() > 1e-3);
}

TEST_CASE("Arousal shows in loudness, onsets and brightness") {
  CHECK(correlation(measure(level_db), rendered().arousal_N) > 0.9);
  CHECK(correlation(measure(onsets), rendered().arousal_N) > 0.7);
  CHECK(correlation(measure(centroid), rendered().arousal_N) > 0.6);
}

TEST_CASE("Valence shows in the third, the register and roughness") {
  std::vector<double> thirds;
  for (std::size_t i = 0; i < rendered().clips.size(); ++i) {
    const auto classes = pitch_classes(rendered().samples_NT[static_cast<std::int64_t>(i)]);
    const int tonic = rendered().clips[i].traits.tonic;
    const auto of = [&](int semitones) { return classes[(tonic + semitones) % 12].item<double>(); };
    thirds.push_back((of(4) - of(3)) / classes.sum().item<double>());
  }
  CHECK(correlation(torch::tensor(thirds), rendered().valence_N) > 0.6);
  CHECK(correlation(measure(register_of), rendered().valence_N) > 0.5);
  CHECK(correlation(measure(roughness), rendered().valence_N) < -0.5);
}

TEST_CASE("Each trait changes what it names, all else equal") {
  const auto change = [](auto set, const auto& feature) {
    const looptorch::detail::SingleIntraOpThread one_thread;
    Traits low, high;
    set(low, false), set(high, true);
    double difference = 0;
    for (std::uint64_t seed = 0; seed < 4; ++seed)
      difference += (feature(sound_of(high, kSeconds, seed)) - feature(sound_of(low, kSeconds, seed)))
                        .template item<double>();
    return difference / 4;
  };
  CHECK(change([](Traits& t, bool high) { t.tempo = high ? 150 : 75; }, onsets) > 0.5);
  CHECK(change([](Traits& t, bool high) { t.level = high ? -16 : -26; }, level_db) == Approx(10).margin(0.2));
  CHECK(change([](Traits& t, bool high) { t.brightness = high ? 0.9 : 0.1; }, centroid) > 100);
  CHECK(change([](Traits& t, bool high) { t.melody_pitch = high ? 76 : 60; }, register_of) > 0.3);
  CHECK(change([](Traits& t, bool high) { t.roughness = high ? 0.8 : 0; }, roughness) > 0.02);
  CHECK(change([](Traits& t, bool high) { t.activity = high ? 0.9 : 0.1; }, onsets) > 0.5);
  CHECK(change([](Traits& t, bool high) { t.drums = high ? 0.9 : 0; }, treble) > 0.02);
  const auto organ = [](Traits& t) { t.lead = t.accompaniment = Timbre::organ; };
  CHECK(change([&](Traits& t, bool high) { organ(t), t.gate = high ? 1 : 0.45; }, unevenness) < -1);
  CHECK(change([&](Traits& t, bool high) { organ(t), t.gate = 0.4, t.room = high ? 0.3 : 0; }, unevenness) <
        -0.2);
  const auto strings = [](Traits& t) { t.lead = t.accompaniment = Timbre::strings; };
  CHECK(change([&](Traits& t, bool high) { strings(t), t.attack = high ? 0.25 : 0.01; }, onsets) < -0.3);
  const auto third = [](const at::Tensor& samples_T) {
    const auto classes = pitch_classes(samples_T);
    return classes[4] / (classes[3] + classes[4]);
  };
  CHECK(change([](Traits& t, bool high) { t.mode = high ? Mode::ionian : Mode::aeolian; }, third) > 0.2);
}

TEST_CASE("In rough music a single note beats, and chords have a semitone in them") {
  const auto score_of = [](double roughness) {
    Traits traits{.roughness = roughness};
    Dice dice(1);
    const auto notes = Composer(traits, dice).compose(20).notes;
    return std::count_if(notes.begin(), notes.end(), [](const Note& note) {
      const auto in_c_major = scale_of(Mode::ionian);
      return std::find(in_c_major.begin(), in_c_major.end(), static_cast<int>(note.pitch) % 12) ==
             in_c_major.end();
    });
  };
  CHECK(score_of(0) == 0);
  CHECK(score_of(1) > 0);
  const auto beating = [](double roughness) {
    const Traits traits{.roughness = roughness, .room = 0, .lead = Timbre::organ};
    Dice dice(1);
    spectrogram_gan::detail::Mixer mixer(traits, 44100, dice);
    mixer.play(Note{.part = Part::melody, .start = 0, .length = 2, .pitch = 69, .velocity = 1});
    auto samples = mixer.finish();
    return unevenness(torch::from_blob(samples.data(), {44100}).slice(0, 8000, 36000)).item<double>();
  };
  CHECK(beating(0) < 0.5);
  CHECK(beating(0.8) > 2);
}

// A GAN's condition can only be measured if a listener can tell it at all.
TEST_CASE("Simple statistics of the pictures tell arousal and valence of clips never seen") {
  const ClipReader reader({.mel_bins = 128, .seconds = kSeconds});
  const auto features =
      measure([&](const at::Tensor& samples_T) { return statistics(reader(samples_T).spectrogram_1MF[0]); });
  const double arousal = concordance_of_ridge(features, rendered().arousal_N, 141);
  const double valence = concordance_of_ridge(features, rendered().valence_N, 141);
  INFO("concordance of arousal " << arousal << ", of valence " << valence);
  CHECK(arousal > 0.8);
  CHECK(valence > 0.6);
  const auto shuffled = rendered().arousal_N.index_select(
      0, torch::randperm(201, torch::make_generator<at::CPUGeneratorImpl>(1), torch::kLong));
  CHECK(concordance_of_ridge(features, shuffled, 141) < 0.3);
}
