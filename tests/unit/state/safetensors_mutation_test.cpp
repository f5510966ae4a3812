// SPDX-License-Identifier: MIT
// Damaged files, thousands of them from a seed: each is refused by a typed error or read whole. Set
// LOOPTORCH_MUTATIONS for more than CI's; under -fsanitize=address,undefined it is the reader's fuzz test.
#include "support/precompiled.hpp"

#include <looptorch/state/safetensors_index.hpp>

#include "support/temporary_folder.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

namespace fs = std::filesystem;
using namespace std::string_view_literals;
using looptorch::testing::TemporaryFolder;

namespace {

const fs::path kData = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data";

int count_mutations() {
  const char* text = std::getenv("LOOPTORCH_MUTATIONS");
  return text ? std::atoi(text) : 3000;
}

std::uint64_t header_length(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), std::min<std::size_t>(8, bytes.size()));
  return length;
}

void set_header_length(std::string& bytes, std::uint64_t length) {
  std::memcpy(bytes.data(), &length, std::min<std::size_t>(8, bytes.size()));
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  /// One change to `text`, which may be empty.
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

  /// Several changes to a safetensors file: to header, length and data, with the length set right more often
  /// than not, so that the faults behind it are reached.
  std::string mutate_file(const std::string& original) {
    const auto length = static_cast<std::size_t>(header_length(original));
    auto header = original.substr(8, length), data = original.substr(8 + length);
    for (auto i = 1 + below(3); i > 0; --i) mutate(header);
    if (below(8) == 0) mutate(data);
    std::string bytes = original.substr(0, 8) + header + data;
    set_header_length(bytes, header.size());
    if (below(8) == 0) set_header_length(bytes, kLengths[below(kLengths.size())] + below(3) - 1);
    if (below(16) == 0) bytes.resize(below(bytes.size()));
    return bytes;
  }

 private:
  static constexpr std::string_view kAlphabet = "{}[]\":,0123456789-+.eE\\u tfn\0\xFF\xC3\n"sv,
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
  static constexpr std::array<std::uint64_t, 6> kLengths{0, 8, 1000, 100'000'000, std::uint64_t{1} << 63, 0};

  void flip(std::string& text, std::size_t at) {
    put(text, at, text.empty() ? 0 : text[at] ^ (1 << below(8)));
  }

  static void put(std::string& text, std::size_t at, int byte) {
    if (at < text.size()) text[at] = static_cast<char>(byte);
  }

  /// The next number after `at`.
  void replace_number(std::string& text, std::size_t at) {
    constexpr std::string_view kDigits = "0123456789";
    const auto begin = text.find_first_of(kDigits, at);
    if (begin == std::string::npos) return;
    const auto end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    text.replace(begin, end - begin, kNumbers[below(kNumbers.size())]);
  }

  std::mt19937 random_;
};

/// Reads each byte, so that one outside the file or the memory is found.
std::size_t touch(const looptorch::TensorMap& tensors) {
  std::size_t bytes = 0;
  volatile unsigned char sink = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto* data = static_cast<const unsigned char*>(tensor.const_data_ptr());
    for (std::size_t i = 0; i < tensor.nbytes(); ++i) sink = sink ^ data[i];
    bytes += tensor.nbytes();
  }
  return bytes;
}

std::int64_t peak_kilobytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/// Runs `attempt` on so many mutations, and checks that none was slow and that all together took little
/// memory (AddressSanitizer keeps freed memory, so not there).
template <class Attempt>
void run_mutations(Attempt attempt) {
  using Clock = std::chrono::steady_clock;
  const auto before = peak_kilobytes();
  Clock::duration slowest{};
  int refused = 0;
  const int count = count_mutations();
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
  CHECK(refused > count / 2);
  CHECK(refused < count);
  CHECK(slowest < std::chrono::seconds(10));
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(peak_kilobytes() - before < 64 * 1024);
#endif
}

}  // namespace

TEST_CASE("safetensors mutations: a damaged file is refused by a typed error, or read whole") {
  const TemporaryFolder folder;
  const auto original = looptorch::read_file(kData / "safetensors.safetensors");
  (void)touch(looptorch::load_safetensors(kData / "safetensors.safetensors").tensors);
  run_mutations([&](unsigned seed) {
    const auto bytes = Mutator(seed).mutate_file(original);
    std::ofstream(folder / "damaged", std::ios::binary) << bytes;
    const auto file = looptorch::load_safetensors(folder / "damaged", {.mapped = seed % 4 != 0});
    REQUIRE(touch(file.tensors) + 8 + header_length(bytes) == bytes.size());
  });
}

TEST_CASE("safetensors mutations: a damaged index is refused by a typed error, or read as it says") {
  const TemporaryFolder folder;
  for (const auto& entry : fs::directory_iterator(kData / "safetensors_sharded")) {
    std::ofstream(folder / entry.path().filename().string(), std::ios::binary)
        << looptorch::read_file(entry.path());
  }
  const auto index = folder / "model.safetensors.index.json";
  const auto original = looptorch::read_file(index);
  run_mutations([&](unsigned seed) {
    auto text = original;
    Mutator(seed).mutate(text);
    std::ofstream(index, std::ios::binary) << text;
    const auto file = looptorch::load_safetensors_index(index);
    REQUIRE(touch(file.tensors) == 16 * file.tensors.size());
  });
}
