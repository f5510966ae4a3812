// SPDX-License-Identifier: MIT
// Measures what Whisper understands of a reading of ten minutes, beside its sentences one by one: the word
// error rates in sequence and by voice activity, and how long each takes. 40 sentences in four English
// voices of espeak-ng, with pauses of 0.4 to 1.2 s between them; greedily, with fallback.
//
//   whisper_reading MODEL [SENTENCES]   prints a JSON object a row; MODEL is a Hugging Face folder
#include <looptorch/app/process/process.hpp>
#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/encode.hpp>
#include <looptorch/audio/probe.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include "../support/temporary_folder.hpp"

#include <torch/torch.h>

#include <whisper/text/english/english_normalizer.hpp>
#include <whisper/transcription/file_transcriber.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;

namespace {

constexpr std::int64_t kRate = 16000;

const char* const kVoices[] = {"en-us", "en-gb", "en-us+f3", "en-gb-x-rp"};
const char* const kSentences[] = {"Good morning, and welcome to the harbour.",
                                  "My brother works in a small hotel near the railway station.",
                                  "We had no telephone, no radio, and hardly any food.",
                                  "The children were playing in the garden behind the house.",
                                  "She opened the window and looked down into the street.",
                                  "There is nothing more beautiful than a quiet evening in summer.",
                                  "He wrote a long letter to his mother and never sent it.",
                                  "The train to London leaves from platform seven in ten minutes.",
                                  "I would like a cup of coffee and a piece of bread with butter.",
                                  "Last winter the river was frozen for more than three weeks.",
                                  "Every morning the old man walks with his dog along the beach.",
                                  "They sold their car and bought two bicycles instead.",
                                  "The doctor told him to stay in bed until the end of the week.",
                                  "Nobody knew where the key to the cellar had been hidden.",
                                  "You can see the mountains from here when the weather is clear.",
                                  "Our teacher reads a different story to us every Friday.",
                                  "The shop on the corner is closed on Sundays and on Mondays.",
                                  "After dinner we sat by the fire and talked about the war.",
                                  "A strong wind was blowing from the north all night.",
                                  "The museum shows paintings from the last two hundred years.",
                                  "Please turn off the light before you leave the room.",
                                  "My sister is learning to play the piano, and she is very good.",
                                  "It was so dark that we could not find the road to the village.",
                                  "The price of milk has gone up again since the beginning of the year.",
                                  "When the rain stopped, the birds began to sing in the trees.",
                                  "He asked the driver to wait for him in front of the church.",
                                  "There were twelve chairs around the table, but only nine people.",
                                  "The new bridge will be finished in the spring of next year.",
                                  "She has a blue coat, a red hat, and a pair of green gloves.",
                                  "In the evening the fishermen come back with their boats full of fish.",
                                  "I have read this book three times, and I still do not understand it.",
                                  "The police are looking for a tall man with a black bag.",
                                  "We will meet at half past eight under the big clock.",
                                  "My grandmother grows potatoes, carrots and onions in her garden.",
                                  "The plane landed an hour late because of the snow.",
                                  "Music was coming from the open door of the restaurant.",
                                  "He paid for the meal and left without saying a word.",
                                  "The lake is deep, cold, and as clear as glass.",
                                  "Thank you very much for your help, and have a safe journey.",
                                  "Tomorrow I will show you the rest of the city."};

/// A sentence and its clip.
struct Spoken {
  std::string text;
  fs::path clip;
  at::Tensor samples_T;
};

std::vector<Spoken> speak(const fs::path& folder, std::size_t count) {
  std::vector<Spoken> all;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string text = kSentences[i * 7 % std::size(kSentences)],
                      voice = kVoices[i % std::size(kVoices)];
    const auto raw = folder / "raw.wav", clip = folder / ("clip" + std::to_string(i) + ".wav");
    lt::app::run_process({"espeak-ng", "-v", voice, "-s", "155", "-w", raw.string(), text});
    auto samples_T = lt::audio::decode(raw, {.sample_rate = kRate}).samples_T * 0.8;
    lt::audio::encode(clip, {samples_T, kRate});
    all.push_back({text, clip, samples_T});
  }
  return all;
}

/// Writes the sentences one after the other, with pauses.
void glue(const std::vector<Spoken>& spoken, const fs::path& file) {
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < spoken.size(); ++i) {
    parts.push_back(spoken[i].samples_T);
    parts.push_back(at::zeros({kRate * static_cast<std::int64_t>(4 + i * 5 % 9) / 10}));
  }
  lt::audio::encode(file, {at::cat(parts), kRate});
}

double rate_of(const std::string& reference, const std::string& hypothesis) {
  lt::WordErrorRate rate;
  rate.add(whisper::normalize_english(reference), whisper::normalize_english(hypothesis));
  return rate.rate();
}

struct TimedText {
  std::string text;
  double seconds;
};

TimedText transcribe(const fs::path& model, const std::vector<fs::path>& files, bool vad,
                     std::int64_t batch_size) {
  whisper::TranscribeOptions options;
  options.model = model, options.vad = vad, options.batch_size = batch_size;
  auto recognizer = whisper::load_recognizer(model);
  options.decoding.apply(recognizer);
  TimedText result{};
  whisper::FileTranscriber transcriber(
      recognizer, options,
      {.whole = [&](const std::string&, const auto& found) { result.text += " " + found.text; }, .part = {}});
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& file : files) transcriber.add(file.string());
  transcriber.finish();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

void print(const char* name, double value, const char* unit, double peer) {
  std::printf(
      R"({"name": "%s", "value": %.4f, "unit": "%s", "peer": "the sentences alone", "peer_value": %.4f})"
      "\n",
      name, value, unit, peer);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: whisper_reading MODEL [SENTENCES]\n");
    return 2;
  }
  const std::size_t count = argc > 2 ? std::stoul(argv[2]) : 160;
  const lt::testing::TemporaryFolder folder;
  const auto spoken = speak(folder.path(), count);
  const auto reading = folder / "reading.wav";
  glue(spoken, reading);
  std::string reference;
  std::vector<fs::path> clips;
  for (const auto& one : spoken) reference += " " + one.text, clips.push_back(one.clip);
  const double minutes = lt::audio::probe(reading).seconds() / 60;
  std::fprintf(stderr, "%zu sentences, %.2f minutes\n", spoken.size(), minutes);
  const auto alone = transcribe(argv[1], clips, /*vad=*/false, 8);
  const double alone_rate = rate_of(reference, alone.text);
  for (const bool vad : {false, true}) {
    const auto whole = transcribe(argv[1], {reading}, vad, vad ? 8 : 1);
    print(vad ? "word error rate by voice activity" : "word error rate in sequence",
          rate_of(reference, whole.text), "", alone_rate);
    print(vad ? "seconds by voice activity" : "seconds in sequence", whole.seconds, "s", alone.seconds);
  }
}
