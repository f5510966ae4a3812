// SPDX-License-Identifier: MIT
// Reads arrays of 16-, 32- or 64-bit floats that NumPy saved (`np.save`, `.npy`), such as spectrograms that a
// Python script computed. Unpickles nothing, so a file cannot run code. Costs one read of the file, and for
// an array in Fortran order one copy.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/data/npy_header.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch {

/// Thrown for a file that is no NumPy array, or of an unsupported kind. The message begins with the file.
struct NpyError : Error {
  using Error::Error;
};

/// Returns the array of a file in format 1, 2 or 3, of float16, float32 or float64, in C or in Fortran order:
/// contiguous, with the file's dtype, shape and bits. Throws NpyError for other dtypes (big-endian ones,
/// integers, records, Python objects, each by name), for a damaged header, and for a file that is longer or
/// shorter than its shape says, before any memory is taken for it. Throws FileError for one that cannot be
/// read.
[[nodiscard]] at::Tensor load_npy(const std::filesystem::path& path);

// ---- Implementation ----

namespace detail {

/// One file of NumPy's, opened.
class NpyFile {
 public:
  explicit NpyFile(const std::filesystem::path& path) : file_(path) {
    try {
      read_header();
    } catch (const NpyHeaderError& error) {
      fail(error.what());
    }
    check_size();
  }

  [[nodiscard]] at::Tensor read() const {
    auto shape = header_.shape;
    if (header_.fortran_order) std::reverse(shape.begin(), shape.end());
    auto array = at::empty(shape, type_.scalar);
    if (bytes_ > 0) file_.read_at(begin_, array.mutable_data_ptr(), static_cast<std::size_t>(bytes_));
    if (!header_.fortran_order || array.dim() < 2) return array;
    std::vector<std::int64_t> axes;
    for (auto axis = array.dim(); axis-- > 0;) axes.push_back(axis);
    return array.permute(axes).contiguous();
  }

 private:
  struct Type {
    std::string_view name;
    at::ScalarType scalar;
    std::uint64_t bytes;
  };
  static constexpr std::array<Type, 3> kTypes{Type{"<f2", at::kHalf, 2}, Type{"<f4", at::kFloat, 4},
                                              Type{"<f8", at::kDouble, 8}};
  static_assert(std::endian::native == std::endian::little);

  template <class... What>
  [[noreturn]] void fail(const What&... what) const {
    throw NpyError(message(file_.path().string(), ": ", what...));
  }

  void read_header() {
    constexpr std::string_view kMagic = "\x93NUMPY";
    constexpr std::uint64_t kMaxHeader = std::uint64_t{1} << 16;
    const auto start = bytes_at(0, std::min<std::uint64_t>(file_.size(), 12));
    if (start.starts_with("PK\x03\x04"))
      fail(
          "is an archive of arrays (.npz); save each by itself: np.save(\"1.npy\", np.load(file)[\"name\"])");
    if (!start.starts_with(kMagic)) fail("is no array that np.save wrote");
    if (start.size() < 12) fail("is cut off within its header");
    const auto byte = [&](std::size_t at) { return std::uint64_t{static_cast<unsigned char>(start[at])}; };
    const auto version = byte(6);
    if (version < 1 || version > 3 || byte(7) != 0)
      fail("has format ", version, ".", byte(7), "; 1.0, 2.0 and 3.0 are read");
    const auto short_length = byte(8) | byte(9) << 8;
    const auto length = version == 1 ? short_length : short_length | byte(10) << 16 | byte(11) << 24;
    const std::uint64_t text = version == 1 ? 10 : 12;
    if (length > kMaxHeader) fail("has a header of ", length, " bytes; it may have ", kMaxHeader);
    if (length > file_.size() - text) fail("is cut off within its header");
    header_ = parse_npy_header(bytes_at(text, length));
    begin_ = text + length;
    type_ = known_type(header_.dtype);
  }

  [[nodiscard]] std::string bytes_at(std::uint64_t at, std::uint64_t size) const {
    std::string bytes(static_cast<std::size_t>(size), '\0');
    if (size > 0) file_.read_at(at, bytes.data(), bytes.size());
    return bytes;
  }

  [[nodiscard]] Type known_type(const std::string& name) const {
    for (const auto& type : kTypes)
      if (name == type.name) return type;
    if (name.starts_with("|O"))
      fail(
          "holds Python objects (dtype object), which only a pickle makes, and none is run; save numbers of "
          "one shape: np.save(file, np.asarray(array, dtype=np.float32))");
    if (name.starts_with(">"))
      fail("holds big-endian numbers (", name, "); save them as np.save(file, array.astype(\"<f4\"))");
    fail("holds numbers of dtype \"", name, "\"; float16, float32 and float64 are read: np.save(file, ",
         "array.astype(np.float32))");
  }

  void check_size() {
    const auto there = file_.size() - begin_;
    const auto elements = static_cast<std::uint64_t>(header_.elements);
    if (elements > there / type_.bytes)
      fail("is cut off: its shape ", at::IntArrayRef(header_.shape), " needs ", elements, " numbers of ",
           type_.bytes, " bytes, and ", there, " bytes are there");
    bytes_ = elements * type_.bytes;
    if (bytes_ != there)
      fail("has ", there - bytes_, " bytes after its array of shape ", at::IntArrayRef(header_.shape),
           "; a file holds one array");
  }

  InputFile file_;
  NpyHeader header_;
  Type type_{};
  std::uint64_t begin_ = 0, bytes_ = 0;
};

}  // namespace detail

inline at::Tensor load_npy(const std::filesystem::path& path) { return detail::NpyFile(path).read(); }

}  // namespace looptorch
