// SPDX-License-Identifier: MIT
// Parses a command line into a program's variables, checks types and ranges, and writes --help. List the
// flags, then give the program's body to `run_main` (run_main.hpp), which turns errors into exit codes.
//
//   app::CommandLine line("loudness", "Prints how loud each FILE is.");
//   line.required("output", "FILE", options.output, "table to write");
//   line.option("window", "N", options.window, "samples at once", {.min = 1, .max = 65536});
//   line.positional("FILE", options.files, "audio files");
//   return app::run_main(argc, argv, line, [&] { measure(options); });
//
// Flags are written with hyphens; underscores are accepted in their place: `--batch_size` is `--batch-size`.
#pragma once

#include <looptorch/app/flags/command_words.hpp>
#include <looptorch/app/flags/config_file.hpp>
#include <looptorch/app/flags/flag_table.hpp>
#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::app {

/// The flags of one program. Values are written straight into the variables given, which must outlive the
/// parse; what a variable holds before the parse is its default. Types: std::string, path, std::int64_t,
/// double, an optional of a number, and for a flag that may be given several times a vector of strings.
class CommandLine {
 public:
  /// Names of flags, without hyphens in front, and values as text.
  using FlagValues = detail::FlagTexts;

  CommandLine(std::string program, std::string summary)
      : program_(std::move(program)), summary_(std::move(summary)) {}

  /// Adds an optional `--name VALUE`.
  template <class T>
  CommandLine& option(std::string name, std::string placeholder, T& target, std::string help,
                      NumberRange range = {});

  /// Adds a required `--name VALUE`.
  template <class T>
  CommandLine& required(std::string name, std::string placeholder, T& target, std::string help,
                        NumberRange range = {});

  /// Adds `--name`, which sets the variable to `value`. Of several flags on one variable the last one wins.
  template <class T>
  CommandLine& flag(std::string name, T& target, std::type_identity_t<T> value, std::string help);

  /// Adds `--name`, which sets a bool or an optional one to true, and `--no-name`. The last one wins.
  template <class T>
  CommandLine& toggle(std::string name, T& target, std::string help);

  /// Puts the flag listed last into a group, of which a command line may give at most one flag.
  CommandLine& one_of(std::string group) {
    flags_.back().form.group = std::move(group);
    return *this;
  }

  /// Makes the value of the flag listed last optional: at the end or before another flag it is `value`.
  CommandLine& implied(std::string value);

  /// Adds `--name VALUE`, one of `values`. With `implied` the flag may stand alone and then means that value.
  CommandLine& choice(std::string name, std::string& target, std::vector<std::string> values,
                      std::string help, std::string implied = {});

  /// Adds a choice that sets the defaults of other flags: if it is given, `apply` runs with its value before
  /// any other flag is set and before --help is written. `apply` may also assign `target`.
  CommandLine& preset(std::string name, std::string& target, std::vector<std::string> values,
                      std::string help, std::function<void(const std::string&)> apply);

  /// Adds another name of the flag listed last; --help does not show it.
  CommandLine& alias(std::string name) {
    flags_.back().form.names.push_back(detail::hyphenated(std::move(name)));
    return *this;
  }

  /// Adds `--config FILE`, which may be repeated: a file of flags, lines of KEY=VALUE or a JSON object.
  /// The command line overrides them, and a later file overrides an earlier one.
  CommandLine& config_files() {
    config_ = flags_.size();
    return add(
        {.form = {},
         .placeholder = "FILE",
         .help =
             "reads flags from it: lines of KEY=VALUE, or a JSON object; those given beside it count first",
         .set = [](const std::string&) {},
         .value = [] { return std::string(); }},
        "config");
  }

  /// Returns the given flags with their values as a file for `--config`; other flags are comments.
  [[nodiscard]] std::string config_text() const { return detail::config_text(program_, flags_, given_); }

  /// Takes the words that belong to no flag, one or more. A program without this call takes none.
  CommandLine& positional(std::string placeholder, std::vector<std::string>& target, std::string help) {
    positional_name_ = std::move(placeholder);
    positional_help_ = std::move(help);
    positional_ = &target;
    return *this;
  }

