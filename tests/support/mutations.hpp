// SPDX-License-Identifier: MIT
// Damages input thousands of times from a seed, to test readers of files. A reader must either read it or
// refuse it by a typed error, in bounded time and memory. LOOPTORCH_MUTATIONS in the environment sets the
// number; under -fsanitize=address,undefined this is the reader's fuzz test. Does not include torch.
#pragma once

#include <looptorch/base/error.hpp>

#include "support/catch.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

namespace looptorch::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(LOOPTORCH_SANITIZED)  // g++'s macro, and that of CMake
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Returns the number of mutations: CI's sample, unless LOOPTORCH_MUTATIONS sets another. A test runs
/// plainly, too, which shows the memory that a reader takes; that needs a third of them.
[[nodiscard]] inline int mutation_count() {
  const char* text = std::getenv("LOOPTORCH_MUTATIONS");
  return text ? std::atoi(text) : kSanitized ? 3000 : 1000;
}

/// Makes changes like those of faulty disks, editors and attackers.
class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  /// Makes one change to JSON, which may be empty.
  void mutate(std::string& text) {
    const auto at = below(text.size()), run = std::min(text.size() - at, 1 + below(below(8) == 0 ? 400 : 12));
    switch (below(8)) {
      case 0:
        return flip(text, at);
      case 1:
        return put(text, at, kAlphabet[below(kAlphabet.size())]);
      case 2:
        text.erase(at, run);
        return;
      case 3:
        text.insert(at, text.substr(below(text.size()), run));
        return;
      case 4:
        text.insert(at, 1, kAlphabet[below(kAlphabet.size())]);
        return;
      case 5:
        text.insert(at, std::string(run, kNests[below(kNests.size())]));
        return;
      default:
        return replace_number(text, at);
    }
  }

  /// Makes one change to a binary format; half of the changes keep its length.
  void mutate_bytes(std::string& bytes) {
    const auto at = below(bytes.size()),
               run = std::min(bytes.size() - at, 1 + below(below(8) == 0 ? 400 : 12));
    switch (below(8)) {
      case 0:
      case 1:
        return flip(bytes, at);
      case 2:
        return put(bytes, at, static_cast<int>(below(256)));
      case 3:
        return put_integer(bytes, at);
      case 4:
        bytes.erase(at, run);
        return;
      case 5:
        bytes.insert(at, bytes.substr(below(bytes.size()), run));
        return;
      case 6:
        bytes.replace(at, run, bytes, below(bytes.size()), run);
        return;
      default:
        bytes.resize(bytes.size() - std::min(bytes.size(), below(below(8) == 0 ? bytes.size() : 8)));
    }
  }

 private:
  static constexpr std::string_view kAlphabet{"{}[]\":,0123456789-+.eE\\u tfn\0\xFF\xC3\n", 32},
      kNests = "[{\"9 ";
  static constexpr std::array<std::string_view, 14> kNumbers{"0",
                                                             "1",
                                                             "-1",
                                                             "2",
                                                             "255",
                                                             "2147483648",
                                                             "4294967296",
                                                             "4611686018427387904",
                                                             "9223372036854775807",
                                                             "9223372036854775808",
                                                             "18446744073709551616",
                                                             "1e308",
                                                             "1e999",
                                                             "0.5"};
  static constexpr std::array<std::uint64_t, 8> kIntegers{
      0, 1, 255, 65535, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF};

  void flip(std::string& text, std::size_t at) {
    put(text, at, text.empty() ? 0 : text[at] ^ (1 << below(8)));
  }

  static void put(std::string& text, std::size_t at, int byte) {
    if (at < text.size()) text[at] = static_cast<char>(byte);
  }

  /// Writes an integer of 1, 2, 4 or 8 bytes.
  void put_integer(std::string& bytes, std::size_t at) {
    const auto value = kIntegers[below(kIntegers.size())];
    const auto width = std::min(bytes.size() - at, std::size_t{1} << below(4));
    std::memcpy(bytes.data() + at, &value, width);
  }

  /// Replaces the next number after `at`.
  void replace_number(std::string& text, std::size_t at) {
    constexpr std::string_view kDigits = "0123456789";
    const auto begin = text.find_first_of(kDigits, at);
    if (begin == std::string::npos) return;
    const auto end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    text.replace(begin, end - begin, kNumbers[below(kNumbers.size())]);
  }

  std::mt19937 random_;
};

/// Writes the bytes as a new file: some file systems flush a file to the disk each time that it is truncated
/// and rewritten.
inline void write_damaged(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

[[nodiscard]] inline std::int64_t peak_kilobytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/// Runs `attempt(seed)` for each mutation. Checks that each ends or throws a looptorch::Error, and that both
/// occur; that none was slow; and that all together took little memory (not under AddressSanitizer, which
/// keeps freed memory).
template <class Attempt>
void run_mutations(Attempt attempt) {
  using Clock = std::chrono::steady_clock;
  const auto before = peak_kilobytes();
  Clock::duration slowest{};
  int refused = 0;
  const int count = mutation_count();
  for (int i = 0; i < count; ++i) {
    CAPTURE(i);
    const auto start = Clock::now();
    try {
      attempt(static_cast<unsigned>(i));
    } catch (const looptorch::Error& error) {
      REQUIRE(std::strlen(error.what()) > 0);
      ++refused;
    }
    slowest = std::max(slowest, Clock::now() - start);
  }
  CHECK(refused > count / 4);
  CHECK(refused < count);
  CHECK(slowest < std::chrono::seconds(10));
  if (!kSanitized) CHECK(peak_kilobytes() - before < 64 * 1024);
}

}  // namespace looptorch::testing
