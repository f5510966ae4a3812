// SPDX-License-Identifier: MIT
// Damaged files of torch.save, thousands of them from a seed (support/mutations.hpp).
// Tests state/weights/torch_files: torch_checkpoint
#include "support/precompiled.hpp"

#include <looptorch/state/weights/torch_files/torch_checkpoint.hpp>

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

const fs::path kFolder = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/torch_checkpoints";

class CheckpointMutator : public looptorch::testing::Mutator {
 public:
  using Mutator::Mutator;

  /// Several changes, most of them to the pickle, whose length stays so that the archive is found sound.
  std::string mutate_file(std::string bytes) {
    if (below(4) == 0) {
      for (auto i = 1 + below(3); i > 0; --i) mutate_bytes(bytes);
      return bytes;
    }
    const auto begin = bytes.find('\x80', bytes.find("data.pkl"));
    const auto size = std::min(bytes.size(), bytes.find("PK", begin)) - begin;
    std::string pickle = bytes.substr(begin, size);
    for (auto i = 1 + below(3); i > 0; --i) mutate_bytes(pickle);
    pickle.resize(size, '.');
    return bytes.replace(begin, size, pickle);
  }
};

/// Reads each element, so that one outside the file or the memory is found.
std::size_t touch(const looptorch::TensorMap& tensors) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 1'000'000) continue;  // strides of 0 over one element
    bytes += tensor.clone().nbytes();
  }
  return bytes;
}

}  // namespace

TEST_CASE("torch.save mutations: a damaged file is refused by a typed error, or read whole") {
  const TemporaryFolder folder;
  const std::vector<std::string> originals = {looptorch::read_file(kFolder / "checkpoint.pt"),
                                              looptorch::read_file(kFolder / "protocol_5.pt"),
                                              looptorch::read_file(kFolder / "kinds.pt")};
  run_mutations([&](unsigned seed) {
    const auto bytes = CheckpointMutator(seed).mutate_file(originals[seed % originals.size()]);
    write_damaged(folder / "damaged", bytes);
    (void)touch(looptorch::load_torch_checkpoint(folder / "damaged").tensors);
  });
}
