// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <konkanivani/training/script_flags.hpp>

#include <string>
#include <vector>

using konkanivani::script_words;
using Words = std::vector<std::string>;

namespace {

struct Read {
  Words words;
  std::string flag;
};

Read read(const Words& given) {
  std::vector<const char*> pointers{"konkanivani_train"};
  for (const auto& word : given) pointers.push_back(word.c_str());
  auto result = script_words(static_cast<int>(pointers.size()), pointers.data());
  CHECK(result.pointers().size() == result.words.size() + 1);
  CHECK(result.words.front() == "konkanivani_train");
  return {{result.words.begin() + 1, result.words.end()}, result.script_flag};
}

void stays(const Words& given) {
  const auto result = read(given);
  CHECK(result.words == given);
  CHECK(result.flag.empty());
}

}  // namespace

TEST_CASE("the script's spelling of a flag asks for its preset, and is named") {
  const auto typed = read({"--batch_size", "1", "--mixed_precision", "--resume", "auto"});
  CHECK(typed.words ==
        Words{"--preset=original", "--batch_size", "1", "--mixed_precision", "--resume", "auto"});
  CHECK(typed.flag == "--batch_size");
  CHECK(read({"--output", "x", "--d_model=192"}).flag == "--d_model");
}

TEST_CASE("words that are not the script's, or say the preset, stay as they are") {
  stays({});
  stays({"--batch-size", "1", "--d-model", "192", "--output_dir", "x", "--learning_rate", "1e-3"});
  stays({"--batch_size", "1", "--preset", "measured"});
  stays({"--preset=measured", "--batch_size", "1"});
  stays({"--batch_size", "1", "--pres=measured"});
  stays({"--config", "run.conf", "--batch_size", "1"});
  stays({"--output", "x", "--", "--batch_size"});
}
