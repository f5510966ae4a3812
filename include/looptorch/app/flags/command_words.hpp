// SPDX-License-Identifier: MIT
// Splits a command line into flags, their values and the rest. Private to command_line.hpp.
#pragma once

#include <looptorch/app/flags/familiar_flags.hpp>
#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/text/near_names.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::app::detail {

/// Says whether a flag has no value, needs one, or may have one.
enum class Takes { nothing, value, value_or_nothing };

/// A flag as the reader of words sees it.
struct FlagForm {
  std::vector<std::string> names;  ///< the flag's own, then its aliases; all with hyphens
  Takes takes = Takes::value;
  std::vector<std::string> values = {};  ///< the words that `value_or_nothing` takes; empty: all but flags
  std::string group = {};                ///< flags of one group exclude each other; empty: none

  [[nodiscard]] bool takes_word(const std::string& word) const {
    if (values.empty()) return !word.starts_with("-");
    return std::find(values.begin(), values.end(), word) != values.end();
  }
};

/// A given flag: its number in the table, and its value, which may be empty. `place` is its position in a
/// file. On the command line `place` is empty, and `word` is what was written.
struct GivenFlag {
  std::size_t number;
  std::string value;
  std::string place = {};
  std::string word = {};
};

/// Returns a warning for each flag that the command line gives by two names with different values.
[[nodiscard]] inline std::vector<std::string> flags_of_two_names(const std::vector<GivenFlag>& given) {
  std::map<std::size_t, GivenFlag> last;
  std::vector<std::string> sentences;
  const auto text = [](const GivenFlag& flag) { return flag.word + " " + flag.value; };
  for (const GivenFlag& flag : given) {
    if (!flag.place.empty()) continue;
    const auto [earlier, is_first] = last.emplace(flag.number, flag);
    if (!is_first && earlier->second.word != flag.word && earlier->second.value != flag.value)
      sentences.push_back(text(earlier->second) + " and " + text(flag) +
                          " are one flag: the last one counts");
    earlier->second = flag;
  }
  return sentences;
}

struct CommandWords {
  std::vector<GivenFlag> flags = {};
  std::vector<std::string> positional = {};
  bool wants_help = false;  ///< `--help` was given; words after it are not read
};

/// Throws CommandLineError if two flags of one group were given.
inline void require_one_a_group(const std::vector<FlagForm>& forms, const std::vector<GivenFlag>& given) {
  std::map<std::string, std::size_t> first;
  for (const GivenFlag& flag : given) {
    const std::string& group = forms[flag.number].group;
    const auto other = first.emplace(group, flag.number).first->second;
    if (!group.empty() && other != flag.number)
      throw CommandLineError("--" + forms[other].names.front() + " and --" +
                             forms[flag.number].names.front() + " exclude each other: give one of them");
  }
}

