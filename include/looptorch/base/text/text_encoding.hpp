// SPDX-License-Identifier: MIT
// Recognises UTF-16 and UTF-32 by a text's first four bytes, so that an error can name the encoding.
// Spreadsheets and shells of Windows write such files.
#pragma once

#include <looptorch/base/error.hpp>

#include <string>
#include <string_view>

namespace looptorch {

/// Returns the encoding of a text in UTF-16 or UTF-32, as iconv names it: "UTF-16LE". Empty for any other
/// text. A text without a byte order mark is recognised if it begins with two ASCII characters.
[[nodiscard]] constexpr std::string_view find_wide_encoding(std::string_view text) {
  const auto begins = [&](std::string_view mark) { return text.starts_with(mark); };
  using namespace std::string_view_literals;
  if (begins("\xff\xfe\0\0"sv)) return "UTF-32LE";
  if (begins("\0\0\xfe\xff"sv)) return "UTF-32BE";
  if (begins("\xff\xfe"sv)) return "UTF-16LE";
  if (begins("\xfe\xff"sv)) return "UTF-16BE";
  if (text.size() < 4) return {};
  int zeros = 0;
  for (int i = 0; i < 4; ++i) {
    if (static_cast<unsigned char>(text[static_cast<std::size_t>(i)]) >= 0x80) return {};
    zeros = zeros * 2 + (text[static_cast<std::size_t>(i)] == '\0');
  }
  return zeros == 0b0111   ? "UTF-32LE"
         : zeros == 0b1110 ? "UTF-32BE"
         : zeros == 0b0101 ? "UTF-16LE"
         : zeros == 0b1010 ? "UTF-16BE"
                           : "";
}

/// Returns an error's sentence for a text in such an encoding, to follow its file's name.
[[nodiscard]] inline std::string wide_encoding_fault(std::string_view encoding) {
  return message("the text is in ", encoding, ", not UTF-8; convert it: iconv -f ", encoding, " -t UTF-8");
}

}  // namespace looptorch
