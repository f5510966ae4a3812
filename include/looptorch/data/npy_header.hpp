// SPDX-License-Identifier: MIT
// Parses the header of a NumPy array on disk (`.npy`, format 1, 2 and 3): dtype, order and shape. The header
// is a literal of Python, which is parsed here and never run. Free of torch.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace looptorch::detail {

/// Thrown for a header that is damaged or unsupported. The message lacks the file, which the caller adds.
struct NpyHeaderError : Error {
  using Error::Error;
};

/// A header that was read. `elements` is the product of `shape`.
struct NpyHeader {
  std::string dtype;  ///< as NumPy writes it: "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
};

/// Returns the parts of `{'descr': '<f4', 'fortran_order': False, 'shape': (128, 1292), }`. Throws
/// NpyHeaderError for anything else, for arrays of records, and for shapes of more than 2^63 elements.
[[nodiscard]] NpyHeader parse_npy_header(std::string_view text);

// ---- Implementation ----

class NpyHeaderParser {
 public:
  explicit NpyHeaderParser(std::string_view text) : text_(text) {}

  [[nodiscard]] NpyHeader parse() {
    expect('{');
    while (!take('}')) {
      read_entry(string());
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_blanks();
    if (at_ != text_.size()) fail("has more after its end");
    if (!dtype_ || !order_ || !shape_) fail("lacks one of 'descr', 'fortran_order' and 'shape'");
    return {*dtype_, *order_, *shape_, product(*shape_)};
  }

 private:
  static constexpr std::size_t kMaxDimensions = 32;  // NumPy's limit was as many, and is 64 since 2.0

  [[noreturn]] static void fail(const std::string& what) { throw NpyHeaderError("the header " + what); }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }

  [[nodiscard]] bool take(char wanted) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  [[nodiscard]] bool take(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail(message("has no \"", wanted, "\" at its byte ", at_));
  }

  [[nodiscard]] std::string string() {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail(message("has no string at its byte ", at_));
    const auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("ends within a string");
    const std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }

  void read_entry(const std::string& key) {
    expect(':');
    if (key == "descr" && !dtype_)
      dtype_ = dtype();
    else if (key == "fortran_order" && !order_)
      order_ = truth();
    else if (key == "shape" && !shape_)
      shape_ = shape();
    else
      fail("has a key twice, or one that no version of the format knows");
  }

  [[nodiscard]] std::string dtype() {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == '[')
      fail("describes records of several fields; save one of them: np.save(file, array[\"field\"])");
    return string();
  }

  [[nodiscard]] bool truth() {
    if (take(std::string_view("True"))) return true;
    if (!take(std::string_view("False"))) fail("has an order that is neither True nor False");
    return false;
  }

  [[nodiscard]] std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!take(')')) {
      sizes.push_back(size());
      if (sizes.size() > kMaxDimensions) fail(message("has more than ", kMaxDimensions, " dimensions"));
      if (take(',')) continue;
      expect(')');
      break;
    }
    return sizes;
  }

  [[nodiscard]] std::int64_t size() {
    skip_blanks();
    std::int64_t value = -1;
    const char* begin = text_.data() + at_;
    const auto [stop, code] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (code != std::errc{} || value < 0) fail("has a shape that is no tuple of sizes");
    at_ += static_cast<std::size_t>(stop - begin);
    (void)take('L');  // Python 2 wrote long integers so
    return value;
  }

  /// Takes each 0 as 1 to see whether the strides fit in 64 bits.
  [[nodiscard]] static std::int64_t product(const std::vector<std::int64_t>& sizes) {
    std::int64_t all = 1;
    for (const auto size : sizes)
      if (__builtin_mul_overflow(all, std::max<std::int64_t>(size, 1), &all))
        fail("has a shape of more elements than 64 bits count");
    return std::find(sizes.begin(), sizes.end(), 0) != sizes.end() ? 0 : all;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::optional<std::string> dtype_;
  std::optional<bool> order_;
  std::optional<std::vector<std::int64_t>> shape_;
};

inline NpyHeader parse_npy_header(std::string_view text) { return NpyHeaderParser(text).parse(); }

}  // namespace looptorch::detail
