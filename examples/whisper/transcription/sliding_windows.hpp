// SPDX-License-Identifier: MIT
// Transcribes long recordings as openai-whisper's `transcribe` does: window by window, each beginning at the
// end of the previous one's last complete segment, with the text so far as its prompt.
//
// Shapes: M mel bins, T mel frames, S encoder positions, D width of the model.
#pragma once

#include "../audio/recording.hpp"
#include "../audio/voice_activity.hpp"
#include "../decoding/recognizer.hpp"
#include "hallucinations.hpp"
#include "segments.hpp"
#include "word_times.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// How a recording is transcribed, besides the recognizer's own settings.
struct TranscriptionPlan {
  std::int64_t window = 3000;              ///< Mel frames of a window.
  bool condition_on_previous_text = true;  ///< Makes the text so far the prompt of the next window.
  std::function<void(double seconds)> on_progress{};  ///< Takes the transcribed part of a long recording.
  std::optional<AlignmentHeads> word_heads{};         ///< With them, words get times.
  std::vector<FrameSpan> clips{};                     ///< The parts to transcribe, in order; empty: all.
  std::optional<double> hallucination_silence{};      ///< SilenceSkipper's threshold; needs `word_heads`.
  bool carry_initial_prompt = false;  ///< Gives each window the initial prompt, not only the first.
};

/// Converts a window's tokens into segments, with word times if the plan asks for them.
class WindowReader {
 public:
  /// Keeps references to both.
  WindowReader(Recognizer& recognizer, const TranscriptionPlan& plan)
      : recognizer_(recognizer), split_(recognizer.tokenizer, recognizer.decoding) {
    if (plan.word_heads) align_.emplace(recognizer.model, recognizer.tokenizer, *plan.word_heads);
  }

  /// Returns the segments of the window at `place`, decoded from `states_1SD`. `last_speech` is the end of
  /// the last word before the window, and becomes the end of the window's last word.
  [[nodiscard]] WindowSegments operator()(const Transcript& transcript, const at::Tensor& states_1SD,
                                          WindowSpan place, double& last_speech) const {
    auto window = read(transcript, states_1SD, place, last_speech);
    if (align_) last_speech = last_end(window.segments);
    clear_empty(window.segments);
    return window;
  }

  /// Returns the segments of a window without calling clear_empty on them.
  [[nodiscard]] WindowSegments read(const Transcript& transcript, const at::Tensor& states_1SD,
                                    WindowSpan place, double last_speech) const {
    auto window = split_(transcript, place);
    if (align_)
      set_word_times(window.segments, words_of(window.segments, states_1SD, place, transcript.language),
                     last_speech, recognizer_.decoding.end_of_text);
    return window;
  }

 private:
  [[nodiscard]] std::vector<AlignedWord> words_of(const std::vector<Segment>& segments,
                                                  const at::Tensor& states_1SD, WindowSpan place,
                                                  const std::string& language) const {
    auto options = recognizer_.decoding;
    options.without_timestamps = true;
    set_prompt(options, language, recognizer_.task);
    std::vector<std::int64_t> text;
    for (const auto& segment : segments)
      std::copy_if(segment.tokens.begin(), segment.tokens.end(), std::back_inserter(text),
                   [&](std::int64_t id) { return id < options.end_of_text; });
    return (*align_)(text, states_1SD, place.frames, options, language);
  }

  Recognizer& recognizer_;
  SegmentSplitter split_;
  std::optional<WordAligner> align_{};
};

/// Sets the whole text from the segments.
inline void join_text(Transcription& transcription, const Recognizer& recognizer) {
  std::vector<std::int64_t> tokens;
  for (const auto& segment : transcription.segments)
    tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
  transcription.text = SegmentSplitter(recognizer.tokenizer, recognizer.decoding).text_of(std::move(tokens));
}

/// Transcribes recordings window by window.
class SlidingWindows {
 public:
  /// Keeps a reference to the recognizer, whose `decoding.previous` is the initial prompt.
  SlidingWindows(Recognizer& recognizer, TranscriptionPlan plan)
      : recognizer_(recognizer), plan_(std::move(plan)), read_(recognizer, plan_) {}

  /// Takes the segments of a window as soon as they are decided, and the language.
  using UseSegments = std::function<void(std::vector<Segment> segments, const std::string& language)>;

  /// Returns the transcript of a Recording or an ArrivingRecording. Detects a missing language in the first
  /// window. With `use` the segments go there, and neither they nor the text are kept.
  template <class Sound>
  [[nodiscard]] Transcription operator()(Sound& recording, const UseSegments& use = {}) const {
    torch::NoGradGuard no_grad;
    State state{.result = {.text = {}, .segments = {}, .language = language_of(recording)},
                .options = recognizer_.decoding};
    auto& result = state.result;
    result.has_words = plan_.word_heads.has_value();
    for (const auto& clip : plan_.clips.empty() ? kWhole : plan_.clips) {
      for (std::int64_t seek = clip.begin;;) {
        const auto end = recording.frames_until(seek, std::min(clip.end, seek + plan_.window));
        if (end <= seek) break;
        if (plan_.on_progress && !use && seek > 0) plan_.on_progress(seconds_of(seek));
        const auto next = transcribe_window(recording, {seek, end - seek}, state);
        seek = next > seek ? next : seek + plan_.window;
        if (use) use(std::exchange(result.segments, {}), result.language);
      }
    }
    if (!use) join_text(result, recognizer_);
    return std::move(result);
  }

