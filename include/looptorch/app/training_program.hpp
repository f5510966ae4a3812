// SPDX-License-Identifier: MIT
// Makes a whole training program of one function: parses --output and the standard flags, and calls the
// function with a Session. For a command line of your own use training_flags.hpp and session.hpp.
//
//   int main(int argc, char** argv) {
//     app::TrainingProgram program("digits", "Learns to read digits.", {.epochs = 20, .batch_size = 32});
//     return program.run(argc, argv, [](app::Session& session) {...});
//   }
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/run_policies.hpp>
#include <looptorch/app/session.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/app/training_options.hpp>
#include <looptorch/base/error.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::app {

/// Returns the flags that work in every program: all but those for which a program has to do something
/// itself.
[[nodiscard]] inline TrainingFlags standard_flags() {
  using enum TrainingFlag;
  return {.without = {gradient_checkpointing, cache, on_bad_audio, preflight, memory_cap}};
}

/// Holds the settings from the command line's parse to the run's end.
class TrainingProgram {
 public:
  /// `defaults` are the values of flags that are not given. The program has the flags of `flags`.
  TrainingProgram(const std::string& name, const std::string& about, TrainingOptions defaults = {},
                  const TrainingFlags& flags = standard_flags())
      : options_(std::move(defaults)),
        line_(name, message(about, "\nA run lists ", names_of_run_policies(), ": docs/app.md#a-session.")) {
    line_.required("output", "DIR", output_, "folder for the model, its snapshots and summary.json");
    add_training_flags(line_, options_, flags);
  }
  TrainingProgram(const TrainingProgram&) = delete;  // the command line holds references to the options
  TrainingProgram& operator=(const TrainingProgram&) = delete;

  /// Returns the command line, to add the program's own flags before `run`.
  [[nodiscard]] CommandLine& line() { return line_; }
  [[nodiscard]] TrainingOptions& options() { return options_; }

  /// Names a file or folder that the run reads, before `run`: --output must not be it, nor hold it if it is a
  /// file. The variable is read after the parse; an empty one is none.
  TrainingProgram& reads(const std::filesystem::path& path) {
    read_.push_back(&path);
    return *this;
  }

  /// Parses, makes the Session, calls `body(session)`, and returns the exit code for main, as run_main does.
  template <class Body>
  [[nodiscard]] int run(int argc, char* const* argv, Body&& body) {
    return run_main(argc, argv, line_, [&] {
      std::vector<std::filesystem::path> read;
      for (const auto* path : read_) read.push_back(*path);
      Session session(options_, output_, read);
      std::forward<Body>(body)(session);
    });
  }

 private:
  TrainingOptions options_;
  std::filesystem::path output_;
  std::vector<const std::filesystem::path*> read_;
  CommandLine line_;
};

}  // namespace looptorch::app
