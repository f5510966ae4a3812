// SPDX-License-Identifier: MIT
// How good generators are, in numbers: two networks that only ever hear real clips judge what they draw, one
// by its features (Frechet distance to held-out clips), one by the emotion that it hears.
#include <looptorch/data/cached_dataset.hpp>
#include <looptorch/data/pinned_prefetch_loader.hpp>
#include <looptorch/state/atomic_file.hpp>
#include <looptorch/state/json.hpp>

#include "command_line.hpp"
#include "data.hpp"
#include "dataset_folder.hpp"
#include "device.hpp"
#include "diversity.hpp"
#include "emotion_net.hpp"
#include "frechet.hpp"
#include "model.hpp"
#include "pictures.hpp"
#include "png.hpp"
#include "sampling.hpp"
#include "summary.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
namespace lt = looptorch;
namespace sg = spectrogram_gan;

struct Options {
  fs::path data, output, cache;
  std::vector<std::string> models;
  std::int64_t count = 0, epochs = 10, workers = 2, seed = 1;
  std::string device = "auto";
};

using Clips = lt::CachedDataset<sg::SpectrogramDataset>;

struct Data {
  Clips train, validation, test;
};

/// Real clips in memory.
struct Real {
  at::Tensor spectrograms_N1MF, conditions_N2;
};

/// Two networks of other weights and order, so that the features' owner does not also judge the emotions.
struct Judges {
  sg::EmotionNet features, regressor;

  [[nodiscard]] sg::FeatureStatistics statistics(const at::Tensor& spectrograms_N1MF) {
    return sg::statistics_of(sg::hear(features, spectrograms_N1MF).features_ND);
  }
  [[nodiscard]] sg::ConditionCcc concordance(const Real& clips) {
    return sg::concordance(sg::hear(regressor, clips.spectrograms_N1MF).conditions_N2, clips.conditions_N2);
  }
};

/// What generated clips are compared with.
struct Reference {
  Real test, validation;
  at::Tensor train_patches_NK;
  sg::FeatureStatistics of_test;
};

struct Measures {
  double frechet;
  sg::ConditionCcc heard;
  sg::Diversity diversity;
};

lt::LoaderOptions loading(const Options& options) { return {.batch_size = 16, .workers = options.workers}; }

Real gather(const Clips& clips, const Options& options) {
  std::vector<at::Tensor> spectrograms, conditions;
  for (const auto& batch : lt::PinnedPrefetchLoader(clips, loading(options))) {
    spectrograms.push_back(batch.spectrograms_B1MF.clone());
    conditions.push_back(batch.conditions_B2.clone());
  }
  return {at::cat(spectrograms), at::cat(conditions)};
}

at::Tensor gather_patches(const Clips& clips, const Options& options) {
  std::vector<at::Tensor> patches;
  for (const auto& batch : lt::PinnedPrefetchLoader(clips, loading(options)))
    patches.push_back(sg::patches_of(batch.spectrograms_B1MF));
  return at::cat(patches);
}

Data load_data(const Options& options, std::int64_t n_mels, const std::shared_ptr<sg::ShortClips>& padded) {
  const auto splits = sg::split_songs(sg::load_songs(options.data));
  const auto cached = [&](const auto& songs) {
    sg::SpectrogramDataset dataset(songs, {.mel_bins = n_mels}, padded);
    const lt::CacheOptions cache{.folder = options.cache.empty() ? options.output / "cache" : options.cache,
                                 .settings = dataset.settings()};
    return Clips(std::move(dataset), cache);
  };
  return {cached(splits.train), cached(splits.validation), cached(splits.test)};
}

/// Throws UsageError for too few clips to measure by, before anything is trained.
void check_counts(const Data& data, const Options& options) {
  if (options.count == 1 || data.validation.size() < 2 || data.test.size() < 2)
    throw lt::UsageError(lt::detail::message("distances need at least 2 clips each: there are ",
                                             data.validation.size(), " for validation and ", data.test.size(),
                                             " for testing, and --count is ", options.count));
}

Judges train_judges(const Clips& train, std::int64_t n_mels, at::Device device, const Options& options) {
  const auto one = [&](std::int64_t number) {
    return sg::train_emotion_net(train, n_mels, device,
                                 {.epochs = options.epochs,
                                  .seed = static_cast<std::uint64_t>(options.seed + number),
                                  .loading = loading(options)});
  };
  return {one(1), one(2)};
}

/// As many as asked for, with the emotions of held-out clips in turn.
at::Tensor generate(sg::Generator& generator, const at::Tensor& conditions_N2, const Options& options) {
  std::vector<at::Tensor> parts;
  std::int64_t first = 0;
  for (const auto& conditions_B2 : conditions_N2.split(16)) {
    parts.push_back(
        sg::draw_samples(generator, static_cast<std::uint64_t>(options.seed), first, conditions_B2));
    first += conditions_B2.size(0);
  }
  return at::cat(parts);
}

/// The cells of each clip in another order: loudness as in real ones, and no structure.
at::Tensor shuffled(const at::Tensor& spectrograms_N1MF) {
  auto result = spectrograms_N1MF.clone();
  for (auto clip : result.unbind()) {
    const auto cells = clip.view(-1);
    cells.copy_(cells.index({at::randperm(cells.size(0))}));
  }
  return result;
}

