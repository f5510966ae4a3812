// SPDX-License-Identifier: MIT
// Defines the settings of whisper_transcribe as flags. Settings that openai-whisper also has keep its names.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/flag_effects.hpp>
#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/app/weights/hub_model.hpp>
#include <looptorch/base/error.hpp>

#include "../audio/pcm_input.hpp"
#include "../audio/voice_activity.hpp"
#include "../decoding/decoding_flags.hpp"
#include "hallucinations.hpp"
#include "transcript_files.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace whisper {

struct TranscribeOptions {
  std::filesystem::path model, output_dir = ".";
  std::vector<std::string> files;
  std::string language = "en", device = "auto", precision = "fp32", output_format;
  double max_audio_seconds = 30;
  bool condition_on_previous_text = true, carry_initial_prompt = false, word_timestamps = false, vad = false;
  std::string clip_timestamps;
  std::optional<double> hallucination_silence{};
  std::int64_t batch_size = 1;
  bool stream = true;
  DecodingFlags decoding;
  SubtitleOptions subtitles;
  PcmFormat pcm;

  /// True if the output shows times.
  [[nodiscard]] bool needs_times() const {
    return word_timestamps || (!output_format.empty() && output_format != "txt");
  }

  /// True if standard input is transcribed as it arrives. Speech detection must wait for all of it.
  [[nodiscard]] bool streams() const { return stream && !vad; }

  /// Throws CommandLineError for flags that contradict each other.
  void check() const;
};

/// Returns the clips in a list of begins and ends in seconds, such as "0,12.5,60", as frames of 10 ms. A
/// missing last end means the recording's end. Throws CommandLineError unless the times increase.
inline std::vector<FrameSpan> parse_clips(std::string_view list) {
  using looptorch::app::CommandLineError;
  std::vector<std::int64_t> frames;
  while (!list.empty()) {
    const auto word = std::string(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(word.size() + 1, list.size()));
    try {
      constexpr double kLongest = 1e7;  // s
      frames.push_back(
          detail::frame_at(looptorch::app::parse_number<double>(word, {.min = 0, .max = kLongest})));
    } catch (const CommandLineError& error) {
      throw CommandLineError(std::string("--clip-timestamps: ") + error.what());
    }
    if (frames.size() > 1 && frames.back() < frames[frames.size() - 2])
      throw CommandLineError("--clip-timestamps: " + word + " comes before the time in front of it");
  }
  if (frames.size() % 2 == 1) frames.push_back(std::numeric_limits<std::int64_t>::max());
  std::vector<FrameSpan> clips;
  for (std::size_t i = 0; i < frames.size(); i += 2) clips.push_back({frames[i], frames[i + 1]});
  return clips;
}

inline void TranscribeOptions::check() const {
  using looptorch::app::CommandLineError;
  const auto& lines = subtitles;
  const bool shapes =
      lines.max_line_width || lines.max_line_count || lines.max_words_per_line || lines.highlight_words;
  if (shapes && !word_timestamps)
    throw CommandLineError(
        "--max-line-width, --max-line-count, --max-words-per-line and --highlight-words need --word-timestamps");
  if (hallucination_silence && !word_timestamps)
    throw CommandLineError(
        "--hallucination-silence-threshold needs --word-timestamps, which tell what is silent");
  if (vad && (!clip_timestamps.empty() || hallucination_silence))
    throw CommandLineError(
        "--vad finds the speech itself: leave --clip-timestamps and --hallucination-silence-threshold out");
  if (carry_initial_prompt && decoding.initial_prompt.empty())
    throw CommandLineError("--carry-initial-prompt needs --initial-prompt");
  (void)parse_clips(clip_timestamps);
  if (lines.max_line_count && !lines.max_line_width)
    throw CommandLineError("--max-line-count needs --max-line-width");
  if (lines.max_words_per_line && lines.max_line_width)
    throw CommandLineError("--max-words-per-line and --max-line-width exclude each other: give one of them");
  if (word_timestamps && output_format != "json" && output_format != "srt" && output_format != "vtt" &&
      output_format != "all")
    throw CommandLineError("--word-timestamps needs --output-format json, srt, vtt or all, which show them");
}

