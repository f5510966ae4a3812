// SPDX-License-Identifier: MIT
// Damaged files of torch.export, thousands of them from a seed (support/mutations.hpp).
//
// Tests exported/archive: payload, pt2_archive
//
// Tests exported/graph: read_graph
#include "support/precompiled.hpp"

#include <looptorch/exported/exported_model.hpp>

#include "archives.hpp"
#include "support/mutations.hpp"
#include "support/temporary_folder.hpp"

using looptorch::testing::run_mutations;
using looptorch::testing::TemporaryFolder;
using looptorch::testing::write_damaged;

TEST_CASE("torch.export mutations: a damaged file is refused by a typed error, or read whole") {
  const TemporaryFolder folder;
  const std::string data = LOOPTORCH_SOURCE_DIR "/tests/parity/data/exported_programs/";
  const std::vector<std::string> originals = {looptorch::read_file(data + "picked.pt2"),
                                              looptorch::read_file(data + "scoped.pt2")};
  run_mutations([&](unsigned seed) {
    looptorch::testing::Mutator mutator(seed);
    std::string bytes = originals[seed % originals.size()];
    if (mutator.below(4) == 0) {
      for (auto i = 1 + mutator.below(3); i > 0; --i) mutator.mutate_bytes(bytes);
    } else {  // the JSON, whose length stays so that the archive is found sound
      const auto file = mutator.below(3) == 0 ? "weights_config.json" : "models/model.json";
      const auto begin = bytes.find('{', bytes.find(file)), size = bytes.find("PK", begin) - begin;
      std::string json = bytes.substr(begin, size);
      for (auto i = 1 + mutator.below(3); i > 0; --i) mutator.mutate(json);
      json.resize(size, ' ');
      bytes.replace(begin, size, json);
    }
    write_damaged(folder / "damaged.pt2", bytes);
    const looptorch::ExportedModel model((folder / "damaged.pt2").string());
    for (const auto& parameter : model->parameters())
      if (parameter.numel() < 1'000'000) (void)parameter.clone();
  });
}
