// SPDX-License-Identifier: MIT
// Transcribes audio files. Prints a line for each file (name, tab, text), or writes subtitles and tables. It
// shows a trained model at work without a Trainer.
#include <looptorch/app/device.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/datasets/audio_files.hpp>
#include <looptorch/state/weights/finite_weights.hpp>

#include "transcription/file_transcriber.hpp"
#include "transcription/growing_files.hpp"
#include "transcription/stream_text.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace {

namespace app = looptorch::app;

/// Returns text on one line: replaces the ends of lines and columns by spaces.
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
  looptorch::require_finite_weights(*recognizer.model, options.model.string());
  whisper::tell_renamed(recognizer, options.model, std::cerr);
  recognizer.model->decoder()->hold_half_weights();
  options.decoding.apply(recognizer);
  return recognizer;
}

/// Shows on a terminal the transcribed minutes of a long file. Clears the line if `seconds` is empty.
void show_progress(std::optional<double> seconds) {
  if (::isatty(STDERR_FILENO) != 1) return;
  std::cerr << '\r' << (seconds ? std::to_string(std::llround(*seconds / 60)) + " minutes transcribed" : "")
            << "\033[K" << std::flush;
}

/// Prints or writes the transcripts.
class Output {
 public:
  explicit Output(const whisper::TranscribeOptions& options) : detects_(options.language == "auto") {
    if (options.output_format.empty()) return;
    whisper::TranscriptFiles::require_distinct(options.files);
    files_.emplace(options.output_dir, options.output_format, options.subtitles);
  }

  void use(const std::string& file, const whisper::Transcription& transcription) {
    show_progress({});
    name_language(file, transcription.language);
    if (files_)
      print(files_->write(file, transcription));
    else
      std::cout << file << '\t' << one_line(std::string(whisper::stripped(transcription.text))) << std::endl;
  }

  /// Adds a part to the line or the files of a stream.
  void use(const whisper::StreamPart& part) {
    const bool is_first = !text_;
    if (is_first) {
      text_.emplace();
      name_language(part.name, part.language);
      if (files_) growing_.emplace(*files_, part.name, part.has_words);
    }
    if (growing_)
      growing_->add(part);
    else
      std::cout << (is_first ? part.name + '\t' : "") << one_line(text_->add(part.text))
                << (part.is_last ? "\n" : "") << std::flush;
    if (!part.is_last) return;
    if (growing_) print(growing_->paths());
    text_.reset();
    growing_.reset();
  }

 private:
  void name_language(const std::string& file, const std::string& language) const {
    if (detects_ && !language.empty()) std::cerr << file << ": detected language: " << language << std::endl;
  }

  static void print(const std::vector<std::filesystem::path>& paths) {
    for (const auto& path : paths) std::cout << path.string() << std::endl;
  }

  bool detects_;
  std::optional<whisper::TranscriptFiles> files_;
  std::optional<whisper::ShownText> text_;  // of the stream under way
  std::optional<whisper::GrowingFiles> growing_;
};

/// Returns the given files, and the audio files in and below given folders, sorted by name.
std::vector<std::string> files_of(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::filesystem::path& file : looptorch::audio_files(names)) files.push_back(file.string());
  return files;
}

/// Transcribes the usable files and reports the others on stderr. Then throws a looptorch::Error if there was
/// an unusable file.
void transcribe(whisper::TranscribeOptions options) {
  options.check();
  options.files = files_of(options.files);
  Output output(options);
  auto recognizer = load(options);
  const whisper::FileTranscriber::Use use{
      .whole = [&](const std::string& file,
                   const whisper::Transcription& transcription) { output.use(file, transcription); },
      .part = [&](const whisper::StreamPart& part) { output.use(part); }};
  whisper::FileTranscriber transcriber(recognizer, options, use,
                                       [](double seconds) { show_progress(seconds); });
  std::size_t failed = 0;
  for (const auto& file : options.files) {
    try {
      if (std::filesystem::is_directory(file))
        throw looptorch::UsageError(file + ": holds no audio, which would be " +
                                    looptorch::names_of_audio_extensions());
      transcriber.add(file);
    } catch (const app::Interrupted&) {
      throw;
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