  /// Fills the variables. Returns false if `--help` was asked for. Throws CommandLineError for a wrong
  /// command line, UsageError if two flags have one name.
  [[nodiscard]] bool parse(int argc, char* const* argv);

  /// Calls `call` once all given flags are set, and sets the flags that it returns as if they were given.
  void complete_by(std::function<FlagValues(const CommandLine&)> call) {
    complete_by_.push_back(std::move(call));
  }

  /// Calls `call` at the end of `parse`, when all variables have their values.
  void on_parsed(std::function<void(const CommandLine&)> call) { on_parsed_.push_back(std::move(call)); }

  /// Returns all flags and the current values of their variables, as text: a toggle is "yes" or "no", a group
  /// of flags is called by its name. Omits flags without a value, such as an empty path.
  [[nodiscard]] FlagValues settings() const { return detail::settings_of(flags_); }

  /// True if the program has a flag of this name, without hyphens in front.
  [[nodiscard]] bool has(std::string_view name) const {
    for (const Flag& flag : flags_)
      if (std::find(flag.form.names.begin(), flag.form.names.end(), name) != flag.form.names.end())
        return true;
    return false;
  }

  /// True if the last parsed command line gave the flag of this name, by this or another of its names.
  [[nodiscard]] bool is_given(std::string_view name) const {
    return std::any_of(given_.begin(), given_.end(), [&](std::size_t number) {
      const auto& names = flags_[number].form.names;
      return std::find(names.begin(), names.end(), name) != names.end();
    });
  }

  [[nodiscard]] std::string help() const;
  [[nodiscard]] const std::string& program() const { return program_; }

 private:
  using Flag = detail::ListedFlag;

  CommandLine& add(Flag flag, std::string name);
  void set(const detail::GivenFlag& given) const;
  void complete();
  void take_positional(std::vector<std::string> words);

  std::string program_, summary_;
  std::vector<Flag> flags_;
  std::optional<std::size_t> config_;  ///< the number of `--config`
  std::string positional_name_, positional_help_;
  std::vector<std::string>* positional_ = nullptr;
  std::vector<std::function<FlagValues(const CommandLine&)>> complete_by_;
  std::vector<std::function<void(const CommandLine&)>> on_parsed_;
  std::set<std::size_t> given_;
};

inline CommandLine& CommandLine::add(Flag flag, std::string name) {
  flag.form.names = {detail::hyphenated(std::move(name))};
  flags_.push_back(std::move(flag));
  return *this;
}

template <class T>
CommandLine& CommandLine::option(std::string name, std::string placeholder, T& target, std::string help,
                                 NumberRange range) {
  add({.form = {},
       .placeholder = std::move(placeholder),
       .help = std::move(help),
       .set = [&target, range](const std::string& text) { detail::parse_value(text, range, target); },
       .value = [&target] { return detail::value_text(target); }},
      std::move(name));
  if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    flags_.back().values = [&target] { return target; };
    flags_.back().clear = [&target] { target.clear(); };
  }
  return *this;
}

template <class T>
CommandLine& CommandLine::required(std::string name, std::string placeholder, T& target, std::string help,
                                   NumberRange range) {
  option(std::move(name), std::move(placeholder), target, std::move(help), range);
  flags_.back().is_required = true;
  flags_.back().default_text = [] { return std::string(" (required)"); };
  return *this;
}

template <class T>
CommandLine& CommandLine::flag(std::string name, T& target, std::type_identity_t<T> value, std::string help) {
  return add({.form = {.names = {}, .takes = detail::Takes::nothing},
              .placeholder = {},
              .help = std::move(help),
              .set = [&target, value](const std::string&) { target = value; },
              .value = [&target, value] { return target == value ? "yes" : ""; },
              .default_text = [&target, value] { return target == value ? " [default]" : ""; }},
             std::move(name));
}

template <class T>
CommandLine& CommandLine::toggle(std::string name, T& target, std::string help) {
  flag("no-" + name, target, false, "");
  flags_.back().is_negation = true;
  return flag(std::move(name), target, true, std::move(help));
}

