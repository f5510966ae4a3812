// SPDX-License-Identifier: MIT
// Measures how good generators are, by two networks that are trained only on real clips. The features of one
// network give the Frechet and kernel distances between generated and held-out clips. The other network
// predicts the emotion of generated clips.
#include <looptorch/app/charts/png.hpp>
#include <looptorch/app/device.hpp>
#include <looptorch/app/run/output_folder.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/base/stopwatch.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "clips/song_clips.hpp"
#include "gan/model.hpp"
#include "measures/diversity.hpp"
#include "measures/emotion_net.hpp"
#include "measures/observation.hpp"
#include "pictures/spectrogram_picture.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace lt = looptorch;
namespace sg = spectrogram_gan;

struct Options {
  fs::path data, output;
  std::vector<std::string> models;
  std::int64_t count = 0;
  app::TrainingOptions judges{.epochs = 10, .batch_size = 16};

  [[nodiscard]] fs::path cache() const { return judges.cache.empty() ? output / "cache" : judges.cache; }
};

struct Data {
  sg::Clips train, validation, test;
};

/// Loads the data. Throws UsageError before any training if there are too few clips to measure by.
Data load_data(const Options& options, std::int64_t n_mels, sg::Notes& notes) {
  const auto splits = sg::load_splits(options.data, options.judges, notes);
  const auto clips = [&](const auto& songs) {
    return sg::cached_clips(songs, n_mels, options.cache(), notes);
  };
  Data data{clips(splits.train), clips(splits.validation), clips(splits.test)};
  if (options.count == 1 || data.validation.size() < 2 || data.test.size() < 2)
    throw lt::UsageError(lt::message("distances need at least 2 clips each: there are ",
                                     data.validation.size(), " for validation and ", data.test.size(),
                                     " for testing, and --count is ", options.count));
  return data;
}

sg::Judges train_judges(const sg::Clips& train, std::int64_t n_mels, at::Device device,
                        const Options& options) {
  const auto one = [&](std::uint64_t number) {
    return sg::train_emotion_net(train, n_mels, device,
                                 {.epochs = options.judges.epochs,
                                  .seed = options.judges.unsigned_seed() + number,
                                  .loading = options.judges.loader_options()});
  };
  return {one(1), one(2)};
}

struct Measures {
  sg::Distances distances;
  sg::ConditionCcc condition_ccc;
  sg::Diversity diversity;
};

/// Draws the requested number of clips, with the emotions of the test clips in turn, and measures them.
Measures measure(sg::Generator& generator, sg::Judges& judges, const sg::Reference& reference,
                 const Options& options) {
  const auto& test = reference.test;
  const auto clips = test.wanted_N2.size(0), count = options.count > 0 ? options.count : clips;
  const auto wanted_N2 = test.wanted_N2.repeat({(count + clips - 1) / clips, 1}).narrow(0, 0, count);
  sg::Observer observer(judges);
  sg::each_drawn(generator, wanted_N2, options.judges.unsigned_seed(),
                 [&](const at::Tensor& spectrograms, const at::Tensor& conditions) {
                   observer.add(spectrograms, conditions);
                 });
  const auto drawn = observer.observed();
  return {.distances = sg::distances(drawn, test),
          .condition_ccc = drawn.concordance(),
          .diversity = sg::diversity_of(drawn.patches_NK, test.patches_NK, reference.train_patches_NK)};
}

void print(const std::string& model, const Measures& measures) {
  const auto& [distances, condition_ccc, diversity] = measures;
  std::cout << model << ": Frechet " << distances.frechet << ", kernel distance " << distances.kernel
            << ", concordance of valence " << condition_ccc.valence << " and arousal "
            << condition_ccc.arousal << ", copies " << diversity.copies << ", spread " << diversity.spread
            << std::endl;
}

/// Draws pictures of the first test clips, and of a generator's results for their emotions.
void draw(sg::Generator& generator, const sg::Clips& test, const Options& options) {
  constexpr std::int64_t kPictures = 4;
  const auto write = [&](const char* name, const at::Tensor& spectrograms_N1MF) {
    for (std::int64_t i = 0; i < spectrograms_N1MF.size(0); ++i)
      app::write_png(options.output / lt::message(name, i, ".png"), sg::picture_of(spectrograms_N1MF[i][0]));
  };
  lt::PinnedPrefetchLoader loader(test, options.judges.loader_options());
  const auto position = loader.begin();
  const auto& batch = *position;
  write("real-", batch.spectrograms_B1MF.slice(0, 0, kPictures));
  sg::each_drawn(
      generator, batch.conditions_B2.slice(0, 0, kPictures), options.judges.unsigned_seed(),
      [&](const at::Tensor& spectrograms, const at::Tensor&) { write("generated-", spectrograms); });
}

