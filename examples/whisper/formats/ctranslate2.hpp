// SPDX-License-Identifier: MIT
// Reads the `model.bin` of CTranslate2, the engine behind faster-whisper: a header, then variables as name,
// shape, type and raw bytes, then aliases. Checks every count against the file before it allocates anything.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// Thrown for a file that is not CTranslate2's, is truncated, or holds another model. Names file and
/// variable.
struct CTranslate2Error : looptorch::Error {
  using Error::Error;
};

/// The contents of a `model.bin`.
struct CTranslate2Model {
  std::string spec;  ///< The kind of model, "WhisperSpec" for example.
  std::uint32_t revision = 0;
  looptorch::TensorMap variables;  ///< In the file's dtypes; an alias shares its target's storage.
};

/// Reads a whole file; throws CTranslate2Error and looptorch::FileError.
[[nodiscard]] CTranslate2Model load_ctranslate2(const std::filesystem::path& path);

namespace detail {

/// The only version that current converters write.
inline constexpr std::uint32_t kCTranslate2Version = 6;
inline constexpr std::size_t kMaxRank = 8;

/// Element types in the order of CTranslate2's type numbers.
inline constexpr std::array kCTranslate2Types{at::kFloat, at::kChar, at::kShort,
                                              at::kInt,   at::kHalf, at::kBFloat16};

/// Reads a file sequentially and never past its end.
class CTranslate2Reader {
 public:
  explicit CTranslate2Reader(const std::filesystem::path& path) : file_(path) {}

  [[nodiscard]] CTranslate2Model read() {
    if (const auto version = read_number<std::uint32_t>(); version != kCTranslate2Version) {
      fail("is not a CTranslate2 model of version ", kCTranslate2Version, " (begins with ", version, ")");
    }
    CTranslate2Model model;
    model.spec = read_string();
    model.revision = read_number<std::uint32_t>();
    for (auto left = read_number<std::uint32_t>(); left > 0; --left) read_variable(model.variables);
    for (auto left = read_number<std::uint32_t>(); left > 0; --left) read_alias(model.variables);
    if (at_ != file_.size()) fail(file_.size() - at_, " bytes after the end of the model");
    return model;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw CTranslate2Error(looptorch::message(file_.path().string(), ": ", parts...));
  }

  void require(std::uint64_t bytes) const {
    if (bytes > file_.size() - at_) {
      fail("is cut off: ", bytes, " bytes needed at byte ", at_, ", ", file_.size() - at_, " left");
    }
  }

  void read_bytes(void* data, std::size_t size) {
    require(size);
    file_.read_at(at_, data, size);
    at_ += size;
  }

  template <class T>
  T read_number() {
    T number;
    read_bytes(&number, sizeof(T));
    return number;
  }

  /// Reads a length, then that many bytes, the last of which is NUL.
  std::string read_string() {
    const auto start = at_;
    std::string text(read_number<std::uint16_t>(), '\0');
    read_bytes(text.data(), text.size());
    const bool is_terminated = !text.empty() && text.find('\0') == text.size() - 1;
    if (!is_terminated || looptorch::find_invalid_utf8(text) != std::string::npos) {
      fail("malformed name at byte ", start);
    }
    text.pop_back();
    return text;
  }

  void read_variable(looptorch::TensorMap& variables) {
    const auto name = read_string();
    const auto shape = read_shape(name);
    const auto type = read_number<std::uint8_t>();
    if (type >= kCTranslate2Types.size()) fail("variable \"", name, "\" has the unknown type ", int{type});
    const std::uint64_t bytes = read_number<std::uint32_t>();
    const auto dtype = kCTranslate2Types[type];
    if (!takes(shape, c10::elementSize(dtype), bytes)) {
      fail("variable \"", name, "\" of shape ", c10::IntArrayRef(shape), " and type ", dtype, " cannot take ",
           bytes, " bytes");
    }
    require(bytes);
    auto tensor = at::empty(shape, at::TensorOptions().dtype(dtype));
    read_bytes(tensor.data_ptr(), static_cast<std::size_t>(bytes));
    if (!variables.emplace(name, std::move(tensor)).second) fail("variable \"", name, "\" appears twice");
  }

  std::vector<std::int64_t> read_shape(const std::string& name) {
    const std::size_t rank = read_number<std::uint8_t>();
    if (rank > kMaxRank) fail("variable \"", name, "\" has ", rank, " dimensions");
    std::vector<std::int64_t> shape(rank);
    for (auto& dim : shape) dim = read_number<std::uint32_t>();
    return shape;
  }

  /// True if the values take `item` bytes each. Strides must fit too: for an empty tensor they are computed
  /// as if its dimensions of 0 were 1.
  [[nodiscard]] static bool takes(const std::vector<std::int64_t>& shape, std::size_t item,
                                  std::uint64_t bytes) {
    auto product = static_cast<std::int64_t>(item);
    bool is_empty = false;
    for (const auto dim : shape) {
      is_empty = is_empty || dim == 0;
      if (__builtin_mul_overflow(product, std::max<std::int64_t>(dim, 1), &product)) return false;
    }
    return (is_empty ? 0 : static_cast<std::uint64_t>(product)) == bytes;
  }

  void read_alias(looptorch::TensorMap& variables) {
    const auto alias = read_string();
    const auto target = variables.find(read_string());
    if (target == variables.end()) fail("alias \"", alias, "\" of a variable that is not there");
    if (!variables.emplace(alias, target->second).second) fail("variable \"", alias, "\" appears twice");
  }

  looptorch::InputFile file_;
  std::uint64_t at_ = 0;
};

}  // namespace detail

inline CTranslate2Model load_ctranslate2(const std::filesystem::path& path) {
  return detail::CTranslate2Reader(path).read();
}

}  // namespace whisper