inline CommandLine& CommandLine::choice(std::string name, std::string& target,
                                        std::vector<std::string> values, std::string help,
                                        std::string implied) {
  std::string listed;
  for (const auto& value : values) listed += (listed.empty() ? "" : "|") + value;
  const auto set = [&target, values, listed](const std::string& value) {
    if (std::find(values.begin(), values.end(), value) == values.end())
      throw CommandLineError("\"" + value + "\" is not " + listed);
    target = value;
  };
  add({.form = {.names = {}, .values = std::move(values)},
       .placeholder = listed,
       .help = std::move(help),
       .set = set,
       .value = [&target] { return target; }},
      std::move(name));
  return implied.empty() ? *this : this->implied(std::move(implied));
}

inline CommandLine& CommandLine::implied(std::string value) {
  Flag& flag = flags_.back();
  flag.form.takes = detail::Takes::value_or_nothing;
  flag.placeholder = "[" + flag.placeholder + "]";
  flag.set = [set = std::move(flag.set), value = std::move(value)](const std::string& text) {
    set(text.empty() ? value : text);
  };
  return *this;
}

inline CommandLine& CommandLine::preset(std::string name, std::string& target,
                                        std::vector<std::string> values, std::string help,
                                        std::function<void(const std::string&)> apply) {
  choice(std::move(name), target, std::move(values), std::move(help));
  auto& flag = flags_.back();
  flag.is_preset = true;
  flag.set = [choose = flag.set, apply = std::move(apply), &target](const std::string& text) {
    choose(text);
    apply(text);
    target = text;
  };
  return *this;
}

inline std::string CommandLine::help() const {
  std::vector<std::pair<std::string, std::string>> rows = detail::help_rows(flags_);
  if (positional_) rows.emplace(rows.begin(), positional_name_ + "...", positional_help_);
  return "usage: " + program_ + detail::required_text(flags_) + " [options]" +
         (positional_ ? " " + positional_name_ + "..." : "") + "\n\n" + summary_ + "\n\n" +
         detail::two_columns(rows);
}

inline bool CommandLine::parse(int argc, char* const* argv) {
  const auto forms = detail::forms_of(flags_);
  auto words = detail::WordReader(forms, argc, argv).read();
  for (const auto& sentence : detail::flags_of_two_names(words.flags)) std::cerr << sentence << std::endl;
  if (config_) words.flags = detail::with_config_files(std::move(words.flags), *config_, forms);
  detail::require_one_a_group(forms, words.flags);
  given_.clear();
  for (const auto& given : words.flags) given_.insert(given.number);
  for (const bool presets : {true, false}) {
    if (!presets && words.wants_help) return false;
    for (const std::size_t number : given_)
      if (!presets && flags_[number].clear) flags_[number].clear();
    for (const auto& given : words.flags)
      if (flags_[given.number].is_preset == presets) set(given);
  }
  take_positional(std::move(words.positional));
  for (std::size_t i = 0; i < flags_.size(); ++i) {
    const auto is_it = [i](const detail::GivenFlag& given) { return given.number == i; };
    if (!flags_[i].is_required) continue;
    const auto given = std::find_if(words.flags.rbegin(), words.flags.rend(), is_it);  // the last counts
    if (given == words.flags.rend()) throw CommandLineError(flags_[i].name() + " is missing");
    if (given->value.empty()) throw CommandLineError(flags_[i].name() + " is empty");
  }
  complete();
  for (const auto& call : on_parsed_) call(*this);
  return true;
}

inline void CommandLine::complete() {
  for (const auto& call : complete_by_)
    for (const auto& [name, value] : call(*this))
      for (std::size_t number = 0; number < flags_.size(); ++number)
        if (flags_[number].form.names.front() == name) {
          set({number, value});
          given_.insert(number);
        }
}

inline void CommandLine::set(const detail::GivenFlag& given) const {
  const Flag& flag = flags_[given.number];
  try {
    flag.set(given.value);
  } catch (const CommandLineError& error) {
    throw CommandLineError(
        message(given.place, given.place.empty() ? "" : ": ", flag.name(), ": ", error.what()));
  }
}

inline void CommandLine::take_positional(std::vector<std::string> words) {
  if (!positional_ && !words.empty()) throw CommandLineError("unexpected argument " + words.front());
  if (!positional_) return;
  if (words.empty()) throw CommandLineError("no " + positional_name_ + " given");
  *positional_ = std::move(words);
}

}  // namespace looptorch::app
