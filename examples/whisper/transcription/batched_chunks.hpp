// SPDX-License-Identifier: MIT
// Transcribes many short pieces of audio (chunks) at once: the files of a folder, or the parts with speech of
// a long recording. The encoder and each step of the decoder run once for a whole batch. Each chunk is
// decoded without the text of the others.
//
// Shapes: B chunks, M mel bins, T mel frames, S encoder positions, D width of the model.
#pragma once

#include "../audio/voice_activity.hpp"
#include "sliding_windows.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// A piece of a recording that fits in a window.
struct Chunk {
  Transcription* result;  ///< Gets the segments. A missing language is detected in the first chunk.
  FrameSpan span;         ///< The chunk's place in the recording.
  at::Tensor mel_MT;      ///< A whole window.
};

/// Transcribes chunks in batches. What SegmentSplitter leaves of a chunk to the next window goes into the
/// next batch. Segments arrive in their results as batches finish, the last ones in `finish`.
class BatchedChunks {
 public:
  /// Keeps a reference to the recognizer.
  BatchedChunks(Recognizer& recognizer, TranscriptionPlan plan, std::int64_t batch_size)
      : recognizer_(recognizer),
        plan_(std::move(plan)),
        read_(recognizer, plan_),
        batch_size_(static_cast<std::size_t>(batch_size)) {}

  /// Adds a chunk, and transcribes a batch if it is full.
  void add(Chunk chunk) {
    waiting_.push_back(std::move(chunk));
    if (waiting_.size() >= batch_size_) transcribe_batch();
  }

  /// Transcribes the remaining chunks.
  void finish() {
    while (!waiting_.empty()) transcribe_batch();
  }

 private:
  void transcribe_batch() {
    torch::NoGradGuard no_grad;
    const auto count = std::min(batch_size_, waiting_.size());
    std::vector<Chunk> chunks(std::move_iterator(waiting_.begin()),
                              std::move_iterator(waiting_.begin() + static_cast<std::ptrdiff_t>(count)));
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<at::Tensor> windows;
    for (const auto& chunk : chunks) windows.push_back(chunk.mel_MT);
    const auto states_BSD = recognizer_.encode(at::stack(windows));
    const auto codes = languages_of(chunks, states_BSD);
    const auto transcripts = recognizer_.decode_states(states_BSD, codes, recognizer_.decoding);
    for (std::size_t i = 0; i < count; ++i) {
      if (!transcripts[i].is_silence)
        take(chunks[i], transcripts[i], states_BSD.narrow(0, static_cast<std::int64_t>(i), 1));
    }
  }

  /// Returns the language of each chunk: its recording's, or the one detected in its first chunk.
  std::vector<std::string> languages_of(const std::vector<Chunk>& chunks,
                                        const at::Tensor& states_BSD) const {
    const auto is_known = [](const Chunk& chunk) { return !chunk.result->language.empty(); };
    if (!std::all_of(chunks.begin(), chunks.end(), is_known)) {
      const auto detected = recognizer_.codes_of(states_BSD);
      for (std::size_t i = 0; i < chunks.size(); ++i)
        if (!is_known(chunks[i])) chunks[i].result->language = detected[i];
    }
    std::vector<std::string> codes;
    for (const auto& chunk : chunks) codes.push_back(chunk.result->language);
    return codes;
  }

  void take(Chunk& chunk, const Transcript& transcript, const at::Tensor& states_1SD) {
    auto& segments = chunk.result->segments;
    double last_speech = segments.empty() ? 0 : segments.back().end;
    auto window = read_(transcript, states_1SD, {chunk.span.begin, chunk.span.size()}, last_speech);
    const auto rest = rest_of(window, chunk.span);
    std::move(window.segments.begin(), window.segments.end(), std::back_inserter(segments));
    if (rest.size() <= 0) return;
    const auto gone = rest.begin - chunk.span.begin;
    waiting_.push_front({chunk.result, rest, at::constant_pad_nd(chunk.mel_MT.slice(1, gone), {0, gone})});
  }

  /// Returns the part of a chunk that is not transcribed yet. A short rest would be transcribed badly on its
  /// own, so the last segment is dropped and transcribed again together with the rest.
  static FrameSpan rest_of(WindowSegments& window, FrameSpan span) {
    constexpr std::int64_t kShort = 5 * kFramesPerSecond;
    FrameSpan rest{span.begin + window.advance, span.end};
    if (window.advance <= 0 || rest.size() <= 0) return {};
    if (rest.size() >= kShort || window.segments.size() < 2) return rest;
    const auto start = std::llround(window.segments.back().start * kFramesPerSecond);
    if (start <= span.begin || start >= rest.begin) return rest;
    window.segments.pop_back();
    return {start, span.end};
  }

  Recognizer& recognizer_;
  TranscriptionPlan plan_;
  WindowReader read_;
  std::size_t batch_size_;
  std::deque<Chunk> waiting_;
};

/// Sorts the segments of a finished recording, and sets its text.
inline void complete(Transcription& transcription, const Recognizer& recognizer) {
  std::stable_sort(transcription.segments.begin(), transcription.segments.end(),
                   [](const Segment& a, const Segment& b) { return a.seek < b.seek; });
  join_text(transcription, recognizer);
}

}  // namespace whisper