 private:
  inline static const std::vector<FrameSpan> kWhole{{0, std::numeric_limits<std::int64_t>::max()}};

  /// The state at a window's beginning.
  struct State {
    Transcription result;
    DecodingOptions options;
    std::vector<std::int64_t> said{};  // tokens since the prompt was reset
    bool begins_anew = false;          // drops the initial prompt
    double last_speech = 0;
  };

  /// Transcribes the window at `place`, and returns where the next one begins.
  template <class Sound>
  std::int64_t transcribe_window(Sound& recording, WindowSpan place, State& state) const {
    const auto mel_MT = recording.window(place.seek, place.frames, plan_.window);
    if (!recording.has_sound_before(place.seek + place.frames)) return place.seek + place.frames;
    const auto states_1SD = recognizer_.encode(mel_MT.unsqueeze(0));
    const auto transcript =
        recognizer_.decode_states(states_1SD, {state.result.language}, state.options).front();
    if (transcript.is_silence) return place.seek + place.frames;
    auto window = read_.read(transcript, states_1SD, place, state.last_speech);
    auto next = next_seek(window, place);
    if (plan_.hallucination_silence && plan_.word_heads) {
      const auto skipped = SilenceSkipper(*plan_.hallucination_silence)(
          window.segments,
          {place, plan_.window, frames_in_reach(recording, place), state.last_speech, window.ends_in_silence},
          next);
      next = skipped.seek;
      if (skipped.repeats) return next;
    }
    if (plan_.word_heads && !window.segments.empty()) state.last_speech = last_end(window.segments);
    clear_empty(window.segments);
    remember(state, window, transcript.temperature);
    std::move(window.segments.begin(), window.segments.end(), std::back_inserter(state.result.segments));
    return next;
  }

  /// Returns the number of frames in the recording, counted no further than a window and the threshold after
  /// `place`.
  template <class Sound>
  std::int64_t frames_in_reach(Sound& recording, WindowSpan place) const {
    constexpr double kLongest = 1e6;  // s
    const auto reach = std::ceil(std::min(*plan_.hallucination_silence, kLongest) * kFramesPerSecond);
    return recording.frames_until(place.seek,
                                  place.seek + plan_.window + 1 + static_cast<std::int64_t>(reach));
  }

  /// Returns where the next window begins: after the last complete segment or, if words have times, after the
  /// last word.
  [[nodiscard]] std::int64_t next_seek(const WindowSegments& window, WindowSpan place) const {
    const bool by_word =
        plan_.word_heads && !window.ends_in_silence && last_end(window.segments) > seconds_of(place.seek);
    const auto next = by_word ? detail::frame_at(last_end(window.segments)) : place.seek + window.advance;
    return next > place.seek ? next : place.seek + place.frames;
  }

  template <class Sound>
  [[nodiscard]] std::string language_of(Sound& recording) const {
    if (!recognizer_.detects_language) return recognizer_.language;
    const auto first_MT = recording.with_silence(0, plan_.window);
    return recognizer_.codes_of(recognizer_.encode(first_MT.unsqueeze(0))).front();
  }

  /// Adds the window's tokens to the next window's prompt. A text sampled at a high temperature resets the
  /// prompt instead, since it would mislead the model. The initial prompt comes first until a reset, or
  /// always if it is carried, which leaves less room for text.
  void remember(State& state, const WindowSegments& window, double temperature) const {
    constexpr double kTrusted = 0.5;
    auto& said = state.said;
    for (const auto& segment : window.segments)
      said.insert(said.end(), segment.tokens.begin(), segment.tokens.end());
    if (!plan_.condition_on_previous_text || temperature > kTrusted) {
      said.clear();
      state.begins_anew = true;
    }
    auto& previous = state.options.previous;
    previous = recognizer_.decoding.previous;
    if (state.begins_anew && !plan_.carry_initial_prompt) previous.clear();
    auto room = state.options.max_length;  // more than any prompt takes
    if (plan_.carry_initial_prompt) room = std::max<std::int64_t>(room / 2 - 1 - std::ssize(previous), 0);
    if (std::ssize(said) > room) said.erase(said.begin(), said.end() - room);
    previous.insert(previous.end(), said.begin(), said.end());
  }

  Recognizer& recognizer_;
  TranscriptionPlan plan_;
  WindowReader read_;
};

}  // namespace whisper
