// SPDX-License-Identifier: MIT
// Reads and writes flags as a file, for --config: lines of KEY=VALUE, or a JSON object. Private to
// command_line.hpp.
#pragma once

#include <looptorch/app/flags/command_words.hpp>
#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/trimmed.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::app::detail {

/// A flag of a file as a word of a command line, `--key=value`, and its position, "run.conf:3" or "run.json:
/// key".
struct ConfigWord {
  std::string word, place;
};

/// Reads lines of KEY=VALUE: empty lines and those that begin with # are skipped, and a key alone is a flag
/// without a value. Spaces around a key and a value, and quotes around a value, do not count. A value within
/// $'...' has escapes as in bash: \n is a newline, and a backslash before any other character is dropped.
class ConfigLines {
 public:
  ConfigLines(std::string name, std::string_view text) : name_(std::move(name)), text_(text) {}

  /// True for a value within $'...'.
  [[nodiscard]] static bool is_escaped(std::string_view text) {
    return text.size() > 2 && text.starts_with("$'") && text.ends_with('\'');
  }

  [[nodiscard]] std::vector<ConfigWord> read() {
    std::vector<ConfigWord> words;
    std::size_t begin = 0;
    for (std::size_t number = 1; begin < text_.size(); ++number) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      const std::string_view line = trimmed(text_.substr(begin, end - begin));
      if (!line.empty() && line.front() != '#') {
        std::string place = message(name_, ":", number);
        words.push_back({word_of(line, place), place});
      }
      begin = end + 1;
    }
    return words;
  }

 private:
  [[nodiscard]] static std::string word_of(std::string_view line, const std::string& place) {
    const auto equals = line.find('=');
    std::string_view key = trimmed(line.substr(0, equals));
    if (key.starts_with("--") && key != "---") key.remove_prefix(2);
    if (key.empty()) throw CommandLineError(message(place, ": \"", line, "\" has no name before the ="));
    if (key.find_first_of(" \t:[]{}\"'") != key.npos || key.front() == '-')
      throw CommandLineError(message(place, ": \"", line, "\" is not KEY=VALUE",
                                     key.find(':') != key.npos || key == "---"
                                         ? "; YAML is not read: write KEY=VALUE lines or a JSON object"
                                         : ""));
    const std::string word = "--" + std::string(key);
    return equals == line.npos ? word : word + "=" + value_of(trimmed(line.substr(equals + 1)));
  }

  [[nodiscard]] static std::string value_of(std::string_view text) {
    if (is_escaped(text)) return unescaped(text.substr(2, text.size() - 3));
    const bool is_quoted =
        text.size() > 1 && text.front() == text.back() && (text.front() == '"' || text.front() == '\'');
    return std::string(is_quoted ? text.substr(1, text.size() - 2) : text);
  }

  [[nodiscard]] static std::string unescaped(std::string_view text) {
    std::string value;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool is_escape = text[i] == '\\' && i + 1 < text.size();
      i += is_escape ? 1 : 0;
      value += is_escape && text[i] == 'n' ? '\n' : text[i];
    }
    return value;
  }

  std::string name_;
  std::string_view text_;
};

/// Returns the numbers in JSON text as they are written, in its order.
[[nodiscard]] inline std::vector<std::string> written_numbers(std::string_view json) {
  std::vector<std::string> numbers;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') {
      in_string = !in_string;
    } else if (in_string) {
      i += json[i] == '\\' ? 1 : 0;
    } else if (json[i] == '-' || (json[i] >= '0' && json[i] <= '9')) {
      numbers.emplace_back(json.substr(i, json.find_first_not_of("+-.eE0123456789", i) - i));
      i += numbers.back().size() - 1;
    }
  }
  return numbers;
}

/// Returns a JSON value as text. A number becomes `*numbers`, its text as the file has it, and `numbers` is
/// advanced.
[[nodiscard]] inline std::string config_value(const Json& value, const std::string& place,
                                              std::vector<std::string>::const_iterator& numbers) {
  if (value.is_string()) return value.as_string();
  if (value.is_number()) return *numbers++;
  if (value.is_bool()) return value.dump();
  throw CommandLineError(
      message(place, " is ", value.kind(), "; a flag's value is text, a number, true or false"));
}

