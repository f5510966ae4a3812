// SPDX-License-Identifier: MIT
// Reduces values by name over all ranks at once: sums, maxima, flags, texts. The loop makes one reduction per
// window: policies add values to it in their hook `all_reduce`, and it is sent with the gradients. A run of
// one process makes none.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// Thrown if the ranks cannot continue together: one failed or ended, or they are about to do different
/// things.
struct RanksDiffer : Error {
  using Error::Error;
};

/// Collects values to reduce. Each call names a value and refers to its variable, which must live until the
/// exchange and then holds the result of all ranks. A rank may omit a name.
///
///   void all_reduce(RankReduction& reduction, State& state) const {
///     reduction.any("my policy: redo", state.redo);
///   }
class RankReduction {
 public:
  /// `value` becomes true if it is true on any rank.
  void any(const std::string& what, bool& value) {
    enter(what, {Kind::max, value ? 1.0 : 0.0}, {.flag = &value});
  }
  /// `value` becomes the sum over the ranks, added in their order.
  void sum(const std::string& what, double& value) { enter(what, {Kind::sum, value}, {.number = &value}); }
  void sum(const std::string& what, std::int64_t& value) {
    enter(what, {Kind::sum, static_cast<double>(value)}, {.whole = &value});
  }
  /// `value` becomes the largest of all ranks.
  void max(const std::string& what, double& value) { enter(what, {Kind::max, value}, {.number = &value}); }
  void max(const std::string& what, std::int64_t& value) {
    enter(what, {Kind::max, static_cast<double>(value)}, {.whole = &value});
  }
  /// `value` becomes the value of the first rank that names it.
  void broadcast(const std::string& what, double& value) {
    enter(what, {Kind::broadcast, value}, {.number = &value});
  }
  /// `text` becomes that of the first rank that has one, with "rank N: " before it unless all are the same.
  void first_text(const std::string& what, std::optional<std::string>& text) {
    enter(what, {Kind::text, text ? 1.0 : 0.0, text.value_or("")}, {.text = &text});
  }
  /// `text` becomes the texts of all ranks, joined in their order.
  void append(const std::string& what, std::string& text) {
    enter(what, {Kind::append, 0.0, text}, {.appended = &text});
  }
  /// Requires the same text of all ranks: the exchange throws RanksDiffer otherwise, on all of them.
  void require_equal(const std::string& what, const std::string& text) {
    enter(what, {Kind::equal, 0.0, text}, {});
  }

  /// Calls `visit(rest, value)` for each name `prefix` + rest of any rank. Call it after the exchange.
  template <class Visit>
  void each_number(std::string_view prefix, Visit&& visit) const {
    for (const auto& [what, entry] : all_)
      if (what.starts_with(prefix)) visit(what.substr(prefix.size()), entry.number);
  }

  /// Returns this rank's values as bytes.
  [[nodiscard]] std::string message() const {
    std::string bytes;
    for (const auto& [what, entry] : mine_) {
      put_text(bytes, what);
      bytes += static_cast<char>(entry.kind);
      bytes.append(reinterpret_cast<const char*>(&entry.number), sizeof entry.number);
      put_text(bytes, entry.text);
    }
    return bytes;
  }

  /// Takes the messages of all ranks, in their order, and sets the variables. Throws RanksDiffer if texts of
  /// `require_equal` differ.
  void take(const std::vector<std::string>& messages) {
    all_.clear();
    for (std::size_t rank = 0; rank < messages.size(); ++rank) merge(messages[rank], rank);
    for (auto& [what, entry] : all_)
      if (entry.kind == Kind::text && entry.number != 0 && (entry.differs || entry.givers != messages.size()))
        entry.text = looptorch::message("rank ", entry.rank, ": ", entry.text);
    for (const Place& place : places_) place.take(all_.at(place.what));
  }

 private:
  enum class Kind : char { sum, max, broadcast, text, append, equal };
  struct Entry {
    Kind kind = Kind::sum;
    double number = 0.0;  // of a text: 1 if there is one
    std::string text = {};
    std::size_t rank = 0;    // that gave the text
    std::size_t givers = 0;  // ranks that gave a text
    bool differs = false;    // among them
  };

  /// The variable that a name refers to, if any.
  struct Place {
    bool* flag = nullptr;
    double* number = nullptr;
    std::int64_t* whole = nullptr;
    std::optional<std::string>* text = nullptr;
    std::string* appended = nullptr;
    std::string what = {};

    void take(const Entry& all) const {
      if (flag) *flag = all.number != 0;
      if (number) *number = all.number;
      if (whole) *whole = static_cast<std::int64_t>(all.number);
      if (text && all.number != 0) *text = all.text;
      if (appended) *appended = all.text;
    }
  };

  void enter(const std::string& what, Entry entry, Place place) {
    if (!mine_.emplace(what, std::move(entry)).second)
      throw UsageError(looptorch::message("two policies reduce a value named '", what, "'"));
    place.what = what;
    places_.push_back(std::move(place));
  }

  static void put_text(std::string& bytes, std::string_view text) {
    const auto size = static_cast<std::uint32_t>(text.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes += text;
  }
  template <class T>
  static T take_number(std::string_view& bytes) {
    T value{};
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
    return value;
  }
  static std::string take_text(std::string_view& bytes) {
    const auto size = take_number<std::uint32_t>(bytes);
    std::string text(bytes.substr(0, size));
    bytes.remove_prefix(size);
    return text;
  }

  void merge(std::string_view bytes, std::size_t rank) {
    while (!bytes.empty()) {
      const std::string what = take_text(bytes);
      Entry given;
      given.kind = static_cast<Kind>(take_number<char>(bytes));
      given.number = take_number<double>(bytes);
      given.text = take_text(bytes);
      given.rank = rank;
      given.givers = given.kind == Kind::text && given.number != 0;
      const auto [place, is_new] = all_.emplace(what, given);
      if (!is_new) add(place->second, given, what);
    }
  }

  static void add(Entry& all, const Entry& given, const std::string& what) {
    switch (all.kind) {
      case Kind::sum:
        all.number += given.number;
        break;
      case Kind::max:
        all.number = all.number < given.number ? given.number : all.number;
        break;
      case Kind::broadcast:
        break;
      case Kind::text:
        add_text(all, given);
        break;
      case Kind::append:
        all.text += given.text;
        break;
      case Kind::equal:
        if (all.text != given.text)
          throw RanksDiffer(looptorch::message(what, " must be the same on all ranks: rank ", all.rank,
                                               " has ", all.text, ", rank ", given.rank, " has ",
                                               given.text));
        break;
    }
  }
  static void add_text(Entry& all, const Entry& given) {
    if (given.number == 0) return;
    if (all.number == 0) {
      all = given;
      return;
    }
    ++all.givers;
    all.differs |= all.text != given.text;
  }

  std::map<std::string, Entry> mine_, all_;
  std::vector<Place> places_;
};

}  // namespace looptorch