/// Adds the flags of `options` to a command line.
inline void add_flags(looptorch::app::CommandLine& line, TranscribeOptions& options) {
  line.positional(
      "FILE", options.files,
      "audio: WAV, FLAC or what else libsndfile reads, or a folder of it; -: such a file or raw samples on stdin");
  line.required("model", "DIR", options.model,
                "Hugging Face folder of the model, or the name of one that was downloaded");
  accept_hub_name(line, options.model);
  line.choice("output-format", options.output_format, {"txt", "srt", "vtt", "tsv", "json", "all"},
              "writes files of this format instead of the lines");
  line.option("output-dir", "DIR", options.output_dir,
              "where the files go; without --output-format, files of all formats");
  line.on_parsed([&options](const looptorch::app::CommandLine& parsed) {
    if (parsed.is_given("output-dir") && options.output_format.empty()) options.output_format = "all";
  });
  line.option(
      "language", "CODE", options.language,
      "what is spoken, as en or English, or auto: detected for each file; English-only models ignore it");
  accept_language_name(line, options.language);
  add_flags(line, options.decoding);
  line.toggle("condition-on-previous-text", options.condition_on_previous_text,
              "makes the text so far the prompt of the next window of a long file");
  line.toggle("carry-initial-prompt", options.carry_initial_prompt,
              "puts --initial-prompt before each window of a long file, not the first alone");
  line.option("clip-timestamps", "S,S,...", options.clip_timestamps,
              "transcribes these parts only: begin, end, begin, ... in seconds; the last may have no end");
  line.option("hallucination-silence-threshold", "S", options.hallucination_silence,
              "with --word-timestamps: skips silence longer than this around words that may be invented",
              {.min = 0});
  line.toggle("word-timestamps", options.word_timestamps, "finds when each word is said");
  line.option("max-line-width", "N", options.subtitles.max_line_width,
              "characters of a line of subtitles; longer ones are broken", {.min = 1});
  line.option("max-line-count", "N", options.subtitles.max_line_count, "lines of a subtitle", {.min = 1});
  line.option("max-words-per-line", "N", options.subtitles.max_words_per_line, "words of a subtitle",
              {.min = 1});
  line.toggle("highlight-words", options.subtitles.highlight_words, "underlines each word while it is said");
  line.toggle("vad", options.vad, "transcribes only the parts that hold speech, each by itself");
  line.option("batch-size", "N", options.batch_size, "short files, or parts by --vad, transcribed at once",
              {.min = 1, .max = 1024});
  line.option("max-audio-seconds", "S", options.max_audio_seconds,
              "length of the model's window; as in the fine-tuning", {.min = 0.1, .max = 30});
  line.option("sample-rate", "HZ", options.pcm.sample_rate, "of the raw samples", {.min = 1, .max = 655350});
  line.choice("sample-format", options.pcm.samples, {"s16le", "f32le"}, "of the raw samples");
  line.option("channels", "N", options.pcm.channels, "of the raw samples, whose mean is used",
              {.min = 1, .max = 64});
  require_effect(
      line, {"sample-rate", "sample-format", "channels"},
      [&options] { return std::ranges::find(options.files, "-") != options.files.end(); },
      "on files, which have headers: it is of raw samples on stdin, whose FILE is -");
  line.toggle(
      "stream", options.stream,
      "transcribes raw samples as they arrive; without it, and with --vad, once all are there, as a file");
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: an accelerator if there is one");
  line.flag("fp32", options.precision, "fp32", "computes in 32 bits").one_of("precision");
  line.flag("fp16", options.precision, "fp16", "in 16 bits, on an accelerator").one_of("precision");
  line.flag("bf16", options.precision, "bf16", "in 16 bits with fp32's range").one_of("precision");
}

}  // namespace whisper
