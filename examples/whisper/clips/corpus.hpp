// SPDX-License-Identifier: MIT
// The data of `whisper_finetune`: datasets of clips for training, validation and test. Before training,
// checks the headers of all files, and decodes validation and test clips to find silent and damaged ones.
#pragma once

#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/manifest/manifest_split.hpp>

#include "../decoding/recognizer.hpp"
#include "clip_check.hpp"
#include "manifests.hpp"
#include "packed_windows.hpp"
#include "speech_dataset.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// The location of the data, and the part of them to use.
struct CorpusOptions {
  std::filesystem::path train, validation, test;  ///< Manifests; if `test` is empty, validation is tested.
  std::filesystem::path transcripts;              ///< Transcripts with times, instead of the manifests.
  bool empty_texts = false;                       ///< Uses clips without a text too.
  bool strict = false;  ///< Stops at wrong lines; otherwise they are listed and skipped.
  OnBadAudio on_bad_audio = OnBadAudio::skip;
  double train_subset = 100;         ///< Per cent of the training clips to use, drawn at random.
  double max_audio_seconds = 0;      ///< Length to which clips are padded; 0: the longest clip's.
  bool whole_windows = false;        ///< Test clips are padded to kWhisperSeconds instead.
  bool chunking = false;             ///< Packs the segments of recordings into windows.
  bool keeps_cut_off = false;        ///< Training windows also have the sound of a segment that they cut off.
  std::filesystem::path cache{};     ///< Folder that keeps log-mel frames; empty: none.
  bool cache_encoder = false;        ///< Caches an encoder's states instead: see Corpus::encode_by.
  std::int64_t prepare_workers = 0;  ///< Threads that fill the cache before training; 0: epoch 1 fills it.
  std::int64_t workers = 2, seed = 1;
  std::size_t few = std::numeric_limits<std::size_t>::max();  ///< Most clips of each part, for a rehearsal.

  [[nodiscard]] double longest() const { return max_audio_seconds > 0 ? max_audio_seconds : kWhisperSeconds; }

  /// Throws CommandLineError unless either manifests or transcripts are named, and for threads without a
  /// cache.
  void check() const {
    if (prepare_workers > 0 && cache.empty())
      throw looptorch::app::CommandLineError("--prepare-workers fills a cache: name it by --cache");
    const bool has_manifest = !train.empty() || !validation.empty() || !test.empty();
    if (!transcripts.empty()) {
      if (has_manifest)
        throw looptorch::app::CommandLineError("--transcripts stands for --train, --validation and --test");
      return;
    }
    if (train.empty()) throw looptorch::app::CommandLineError("--train is missing");
    if (validation.empty()) throw looptorch::app::CommandLineError("--validation is missing");
  }
};

/// The lines of the manifests. Transcripts fill only those of training.
struct CorpusLines {
  ManifestLines train, validation, test;
};

struct Corpus {
  SpeechDataset train, validation, test;
  double max_seconds;   ///< Length to which the clips of training and validation are padded.
  double test_seconds;  ///< Length to which test clips are padded.
  SkippedItems skipped;
  WindowTexts windows;  ///< The texts of packed windows, of all three datasets.
  CorpusLines lines;

  /// Replaces all clips by the states of a frozen encoder, kept in the options' cache. `training` encodes the
  /// clips of training and validation, `evaluation` those of the test.
  void encode_by(const ClipEncoder& training, const ClipEncoder& evaluation, const CorpusOptions& options) {
    for (auto* part : {&train, &validation}) part->encode_by(training, options.cache);
    test.encode_by(evaluation, options.cache);
    prepare(options);
  }

  /// Fills the cache, if threads are given for it.
  void prepare(const CorpusOptions& options) const {
    if (options.prepare_workers == 0) return;
    for (const auto* part : {&train, &validation, &test})
      part->prepare(options.prepare_workers, looptorch::print_cache_progress());
  }
};

