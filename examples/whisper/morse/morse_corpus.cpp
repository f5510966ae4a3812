// SPDX-License-Identifier: MIT
// Makes a corpus of Morse code as heard in a receiver, without recordings: amateur radio contacts, words and
// code groups, keyed at 15 to 40 words a minute, from clean signals to weak ones in noise, as FLAC or WAV
// with CSV manifests for `whisper_finetune`.
#include <looptorch/app/command_line.hpp>
#include <looptorch/app/run/output_files.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/audio/encode.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/process/parallel_for_each.hpp>

#include "morse_clips.hpp"

#include <ATen/ops/from_blob.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;

struct Options {
  fs::path output;
  std::int64_t seed = 1, clips = 2000, characters = 0, jobs = 2;
  double slowest = 15, fastest = 40, shortest = 3, longest = 28, noise_share = .05;
  std::string conditions = "all", format = "flac";
};

struct Item {
  morse::Clip clip;
  fs::path file;  ///< Relative to the corpus.
};

struct Split {
  const char* name;
  std::vector<Item> items;
};

morse::ClipRanges ranges_of(const Options& options) {
  morse::ClipRanges ranges{.words_per_minute = {options.slowest, options.fastest},
                           .seconds = {options.shortest, options.longest},
                           .noise_share = options.noise_share,
                           .characters = options.characters};
  if (options.conditions != "all") ranges.conditions = {*morse::find_conditions(options.conditions)};
  return ranges;
}

/// Plans all clips. Of every ten, one is for validation and one for test.
std::array<Split, 3> plan(const Options& options) {
  std::array<Split, 3> splits{{{"train", {}}, {"validation", {}}, {"test", {}}}};
  morse::Clips clips(ranges_of(options), static_cast<std::uint64_t>(options.seed));
  for (std::int64_t i = 0; i < options.clips; ++i) {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "%06lld.", static_cast<long long>(i));
    const std::size_t split = i % 10 == 8 ? 1 : i % 10 == 9 ? 2 : 0;
    splits[split].items.push_back({clips.next(), fs::path("audio") / (name.data() + options.format)});
  }
  return splits;
}

void render(const Item& item, const fs::path& root) {
  std::vector<float> samples = item.clip.samples();
  const at::Tensor samples_T = at::from_blob(samples.data(), {static_cast<std::int64_t>(samples.size())});
  looptorch::audio::encode(root / item.file, {samples_T, static_cast<std::int64_t>(morse::kSampleRate)});
}

void write_manifest(const Split& split, const fs::path& root) {
  std::string csv = "audio_file,text,duration,words_per_minute,conditions\n";
  for (const Item& item : split.items)
    csv += looptorch::message(item.file.string(), ',', item.clip.text, ',', item.clip.seconds, ',',
                              item.clip.words_per_minute, ',', item.clip.conditions.name, '\n');
  looptorch::write_file_atomically(root / (std::string(split.name) + ".csv"), csv);
}

void make_corpus(const Options& options) {
  const auto splits = plan(options);
  app::create_output_folder("output", options.output / "audio");
  std::vector<const Item*> items;
  double seconds = 0;
  for (const Split& split : splits)
    for (const Item& item : split.items) items.push_back(&item), seconds += item.clip.seconds;
  std::cout << "keying " << items.size() << " clips into " << options.output.string() << std::endl;
  looptorch::parallel_for_each(
      items, options.jobs, [&](const Item* item) { render(*item, options.output); },
      [&](std::size_t done) {
        if (done % 256 == 0) std::cout << "  " << done << " of " << items.size() << " clips" << std::endl;
      });
  for (const Split& split : splits) write_manifest(split, options.output);
  std::cout << items.size() << " clips, " << static_cast<int>(seconds / 60) << " min "
            << static_cast<int>(seconds) % 60 << " s; manifests train.csv, validation.csv, test.csv in "
            << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line(
      "morse_corpus",
      "Makes a corpus of Morse code in noise, fading and interference.\nThe same flags give "
      "the same samples.");
  std::vector<std::string> conditions{"all"};
  for (const auto& each : morse::kConditions) conditions.emplace_back(each.name);
  line.required("output", "DIR", options.output, "folder of the corpus");
  line.option("seed", "N", options.seed, "other numbers give other texts", {.min = 0});
  line.option("clips", "N", options.clips, "clips; 80 % train, 10 % validation, 10 % test",
              {.min = 10, .max = 1'000'000});
  line.option("slowest", "WPM", options.slowest, "words a minute", {.min = 5, .max = 60});
  line.option("fastest", "WPM", options.fastest, "words a minute", {.min = 5, .max = 60});
  line.option("shortest", "S", options.shortest, "seconds of a clip", {.min = 0.5, .max = 30});
  line.option("longest", "S", options.longest, "seconds of a clip", {.min = 1, .max = 30});
  line.option("characters", "N", options.characters,
              "texts of 1 to N single characters, to begin with; 0: phrases", {.min = 0, .max = 40});
  line.option("noise-share", "X", options.noise_share, "share of clips without a text", {.min = 0, .max = 1});
  line.choice("conditions", options.conditions, conditions, "what a clip is heard under");
  line.choice("format", options.format, {"flac", "wav"}, "of the audio files");
  line.option("jobs", "N", options.jobs, "clips that are made at a time", {.min = 1, .max = 256});
  return app::run_main(argc, argv, line, [&] { make_corpus(options); });
}
