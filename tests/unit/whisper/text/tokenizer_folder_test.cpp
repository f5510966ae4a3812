// SPDX-License-Identifier: MIT
// A folder without tokenizer.json against what transformers' own WhisperTokenizer made of it
// (tests/parity/whisper_tokenizer_folder.py).
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/text/tokenizer_folder.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using looptorch::testing::TemporaryFolder;
using whisper::load_folder_tokenizer;

namespace {

const fs::path kFolder = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/small_tokenizer_folder";

void copy(const TemporaryFolder& to, const std::vector<std::string>& names) {
  for (const auto& name : names) fs::copy_file(kFolder / name, to / name);
}

void check_reference(const whisper::Tokenizer& tokenizer) {
  const auto reference = looptorch::load_json(kFolder / "reference.json");
  REQUIRE(reference.as_array().size() > 100);
  for (const auto& entry : reference.as_array()) {
    CAPTURE(entry["text"].dump());
    std::vector<std::int64_t> ids;
    for (const auto& id : entry["ids"].as_array()) ids.push_back(id.as_int());
    CHECK(tokenizer.encode(entry["text"].as_string()) == ids);
    CHECK(tokenizer.decode(ids) == entry["plain"].as_string());
  }
}

}  // namespace

TEST_CASE("tokenizer: vocab.json and merges.txt give the ids of transformers' WhisperTokenizer") {
  check_reference(load_folder_tokenizer(kFolder));
}

TEST_CASE("tokenizer: either file about added tokens will do, and line ends of Windows") {
  const TemporaryFolder older, newer;
  copy(older, {"vocab.json", "merges.txt", "added_tokens.json"});
  check_reference(load_folder_tokenizer(older.path()));
  copy(newer, {"vocab.json", "tokenizer_config.json"});
  std::string merges;
  for (const char c : looptorch::read_file(kFolder / "merges.txt"))
    merges += c == '\n' ? "\r\n" : std::string(1, c);
  looptorch::write_file_atomically(newer / "merges.txt", merges);
  check_reference(load_folder_tokenizer(newer.path()));
}

TEST_CASE("tokenizer: tokenizer.json is preferred, timestamps are no special tokens") {
  const TemporaryFolder folder;
  copy(folder, {"vocab.json", "merges.txt"});
  looptorch::write_file_atomically(folder / "added_tokens.json", R"({"<|en|>": 297, "<|0.02|>": 299})");
  const auto tokenizer = load_folder_tokenizer(folder.path());
  CHECK(tokenizer.encode("<|en|><|0.02|>") == std::vector<std::int64_t>{297, 299});
  CHECK(tokenizer.decode({297, 299}) == "<|0.02|>");
  fs::copy_file(kFolder.parent_path() / "small_tokenizer.json", folder / "tokenizer.json");
  CHECK(load_folder_tokenizer(folder.path()).token_id("<|en|>x") == 299);
}

TEST_CASE("tokenizer: a folder without one, or with a damaged one, is an error that names it") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(load_folder_tokenizer(folder.path()),
                    Catch::Contains(folder.path().string() +
                                    ": holds neither tokenizer.json nor vocab.json with merges.txt") &&
                        Catch::Contains("copy tokenizer.json, tokenizer_config.json, "));
  copy(folder, {"vocab.json"});
  CHECK_THROWS_WITH(load_folder_tokenizer(folder.path()), Catch::Contains("merges.txt"));
  looptorch::write_file_atomically(folder / "merges.txt", "#version: 0.2\nh e\nalone\n");
  CHECK_THROWS_WITH(load_folder_tokenizer(folder.path()),
                    folder.path().string() + ": merge \"alone\" is not of two tokens");
  looptorch::write_file_atomically(folder / "merges.txt", "zz yy\n");
  CHECK_THROWS_AS(load_folder_tokenizer(folder.path()), whisper::TokenizerError);
  looptorch::write_file_atomically(folder / "vocab.json", "{");
  CHECK_THROWS_WITH(load_folder_tokenizer(folder.path()), Catch::Contains("vocab.json"));
}