namespace detail {

/// Replaces the languages of utterances by their codes, and gives those without one the recognizer's, unless
/// it detects languages.
inline void fill_languages(std::vector<looptorch::Utterance>& utterances, const Recognizer& recognizer) {
  const std::string other = recognizer.detects_language ? "" : recognizer.language;
  for (auto& utterance : utterances)
    utterance.language =
        utterance.language.empty() ? other : language_code(recognizer.decoding.special, utterance.language);
}

/// Adds to `check` that a segment ends within its recording: packed with others, it would spoil their window.
/// Unreadable recordings are found with the other clips.
inline UtteranceCheck check_segments(const UtteranceCheck& check) {
  const auto seconds_of = std::make_shared<const looptorch::audio::ClipLengths>();
  return [=](const looptorch::Utterance& segment) {
    if (check) check(segment);
    try {
      if (segment.end) (void)(*seconds_of)(segment);
    } catch (const looptorch::audio::AudioError&) {
    }
  };
}

/// Reads manifests or transcripts and adds their lines to `lines`. With `chunking` packs segments into
/// windows and adds the windows' texts to `texts`.
inline looptorch::ManifestSplit read_split(const CorpusOptions& options, const Recognizer& recognizer,
                                           WindowTexts& texts, CorpusLines& lines, std::ostream& log) {
  const auto check = check_language(recognizer.decoding.special, recognizer.detects_language);
  const auto pack = [&](std::vector<looptorch::Utterance> utterances) {
    fill_languages(utterances, recognizer);
    if (!options.chunking) return utterances;
    return pack_windows(std::move(utterances), {.max_seconds = options.longest()}, texts,
                        [&](const looptorch::Utterance& segment) {
                          return std::ssize(transcript_tokens(recognizer.tokenizer, segment.text)) + 2;
                        });
  };
  if (!options.transcripts.empty()) {
    SegmentLimits limits{.max_seconds = options.longest()};
    if (options.chunking) limits = SegmentLimits::of_windows(options.longest());
    auto segments = read_transcripts(options.transcripts, limits, options.strict, log, check, &lines.train);
    lines.validation = lines.test = lines.train;
    return split_transcripts(pack(std::move(segments)), options.transcripts,
                             options.chunking ? "windows" : "segments");
  }
  const auto read = [&](const std::filesystem::path& file, ManifestLines& of_file) {
    return pack(read_utterances(file, options.strict, log, options.chunking ? check_segments(check) : check,
                                options.empty_texts, &of_file));
  };
  looptorch::ManifestSplit split{.train = read(options.train, lines.train),
                                 .validation = read(options.validation, lines.validation),
                                 .test = {}};
  if (!options.test.empty()) split.test = read(options.test, lines.test);
  return split;
}

/// Returns training windows that cut off a segment, lengthened to the longest window, if wanted.
inline std::map<std::int64_t, looptorch::Utterance> longer_sounds(
    const CorpusOptions& options, const std::vector<looptorch::Utterance>& train, const WindowTexts& texts) {
  if (!options.keeps_cut_off) return {};
  const looptorch::audio::ClipLengths seconds_of;
  return whole_sounds(train, texts, options.longest(),
                      [&](const looptorch::Utterance& window) { return seconds_of(window); });
}

}  // namespace detail

/// One manifest, and how its clips are read.
struct ClipSource {
  std::filesystem::path manifest;
  double max_seconds = kWhisperSeconds;  ///< Length to which clips are padded; longer ones are skipped.
  bool empty_texts = false;              ///< Uses clips without a text too.
  bool strict = false;                   ///< Stops at wrong lines; otherwise lists and skips them.
};

/// Reads the clips of one manifest for a model not trained on them, and decodes each once to find silent and
/// damaged ones. Writes wrong lines to `log`, and adds unusable clips to `skipped`. Throws what
/// read_utterances and keep_usable throw.
inline SpeechDataset load_clips(const ClipSource& source, const Recognizer& recognizer, ClipCheck check,
                                SkippedItems& skipped, std::ostream& log) {
  auto utterances =
      read_utterances(source.manifest, source.strict, log,
                      check_language(recognizer.decoding.special, /*is_needed=*/false), source.empty_texts);
  detail::fill_languages(utterances, recognizer);
  auto decoding = recognizer.decoding;
  if (source.empty_texts) allow_empty_texts(decoding);
  const SpeechOptions speech{.mel_bins = recognizer.model->config().num_mel_bins,
                             .max_seconds = source.max_seconds};
  const looptorch::audio::ClipLengths seconds_of;
  const LogMelReader reader(speech);
  utterances = keep_usable(std::move(utterances), check, skipped, [&](const looptorch::Utterance& utterance) {
    (void)target_of(utterance, recognizer.tokenizer, decoding);
    reader.check(utterance);
    return seconds_of(utterance);
  });
  return {std::move(utterances), recognizer.tokenizer, decoding, speech};
}

namespace detail {

/// Builds a Corpus, step by step in the order of its functions.
class CorpusLoader {
 public:
  CorpusLoader(const CorpusOptions& options, const Recognizer& recognizer)
      : options_(options),
        recognizer_(recognizer),
        check_{.workers = options.workers, .on_bad = options.on_bad_audio} {}

