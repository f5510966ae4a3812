// SPDX-License-Identifier: MIT
// Damaged files, thousands of them from a seed (support/mutations.hpp).
// Tests state/weights: safetensors
#include "support/precompiled.hpp"

#include <looptorch/state/weights/safetensors_index.hpp>

#include "support/mutations.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace fs = std::filesystem;
using looptorch::testing::run_mutations;
using looptorch::testing::TemporaryFolder;
using looptorch::testing::write_damaged;

namespace {

const fs::path kData = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data";

std::uint64_t header_length(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), std::min<std::size_t>(8, bytes.size()));
  return length;
}

void set_header_length(std::string& bytes, std::uint64_t length) {
  std::memcpy(bytes.data(), &length, std::min<std::size_t>(8, bytes.size()));
}

class FileMutator : public looptorch::testing::Mutator {
 public:
  using Mutator::Mutator;

  /// Several changes to a safetensors file: to header, length and data, with the length set right more often
  /// than not, so that the faults after it are reached.
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
  static constexpr std::array<std::uint64_t, 6> kLengths{0, 8, 1000, 100'000'000, std::uint64_t{1} << 63, 0};
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

}  // namespace

TEST_CASE("safetensors mutations: a damaged file is refused by a typed error, or read whole") {
  const TemporaryFolder folder;
  const auto original = looptorch::read_file(kData / "safetensors.safetensors");
  (void)touch(looptorch::load_safetensors(kData / "safetensors.safetensors").tensors);
  run_mutations([&](unsigned seed) {
    const auto bytes = FileMutator(seed).mutate_file(original);
    write_damaged(folder / "damaged", bytes);
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
    FileMutator(seed).mutate(text);
    write_damaged(index, text);
    const auto file = looptorch::load_safetensors_index(index);
    REQUIRE(touch(file.tensors) == 16 * file.tensors.size());
  });
}
