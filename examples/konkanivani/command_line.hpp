// SPDX-License-Identifier: MIT
// A table of flags bound to variables: it writes --help, parses with getopt_long, and checks types and
// ranges. `run_main` turns every error into one line on stderr and exit code 2, so that a program's main is
// its table.
//
//   konkanivani::CommandLine line("loudness", "Prints how loud each FILE is.");
//   line.required("output", "FILE", options.output, "table to write");
//   line.option("window", "N", options.window, "samples at once", {.min = 1, .max = 65536});
//   line.positional("FILE", options.files, "audio files");
//   return konkanivani::run_main(argc, argv, line, [&] { measure(options); });
#pragma once

#include <looptorch/base/error.hpp>

#include "command_values.hpp"

#include <c10/util/Exception.h>

#include <getopt.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace konkanivani {

/// A signal ended the program's work before its time; the exit code is the one that shells give for it.
struct Interrupted : looptorch::Error {
  /// `reason` begins with the signal's name, as FitResult's does.
  Interrupted(const std::string& reason, std::int64_t steps)
      : Error(reason + ": stopped after " + std::to_string(steps) + " steps; go on with --resume auto"),
        exit_code(reason.starts_with("SIGINT") ? 130 : 143) {}
  int exit_code;
};

/// Flags of one program. Values are written straight into the variables given, which must outlive the parse;
/// what a variable holds when it is listed is its default. Types: std::string, path, std::int64_t, double.
class CommandLine {
 public:
  CommandLine(std::string program, std::string summary)
      : program_(std::move(program)), summary_(std::move(summary)) {}

  /// `--name VALUE`, may be left out.
  template <class T>
  CommandLine& option(std::string name, std::string placeholder, T& target, std::string help,
                      NumberRange range = {});

  /// `--name VALUE`, must be given.
  template <class T>
  CommandLine& required(std::string name, std::string placeholder, T& target, std::string help,
                        NumberRange range = {});

  /// `--name` sets the variable to `value`; two flags on one variable form a choice, of which the last one
  /// wins.
  template <class T>
  CommandLine& flag(std::string name, T& target, std::type_identity_t<T> value, std::string help);

  /// `--name VALUE`, one of `values`. With `implied` the flag may also stand alone and then means that value.
  CommandLine& choice(std::string name, std::string& target, std::vector<std::string> values,
                      std::string help, std::string implied = {});

  /// What stands without a flag: one or more; a program without this call takes none.
  CommandLine& positional(std::string placeholder, std::vector<std::string>& target, std::string help);

  /// Fills the variables. Returns false if `--help` was asked for; throws CommandLineError.
  [[nodiscard]] bool parse(int argc, char* const* argv);

  [[nodiscard]] std::string help() const;
  [[nodiscard]] const std::string& program() const { return program_; }

 private:
  struct Option {
    std::string name, placeholder, help;
    std::function<void(const std::string&)> set;
    bool is_required = false;
    bool is_given = false;
    std::vector<std::string> values = {};  ///< Of a choice.
    std::string implied = {};              ///< By the flag alone; empty: it needs a value.
  };

  [[nodiscard]] std::vector<::option> getopt_table() const;
  void take_option(int code, const char* argument);
  [[nodiscard]] const char* value_behind(int code, int argc, char* const* argv) const;
  void take_positional(int argc, char* const* argv);
  [[nodiscard]] std::string usage() const;

  std::string program_, summary_;
  std::vector<Option> options_;
  std::string positional_name_, positional_help_;
  std::vector<std::string>* positional_ = nullptr;
};

template <class T>
CommandLine& CommandLine::option(std::string name, std::string placeholder, T& target, std::string help,
                                 NumberRange range) {
  help += detail::default_text(target);
  options_.push_back(
      {std::move(name), std::move(placeholder), std::move(help),
       [&target, range](const std::string& text) { detail::parse_value(text, range, target); }});
  return *this;
}

template <class T>
CommandLine& CommandLine::required(std::string name, std::string placeholder, T& target, std::string help,
                                   NumberRange range) {
  options_.push_back({std::move(name), std::move(placeholder), std::move(help) + " (required)",
                      [&target, range](const std::string& text) { detail::parse_value(text, range, target); },
                      /*is_required=*/true});
  return *this;
}

template <class T>
CommandLine& CommandLine::flag(std::string name, T& target, std::type_identity_t<T> value, std::string help) {
  options_.push_back({std::move(name), "", std::move(help),
                      [&target, value = std::move(value)](const std::string&) { target = value; }});
  return *this;
}

inline CommandLine& CommandLine::choice(std::string name, std::string& target,
                                        std::vector<std::string> values, std::string help,
                                        std::string implied) {
  std::string names;
  for (const auto& value : values) names += (names.empty() ? "" : "|") + value;
  const auto set = [&target, values, names, implied](const std::string& text) {
    const auto& value = text.empty() ? implied : text;
    if (std::find(values.begin(), values.end(), value) == values.end())
      throw CommandLineError("\"" + value + "\" is not " + names);
    target = value;
  };
  help += detail::default_text(target);
  auto placeholder = implied.empty() ? names : "[" + names + "]";
  options_.push_back({std::move(name), std::move(placeholder), std::move(help), set, false, false,
                      std::move(values), std::move(implied)});
  return *this;
}

