// SPDX-License-Identifier: MIT
// Writes spoken English numbers as digits, by openai-whisper's rules: "two thousand twenty six" becomes 2026,
// "one oh one" becomes 101, "five dollars" becomes $5, and "twenty first" becomes 21st. Reads word by word
// and holds the number so far. Takes linear time, except for numbers of hundreds of digits.
#pragma once

#include <looptorch/metrics/unicode/white_space.hpp>

#include "decimal_digits.hpp"
#include "english_number_words.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper::detail {

/// The number so far.
struct SpokenNumber {
  std::string digits;
  bool is_text = false;  ///< digits side by side, or with a point: no number can be added to them

  [[nodiscard]] bool is_zero() const { return !is_text && digits == "0"; }
};

class NumberWriter {
 public:
  /// Returns the text with its numbers as digits, and single spaces between words.
  [[nodiscard]] std::string write(std::string_view text) {
    words_ = looptorch::split_white_space(text);
    for (at_ = 0; at_ < words_.size(); ++at_) take(words_[at_]);
    if (value_) emit_value();
    return std::move(out_);
  }

 private:
  void take(std::string_view word) {
    if (take_number(word)) return;
    const auto* meaning = find_number_word(word);
    if (meaning == nullptr) return emit_after_value(word);
    switch (meaning->kind) {
      case NumberWordKind::zero:
        value_ = SpokenNumber{text_so_far() + "0", true};
        break;
      case NumberWordKind::one:
      case NumberWordKind::ten:
        hold_or_end(joined(meaning->value), *meaning);
        break;
      case NumberWordKind::multiplier:
        hold_or_end({multiplied(meaning->value)}, *meaning);
        break;
      case NumberWordKind::sign:
        take_sign(word, *meaning);
        break;
      case NumberWordKind::currency:
        take_currency(word, *meaning);
        break;
      case NumberWordKind::percent:
        value_ ? emit_value("%") : emit(word);
        break;
      case NumberWordKind::per:
        take_per(word);
        break;
      default:
        take_special(word, *meaning);
    }
  }

  /// Takes a number in digits, possibly with a currency's sign.
  [[nodiscard]] bool take_number(std::string_view word) {
    const auto sign = currency_sign(word);
    const auto number = word.substr(sign.size());
    if (!is_decimal_number(number)) return false;
    if (value_ && value_->is_text && value_->digits.ends_with('.')) {
      value_->digits += word;
      return true;
    }
    if (value_) emit_value();
    if (!sign.empty()) prefix_ = sign;
    const auto whole = scale_decimal(number, 0);
    value_ = whole ? SpokenNumber{*whole} : SpokenNumber{std::string(number), true};
    return true;
  }

  [[nodiscard]] static std::string_view currency_sign(std::string_view word) {
    for (const std::string_view sign : {"$", "\u00A2", "\u00A3", "\u20AC"}) {
      if (word.starts_with(sign)) return word.substr(0, sign.size());
    }
    return {};
  }

  /// Returns the number so far with `n`, 0 to 99, put in place of its final zeros or appended to it.
  [[nodiscard]] SpokenNumber joined(int n) const {
    const auto digits = std::to_string(n);
    if (!value_) return {digits};
    const auto& before = value_->digits;
    const auto follows = [this](NumberWordKind kind) { return previous_is(kind); };
    const bool is_beside = value_->is_text || (n < 20 && follows(NumberWordKind::one));
    if (is_beside && n < 10 && follows(NumberWordKind::ten))
      return {before.substr(0, before.size() - 1) + digits, true};
    const bool has_room = value_->is_zero() || before.ends_with(std::string(digits.size(), '0'));
    if (is_beside || !has_room) return {before + digits, true};
    const auto kept = before.size() - std::min(before.size(), digits.size());
    return {before.substr(0, kept) + digits};
  }

  /// Returns the number so far times a power of ten. Returns the power alone if there is no number, or if the
  /// number cannot be multiplied.
  [[nodiscard]] std::string multiplied(int exponent) {
    if (!value_) return power_of_ten(exponent);
    if (!value_->is_text) return multiply_below_thousand(value_->digits, exponent);
    if (auto whole = scale_decimal(value_->digits, exponent)) return *whole;
    emit_value();
    return power_of_ten(exponent);
  }

  /// Holds a cardinal, which may continue; ends an ordinal or a plural.
  void hold_or_end(SpokenNumber number, const NumberWord& word) {
    value_ = std::move(number);
    if (!word.mark.empty()) emit_value(word.mark);
  }

  void take_sign(std::string_view word, const NumberWord& meaning) {
    if (value_) emit_value();
    if (next_is_number_word() || next_is_numeric())
      prefix_ = meaning.mark;
    else
      emit(word);
  }

  void take_currency(std::string_view word, const NumberWord& meaning) {
    if (!value_) return emit(word);
    prefix_ = meaning.mark;
    emit_value();
  }

  void take_per(std::string_view word) {
    if (!value_ || next() != "cent") return emit_after_value(word);
    emit_value("%");
    ++at_;
  }

  /// Takes "and", "double", "triple" or "point", which belong to numbers only before other words of numbers.
  void take_special(std::string_view word, const NumberWord& meaning) {
    if (!next_is_number_word() && !next_is_numeric()) return emit_after_value(word);
    const auto* following = find_number_word(next());
    const bool digits_follow = following != nullptr && following->is_digits();
    if (meaning.kind == NumberWordKind::point) {
      if (digits_follow || next_is_numeric()) value_ = SpokenNumber{text_so_far() + ".", true};
    } else if (meaning.kind == NumberWordKind::conjunction) {
      if (!previous_is(NumberWordKind::multiplier)) emit_after_value(word);
    } else if (digits_follow && following->kind != NumberWordKind::ten) {
      repeat(following->value, meaning.value);
    } else {
      emit_after_value(word);
    }
  }

  void repeat(int n, int times) {
    auto text = text_so_far();
    for (; times > 0; --times) text += std::to_string(n);
    value_ = SpokenNumber{std::move(text), true};
    ++at_;
  }

  [[nodiscard]] std::string text_so_far() const {
    return value_ && !value_->is_zero() ? value_->digits : std::string();
  }

  [[nodiscard]] std::string_view next() const {
    return at_ + 1 < words_.size() ? words_[at_ + 1] : std::string_view();
  }
  [[nodiscard]] bool next_is_number_word() const { return find_number_word(next()) != nullptr; }
  [[nodiscard]] bool next_is_numeric() const { return is_decimal_number(next()); }

  /// True if the word before is a cardinal of this kind.
  [[nodiscard]] bool previous_is(NumberWordKind kind) const {
    const auto* word = at_ > 0 ? find_number_word(words_[at_ - 1]) : nullptr;
    return word != nullptr && word->kind == kind && word->mark.empty();
  }

  void emit_value(std::string_view ending = "") {
    const auto digits = std::exchange(value_, std::nullopt)->digits;
    emit(digits + std::string(ending));
  }

  void emit_after_value(std::string_view word) {
    if (value_) emit_value();
    emit(word);
  }

  /// Writes a word, preceded by a pending sign.
  void emit(std::string_view word) {
    if (!out_.empty()) out_ += ' ';
    out_.append(std::exchange(prefix_, {})).append(word);
  }

  std::vector<std::string_view> words_;
  std::size_t at_ = 0;
  std::optional<SpokenNumber> value_;
  std::string_view prefix_;
  std::string out_;
};

}  // namespace whisper::detail
