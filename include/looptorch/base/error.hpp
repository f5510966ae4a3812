// SPDX-License-Identifier: MIT
// Declares `Error`, the base of every exception that looptorch itself throws, and `message`, which formats
// the texts of exceptions. LibTorch's own errors (c10::Error) pass through unchanged.
#pragma once

#if __cplusplus < 202002L
#error "looptorch needs C++20: -std=c++20, or in CMake a target that links looptorch::looptorch"
#endif

#include <initializer_list>
#include <locale>
#include <memory>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace looptorch {
namespace detail {

/// Returns the text with "\0" written out for each NUL, at which a C string ends.
[[nodiscard]] inline std::string with_nul_written_out(std::string text) {
  for (auto at = text.find('\0'); at != std::string::npos; at = text.find('\0', at))
    text.replace(at, 1, "\\0");
  return text;
}

}  // namespace detail

/// The base of looptorch's typed errors. `what()` is one sentence that names the value, shape, file or line
/// at fault. A NUL in it, such as from a damaged file, is written out as "\0".
struct Error : std::runtime_error {
  explicit Error(const std::string& what) : std::runtime_error(detail::with_nul_written_out(what)) {}
};

/// Thrown for an invalid setting or call: negative epochs, an empty model, a loss of the wrong shape.
struct UsageError : Error {
  using Error::Error;
};

namespace detail {

/// Refers to one argument of `message`. The compiler resolves its operator<< once per type; c10::str would do
/// so once per message, and needs another header.
class MessagePart {
 public:
  MessagePart(const char* text)
      : part_(text),
        write_([](std::ostream& out, const void* part) { out << static_cast<const char*>(part); }) {}
  template <class Part>
  MessagePart(const Part& part) : part_(std::addressof(part)), write_(write_as<Part>) {}

  friend std::ostream& operator<<(std::ostream& out, const MessagePart& part) {
    part.write_(out, part.part_);
    return out;
  }

 private:
  template <class Part>
  static void write_as(std::ostream& out, const void* part) {
    out << *static_cast<const Part*>(part);
  }

  const void* part_;
  void (*write_)(std::ostream& out, const void* part);
};

inline std::string joined_parts(std::initializer_list<MessagePart> parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  for (const MessagePart& part : parts) out << part;
  return std::move(out).str();
}

}  // namespace detail

/// Concatenates anything that streams: `message("expected ", n, ", got ", tensor.sizes())`. Numbers do not
/// follow the program's locale, since files hold some of these texts.
template <class... Parts>
[[nodiscard]] std::string message(const Parts&... parts) {
  return detail::joined_parts({detail::MessagePart(parts)...});
}

}  // namespace looptorch
