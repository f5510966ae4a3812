// SPDX-License-Identifier: MIT
// How good generators are, in numbers: two networks that only ever hear real clips judge what they draw, one
// by its features (Frechet and kernel distance to held-out clips), one by the emotion that it hears. Clips go
// by in batches; in memory stay the numbers that the networks make of them.
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "command_line.hpp"
#include "data.hpp"
#include "dataset_folder.hpp"
#include "device.hpp"
#include "diversity.hpp"
#include "emotion_net.hpp"
#include "frechet.hpp"
#include "kernel_distance.hpp"
#include "left_out.hpp"
#include "model.hpp"
#include "pictures.hpp"
#include "png.hpp"
#include "sampling.hpp"
#include "summary.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
namespace lt = looptorch;
namespace sg = spectrogram_gan;

struct Options {
  fs::path data, output, cache;
  std::vector<std::string> models;
  std::int64_t count = 0, epochs = 10, workers = 2, seed = 1;
  std::string device = "auto", on_bad_audio = "skip";

  [[nodiscard]] lt::LoaderOptions loading() const {
    return {.batch_size = 16, .workers = workers, .on_error = sg::on_bad_audio(on_bad_audio)};
  }
};

using Clips = lt::CachedDataset<sg::SpectrogramDataset>;

struct Data {
  Clips train, validation, test;
};

/// Two networks of other weights and order, so that the features' owner does not also judge the emotions.
struct Judges {
  sg::EmotionNet features, regressor;
};

/// The features kept of clips: 4 KB each.
struct Observed {
  at::Tensor features_ND, heard_N2, wanted_N2, patches_NK;

  [[nodiscard]] sg::ConditionCcc concordance() const { return sg::concordance(heard_N2, wanted_N2); }
};

/// Takes clips batch by batch.
class Observer {
 public:
  explicit Observer(Judges& judges) : judges_(&judges) {}

  void add(const at::Tensor& spectrograms_B1MF, const at::Tensor& conditions_B2) {
    rows_[0].push_back(sg::hear(judges_->features, spectrograms_B1MF).features_ND);
    rows_[1].push_back(sg::hear(judges_->regressor, spectrograms_B1MF).conditions_N2);
    rows_[2].push_back(conditions_B2.clone());
    rows_[3].push_back(sg::patches_of(spectrograms_B1MF));
  }

  [[nodiscard]] Observed observed() const {
    return {at::cat(rows_[0]), at::cat(rows_[1]), at::cat(rows_[2]), at::cat(rows_[3])};
  }

 private:
  Judges* judges_;
  std::array<std::vector<at::Tensor>, 4> rows_;
};

/// From some clips to others.
struct Distances {
  double frechet, kernel;
};

[[nodiscard]] Distances distances(const Observed& a, const Observed& b) {
  return {sg::frechet_distance(sg::statistics_of(a.features_ND), sg::statistics_of(b.features_ND)),
          sg::kernel_distance(a.features_ND, b.features_ND)};
}

struct Measures {
  Distances distances;
  sg::ConditionCcc heard;
  sg::Diversity diversity;
};

/// Calls `use` with each batch; notes what the loader leaves out.
template <class Use>
void each_batch(const Clips& clips, const Options& options, sg::LeftOut& left_out, Use&& use) {
  lt::PinnedPrefetchLoader loader(clips, options.loading());
  for (const auto& batch : loader) use(batch.spectrograms_B1MF, batch.conditions_B2);
  left_out.add(loader.skipped());
}

/// The judges' figures for real clips, or for what `change` makes of these.
template <class Change>
Observed observe(const Clips& clips, Judges& judges, const Options& options, sg::LeftOut& left_out,
                 Change&& change) {
  Observer observer(judges);
  each_batch(clips, options, left_out, [&](const at::Tensor& spectrograms, const at::Tensor& conditions) {
    observer.add(change(spectrograms), conditions);
  });
  return observer.observed();
}

at::Tensor gather_patches(const Clips& clips, const Options& options, sg::LeftOut& left_out) {
  std::vector<at::Tensor> patches;
  each_batch(clips, options, left_out, [&](const at::Tensor& spectrograms, const at::Tensor&) {
    patches.push_back(sg::patches_of(spectrograms));
  });
  return at::cat(patches);
}

