// SPDX-License-Identifier: MIT
// Transcribes audio files, or all audio files of folders. Prints one line for each file, or JSON with the n
// best texts and their scores. Reports unreadable files and transcribes the others.
#include <looptorch/app/device.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/data/datasets/audio_files.hpp>

#include "clips/clip_frames.hpp"
#include "decoding/recognizer.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace kv = konkanivani;

struct Options {
  std::vector<std::string> files;
  fs::path model;
  kv::DecodingOptions decoding{.method = "joint", .beam = {}};
  std::int64_t beam = 8, n_best = 1;
  bool json = false;
  double max_seconds = 20;
  std::string device = "auto";
};

void print(const fs::path& file, const std::vector<kv::Hypothesis>& texts, const kv::Recognizer& recognizer,
           const Options& options) {
  if (!options.json) {
    for (const auto& text : texts)
      std::cout << file.string() << '\t' << recognizer.vocabulary.decode(text.ids) << "\n";
  } else {
    auto list = looptorch::Json::array();
    for (const auto& text : texts) {
      auto one = looptorch::Json::object();
      one.set("text", recognizer.vocabulary.decode(text.ids)).set("score", text.score);
      list.push_back(std::move(one));
    }
    auto line = looptorch::Json::object();
    line.set("audio_filepath", looptorch::replace_invalid_utf8(file.string())).set("texts", std::move(list));
    std::cout << line.dump() << "\n";
  }
  std::cout << std::flush;
}

void transcribe(Options options) {
  if (options.decoding.method == "greedy" && options.n_best > 1)
    throw app::CommandLineError("--n-best: greedy decoding gives one text");
  options.decoding.beam.n_best = static_cast<std::size_t>(options.n_best);
  options.decoding.beam.beam = static_cast<std::size_t>(std::max(options.beam, options.n_best));
  const auto files = looptorch::audio_files(options.files);
  const auto device = app::choose_device(options.device);
  auto recognizer = kv::load_recognizer(options.model, device);
  const kv::LogMelReader reader(
      {.mel_bins = recognizer.model->config().mel_bins, .max_seconds = options.max_seconds});
  std::size_t failed = 0;
  for (const auto& file : files) {
    try {
      if (fs::is_directory(file)) throw kv::SpeechError(file.string() + ": holds no audio");
      const auto mel_1MF = reader.frames(reader.samples({.audio_filepath = file, .text = {}})).unsqueeze(0);
      const auto lengths_1 = at::full({1}, mel_1MF.size(2), at::kLong);
      const auto texts =
          kv::recognize(recognizer.model, mel_1MF.to(device), lengths_1.to(device), options.decoding);
      print(file, texts.front(), recognizer, options);
    } catch (const looptorch::Error& error) {
      if (files.size() == 1) throw;
      std::cerr << "konkanivani_transcribe: " << error.what() << std::endl;
      ++failed;
    }
  }
  if (failed > 0)
    throw kv::SpeechError(
        looptorch::message(failed, " of ", files.size(), " files could not be transcribed"));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("konkanivani_transcribe",
                        "Prints what is said in each FILE; a folder stands for its audio files.");
  line.positional("FILE", options.files, "WAV, FLAC, MP3, Ogg or Opus, any sample rate");
  line.required("model", "DIR", options.model, "folder that konkanivani_train wrote");
  line.option("decoding", "NAME", options.decoding.method, "greedy, ctc, attention or joint");
  line.option("beam", "N", options.beam, "hypotheses that the beam search keeps", {.min = 1, .max = 1024});
  line.option("n-best", "N", options.n_best, "texts of a file, the best first", {.min = 1, .max = 1024});
  line.option("ctc-weight", "X", options.decoding.beam.ctc_weight, "of joint decoding", {.min = 0, .max = 1});
  line.flag("json", options.json, true, "a JSON object a file, with scores");
  line.option("max-seconds", "S", options.max_seconds, "longer files are refused", {.max = 60, .above = 0});
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: an accelerator if there is one");
  line.on_parsed(
      [&](const app::CommandLine& parsed) { kv::check_decoding_flags(parsed, options.decoding.method); });
  return app::run_main(argc, argv, line, [&] { transcribe(options); });
}
