// SPDX-License-Identifier: MIT
// Makes a Konkani corpus offline: sentences of a grammar, spoken by espeak-ng's Marathi voice at many speeds,
// pitches and variants, with noise and echoes, as 16 kHz FLAC files with JSONL manifests. It is synthetic
// speech: a model trained only on it understands espeak-ng, not people.
#include <looptorch/app/process/process.hpp>
#include <looptorch/app/run/output_files.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/encode.hpp>
#include <looptorch/base/hash/stable_hash.hpp>
#include <looptorch/base/process/parallel_for_each.hpp>
#include <looptorch/base/text/hex.hpp>
#include <looptorch/data/manifest/manifest.hpp>

#include "corpus/sentences.hpp"
#include "corpus/speech_effects.hpp"
#include "corpus/voices.hpp"

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
namespace kv = konkanivani;
using looptorch::message;

constexpr std::int64_t kRate = 16000;
constexpr std::uintmax_t kWavHeader = 44;  // bytes

struct Options {
  fs::path output;
  std::int64_t seed = 1;
  std::int64_t train = 4000, validation = 100, test = 200;
  std::int64_t min_words = 2, max_words = 6;
  bool clean = false;
  std::int64_t jobs = 2;
};

struct Clip {
  std::string text, voice;
  std::int64_t words_per_minute = 0, pitch = 0;
  kv::Recording recording;
  double seconds = 0;

  /// Returns a name made of everything that determines the sound, so that an existing file is the right one.
  [[nodiscard]] fs::path file() const {
    const auto sound =
        message(text, '|', voice, '|', words_per_minute, '|', pitch, '|', recording.room, '|',
                recording.snr_db, '|', recording.colour, '|', recording.peak, '|', recording.seed);
    return fs::path("audio") / (looptorch::hex_of(looptorch::stable_hash(sound)) + ".flac");
  }
};

struct Split {
  std::string name;
  std::vector<Clip> clips;
};

Clip draw_clip(std::string text, const Options& options, kv::Dice& dice) {
  Clip clip{.text = std::move(text),
            .voice = dice.pick(kv::kVoices),
            .words_per_minute = dice.between(150, 240),
            .pitch = dice.between(20, 80),
            .recording = kv::draw_recording(dice)};
  if (options.clean) clip.recording = {};
  return clip;
}

/// Plans the whole corpus before any speech. No sentence occurs twice, within a split or between them.
std::vector<Split> plan(const Options& options) {
  constexpr int kPatience = 10'000;
  const auto grammar = kv::Grammar::konkani();
  const auto seed = static_cast<std::uint64_t>(options.seed);
  kv::Sentences sentences(grammar, seed, options.min_words, options.max_words);
  kv::Dice dice(~seed);
  std::set<std::string> taken;
  std::vector<Split> splits{{"train", {}}, {"validation", {}}, {"test", {}}};
  const std::array sizes{options.train, options.validation, options.test};
  int repeated = 0;
  for (std::size_t i = splits.size();
       i-- > 0;) {  // test first: its sentences do not depend on the training set's size
    while (static_cast<std::int64_t>(splits[i].clips.size()) < sizes[i]) {
      auto text = sentences.next();
      if (!taken.insert(text).second) {
        if (++repeated == kPatience)
          throw kv::GrammarError(message("the grammar has hardly more than ", taken.size(), " sentences of ",
                                         options.min_words, " to ", options.max_words,
                                         " words; ask for fewer clips"));
        continue;
      }
      repeated = 0;
      splits[i].clips.push_back(draw_clip(std::move(text), options, dice));
    }
  }
  return splits;
}

/// Returns the clip's length in seconds if `file` is a whole recording, else 0.
double seconds_of(const fs::path& file) {
  if (!fs::exists(file)) return 0;
  try {
    const auto audio = looptorch::audio::decode(file);
    return static_cast<double>(audio.samples_T.size(0)) / static_cast<double>(audio.sample_rate);
  } catch (const looptorch::Error&) {
    return 0;
  }
}

/// Speaks the clip into its file unless that exists. A file gets its name only when it is complete.
void speak(Clip& clip, const fs::path& root) {
  const auto file = root / clip.file();
  clip.seconds = seconds_of(file);
  if (clip.seconds > 0) return;
  const auto spoken = file.string() + ".spoken.wav";
  app::run_process({"espeak-ng", "-v", clip.voice, "-s", std::to_string(clip.words_per_minute), "-p",
                    std::to_string(clip.pitch), "-w", spoken, "--", clip.text});
  app::require_written(spoken, kWavHeader);
  const auto samples_T = looptorch::audio::decode(spoken, {.sample_rate = kRate}).samples_T;
  fs::remove(spoken);
  if (samples_T.abs().max().item<float>() == 0)
    throw looptorch::Error(message("espeak-ng said nothing for \"", clip.text, "\""));
  looptorch::audio::encode(file, {kv::record(samples_T, kRate, clip.recording), kRate});
  clip.seconds = static_cast<double>(samples_T.size(0)) / static_cast<double>(kRate);
}

/// Speaks all clips with `jobs` workers. Throws the first error.
void speak_all(const std::vector<Clip*>& clips, const Options& options) {
  looptorch::parallel_for_each(
      clips, options.jobs, [&](Clip* clip) { speak(*clip, options.output); },
      [&](std::size_t done) {
        if (done % 200 == 0) std::cout << "  " << done << " of " << clips.size() << " clips" << std::endl;
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
  if (options.min_words > options.max_words)
    throw looptorch::UsageError(
        message("--min-words ", options.min_words, " is more than --max-words ", options.max_words));
  auto splits = plan(options);
  app::run_process({"espeak-ng", "--version"});
  app::create_output_folder("output", options.output / "audio");
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
  app::CommandLine line(
      "konkanivani_corpus",
      "Makes a corpus of synthetic Konkani speech with espeak-ng.\nA run that was cut off is simply "
      "started again.");
  line.required("output", "DIR", options.output, "folder of the corpus");
  line.option("seed", "N", options.seed, "other numbers give other sentences", {.min = 0});
  line.option("train", "N", options.train, "training clips", {.min = 1, .max = 1'000'000});
  line.option("validation", "N", options.validation, "validation clips", {.min = 1, .max = 1'000'000});
  line.option("test", "N", options.test, "test clips", {.min = 1, .max = 1'000'000});
  line.option("min-words", "N", options.min_words, "words of the shortest sentences", {.min = 1, .max = 100});
  line.option("max-words", "N", options.max_words, "words of the longest sentences", {.min = 1, .max = 100});
  line.flag("clean", options.clean, true, "no noise and no echoes");
  line.option("jobs", "N", options.jobs, "clips that are spoken at a time", {.min = 1, .max = 256});
  return app::run_main(argc, argv, line, [&] { make_corpus(options); });
}
