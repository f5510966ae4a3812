// SPDX-License-Identifier: MIT
// Against the shards that tests/parity/safetensors_format.py recorded with huggingface_hub.
#include "support/precompiled.hpp"

#include <looptorch/state/weights/safetensors_index.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <string>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::load_safetensors_any;
using looptorch::load_safetensors_index;
using looptorch::SafetensorsError;
using looptorch::save_safetensors;
using looptorch::testing::TemporaryFolder;

namespace {

const fs::path kReference = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/safetensors_sharded";

/// Two shards with a tensor each, and an index of this weight map.
fs::path write_sharded(const TemporaryFolder& folder, const std::string& weight_map) {
  save_safetensors(folder / "one.safetensors", {{"a", torch::ones({1})}}, {{"format", "pt"}});
  save_safetensors(folder / "two.safetensors", {{"b", torch::ones({2})}}, {{"format", "np"}, {"k", "v"}});
  const auto index = folder / "model.safetensors.index.json";
  looptorch::write_file_atomically(index, R"({"metadata": {}, "weight_map": )" + weight_map + "}");
  return index;
}

constexpr auto kSound = R"({"a": "one.safetensors", "b": "two.safetensors"})";

}  // namespace

TEST_CASE("safetensors index: shards that Python wrote are read as one") {
  const auto file = load_safetensors_index(kReference / "model.safetensors.index.json");
  REQUIRE(file.tensors.size() == 5);
  for (int i = 0; i < 5; ++i) {
    const auto expected = torch::arange(4.0).to(at::kFloat).reshape({2, 2}) + i;
    CHECK(torch::equal(file.tensors.at("layers." + std::to_string(i) + ".weight"), expected));
  }
  CHECK(file.metadata == looptorch::SafetensorsMetadata{{"format", "pt"}});
}

TEST_CASE("safetensors index: metadata are those of all shards, the first one's where they differ") {
  const TemporaryFolder folder;
  CHECK(load_safetensors_index(write_sharded(folder, kSound)).metadata ==
        looptorch::SafetensorsMetadata{{"format", "pt"}, {"k", "v"}});
}

TEST_CASE("safetensors index: an index that is not valid is refused, by file and tensor") {
  const TemporaryFolder folder;
  const auto refuses = [&](const std::string& weight_map, const std::string& message) {
    CAPTURE(weight_map);
    const auto index = write_sharded(folder, weight_map);
    REQUIRE_THROWS_AS(load_safetensors_index(index), SafetensorsError);
    REQUIRE_THROWS_WITH(load_safetensors_index(index), Contains(index.string() + ": ") && Contains(message));
  };
  REQUIRE(load_safetensors_index(write_sharded(folder, kSound)).tensors.size() == 2);
  refuses("{", "line 1");
  refuses("[]", "expected an object");
  refuses(R"({"a": 1})", "expected a string");
  refuses(R"({"a": "one.safetensors", "a": "two.safetensors"})", "duplicate key \"a\"");
  refuses(R"({"a": "/one.safetensors"})", "tensor \"a\": is in \"/one.safetensors\", which is not below");
  refuses(R"({"a": "x/../../one.safetensors"})", "which is not below the index");
  refuses(R"({"a": ""})", "which is not below the index");
  refuses(R"({"a": "one.safetensors", "b": "one.safetensors"})",
          "tensor \"b\": is not in \"one.safetensors\", where it should be");
  refuses(R"({"b": "two.safetensors", "c": "one.safetensors"})",
          "tensor \"a\": is in \"one.safetensors\", which the index does not say");
  refuses(R"({"a": "two.safetensors", "b": "two.safetensors"})",
          "tensor \"a\": is not in \"two.safetensors\"");
  refuses(R"({"a": "two.safetensors", "b": "one.safetensors"})",
          "tensor \"a\": is in \"one.safetensors\", which the index does not say");
  CHECK_THROWS_AS(load_safetensors_index(
                      write_sharded(folder, R"({"a": "one.safetensors\u0000", "b": "two.safetensors"})")),
                  SafetensorsError);
  looptorch::write_file_atomically(folder / "bare.json", "{}");
  CHECK_THROWS_WITH(load_safetensors_index(folder / "bare.json"), Contains("\"weight_map\" is missing"));
}

TEST_CASE("safetensors index: a shard that is missing or damaged is named") {
  const TemporaryFolder folder;
  const auto index = write_sharded(folder, kSound);
  fs::resize_file(folder / "two.safetensors", fs::file_size(folder / "two.safetensors") - 1);
  CHECK_THROWS_WITH(load_safetensors_index(index), Contains("two.safetensors: tensor \"b\": ends at byte 8"));
  fs::remove(folder / "two.safetensors");
  CHECK_THROWS_AS(load_safetensors_index(index), looptorch::FileError);
  CHECK_THROWS_WITH(load_safetensors_index(index), Contains("two.safetensors: cannot open"));
}

TEST_CASE("safetensors index: a file, an index or a folder will do; a folder's single file goes first") {
  const TemporaryFolder folder;
  const auto index = write_sharded(folder, kSound);
  CHECK(load_safetensors_any(folder / "one.safetensors").tensors.size() == 1);
  CHECK(load_safetensors_any(index).tensors.size() == 2);
  CHECK(load_safetensors_any(folder.path()).tensors.size() == 2);
  save_safetensors(folder / "model.safetensors", {});
  CHECK(load_safetensors_any(folder.path()).tensors.empty());
  fs::remove(index), fs::remove(folder / "model.safetensors");
  CHECK_THROWS_WITH(load_safetensors_any(folder.path()), Contains("model.safetensors: cannot open"));
  std::ofstream(folder / "pytorch_model.bin") << "PK\x03\x04 and no more";
  CHECK_THROWS_AS(load_safetensors_any(folder.path()), looptorch::TorchCheckpointError);
  CHECK_THROWS_WITH(load_safetensors_any(folder.path()),
                    Contains("pytorch_model.bin: the archive is cut off"));
}