/// Loads all generators. Their pictures must have one size.
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

app::Summary summary_of(const Measures& first, const Measures& last, const sg::Reference& reference) {
  const auto real = reference.test.concordance();
  app::Summary summary;
  const auto set = [&](const std::string& of, const sg::Distances& distances) {
    summary.set("frechet_" + of, distances.frechet).set("kid_" + of, distances.kernel);
  };
  set("first", first.distances);
  set("last", last.distances);
  set("noise", reference.noise);
  set("shuffled", reference.shuffled);
  set("real", reference.validation);
  summary.set("condition_ccc_valence", last.condition_ccc.valence)
      .set("condition_ccc_arousal", last.condition_ccc.arousal);
  summary.set("real_ccc_valence", real.valence).set("real_ccc_arousal", real.arousal);
  summary.set("nearest_generated", last.diversity.generated_to_train);
  summary.set("nearest_held_out", last.diversity.held_out_to_train);
  return summary.set("copies", last.diversity.copies).set("spread", last.diversity.spread);
}

void run(const Options& options) {
  const lt::Stopwatch stopwatch;
  for (const auto& model : options.models) app::require_apart(options.output, "MODEL", model);
  const app::OutputFolder folder(options.output, {options.data});
  const auto device = app::choose_device(options.judges.device);
  auto generators = load_generators(options, device);
  const auto n_mels = generators.front()->config().n_mels;
  sg::Notes notes;
  const app::PrintAtEnd print_short(*notes.short_clips);
  const app::PrintAtEnd print_skipped(notes.skipped);
  const auto data = load_data(options, n_mels, notes);
  auto judges = train_judges(data.train, n_mels, device, options);
  options.judges.seed_generators();
  const auto reference = sg::observe_reference(data.train, data.validation, data.test, judges,
                                               options.judges.loader_options(), notes.skipped);

  std::vector<Measures> all;
  for (std::size_t i = 0; i < generators.size(); ++i) {
    all.push_back(measure(generators[i], judges, reference, options));
    print(options.models[i], all.back());
  }
  draw(generators.back(), data.test, options);
  auto summary = summary_of(all.front(), all.back(), reference);
  summary.set("skipped", std::int64_t(notes.skipped.count()));
  summary.set("seconds", stopwatch.seconds()).set("peak_bytes", app::peak_bytes(device));
  summary.write(options.output / "summary.json");
  std::cout << summary.text() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  using app::TrainingFlag;
  Options options;
  app::CommandLine line(
      "gan_measure",
      "Measures generators that gan_train made, from the first to the last of a training, against held-out "
      "clips:\nFrechet and kernel distance, concordance of the predicted emotion with the wanted one, copies, spread.");
  line.positional("MODEL", options.models, "folders that gan_train wrote");
  line.required("data", "DIR", options.data, "folder of audio/ and the tables, as for gan_train");
  line.required("output", "DIR", options.output,
                "folder for summary.json, and pictures of some test clips and their likes");
  line.option("count", "N", options.count, "spectrograms of each model; 0: as many as test clips",
              {.min = 0});
  app::add_training_flags(
      line, options.judges,
      {.only = {TrainingFlag::epochs, TrainingFlag::device, TrainingFlag::workers, TrainingFlag::seed,
                TrainingFlag::cache, TrainingFlag::on_bad_audio},
       .help = {
           {TrainingFlag::epochs, "of the two networks that judge"},
           {TrainingFlag::workers, "threads that read clips"},
           {TrainingFlag::seed, "of the networks and of the noise"},
           {TrainingFlag::cache, "where spectrograms are kept; else OUTPUT/cache"},
           {TrainingFlag::on_bad_audio,
            "wrong lines, missing files and damaged audio: lists and skips them, or stops at the first"}}});
  return app::run_main(argc, argv, line, [&] { run(options); });
}
