// SPDX-License-Identifier: MIT
// Damaged model files, thousands of them from a seed (support/mutations.hpp), read and converted.
// Tests whisper/formats: ctranslate2, ctranslate2_import
#include "support/precompiled.hpp"

#include "../ctranslate2_files.hpp"
#include "support/mutations.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/formats/ctranslate2_import.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

using looptorch::testing::Mutator;
using looptorch::testing::run_mutations;
using looptorch::testing::TemporaryFolder;

namespace {

/// Changes in the whole file, most of which lie in weights; or near a name, where the format is.
void mutate_model(Mutator& mutator, std::string& bytes, bool near_names) {
  if (!near_names) return mutator.mutate_bytes(bytes);
  const auto name = bytes.find(mutator.below(2) == 0 ? "/" : "code", mutator.below(bytes.size()));
  const auto begin = std::min(name, bytes.size()), size = std::min<std::size_t>(bytes.size() - begin, 64);
  auto part = bytes.substr(begin, size);
  mutator.mutate_bytes(part);
  bytes.replace(begin, size, part);
}

/// Reads each value, so that memory that is not the tensor's is found.
double touch(const looptorch::TensorMap& tensors) {
  double sum = 0;
  for (const auto& [name, tensor] : tensors) sum += tensor.to(at::kDouble).sum().item<double>();
  return sum;
}

}  // namespace

TEST_CASE("CTranslate2 mutations: a damaged file is refused by a typed error, or read and converted whole") {
  const TemporaryFolder folder;
  const auto path = folder / "model.bin";
  const auto original = whisper_test::write_ctranslate2(whisper_test::small_ctranslate2_model());
  const auto read = [&](const std::string& bytes) {
    looptorch::testing::write_damaged(path, bytes);
    const auto model = whisper::load_ctranslate2(path);
    (void)touch(model.variables);
    const auto converted = whisper::convert_ctranslate2(model, "model.bin");
    (void)touch(converted.weights);
    return converted.weights.size();
  };
  REQUIRE(read(original) == 50);
  run_mutations([&](unsigned seed) {
    Mutator mutator(seed);
    auto bytes = original;
    for (auto i = 1 + mutator.below(3); i > 0; --i) mutate_model(mutator, bytes, mutator.below(2) == 0);
    (void)read(bytes);
  });
}