/// Returns the flags of a file in its order; null in JSON sets none. Throws CommandLineError that names the
/// file and the line or key.
[[nodiscard]] inline std::vector<ConfigWord> read_config(const std::filesystem::path& file) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20;
  try {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // some editors write it
    const std::string whole = read_file(file, kMaxBytes);
    std::string_view text = whole;
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    if (!trimmed(text).starts_with('{')) return ConfigLines(file.string(), text).read();
    std::vector<ConfigWord> words;
    const Json json = Json::parse(text);
    const std::vector<std::string> numbers = written_numbers(text);
    auto number = numbers.begin();
    for (const auto& [key, value] : json.as_object()) {
      const std::string place = message(file.string(), ": ", key);
      if (!value.is_null())
        words.push_back({message("--", key, "=", config_value(value, place, number)), place});
    }
    return words;
  } catch (const JsonError& error) {
    throw CommandLineError(message(file.string(), ": ", error.what()));
  } catch (const CommandLineError&) {
    throw;
  } catch (const Error& error) {  // it cannot be read
    throw CommandLineError(message("--config: ", error.what()));
  }
}

/// Returns the flags of the files named by flag number `config` in `given`, in the order of the files, then
/// `given`. A later file or `given` overrides a file's flag by the same flag or another of its group. Throws
/// CommandLineError that names the file and the line or key.
[[nodiscard]] inline std::vector<GivenFlag> with_config_files(std::vector<GivenFlag> given,
                                                              std::size_t config,
                                                              const std::vector<FlagForm>& forms) {
  const auto drop_those_of = [&](const std::vector<GivenFlag>& later, std::vector<GivenFlag>& flags) {
    std::erase_if(flags, [&](const GivenFlag& earlier) {
      const std::string& group = forms[earlier.number].group;
      return std::any_of(later.begin(), later.end(), [&](const GivenFlag& flag) {
        return flag.number == earlier.number || (!group.empty() && forms[flag.number].group == group);
      });
    });
  };
  std::vector<GivenFlag> flags;
  for (const GivenFlag& file : given) {
    if (file.number != config) continue;
    std::vector<GivenFlag> of_file;
    for (auto& [word, place] : read_config(file.value)) {
      char* const argv[] = {nullptr, word.data()};
      try {
        for (GivenFlag& flag : WordReader(forms, 2, argv).read().flags) {
          if (flag.number == config) throw CommandLineError("a file of flags names no other one");
          flag.place = place;
          of_file.push_back(std::move(flag));
        }
      } catch (const CommandLineError& error) {
        throw CommandLineError(message(place, ": ", error.what()));
      }
    }
    drop_those_of(of_file, flags);
    flags.insert(flags.end(), of_file.begin(), of_file.end());
  }
  drop_those_of(given, flags);
  flags.insert(flags.end(), given.begin(), given.end());
  return flags;
}

/// Returns a text of several lines as one line, in $'...'.
[[nodiscard]] inline std::string escaped(std::string_view text) {
  std::string line = "$'";
  for (const char character : text) {
    if (character == '\n' || character == '\\' || character == '\'') line += '\\';
    line += character == '\n' ? 'n' : character;
  }
  return line + "'";
}

/// Returns a flag's line in a file, from which ConfigLines reads the same value.
[[nodiscard]] inline std::string config_line(const std::string& name, const std::string& value) {
  if (value.find('\n') != value.npos) return message(name, "=", escaped(value), "\n");
  const bool needs_quotes = value.empty() || trimmed(value).size() < value.size() || value.front() == '"' ||
                            value.front() == '\'' || ConfigLines::is_escaped(value);
  return message(name, "=", needs_quotes ? message("\"", value, "\"") : value, "\n");
}

}  // namespace looptorch::app::detail
