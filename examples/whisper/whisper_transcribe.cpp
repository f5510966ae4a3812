// SPDX-License-Identifier: MIT
// Prints what is said in audio files, a line a file: name, tab, text; or writes subtitles and tables. It
// shows a trained model at work without a Trainer.
#include <looptorch/app/device.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/error.hpp>

#include "file_transcriber.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <optional>
#include <string>

namespace {

namespace app = looptorch::app;

/// Text on one line: what would end the line or the column becomes a space.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

/// Loads the model in the precision that the flags ask for.
whisper::Recognizer load(const whisper::TranscribeOptions& options) {
  const auto device = app::choose_device(options.device);
  if (options.precision == "fp16" && device.is_cpu())
    throw looptorch::UsageError("--fp16 needs an accelerator; a CPU computes in --bf16 or --fp32");
  auto recognizer =
      whisper::load_recognizer(options.model, device, options.language, whisper::dtype_of(options.precision));
  recognizer.model->decoder()->hold_half_weights();
  options.hearing.apply(recognizer);
  return recognizer;
}

/// Shows on a terminal how many minutes of a long file have been heard; nothing for no number.
void show_progress(std::optional<double> seconds) {
  if (::isatty(STDERR_FILENO) != 1) return;
  std::cerr << '\r' << (seconds ? std::to_string(std::llround(*seconds / 60)) + " minutes heard" : "")
            << "\033[K" << std::flush;
}

/// A file that cannot be used is told on stderr, and the others are still heard. Throws a looptorch::Error at
/// the end if there was one.
void transcribe(const whisper::TranscribeOptions& options) {
  options.check();
  std::optional<whisper::TranscriptFiles> files;
  if (!options.output_format.empty()) {
    whisper::TranscriptFiles::require_distinct(options.files);
    files.emplace(options.output_dir, options.output_format, options.subtitles);
  }
  auto recognizer = load(options);
  const auto use = [&](const std::string& file, const whisper::Transcription& heard) {
    show_progress({});
    if (options.language == "auto" && !heard.language.empty())
      std::cerr << file << ": detected language: " << heard.language << std::endl;
    if (!files) {
      std::cout << file << '\t' << one_line(std::string(whisper::stripped(heard.text))) << std::endl;
      return;
    }
    for (const auto& path : files->write(file, heard)) std::cout << path.string() << std::endl;
  };
  whisper::FileTranscriber transcriber(recognizer, options, use,
                                       [](double seconds) { show_progress(seconds); });
  std::size_t failed = 0;
  for (const auto& file : options.files) {
    try {
      transcriber.add(file);
    } catch (const looptorch::Error& error) {
      if (options.files.size() == 1) throw;
      std::cerr << "whisper_transcribe: " << one_line(error.what()) << std::endl;
      ++failed;
    }
  }
  transcriber.finish();
  if (failed > 0)
    throw looptorch::Error(
        looptorch::message(failed, " of ", options.files.size(), " files could not be transcribed"));
}

}  // namespace

int main(int argc, char** argv) {
  whisper::TranscribeOptions options;
  app::CommandLine line("whisper_transcribe",
                        "Prints what is said in each FILE, of any length: name, tab, text.\n"
                        "A FILE that cannot be used is told on stderr, and the exit code is then 2.");
  add_flags(line, options);
  return app::run_main(argc, argv, line, [&] { transcribe(options); });
}
