// SPDX-License-Identifier: MIT
// Holds the flags of a CommandLine as a table of names, help texts and variables. The table yields --help,
// the settings that a run records, and a file for --config.
#pragma once

#include <looptorch/app/flags/command_words.hpp>
#include <looptorch/app/flags/config_file.hpp>
#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::app::detail {

struct ListedFlag {
  FlagForm form;
  std::string placeholder, help;
  std::function<void(const std::string&)> set;
  std::function<std::string()> value = {};  ///< an empty text: none
  /// Returns all values of a flag that may be given several times; null for other flags.
  std::function<std::vector<std::string>()> values = {};
  std::function<void()> clear = {};                ///< drops its default; null for other flags
  std::function<std::string()> default_text = {};  ///< what help shows instead of the value; may be null
  bool is_required = false, is_preset = false;
  bool is_negation = false;  ///< the `--no-name` of the flag after it, with which help shows it

  [[nodiscard]] std::string name() const { return "--" + form.names.front(); }
};

using FlagTable = std::vector<ListedFlag>;
/// Names and texts.
using FlagTexts = std::vector<std::pair<std::string, std::string>>;

/// True if the flag before `number` is its `--no-name`.
[[nodiscard]] inline bool has_negation(const FlagTable& flags, std::size_t number) {
  return number > 0 && flags[number - 1].is_negation;
}

/// Returns how each flag is spelled and whether it takes a value, for the parser. Throws UsageError for a
/// name that is listed twice.
[[nodiscard]] inline std::vector<FlagForm> forms_of(const FlagTable& flags) {
  std::set<std::string> known{"help"};
  std::vector<FlagForm> forms;
  for (const auto& flag : flags) {
    for (const auto& name : flag.form.names) {
      if (!known.insert(name).second) throw UsageError("CommandLine: --" + name + " is listed twice");
    }
    forms.push_back(flag.form);
  }
  return forms;
}

/// Returns the flags that must be given, with a space before each.
[[nodiscard]] inline std::string required_text(const FlagTable& flags) {
  std::string text;
  for (const auto& flag : flags)
    if (flag.is_required) text += message(" ", flag.name(), " ", flag.placeholder);
  return text;
}

/// Returns each flag's row of --help.
[[nodiscard]] inline FlagTexts help_rows(const FlagTable& flags) {
  FlagTexts rows;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const auto& flag = flags[i];
    if (flag.is_negation) continue;
    const auto name = has_negation(flags, i) ? "--[no-]" + flag.name().substr(2) : flag.name();
    rows.emplace_back(
        name + (flag.placeholder.empty() ? "" : " " + flag.placeholder),
        flag.help + (flag.default_text ? flag.default_text() : detail::default_text(flag.value())));
  }
  rows.emplace_back("--help", "this text");
  return rows;
}

/// Returns all flags that have a value, with it.
[[nodiscard]] inline FlagTexts settings_of(const FlagTable& flags) {
  FlagTexts all;
  for (const auto& flag : flags) {
    const std::string &name = flag.form.names.front(), &group = flag.form.group;
    const std::string value = flag.value();
    if (value.empty()) continue;
    if (flag.is_negation)
      all.emplace_back(name.substr(3), "no");
    else
      all.emplace_back(group.empty() ? name : group, group.empty() ? value : name);
  }
  return all;
}

/// Returns a file for --config; flags whose numbers are not in `given` are comments.
[[nodiscard]] inline std::string config_text(const std::string& program, const FlagTable& flags,
                                             const std::set<std::size_t>& given) {
  std::string text = message(
      "# ", program, " --config FILE, with this file, repeats the run. Comments are what was not given.\n");
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const ListedFlag& flag = flags[i];
    const std::string value = flag.value();
    if (value.empty()) continue;
    const std::string name = flag.form.names.front();
    const bool is_toggle = flag.is_negation || has_negation(flags, i);
    const bool is_given =
        given.contains(i) || (is_toggle && given.contains(flag.is_negation ? i + 1 : i - 1));
    const std::string begin = is_given ? "" : "# ";
    if (flag.is_negation)
      text += begin + config_line(name.substr(3), "false");
    else if (flag.values)
      for (const std::string& each : flag.values()) text += begin + config_line(name, each);
    else
      text += begin + config_line(name, flag.form.takes == Takes::nothing ? "true" : value);
  }
  return text;
}

}  // namespace looptorch::app::detail
