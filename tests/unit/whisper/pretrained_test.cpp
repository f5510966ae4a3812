// SPDX-License-Identifier: MIT
// A Hugging Face folder goes through load and save unchanged: names, values, tokenizer and settings.
#include "support/precompiled.hpp"

#include <looptorch/state/json.hpp>

#include "reference.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/pretrained.hpp>

using looptorch::testing::TemporaryFolder;

namespace {

/// A folder with a tiny model, and what else Hugging Face keeps there.
void write_folder(const whisper::Whisper& model, const std::filesystem::path& folder) {
  whisper::save_config(folder / "config.json", model->config());
  looptorch::save_safetensors(folder / "model.safetensors", looptorch::state_dict(model));
  looptorch::write_file_atomically(folder / "tokenizer.json", R"({"model": {}})");
}

void check_same_weights(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto ours = looptorch::load_safetensors(a / "model.safetensors").tensors;
  const auto theirs = looptorch::load_safetensors(b / "model.safetensors").tensors;
  REQUIRE(ours.size() == theirs.size());
  for (const auto& [name, tensor] : theirs) {
    INFO(name);
    REQUIRE(ours.count(name) == 1);
    CHECK(ours.at(name).equal(tensor));
  }
}

}  // namespace

TEST_CASE("a saved folder holds what the loaded one held") {
  TemporaryFolder source, output;
  write_folder(whisper_test::tiny_model(), source.path());
  const auto model = whisper::load_pretrained(source.path());
  whisper::save_pretrained(model, source.path(), output.path());
  check_same_weights(output.path(), source.path());
  CHECK(looptorch::read_file(output / "tokenizer.json") == R"({"model": {}})");
  CHECK(whisper::load_config(output / "config.json").d_model == 16);
  CHECK(output.entries() == 3);
}

TEST_CASE("the real folder keeps every tensor through load and save") {
  const auto folder = whisper_test::real_model_folder();
  if (!folder) return;
  TemporaryFolder output;
  whisper::save_pretrained(whisper::load_pretrained(*folder), *folder, output.path());
  check_same_weights(output.path(), *folder);
  CHECK(looptorch::load_json(output / "config.json")["vocab_size"].as_int() == 51864);
}

TEST_CASE("weights of another size are refused with file and shapes, and a missing file with its name") {
  TemporaryFolder source;
  write_folder(whisper_test::tiny_model(), source.path());
  auto tensors = looptorch::load_safetensors(source / "model.safetensors").tensors;
  tensors.begin()->second = torch::ones({3, 2});
  looptorch::save_safetensors(source / "model.safetensors", tensors);
  CHECK_THROWS_WITH(whisper::load_pretrained(source.path()),
                    Catch::Contains("model.safetensors") && Catch::Contains("[3, 2]"));
  TemporaryFolder empty;
  CHECK_THROWS_WITH(whisper::load_pretrained(empty.path()), Catch::Contains("config.json"));
}