Measures measure(sg::Generator& generator, Judges& judges, const Reference& reference,
                 const Options& options) {
  const auto& test = reference.test;
  const auto count = options.count > 0 ? options.count : test.conditions_N2.size(0);
  const auto rounds = (count + test.conditions_N2.size(0) - 1) / test.conditions_N2.size(0);
  const auto wanted_N2 = test.conditions_N2.repeat({rounds, 1}).narrow(0, 0, count);
  const Real made{generate(generator, wanted_N2, options), wanted_N2};
  return {.frechet = sg::frechet_distance(judges.statistics(made.spectrograms_N1MF), reference.of_test),
          .heard = judges.concordance(made),
          .diversity = sg::diversity_of(sg::patches_of(made.spectrograms_N1MF),
                                        sg::patches_of(test.spectrograms_N1MF), reference.train_patches_NK)};
}

void print(const std::string& model, const Measures& measures) {
  const auto& [frechet, heard, diversity] = measures;
  std::cout << model << ": Frechet " << frechet << ", concordance of valence " << heard.valence
            << " and arousal " << heard.arousal << ", copies " << diversity.copies << ", spread "
            << diversity.spread << std::endl;
}

/// Pictures of the first test clips, and of what a generator makes of their emotions.
void draw(sg::Generator& generator, const Real& test, const Options& options) {
  const auto count = std::min<std::int64_t>(4, test.conditions_N2.size(0));
  const auto made_N1MF = generate(generator, test.conditions_N2.narrow(0, 0, count), options);
  const auto write = [&](const char* name, std::int64_t i, const at::Tensor& spectrograms_N1MF) {
    sg::write_png(options.output / lt::detail::message(name, i, ".png"),
                  sg::picture_of(spectrograms_N1MF[i][0]));
  };
  for (std::int64_t i = 0; i < count; ++i) {
    write("real-", i, test.spectrograms_N1MF);
    write("generated-", i, made_N1MF);
  }
}

/// All generators, which must draw pictures of one size.
std::vector<sg::Generator> load_generators(const Options& options, at::Device device) {
  std::vector<sg::Generator> generators;
  for (const auto& folder : options.models) {
    generators.push_back(sg::load_generator(folder));
    generators.back()->to(device);
    const auto& [first, config] = std::pair{generators.front()->config(), generators.back()->config()};
    if (config.n_mels != first.n_mels)
      throw sg::ConfigError(lt::detail::message(folder, ": draws ", config.n_mels, " mel bins, and ",
                                                options.models.front(), " ", first.n_mels,
                                                "; measure them one by one"));
  }
  return generators;
}

lt::Json summary_of(const Measures& first, const Measures& last, Judges& judges, const Reference& reference) {
  const auto& test_N1MF = reference.test.spectrograms_N1MF;
  const auto distance = [&](const at::Tensor& spectrograms_N1MF) {
    return sg::frechet_distance(judges.statistics(spectrograms_N1MF), reference.of_test);
  };
  const auto real = judges.concordance(reference.test);
  auto summary = lt::Json::object();
  summary.set("frechet_first", first.frechet).set("frechet_last", last.frechet);
  summary.set("frechet_noise", distance(at::randn_like(test_N1MF)));
  summary.set("frechet_shuffled", distance(shuffled(test_N1MF)));
  summary.set("frechet_real", distance(reference.validation.spectrograms_N1MF));
  summary.set("condition_ccc_valence", sg::finite_or_null(last.heard.valence));
  summary.set("condition_ccc_arousal", sg::finite_or_null(last.heard.arousal));
  summary.set("real_ccc_valence", sg::finite_or_null(real.valence));
  summary.set("real_ccc_arousal", sg::finite_or_null(real.arousal));
  summary.set("nearest_generated", last.diversity.generated_to_train);
  summary.set("nearest_held_out", last.diversity.held_out_to_train);
  return summary.set("copies", last.diversity.copies).set("spread", last.diversity.spread);
}

void run(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto device = sg::choose_device(options.device);
  auto generators = load_generators(options, device);
  const auto n_mels = generators.front()->config().n_mels;
  fs::create_directories(options.output);
  const sg::TellShortClips tell(std::make_shared<sg::ShortClips>(sg::SpectrogramOptions{}.seconds));
  const auto data = load_data(options, n_mels, tell.clips);
  check_counts(data, options);
  auto judges = train_judges(data.train, n_mels, device, options);
  Reference reference{
      gather(data.test, options), gather(data.validation, options), gather_patches(data.train, options), {}};
  reference.of_test = judges.statistics(reference.test.spectrograms_N1MF);

  std::vector<Measures> all;
  for (std::size_t i = 0; i < generators.size(); ++i) {
    all.push_back(measure(generators[i], judges, reference, options));
    print(options.models[i], all.back());
  }
  draw(generators.back(), reference.test, options);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  auto summary = summary_of(all.front(), all.back(), judges, reference);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  summary.set("seconds", elapsed.count());
  lt::write_file_atomically(options.output / "summary.json", summary.dump(2) + "\n");
  std::cout << summary.dump(2) << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  sg::CommandLine line(
      "gan_measure",
      "Measures generators that gan_train made, from the first to the last of a training, against held-out "
      "clips:\nFrechet distance, concordance of the emotion heard with the one wanted, copies, spread.");
  line.positional("MODEL", options.models, "folders that gan_train wrote");
  line.required("data", "DIR", options.data, "folder of audio/ and the tables, as for gan_train");
  line.required("output", "DIR", options.output,
                "folder for summary.json, and pictures of some test clips and their likes");
  line.option("count", "N", options.count, "spectrograms of each model; 0: as many as test clips",
              {.min = 0});
  line.option("epochs", "N", options.epochs, "of the two networks that judge", {.min = 1});
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: cuda if there is one");
  line.option("workers", "N", options.workers, "threads that read clips", {.min = 0, .max = 1024});
  line.option("seed", "N", options.seed, "of the networks and of the noise", {.min = 0});
  line.option("cache", "DIR", options.cache, "where spectrograms are kept; else OUTPUT/cache");
  return sg::run_main(argc, argv, line, [&] { run(options); });
}
