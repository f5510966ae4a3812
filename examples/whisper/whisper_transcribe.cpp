// SPDX-License-Identifier: MIT
// Prints what is said in audio files, a line a file: name, tab, text. It shows a trained model at work
// without a Trainer.
#include <looptorch/app/device.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/error.hpp>

#include "data.hpp"
#include "hearing_options.hpp"
#include "recognizer.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace app = looptorch::app;

struct Options {
  std::filesystem::path model;
  std::vector<std::string> files;
  double max_audio_seconds = 30;
  std::string language = "en", device = "auto";
  whisper::HearingOptions hearing;
};

/// Text on one line: what would end the line or the column becomes a space.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

/// A file that cannot be used is told on stderr, and the others are still heard. Throws a looptorch::Error at
/// the end if there was one.
void transcribe(const Options& options) {
  auto recognizer =
      whisper::load_recognizer(options.model, app::choose_device(options.device), options.language);
  options.hearing.apply(recognizer);
  const whisper::Listener listen(
      {.mel_bins = recognizer.model->config().num_mel_bins, .max_seconds = options.max_audio_seconds});
  std::size_t failed = 0;
  for (const auto& file : options.files) {
    try {
      const auto texts = recognizer.transcribe(listen(file).unsqueeze(0));
      std::cout << file << '\t' << one_line(texts.front()) << std::endl;
    } catch (const looptorch::Error& error) {
      if (options.files.size() == 1) throw;
      std::cerr << "whisper_transcribe: " << one_line(error.what()) << std::endl;
      ++failed;
    }
  }
  if (failed > 0)
    throw looptorch::Error(
        looptorch::message(failed, " of ", options.files.size(), " files could not be transcribed"));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("whisper_transcribe",
                        "Prints what is said in each FILE: name, tab, text.\n"
                        "A FILE that cannot be used is told on stderr, and the exit code is then 2.");
  line.positional("FILE", options.files, "audio: WAV, FLAC or what else libsndfile reads");
  line.required("model", "DIR", options.model, "Hugging Face folder of the model");
  line.option("max-audio-seconds", "S", options.max_audio_seconds,
              "length that clips are padded to; as in the fine-tuning", {.min = 0.1, .max = 30});
  line.option("language", "CODE", options.language,
              "what is spoken, or auto: detected for each file; English-only models ignore it");
  add_flags(line, options.hearing);
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: an accelerator if there is one");
  return app::run_main(argc, argv, line, [&] { transcribe(options); });
}
