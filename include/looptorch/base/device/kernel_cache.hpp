// SPDX-License-Identifier: MIT
// Keeps compiled kernels in a folder, from which the next process loads them in milliseconds instead of
// compiling for a second. Several processes may share the folder. A file appears whole or not at all. A file
// counts as absent if it is damaged, or was made from another source, by another compiler or for another
// device.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/hash/checksum.hpp>
#include <looptorch/base/text/hex.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch::detail {

class KernelCache {
 public:
  /// `folder` is created with the first file. An empty path stores nothing.
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Returns the cache in the folder that the environment names by LOOPTORCH_KERNEL_CACHE.
  [[nodiscard]] static KernelCache of_environment() {
    const char* const folder = std::getenv("LOOPTORCH_KERNEL_CACHE");
    return KernelCache(folder ? folder : "");
  }

  /// Returns the image stored under a key, a text that names all that the image depends on.
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const {
    if (folder_.empty()) return std::nullopt;
    try {
      constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;
      const std::string file = read_file(file_of(key), kMaxBytes);
      const std::string head = head_of(key);
      if (file.size() < head.size() + kSumBytes || file.compare(0, head.size(), head) != 0) return {};
      std::string image = file.substr(head.size() + kSumBytes);
      if (file.compare(head.size(), kSumBytes, sum_of(image)) != 0) return {};
      return image;
    } catch (const FileError&) {  // absent, or unreadable
      return std::nullopt;
    }
  }

  /// Stores an image. Returns false, and stores nothing, where the folder cannot be written.
  bool store(const std::string& key, const std::string& image) const {
    if (folder_.empty()) return false;
    try {
      std::filesystem::create_directories(folder_);
      write_file_atomically(file_of(key), head_of(key) + sum_of(image) + image);
      return true;
    } catch (const FileError&) {
    } catch (const std::filesystem::filesystem_error&) {
    }
    return false;
  }

  [[nodiscard]] std::filesystem::path file_of(const std::string& key) const {
    return folder_ / ("kernels-" + sum_of(key) + ".bin");
  }

 private:
  static constexpr std::size_t kSumBytes = 16;

  [[nodiscard]] static std::string sum_of(std::string_view bytes) {
    Checksum sum;
    sum.add(bytes.data(), bytes.size());
    return hex_of(sum.value());
  }

  /// The file holds the key itself, since two keys may share a name.
  [[nodiscard]] static std::string head_of(const std::string& key) {
    return message("looptorch kernels 1\n", key.size(), "\n", key, "\n");
  }

  std::filesystem::path folder_;
};

}  // namespace looptorch::detail
