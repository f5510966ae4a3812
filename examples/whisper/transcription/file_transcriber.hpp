// SPDX-License-Identifier: MIT
// Transcribes any number of files of any length. Short files are transcribed in batches, long ones window by
// window or by their parts with speech, and standard input as it arrives.
#pragma once

#include <looptorch/base/error.hpp>

#include "../audio/arriving_recording.hpp"
#include "../audio/pcm_input.hpp"
#include "../audio/piped_header.hpp"
#include "batched_chunks.hpp"
#include "stream_text.hpp"
#include "transcribe_options.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace whisper {

/// Transcribes files in the order in which they are added.
class FileTranscriber {
 public:
  /// Functions that take the results, in the order of the files.
  struct Use {
    std::function<void(const std::string& file, const Transcription& transcription)> whole;
    std::function<void(const StreamPart& part)> part;  ///< For streams longer than a window.
  };

  /// Keeps references to recognizer and options. `on_progress` takes the transcribed seconds of a long file.
  FileTranscriber(Recognizer& recognizer, const TranscribeOptions& options, Use use,
                  std::function<void(double seconds)> on_progress = {})
      : recognizer_(recognizer),
        options_(options),
        use_(std::move(use)),
        plan_(plan_of(recognizer, options, std::move(on_progress))),
        slide_(recognizer, plan_),
        chunks_(recognizer, plan_, options.batch_size) {}

  /// Transcribes a file; "-" is standard input. Short files wait for a full batch. Throws a looptorch::Error
  /// for an unusable file, and for a stream that ended badly, the latter after its results were used.
  void add(const std::string& file) {
    use_timestamps(false);
    std::optional<UnnamedFile> stored;
    if (file == "-") {
      if (options_.streams()) finish();  // results of earlier files come before waiting for the pipe
      auto reader = std::make_unique<PcmReader>(STDIN_FILENO, options_.pcm);
      const bool is_file = begins_as_file(*reader);
      if (!is_file && options_.streams()) return add_stream(std::move(reader), file);
      stored = is_file ? store_file(*reader) : store_pcm(*reader);
    }
    Recording recording(stored ? stored->path() : std::filesystem::path(file),
                        recognizer_.model->config().num_mel_bins, file);
    if (options_.vad) {
      add_speech(recording);
    } else if (recording.frames() <= longest_whole() && !slides_always()) {
      add_whole(recording, recording.frames());
    } else {
      finish();
      use_timestamps(true);
      use_.whole(file, slide_(recording));
    }
    if (std::ssize(waiting_) >= options_.batch_size) finish();
  }

  /// Transcribes the waiting files.
  void finish() {
    use_timestamps(false);
    chunks_.finish();
    while (!waiting_.empty()) {
      auto done = std::move(waiting_.front());
      waiting_.pop_front();
      complete(done.transcription, recognizer_);
      use_.whole(done.file, done.transcription);
    }
  }

 private:
  struct WaitingFile {
    std::string file;
    Transcription transcription;
  };

  static TranscriptionPlan plan_of(Recognizer& recognizer, const TranscribeOptions& options,
                                   std::function<void(double seconds)> on_progress) {
    const auto& config = recognizer.model->config();
    TranscriptionPlan plan{
        .window = std::llround(options.max_audio_seconds * static_cast<double>(kFramesPerSecond)),
        .condition_on_previous_text = options.condition_on_previous_text,
        .on_progress = std::move(on_progress),
        .clips = parse_clips(options.clip_timestamps),
        .hallucination_silence = options.hallucination_silence,
        .carry_initial_prompt = options.carry_initial_prompt};
    plan.window = std::min(plan.window, 2 * config.max_source_positions);
    if (options.word_timestamps) plan.word_heads = load_alignment_heads(described_by(options.model), config);
    return plan;
  }

  /// True if short files are also transcribed window by window, as parts and the skipping of silence need it.
  [[nodiscard]] bool slides_always() const { return !plan_.clips.empty() || plan_.hallucination_silence; }

  /// Makes the model write timestamps as the flag says; without the flag, if windows or outputs need them.
  void use_timestamps(bool slides) {
    recognizer_.use_timestamps(options_.decoding.timestamps.value_or(slides || options_.needs_times()));
  }

  /// Returns the frames of the longest recording transcribed at once.
  [[nodiscard]] std::int64_t longest_whole() const {
    return plan_.window + static_cast<std::int64_t>(kLengthSlack * kFramesPerSecond);
  }

  /// Transcribes standard input: window by window as it arrives or, if it ends in the first, as a short file.
  void add_stream(std::unique_ptr<PcmReader> reader, const std::string& name) {
    ArrivingRecording recording(std::move(reader), recognizer_.model->config().num_mel_bins, name);
    if (!slides_always() && recording.frames_until(0, longest_whole() + 1) <= longest_whole()) {
      recording.check_sound();
      add_whole(recording, recording.frames_until(0, longest_whole()));
      finish();
    } else {
      use_timestamps(true);
      transcribe_stream(recording);
    }
    recording.check_end();
  }

  void transcribe_stream(ArrivingRecording& recording) {
    SegmentTexts texts(recognizer_);
    StreamPart part{.name = recording.name(), .has_words = plan_.word_heads.has_value()};
    const auto transcription =
        slide_(recording, [&](std::vector<Segment> segments, const std::string& language) {
          part.text = texts.add(segments);
          part.segments = std::move(segments);
          part.language = language;
          if (!part.segments.empty()) use_.part(part);
        });
    recording.check_sound();
    part.segments.clear();
    part.text = texts.finish();
    part.language = transcription.language;
    part.is_last = true;
    use_.part(part);
  }

  template <class Sound>
  Transcription& wait(const Sound& recording) {
    auto& result = waiting_.emplace_back(WaitingFile{recording.name(), {}}).transcription;
    result.has_words = plan_.word_heads.has_value();
    if (!recognizer_.detects_language) result.language = recognizer_.language;
    return result;
  }

  template <class Sound>
  void add_whole(Sound& recording, std::int64_t length) {
    const auto frames = std::clamp<std::int64_t>(length, 1, plan_.window);
    const bool timed = !recognizer_.decoding.without_timestamps;
    auto& result = wait(recording);
    chunks_.add(
        {&result,
         {0, frames},
         timed ? recording.window(0, frames, plan_.window) : recording.with_silence(0, plan_.window)});
  }

  void add_speech(Recording& recording) {
    auto& result = wait(recording);
    const auto& levels = recording.levels().decibels();
    for (const auto& span : pack_speech(find_speech(levels), plan_.window, levels))
      chunks_.add({&result, span, recording.window(span.begin, span.size(), plan_.window)});
  }

  Recognizer& recognizer_;
  const TranscribeOptions& options_;
  Use use_;
  TranscriptionPlan plan_;
  SlidingWindows slide_;
  BatchedChunks chunks_;
  std::deque<WaitingFile> waiting_;
};

}  // namespace whisper
