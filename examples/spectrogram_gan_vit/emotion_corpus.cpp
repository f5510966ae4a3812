// SPDX-License-Identifier: MIT
// Makes a corpus for music emotion offline, in DEAM's layout: short pieces, composed and played by rules.
// Tempo, mode, register, loudness, brightness and roughness follow valence and arousal, as in the literature
// (README.md). A model trained only on this corpus knows these rules, not music.
#include <looptorch/app/run_main.hpp>
#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/encode.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/process/parallel_for_each.hpp>

#include "corpus/catalogue.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace sg = spectrogram_gan;
using looptorch::Json;
using looptorch::message;

constexpr auto kRate = static_cast<std::int64_t>(sg::kSynthRate);

struct Options {
  fs::path output;
  std::int64_t seed = 1;
  std::int64_t train = 1500, validation = 150, test = 150;
  double seconds = 30;
  std::string extension = ".flac";
  std::int64_t jobs = 2;

  [[nodiscard]] fs::path file(const sg::CorpusClip& clip) const {
    return output / "audio" / (std::to_string(clip.id) + extension);
  }
};

/// Returns the settings that decide how clips sound. All clips of a folder have the same.
Json settings_of(const Options& options) {
  constexpr std::int64_t kVersion = 1;  // version of the rules in corpus/
  return Json::object()
      .set("emotion_corpus", kVersion)
      .set("seed", options.seed)
      .set("seconds", options.seconds)
      .set("format", options.extension);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw looptorch::UsageError(folder.string() + ": " + error.message());
}

/// Marks the folder as a corpus, or checks that it is one with the same settings.
void claim(const Options& options) {
  const auto settings_file = options.output / "corpus.json";
  const auto wanted = settings_of(options).dump(2) + "\n";
  if (fs::exists(settings_file)) {
    if (looptorch::read_file(settings_file) == wanted) return;
    throw looptorch::UsageError(settings_file.string() +
                                ": the folder holds a corpus of another seed, length or format");
  }
  if (fs::exists(options.output / "audio") || fs::exists(options.output / "annotations.csv"))
    throw looptorch::UsageError(options.output.string() + ": holds a dataset that this program has not made");
  make_folder(options.output);
  looptorch::write_file_atomically(settings_file, wanted);
}

/// True if `file` is a whole clip.
bool is_done(const fs::path& file, std::int64_t samples) {
  if (!fs::exists(file)) return false;
  try {
    const auto audio = looptorch::audio::decode(file);
    return audio.sample_rate == kRate && audio.samples_T.size(0) == samples;
  } catch (const looptorch::Error&) {
    return false;
  }
}

/// Writes the clip's file unless it exists. A file gets its name only when it is complete.
void write_clip(const sg::CorpusClip& clip, const Options& options) {
  const auto file = options.file(clip);
  if (is_done(file, std::llround(options.seconds * sg::kSynthRate))) return;
  auto samples = sg::perform(clip.traits, options.seconds, clip.seed);
  looptorch::audio::encode(
      file, {at::from_blob(samples.data(), {static_cast<std::int64_t>(samples.size())}), kRate});
}

/// Writes all clips with `jobs` workers. Throws the first error.
void write_clips(const std::vector<sg::CorpusClip>& clips, const Options& options) {
  looptorch::parallel_for_each(
      clips, options.jobs, [&](const sg::CorpusClip& clip) { write_clip(clip, options); },
      [&](std::size_t done) {
        if (done % 500 == 0) std::cout << "  " << done << " of " << clips.size() << " clips" << std::endl;
      });
}

void make_corpus(const Options& options) {
  const auto clips = sg::plan_corpus(static_cast<std::uint64_t>(options.seed),
                                     {options.train, options.validation, options.test});
  claim(options);
  make_folder(options.output / "audio");
  std::cout << "playing " << clips.size() << " pieces of " << options.seconds << " s into "
            << options.output.string() << std::endl;
  write_clips(clips, options);
  const auto table = options.output / "annotations.csv";
  looptorch::write_file_atomically(table, sg::annotations_of(clips));
  std::cout << clips.size() << " clips in " << (options.output / "audio").string() << ", labels in "
            << table.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line(
      "emotion_corpus",
      "Makes a corpus of synthetic music with labels of valence and arousal.\nA run that was "
      "cut off is simply started again; with more clips it adds to those that are there.");
  line.required("output", "DIR", options.output, "folder of the corpus");
  line.option("seed", "N", options.seed, "other numbers give other music", {.min = 0});
  line.option("train", "N", options.train, "training clips", {.min = 1, .max = 1'000'000});
  line.option("validation", "N", options.validation, "validation clips", {.min = 1, .max = 1'000'000});
  line.option("test", "N", options.test, "test clips", {.min = 1, .max = 1'000'000});
  line.option("seconds", "S", options.seconds, "length of a clip", {.min = 1, .max = 3600});
  line.flag("wav", options.extension, ".wav", "WAV files instead of FLAC: larger, and quicker to read");
  line.option("jobs", "N", options.jobs, "clips that are made at a time", {.min = 1, .max = 256});
  return app::run_main(argc, argv, line, [&] { make_corpus(options); });
}