  /// Reads the lines, and keeps those that the run uses.
  void read(std::ostream& log) {
    split_ = read_split(options_, recognizer_, texts_, lines_, log);
    split_.train = random_subset(std::move(split_.train), options_.train_subset, options_.seed);
    for (auto* part : {&split_.train, &split_.validation, &split_.test})
      part->resize(std::min(part->size(), options_.few));
  }

  /// Keeps clips whose texts and files' headers are usable, and chooses the length to which they are padded.
  void keep_readable() {
    const looptorch::audio::ClipLengths seconds_of;
    const auto limits = limits_of(options_.longest());
    const auto length_of = [&](const looptorch::Utterance& utterance) {
      (void)target_of(utterance, recognizer_.tokenizer, recognizer_.decoding);
      const double seconds = seconds_of(utterance);
      limits.check(utterance.audio_filepath, seconds);
      return seconds;
    };
    keep(split_.train, lines_.train, length_of);
    keep(split_.validation, lines_.validation, length_of);
    keep(split_.test, lines_.test, length_of);
    longer_ = longer_sounds(options_, split_.train, texts_);
    seconds_ = options_.max_audio_seconds > 0 ? options_.max_audio_seconds : longest_seconds();
  }

  /// Decodes the clips of validation and test, and keeps those that are neither silent nor damaged. Single
  /// segments of transcripts have been decoded before.
  void keep_audible() {
    if (!options_.transcripts.empty() && !options_.chunking) return;
    const LogMelReader reader(speech(seconds_));
    const auto checked = [&](const looptorch::Utterance& utterance) {
      reader.check(utterance);
      return *utterance.duration;
    };
    keep(split_.validation, lines_.validation, checked);
    keep(split_.test, lines_.test, checked);
  }

  /// Returns the corpus, and lists skipped clips in `log`.
  [[nodiscard]] Corpus corpus(std::ostream& log) {
    if (options_.transcripts.empty() && options_.test.empty()) split_.test = split_.validation;
    log << skipped_.describe({.at_most = kListedClips}) << std::flush;
    const double test_seconds = options_.whole_windows ? kWhisperSeconds : seconds_;
    return {.train = dataset(split_.train, seconds_, std::move(longer_)),
            .validation = dataset(split_.validation, seconds_),
            .test = dataset(split_.test, test_seconds),
            .max_seconds = seconds_,
            .test_seconds = test_seconds,
            .skipped = std::move(skipped_),
            .windows = std::move(texts_),
            .lines = std::move(lines_)};
  }

 private:
  template <class Measure>
  void keep(std::vector<looptorch::Utterance>& part, const ManifestLines& lines, const Measure& measure) {
    part = keep_usable(std::move(part), check_, skipped_, measure, lines);
  }

  [[nodiscard]] double longest_seconds() const {
    std::vector<looptorch::Utterance> sounds;
    for (const auto& [index, window] : longer_) sounds.push_back(window);
    return common_seconds({&split_.train, &split_.validation, &split_.test, &sounds});
  }

  [[nodiscard]] SpeechOptions speech(double padded_seconds) const {
    return {.mel_bins = recognizer_.model->config().num_mel_bins, .max_seconds = padded_seconds};
  }

  [[nodiscard]] SpeechDataset dataset(std::vector<looptorch::Utterance>& utterances, double padded_seconds,
                                      std::map<std::int64_t, looptorch::Utterance> longer = {}) const {
    return SpeechDataset(std::move(utterances), recognizer_.tokenizer, recognizer_.decoding,
                         speech(padded_seconds), options_.cache, std::move(longer));
  }

  const CorpusOptions& options_;
  const Recognizer& recognizer_;
  ClipCheck check_;
  looptorch::ManifestSplit split_;
  WindowTexts texts_;
  CorpusLines lines_;
  SkippedItems skipped_;
  std::map<std::int64_t, looptorch::Utterance> longer_;  // sounds of windows cut off within a segment
  double seconds_ = 0;                                   // length to which clips are padded
};

}  // namespace detail

/// Reads the corpus for a model. Writes skipped lines and clips to `log`. Throws CommandLineError,
/// SpeechError, and what read_utterances and read_transcripts throw.
inline Corpus load_corpus(const CorpusOptions& options, const Recognizer& recognizer, std::ostream& log) {
  options.check();
  detail::CorpusLoader loader(options, recognizer);
  loader.read(log);
  loader.keep_readable();
  loader.keep_audible();
  Corpus corpus = loader.corpus(log);
  if (!options.cache_encoder) corpus.prepare(options);
  return corpus;
}

}  // namespace whisper