/// A flag's name with hyphens for underscores: `batch_size` and `batch-size` are one name.
[[nodiscard]] inline std::string hyphenated(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

/// Reads words as GNU's getopt_long does: `--name value`, `--name=value`, names shortened while they are
/// unique, flags and other words in any order, and `--` before words that begin with a hyphen.
class WordReader {
 public:
  /// `forms` must outlive the reader.
  WordReader(const std::vector<FlagForm>& forms, int argc, char* const* argv)
      : forms_(forms), words_(argv + std::min(argc, 1), argv + argc) {}

  /// Throws CommandLineError for an unknown flag, a missing value, and a value of a flag that takes none.
  [[nodiscard]] CommandWords read() {
    while (next_ < words_.size() && !read_.wants_help) {
      auto word = words_[next_++];
      if (word == "--")
        take_rest();
      else if (word.starts_with("-") && word != "-")
        take_flag(word);
      else
        read_.positional.push_back(std::move(word));
    }
    return std::move(read_);
  }

 private:
  void take_rest() {
    for (; next_ < words_.size(); ++next_) read_.positional.push_back(words_[next_]);
  }

  void take_flag(const std::string& word) {
    const auto equals = word.find('=');
    const std::string flag = hyphenated(word.substr(0, equals));
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    if (take_familiar(word, flag, value)) return;
    const auto number = number_of(word, flag);
    if (number == forms_.size())
      read_.wants_help = true;
    else
      take(number, word, value);
  }

  /// Takes another program's flag that has an equivalent here. Returns false if `flag` is no such flag.
  ///
  /// A row of kFamiliarFlags replaces only the name and keeps the value (`lr` -> `learning-rate`), replaces
  /// name and value (`mixed-precision bf16` -> `bf16`), or adds a value (`cpu` -> `device cpu`) to a flag
  /// that stands alone or before true or false.
  bool take_familiar(const std::string& word, const std::string& flag,
                     const std::optional<std::string>& value) {
    if (!flag.starts_with("--")) return false;
    const std::string name = flag.substr(2);
    for (const FamiliarFlag& familiar : kFamiliarFlags) {
      const auto [their_name, their_value] = name_and_value(familiar.theirs);
      const auto [our_name, our_value] = name_and_value(familiar.ours);
      if (their_name != name || (!their_value.empty() && their_value != lower_case(next_value(value))))
        continue;
      const auto number = number_of_exactly(our_name);
      if (number == forms_.size() || (their_value.empty() && number_of_exactly(name) < forms_.size()))
        continue;
      if (!their_value.empty() && !value) ++next_;
      if (their_value.empty() && our_value.empty())
        take(number, word, value);
      else if (!their_value.empty() || is_true(word, value))
        read_.flags.push_back({number, std::string(our_value), {}, flag});
      return true;
    }
    return false;
  }

  void take(std::size_t number, const std::string& word, const std::optional<std::string>& value) {
    const FlagForm& form = forms_[number];
    if (form.takes != Takes::value && truth_of(next_value(value)) != Truth::none) {
      if (is_true(word, value)) return read_.flags.push_back({number, {}});
      const auto negation = number_of_exactly("no-" + form.names.front());
      if (negation == forms_.size())
        throw CommandLineError(word + " takes no value; leave it out for \"no\"");
      return read_.flags.push_back({negation, {}});
    }
    if (value && form.takes == Takes::nothing)
      throw CommandLineError("--" + form.names.front() + " takes no value: " + word);
    read_.flags.push_back({number, value ? *value : value_behind(form), {}, word.substr(0, word.find('='))});
  }

  enum class Truth { none, yes, no };
  [[nodiscard]] static Truth truth_of(const std::string& text) {
    const std::string lower = lower_case(text);
    return lower == "true" ? Truth::yes : lower == "false" ? Truth::no : Truth::none;
  }
  /// Returns the value of a flag that may stand alone, which means true. Consumes a "true" or "false" after
  /// the flag, as Python's parsers do.
  bool is_true(const std::string& word, const std::optional<std::string>& value) {
    const Truth truth = truth_of(next_value(value));
    if (truth == Truth::none && value)
      throw CommandLineError(word + ": \"" + *value + "\" is not true|false");
    if (truth != Truth::none && !value) ++next_;
    return truth != Truth::no;
  }

  /// Returns the value given by `=`, else the next word.
  [[nodiscard]] std::string next_value(const std::optional<std::string>& value) const {
    return value ? *value : next_ < words_.size() ? words_[next_] : std::string();
  }
  [[nodiscard]] static std::pair<std::string_view, std::string_view> name_and_value(std::string_view words) {
    const auto space = words.find(' ');
    if (space == std::string_view::npos) return {words, {}};
    return {words.substr(0, space), words.substr(space + 1)};
  }
  [[nodiscard]] static std::string lower_case(std::string text) {
    for (char& letter : text)
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    return text;
  }

  [[nodiscard]] std::string value_behind(const FlagForm& form) {
    const bool has_word = next_ < words_.size();
    if (form.takes == Takes::value) {
      if (!has_word) throw CommandLineError("--" + form.names.front() + " needs a value");
      return words_[next_++];
    }
    if (form.takes == Takes::value_or_nothing && has_word && form.takes_word(words_[next_]))
      return words_[next_++];
    return {};
  }

  /// Returns the number of the flag that `flag`, the hyphenated name in `word`, means. The number after the
  /// last flag's means `--help`.
  [[nodiscard]] std::size_t number_of(const std::string& word, const std::string& flag) const {
    const std::string name = flag.starts_with("--") ? flag.substr(2) : "";
    std::set<std::size_t> meant;
    for (std::size_t number = 0; number <= forms_.size(); ++number) {
      for (const auto& known : names_of(number)) {
        if (known == name) return number;
        if (!name.empty() && known.starts_with(name)) meant.insert(number);
      }
    }
    if (meant.size() == 1) return *meant.begin();
    if (meant.empty()) throw CommandLineError("unknown option " + word + advice(name));
    std::string flags;
    for (const auto number : meant) flags += (flags.empty() ? "--" : " and --") + names_of(number).front();
    throw CommandLineError(word + " is short for " + flags + "; write it out");
  }

  [[nodiscard]] std::vector<std::string> names_of(std::size_t number) const {
    return number < forms_.size() ? forms_[number].names : std::vector<std::string>{"help"};
  }

  /// Returns the number of the flag with exactly this name, or the number of flags if there is none.
  [[nodiscard]] std::size_t number_of_exactly(std::string_view name) const {
    const auto has_it = [name](const FlagForm& form) {
      return std::find(form.names.begin(), form.names.end(), name) != form.names.end();
    };
    return static_cast<std::size_t>(std::find_if(forms_.begin(), forms_.end(), has_it) - forms_.begin());
  }

  /// Returns what to write instead of a flag that the program lacks.
  [[nodiscard]] std::string advice(const std::string& name) const {
    if (name.empty()) return {};
    for (const FlagWithoutEqual& flag : kFlagsWithoutEqual)
      if (flag.theirs == name && number_of_exactly(flag.where) < forms_.size())
        return ": " + std::string(flag.instead);
    std::vector<std::string> known;
    for (const auto& form : forms_) known.push_back(form.names.front());
    const auto near = near_names(name, known, 1);
    return near.empty() ? "" : "; did you mean --" + near.front() + "?";
  }

  const std::vector<FlagForm>& forms_;
  std::vector<std::string> words_;
  std::size_t next_ = 0;
  CommandWords read_;
};

}  // namespace looptorch::app::detail