Data load_data(const Options& options, std::int64_t n_mels, const std::shared_ptr<sg::ShortClips>& padded,
               sg::LeftOut& left_out) {
  const bool skips = sg::on_bad_audio(options.on_bad_audio) == lt::OnError::skip;
  const auto splits = sg::split_songs(sg::load_songs(options.data, skips ? &left_out : nullptr));
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
    throw lt::UsageError(lt::message("distances need at least 2 clips each: there are ",
                                     data.validation.size(), " for validation and ", data.test.size(),
                                     " for testing, and --count is ", options.count));
}

Judges train_judges(const Clips& train, std::int64_t n_mels, at::Device device, const Options& options) {
  const auto one = [&](std::int64_t number) {
    return sg::train_emotion_net(train, n_mels, device,
                                 {.epochs = options.epochs,
                                  .seed = static_cast<std::uint64_t>(options.seed + number),
                                  .loading = options.loading()});
  };
  return {one(1), one(2)};
}

/// Calls `use` with what a generator draws for emotions, batch by batch, and with these.
template <class Use>
void each_drawn(sg::Generator& generator, const at::Tensor& conditions_N2, const Options& options,
                Use&& use) {
  std::int64_t first = 0;
  for (const auto& conditions_B2 : conditions_N2.split(16)) {
    use(sg::draw_samples(generator, static_cast<std::uint64_t>(options.seed), first, conditions_B2),
        conditions_B2);
    first += conditions_B2.size(0);
  }
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

/// As many as asked for, with the emotions of test clips in turn.
Measures measure(sg::Generator& generator, Judges& judges, const Observed& test,
                 const at::Tensor& train_patches, const Options& options) {
  const auto clips = test.wanted_N2.size(0), count = options.count > 0 ? options.count : clips;
  const auto wanted_N2 = test.wanted_N2.repeat({(count + clips - 1) / clips, 1}).narrow(0, 0, count);
  Observer observer(judges);
  each_drawn(generator, wanted_N2, options,
             [&](const at::Tensor& spectrograms, const at::Tensor& conditions) {
               observer.add(spectrograms, conditions);
             });
  const auto drawn = observer.observed();
  return {.distances = distances(drawn, test),
          .heard = drawn.concordance(),
          .diversity = sg::diversity_of(drawn.patches_NK, test.patches_NK, train_patches)};
}

void print(const std::string& model, const Measures& measures) {
  const auto& [distances, heard, diversity] = measures;
  std::cout << model << ": Frechet " << distances.frechet << ", kernel distance " << distances.kernel
            << ", concordance of valence " << heard.valence << " and arousal " << heard.arousal << ", copies "
            << diversity.copies << ", spread " << diversity.spread << std::endl;
}

/// Pictures of the first test clips, and of what a generator makes of their emotions.
void draw(sg::Generator& generator, const Clips& test, const Options& options) {
  constexpr std::int64_t kPictures = 4;
  const auto write = [&](const char* name, const at::Tensor& spectrograms_N1MF) {
    for (std::int64_t i = 0; i < spectrograms_N1MF.size(0); ++i)
      sg::write_png(options.output / lt::message(name, i, ".png"), sg::picture_of(spectrograms_N1MF[i][0]));
  };
  lt::PinnedPrefetchLoader loader(test, options.loading());
  const auto position = loader.begin();
  const auto& batch = *position;
  write("real-", batch.spectrograms_B1MF.slice(0, 0, kPictures));
  each_drawn(generator, batch.conditions_B2.slice(0, 0, kPictures), options,
             [&](const at::Tensor& spectrograms, const at::Tensor&) { write("generated-", spectrograms); });
}

/// All generators, which must draw pictures of one size.
std::vector<sg::Generator> load_generators(const Options& options, at::Device device) {
  std::vector<sg::Generator> generators;
  for (const auto& folder : options.models) {
    generators.push_back(sg::load_generator(folder));
    generators.back()->to(device);
    const auto& [first, config] = std::pair{generators.front()->config(), generators.back()->config()};
    if (config.n_mels != first.n_mels)
      throw sg::ConfigError(lt::message(folder, ": draws ", config.n_mels, " mel bins, and ",
                                        options.models.front(), " ", first.n_mels,
                                        "; measure them one by one"));
  }
  return generators;
}

/// Real clips, and what has nothing of them, by their distances to test clips.
struct Reference {
  Observed test;
  at::Tensor train_patches_NK;
  Distances validation, noise, shuffled;
};

Reference observe_reference(const Data& data, Judges& judges, const Options& options, sg::LeftOut& left_out) {
  const auto plain = [](const at::Tensor& spectrograms) { return spectrograms; };
  const auto from_test = [&](const Clips& clips, const Observed& test, const auto& change) {
    return distances(observe(clips, judges, options, left_out, change), test);
  };
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  auto test = observe(data.test, judges, options, left_out, plain);
  const auto validation = from_test(data.validation, test, plain);
  const auto noise =
      from_test(data.test, test, [](const at::Tensor& spectrograms) { return at::randn_like(spectrograms); });
  const auto mixed = from_test(data.test, test, shuffled);
  return {std::move(test), gather_patches(data.train, options, left_out), validation, noise, mixed};
}

lt::Json summary_of(const Measures& first, const Measures& last, const Reference& reference) {
  const auto real = reference.test.concordance();
  auto summary = lt::Json::object();
  const auto set = [&](const std::string& of, const Distances& distances) {
    summary.set("frechet_" + of, distances.frechet).set("kid_" + of, distances.kernel);
  };
  set("first", first.distances);
  set("last", last.distances);
  set("noise", reference.noise);
  set("shuffled", reference.shuffled);
  set("real", reference.validation);
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
  (void)options.loading();  // refuses a wrong flag before anything is read
  const auto device = sg::choose_device(options.device);
  auto generators = load_generators(options, device);
  const auto n_mels = generators.front()->config().n_mels;
  fs::create_directories(options.output);
  const sg::TellAtEnd tell_short(std::make_shared<sg::ShortClips>(sg::SpectrogramOptions{}.seconds));
  const sg::TellAtEnd tell_left_out(std::make_shared<sg::LeftOut>());
  auto& left_out = *tell_left_out.list;
  const auto data = load_data(options, n_mels, tell_short.list, left_out);
  check_counts(data, options);
  auto judges = train_judges(data.train, n_mels, device, options);
  const auto reference = observe_reference(data, judges, options, left_out);

  std::vector<Measures> all;
  for (std::size_t i = 0; i < generators.size(); ++i) {
    all.push_back(measure(generators[i], judges, reference.test, reference.train_patches_NK, options));
    print(options.models[i], all.back());
  }
  draw(generators.back(), data.test, options);
  auto summary = summary_of(all.front(), all.back(), reference);
  summary.set("left_out", static_cast<std::int64_t>(left_out.count()));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  summary.set("seconds", elapsed.count()).set("peak_bytes", sg::peak_bytes(device));
  lt::write_file_atomically(options.output / "summary.json", summary.dump(2) + "\n");
  std::cout << summary.dump(2) << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  sg::CommandLine line(
      "gan_measure",
      "Measures generators that gan_train made, from the first to the last of a training, against held-out "
      "clips:\nFrechet and kernel distance, concordance of the emotion heard with the one wanted, copies, spread.");
  line.positional("MODEL", options.models, "folders that gan_train wrote");
  line.required("data", "DIR", options.data, "folder of audio/ and the tables, as for gan_train");
  line.required("output", "DIR", options.output,
                "folder for summary.json, and pictures of some test clips and their likes");
  line.option("count", "N", options.count, "spectrograms of each model; 0: as many as test clips",
              {.min = 0});
  line.option("epochs", "N", options.epochs, "of the two networks that judge", {.min = 1});
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: cuda if there is one");
  line.option("workers", "N", options.workers, "threads that read clips", {.min = 0, .max = 1024});
  line.option("on_bad_audio", "skip|stop", options.on_bad_audio,
              "a wrong line, missing file or damaged audio is left out and listed, or ends the program");
  line.option("seed", "N", options.seed, "of the networks and of the noise", {.min = 0});
  line.option("cache", "DIR", options.cache, "where spectrograms are kept; else OUTPUT/cache");
  return sg::run_main(argc, argv, line, [&] { run(options); });
}
