// SPDX-License-Identifier: MIT
// Makes a corpus of air-traffic radiotelephony offline: ICAO phrases, spoken by espeak-ng in four English
// accents at several speeds, as 16 kHz FLAC files with JSONL manifests. It shows how to prepare data for
// `whisper_finetune`.
#include <looptorch/app/process/process.hpp>
#include <looptorch/app/run/output_files.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/audio/decode.hpp>
#include <looptorch/base/hash/stable_hash.hpp>
#include <looptorch/base/process/parallel_for_each.hpp>
#include <looptorch/base/text/hex.hpp>
#include <looptorch/data/manifest/manifest.hpp>

#include "phraseology.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;

constexpr std::array kVoices{"en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp"};
constexpr std::uintmax_t kWavHeader = 44;  // bytes
constexpr double kLongestSeconds = 8.0;    // longest sentence; all are shorter at every speed

struct Options {
  fs::path output;
  std::int64_t seed = 1;
  std::int64_t train = 256, validation = 48, test = 48;
  std::int64_t jobs = 2;
};

struct Clip {
  std::string text, voice;
  int words_per_minute = 0;
  double seconds = 0;

  /// Returns a name made of everything that determines the sound, so that an existing file is the right one.
  [[nodiscard]] fs::path file() const {
    const auto sound = text + "|" + voice + "|" + std::to_string(words_per_minute);
    return fs::path("audio") / (looptorch::hex_of(looptorch::stable_hash(sound)) + ".flac");
  }
};

struct Split {
  std::string name;
  std::vector<Clip> clips;
};

/// Plans the whole corpus before any speech. No sentence occurs twice, within a split or between them.
std::vector<Split> plan(const Options& options) {
  whisper::Phraseology phrases(static_cast<std::uint64_t>(options.seed));
  whisper::Dice dice(~static_cast<std::uint64_t>(options.seed));
  std::set<std::string> taken;
  std::vector<Split> splits{{"train", {}}, {"validation", {}}, {"test", {}}};
  const std::array sizes{options.train, options.validation, options.test};
  for (std::size_t i = 0; i < splits.size(); ++i) {
    while (static_cast<std::int64_t>(splits[i].clips.size()) < sizes[i]) {
      auto text = phrases.sentence();
      if (!taken.insert(text).second) continue;
      const auto* voice = kVoices[splits[i].clips.size() % kVoices.size()];
      splits[i].clips.push_back(
          {.text = std::move(text), .voice = voice, .words_per_minute = dice.between(170, 230)});
    }
  }
  return splits;
}

/// The clip's length if `file` is a whole recording, else 0.
double seconds_of(const fs::path& file) {
  if (!fs::exists(file)) return 0;
  try {
    const auto audio = looptorch::audio::decode(file);
    return static_cast<double>(audio.samples_T.size(0)) / static_cast<double>(audio.sample_rate);
  } catch (const looptorch::Error&) {
    return 0;
  }
}

/// Speaks the clip into its file unless it exists; a file gets its name only when complete.
void speak(Clip& clip, const fs::path& root) {
  const auto file = root / clip.file();
  clip.seconds = seconds_of(file);
  if (clip.seconds == 0) {
    const auto spoken = file.string() + ".spoken.wav", resampled = file.string() + ".partial.flac";
    app::run_process({"espeak-ng", "-v", clip.voice, "-s", std::to_string(clip.words_per_minute), "-w",
                      spoken, "--", clip.text});
    app::require_written(spoken, kWavHeader);
    app::run_process({"sox", "-R", "-V1", spoken, "-r", "16000", "-c", "1", "-b", "16", resampled});
    fs::remove(spoken);
    fs::rename(resampled, file);
    clip.seconds = seconds_of(file);
  }
  if (clip.seconds == 0 || clip.seconds > kLongestSeconds) {
    throw looptorch::Error(looptorch::message(file.string(), ": ", clip.seconds, " s, not within 0 and ",
                                              kLongestSeconds, " s: \"", clip.text, "\""));
  }
}

/// Speaks all clips with `jobs` workers; throws the first error.
void speak_all(const std::vector<Clip*>& clips, const Options& options) {
  looptorch::parallel_for_each(
      clips, options.jobs, [&](Clip* clip) { speak(*clip, options.output); },
      [&](std::size_t done) {
        if (done % 32 == 0) std::cout << "  " << done << " of " << clips.size() << " clips" << std::endl;
      });
}

void write_manifest(const Split& split, const fs::path& root) {
  std::vector<looptorch::Utterance> utterances;
  for (const auto& clip : split.clips) {
    utterances.push_back({.audio_filepath = root / clip.file(),
                          .text = clip.text,
                          .duration = clip.seconds,
                          .speaker = clip.voice});
  }
  looptorch::save_manifest(root / (split.name + ".jsonl"), utterances);
}

void make_corpus(const Options& options) {
  app::run_process({"espeak-ng", "--version"});
  app::run_process({"sox", "--version"});
  app::create_output_folder("output", options.output / "audio");
  auto splits = plan(options);
  std::vector<Clip*> clips;
  for (auto& split : splits) {
    for (auto& clip : split.clips) clips.push_back(&clip);
  }
  std::cout << "speaking " << clips.size() << " sentences into " << options.output.string() << std::endl;
  speak_all(clips, options);

  double seconds = 0;
  for (const auto* clip : clips) seconds += clip->seconds;
  for (const auto& split : splits) write_manifest(split, options.output);
  std::cout << clips.size() << " clips, " << static_cast<int>(seconds / 60) << " min "
            << static_cast<int>(seconds) % 60 << " s; manifests train.jsonl, validation.jsonl, test.jsonl in "
            << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("whisper_corpus",
                        "Makes a small speech corpus of air-traffic phraseology with espeak-ng "
                        "and sox.\nA run that was cut off is simply started again.");
  line.required("output", "DIR", options.output, "folder of the corpus");
  line.option("seed", "N", options.seed, "other numbers give other sentences", {.min = 0});
  line.option("train", "N", options.train, "training clips", {.min = 1, .max = 1'000'000});
  line.option("validation", "N", options.validation, "validation clips", {.min = 1, .max = 1'000'000});
  line.option("test", "N", options.test, "test clips", {.min = 1, .max = 1'000'000});
  line.option("jobs", "N", options.jobs, "clips that are spoken at a time", {.min = 1, .max = 256});
  return app::run_main(argc, argv, line, [&] { make_corpus(options); });
}
