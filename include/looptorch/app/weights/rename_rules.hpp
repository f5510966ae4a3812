// SPDX-License-Identifier: MIT
// Renames the tensors of a file to a model's names, by the patterns of `--rename OLD=NEW`:
//
//   encoder.layers.=encoder.blocks.     an OLD that ends in a dot: replaces it at the beginning of names
//   layers.*.fc1.*=blocks.*.up.*        `*`: a `*` on the right stands for what it matched on the left
//   fc.weight=head.weight               renames one tensor
//   head.*=                             an empty NEW: skips the tensors
//   module.=                            removes a prefix; `=module.` adds one
#pragma once

#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/text/near_names.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::app {

/// One rule. An OLD that is empty or ends in a dot is the beginning of names, and NEW then is one, too.
class RenameRule {
 public:
  /// Reads "OLD=NEW". Throws CommandLineError for a text without "=", sides that are alike, a beginning as
  /// OLD only, and more `*` in NEW than in OLD.
  explicit RenameRule(const std::string& text) : text_(text) {
    const auto equals = text.find('=');
    if (equals == std::string::npos) refuse("is not OLD=NEW");
    from_ = text.substr(0, equals);
    to_ = text.substr(equals + 1);
    const bool is_beginning = from_.empty() || from_.ends_with('.');
    if (is_beginning && (to_.empty() ? from_.empty() : !to_.ends_with('.')))
      refuse("replaces the beginning of names: NEW ends in a dot, too, or is empty");
    if (is_beginning) {
      from_ += '*';
      to_ += '*';
    }
    if (from_ == to_) refuse("changes nothing");
    if (stars(to_) > stars(from_)) refuse("has more * on the right than on the left");
  }

  /// Returns the new name, empty for a skipped tensor; none for a name that OLD does not match.
  [[nodiscard]] std::optional<std::string> apply(std::string_view name) const {
    std::vector<std::string_view> parts;
    if (!match(from_, name, parts)) return std::nullopt;
    std::string renamed;
    std::size_t next = 0;
    for (const char c : to_) c == '*' ? renamed += parts[next++] : renamed += c;
    return renamed;
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  /// Returns OLD as a pattern for whole names.
  [[nodiscard]] const std::string& pattern() const { return from_; }

 private:
  [[noreturn]] void refuse(const char* why) const {
    throw CommandLineError(message("--rename: \"", text_, "\" ", why));
  }

  [[nodiscard]] static std::ptrdiff_t stars(const std::string& pattern) {
    return std::count(pattern.begin(), pattern.end(), '*');
  }

  /// Finds what each `*` matches; an earlier one matches as little as it can.
  [[nodiscard]] static bool match(std::string_view pattern, std::string_view name,
                                  std::vector<std::string_view>& parts) {
    const auto star = pattern.find('*');
    if (star == pattern.npos) return pattern == name;
    if (name.substr(0, star) != pattern.substr(0, star)) return false;
    name.remove_prefix(star), pattern.remove_prefix(star + 1);
    // The last one takes all but the end, so that a long pattern costs no more than a product of lengths.
    for (std::size_t size = pattern.find('*') == pattern.npos && name.size() > pattern.size()
                                ? name.size() - pattern.size()
                                : 0;
         size <= name.size(); ++size) {
      parts.push_back(name.substr(0, size));
      if (match(pattern, name.substr(size), parts)) return true;
      parts.pop_back();
    }
    return false;
  }

  std::string text_, from_, to_;
};

/// Reads rules, several to a text if separated by commas, as in a file for --config. Throws what RenameRule
/// throws.
[[nodiscard]] inline std::vector<RenameRule> rename_rules(const std::vector<std::string>& texts) {
  std::vector<RenameRule> rules;
  for (const std::string& text : texts) {
    for (std::size_t begin = 0, end = 0; end != text.npos; begin = end + 1) {
      end = text.find(',', begin);
      begin = std::min(text.find_first_not_of(' ', begin), text.size());
      rules.emplace_back(text.substr(begin, end == text.npos ? end : end - begin));
    }
  }
  return rules;
}

/// Returns a name after all rules, each applied to the result of the one before. Stops at an empty name.
[[nodiscard]] inline std::string renamed(std::string name, const std::vector<RenameRule>& rules) {
  for (const RenameRule& rule : rules)
    if (auto next = rule.apply(name); next && !name.empty()) name = *std::move(next);
  return name;
}

/// Throws UsageError for a rule that matches no name after the rules before it, and suggests near names.
/// `where` is the file.
inline void require_matches(std::vector<std::string> names, const std::vector<RenameRule>& rules,
                            std::string_view where) {
  for (const RenameRule& rule : rules) {
    bool matches = false;
    for (std::string& name : names) {
      auto next = rule.apply(name);
      if (!next) continue;
      name = *std::move(next);
      matches = true;
    }
    if (matches) continue;
    std::string near;
    for (const auto& candidate : near_names(rule.pattern(), names))
      near += (near.empty() ? "; near: " : ", ") + candidate;
    throw UsageError(message("--rename ", rule.text(), ": matches no name in ", where, near));
  }
}

}  // namespace looptorch::app
