// SPDX-License-Identifier: MIT
// Damaged arrays of NumPy, thousands of them from a seed (support/mutations.hpp).
// Tests data: npy, npy_header
#include "support/precompiled.hpp"

#include <looptorch/data/npy.hpp>

#include "support/mutations.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using looptorch::testing::run_mutations;
using looptorch::testing::TemporaryFolder;
using looptorch::testing::write_damaged;

namespace {

class ArrayMutator : public looptorch::testing::Mutator {
 public:
  using Mutator::Mutator;

  /// Several changes: to the header's text, whose length stays so that it is parsed, or to all bytes.
  std::string mutate_file(std::string bytes) {
    constexpr std::size_t kBegin = 12;
    const auto end = bytes.find('\n');
    if (below(2) == 0 || end == std::string::npos) {
      for (auto i = 1 + below(3); i > 0; --i) mutate_bytes(bytes);
      return bytes;
    }
    std::string text = bytes.substr(kBegin, end - kBegin);
    const auto size = text.size();
    for (auto i = 1 + below(3); i > 0; --i) mutate(text);
    text.resize(size, ' ');
    return bytes.replace(kBegin, size, text);
  }
};

}  // namespace

TEST_CASE("npy mutations: a damaged array is refused by a typed error, or read whole") {
  const fs::path data = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/npy";
  const TemporaryFolder folder;
  const std::vector<std::string> originals = {looptorch::read_file(data / "float32_fortran.npy"),
                                              looptorch::read_file(data / "format_2.npy"),
                                              looptorch::read_file(data / "float64.npy")};
  run_mutations([&](unsigned seed) {
    write_damaged(folder / "damaged", ArrayMutator(seed).mutate_file(originals[seed % originals.size()]));
    const auto array = looptorch::load_npy(folder / "damaged");
    CHECK(array.clone().nbytes() == array.nbytes());
  });
}
