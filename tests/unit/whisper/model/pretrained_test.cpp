// SPDX-License-Identifier: MIT
// A Hugging Face folder goes through load and save unchanged: names, values, tokenizer and settings.
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/memory/measure/host_memory.hpp>

#include "../reference.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/model/pretrained.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>

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

TEST_CASE("a folder whose weights were cut into several files is loaded by its index") {
  TemporaryFolder source, output, expected;
  write_folder(whisper_test::tiny_model(), source.path());
  const auto whole = looptorch::load_safetensors(source / "model.safetensors", {.mapped = false}).tensors;
  looptorch::save_safetensors(expected / "model.safetensors", whole);
  std::filesystem::remove(source / "model.safetensors");
  std::array<looptorch::TensorMap, 2> shards;
  auto map = looptorch::Json::object();
  for (const auto& [name, tensor] : whole) {
    const std::size_t shard = map.as_object().size() % 2;
    shards[shard].emplace(name, tensor);
    map.set(name, shard == 0 ? "model-1.safetensors" : "model-2.safetensors");
  }
  looptorch::save_safetensors(source / "model-1.safetensors", shards[0]);
  looptorch::save_safetensors(source / "model-2.safetensors", shards[1]);
  looptorch::write_file_atomically(source / "model.safetensors.index.json",
                                   looptorch::Json::object().set("weight_map", map).dump());
  whisper::save_pretrained(whisper::load_pretrained(source.path()), source.path(), output.path());
  check_same_weights(output.path(), expected.path());
}

TEST_CASE("weights of 16 bits are read into fp32 or kept, and saved in what is asked for") {
  TemporaryFolder source, output;
  write_folder(whisper_test::tiny_model(), source.path());
  const auto config = looptorch::load_json(source / "config.json");
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    whisper::save_pretrained(whisper::load_pretrained(source.path()), source.path(), output.path(), dtype);
    const auto expected = looptorch::load_safetensors(source / "model.safetensors").tensors;
    const auto written = looptorch::load_safetensors(output / "model.safetensors").tensors;
    const auto model = whisper::load_pretrained(output.path()),
               kept = whisper::load_pretrained(output.path(), dtype);
    const auto loaded = looptorch::state_dict(model), loaded_16 = looptorch::state_dict(kept);
    REQUIRE(written.size() == expected.size());
    for (const auto& [name, tensor] : written) {
      INFO(name);
      CHECK(tensor.scalar_type() == dtype);
      CHECK(tensor.equal(expected.at(name).to(dtype)));
      CHECK(loaded.at(name).scalar_type() == at::kFloat);
      CHECK(loaded.at(name).equal(tensor.to(at::kFloat)));
      CHECK(loaded_16.at(name).equal(tensor));
    }
    CHECK(looptorch::load_json(output / "config.json")["torch_dtype"] == whisper::dtype_name(dtype));
  }
}

TEST_CASE("a model of 16 bits is never held in 32 while it is made, and no type stays behind") {
  const auto config = whisper_test::tiny_model()->config();
  auto& memory = looptorch::HostMemory::counted();
  const auto before = memory.allocated_bytes();
  memory.reset_peak();
  const auto model = whisper::detail::make_model(config, at::kBFloat16);
  std::int64_t weights = 0;
  for (const auto& parameter : model->parameters()) {
    CHECK(parameter.scalar_type() == at::kBFloat16);
    weights += parameter.numel();
  }
  CHECK(memory.peak_bytes() - before < 3 * weights);
  CHECK(at::ones(1).scalar_type() == at::kFloat);
}

TEST_CASE("a shard that is missing, and one without a tensor that the index lists, are named") {
  TemporaryFolder source;
  write_folder(whisper_test::tiny_model(), source.path());
  auto tensors = looptorch::load_safetensors(source / "model.safetensors", {.mapped = false}).tensors;
  auto map = looptorch::Json::object();
  for (const auto& [name, tensor] : tensors) map.set(name, "model-00001-of-00001.safetensors");
  looptorch::write_file_atomically(source / "model.safetensors.index.json",
                                   looptorch::Json::object().set("weight_map", map).dump());
  std::filesystem::remove(source / "model.safetensors");
  CHECK_THROWS_WITH(whisper::load_pretrained(source.path()),
                    Catch::Contains("model-00001-of-00001.safetensors: cannot open"));
  tensors.erase("model.encoder.conv1.bias");
  looptorch::save_safetensors(source / "model-00001-of-00001.safetensors", tensors);
  CHECK_THROWS_WITH(
      whisper::load_pretrained(source.path()),
      Catch::Contains("model.safetensors.index.json: tensor \"model.encoder.conv1.bias\": is not in "
                      "\"model-00001-of-00001.safetensors\""));
}

TEST_CASE("an output projection is accepted if it is the embedding, and refused if not") {
  TemporaryFolder source;
  write_folder(whisper_test::tiny_model(), source.path());
  auto tensors = looptorch::load_safetensors(source / "model.safetensors", {.mapped = false}).tensors;
  const auto embedding = tensors.at("model.decoder.embed_tokens.weight");
  tensors["proj_out.weight"] = embedding.clone();
  looptorch::save_safetensors(source / "model.safetensors", tensors);
  const auto model = whisper::load_pretrained(source.path());
  CHECK(looptorch::state_dict(model).at("model.decoder.embed_tokens.weight").equal(embedding));
  CHECK_FALSE(looptorch::state_dict(model).contains("proj_out.weight"));
  tensors["proj_out.weight"][3][5] += 1;
  looptorch::save_safetensors(source / "model.safetensors", tensors);
  CHECK_THROWS_AS(whisper::load_pretrained(source.path()), looptorch::ModuleStateError);
  CHECK_THROWS_WITH(whisper::load_pretrained(source.path()),
                    Catch::Contains(source.path().string()) &&
                        Catch::Contains("proj_out.weight other values than "
                                        "model.decoder.embed_tokens.weight, to which it is tied"));
}

TEST_CASE("weights of another size are refused with file and shapes, and a missing file with its name") {
  TemporaryFolder source;
  write_folder(whisper_test::tiny_model(), source.path());
  auto tensors = looptorch::load_safetensors(source / "model.safetensors").tensors;
  tensors.begin()->second = torch::ones({3, 2});
  looptorch::save_safetensors(source / "model.safetensors", tensors);
  CHECK_THROWS_WITH(whisper::load_pretrained(source.path()),
                    Catch::Contains(source.path().string()) && Catch::Contains("[3, 2]"));
  TemporaryFolder empty;
  CHECK_THROWS_WITH(whisper::load_pretrained(empty.path()), Catch::Contains("config.json"));
}