inline CommandLine& CommandLine::positional(std::string placeholder, std::vector<std::string>& target,
                                            std::string help) {
  positional_name_ = std::move(placeholder);
  positional_help_ = std::move(help);
  positional_ = &target;
  return *this;
}

inline std::string CommandLine::usage() const {
  std::string text = program_;
  for (const auto& option : options_) {
    if (option.is_required) text += " --" + option.name + " " + option.placeholder;
  }
  text += " [options]";
  if (positional_) text += " " + positional_name_ + "...";
  return text;
}

inline std::string CommandLine::help() const {
  std::vector<std::pair<std::string, std::string>> rows;
  if (positional_) rows.emplace_back(positional_name_ + "...", positional_help_);
  for (const auto& option : options_) {
    rows.emplace_back("--" + option.name + (option.placeholder.empty() ? "" : " " + option.placeholder),
                      option.help);
  }
  rows.emplace_back("--help", "this text");
  std::size_t width = 0;
  for (const auto& [left, right] : rows) width = std::max(width, left.size());
  std::string text = "usage: " + usage() + "\n\n" + summary_ + "\n\n";
  for (const auto& [left, right] : rows) text += "  " + detail::pad(left, width + 2) + right + "\n";
  return text;
}

inline std::vector<::option> CommandLine::getopt_table() const {
  std::vector<::option> table{{"help", no_argument, nullptr, 1}};
  for (std::size_t i = 0; i < options_.size(); ++i) {
    const int kind = options_[i].placeholder.empty() ? no_argument
                     : options_[i].implied.empty()   ? required_argument
                                                     : optional_argument;
    table.push_back({options_[i].name.c_str(), kind, nullptr, static_cast<int>(i) + 1024});
  }
  table.push_back({nullptr, 0, nullptr, 0});
  return table;
}

inline bool CommandLine::parse(int argc, char* const* argv) {
  const auto table = getopt_table();
  opterr = 0;
  optind = 0;
  for (int code = 0; (code = getopt_long(argc, argv, ":", table.data(), nullptr)) != -1;) {
    if (code == 1) return false;
    take_option(code, code >= 1024 ? value_behind(code, argc, argv) : argv[std::max(optind - 1, 1)]);
  }
  take_positional(argc, argv);
  for (const auto& option : options_) {
    if (option.is_required && !option.is_given) throw CommandLineError("--" + option.name + " is missing");
  }
  return true;
}

/// getopt_long takes the value of an option that may stand alone from behind a "=" only; here it may also be
/// the next word, if that is one of its values.
inline const char* CommandLine::value_behind(int code, int argc, char* const* argv) const {
  const auto& values = options_[static_cast<std::size_t>(code) - 1024].values;
  if (optarg || options_[static_cast<std::size_t>(code) - 1024].implied.empty() || optind >= argc)
    return optarg;
  return std::find(values.begin(), values.end(), argv[optind]) == values.end() ? optarg : argv[optind++];
}

/// `argument` is the option's value, or, where getopt_long found a fault, the word that it stopped at.
inline void CommandLine::take_option(int code, const char* argument) {
  const auto name = [&](int index) { return "--" + options_[static_cast<std::size_t>(index) - 1024].name; };
  if (code == ':') throw CommandLineError(name(optopt) + " needs a value");
  if (code == '?' && optopt >= 1024) throw CommandLineError(name(optopt) + " takes no value: " + argument);
  if (code == '?') throw CommandLineError(std::string("unknown option ") + argument);
  auto& option = options_[static_cast<std::size_t>(code) - 1024];
  option.is_given = true;
  try {
    option.set(argument ? argument : "");
  } catch (const CommandLineError& error) {
    throw CommandLineError("--" + option.name + ": " + error.what());
  }
}

inline void CommandLine::take_positional(int argc, char* const* argv) {
  if (!positional_ && optind < argc) {
    throw CommandLineError(std::string("unexpected argument ") + argv[optind]);
  }
  if (!positional_) return;
  if (optind == argc) throw CommandLineError("no " + positional_name_ + " given");
  positional_->assign(argv + optind, argv + argc);
}

/// Parses, runs `body`, and returns main's exit code: 0; 2 after an error of the user's or of the data's, 1
/// after any other, and that of Interrupted. Errors are one line on stderr, "program: what"; `--help` goes to
/// stdout.
template <class Body>
[[nodiscard]] int run_main(int argc, char* const* argv, CommandLine& line, Body&& body) {
  const auto report = [&](const std::string& what, int code) {
    std::cerr << line.program() << ": " << detail::first_line(what) << std::endl;
    return code;
  };
  try {
    if (!line.parse(argc, argv)) return std::cout << line.help(), 0;
    std::forward<Body>(body)();
    return 0;
  } catch (const CommandLineError& error) {
    return report(detail::first_line(error.what()) + " (see --help)", 2);
  } catch (const Interrupted& interrupted) {
    return report(interrupted.what(), interrupted.exit_code);
  } catch (const looptorch::Error& error) {
    return report(error.what(), 2);
  } catch (const c10::Error& error) {
    return report(error.what_without_backtrace(), 2);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(error.what(), 2);
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}

}  // namespace konkanivani
