// SPDX-License-Identifier: MIT
// Against references that tests/parity/whisper_tokenizer.py recorded with the Python package `tokenizers`.
// Whisper's own tokenizer.json (2 MB) is not in the repository: LOOPTORCH_WHISPER_CT2 names the folder that
// has it.
// Tests whisper/text: tokenizer_file
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/text/tokenizer.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::Json;
using whisper::Tokenizer;
using whisper::TokenizerError;

namespace {

const fs::path kData = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data";

Json small_json() { return looptorch::load_json(kData / "small_tokenizer.json"); }

std::vector<std::int64_t> to_ids(const Json& json) {
  std::vector<std::int64_t> ids;
  for (const auto& id : json.as_array()) ids.push_back(id.as_int());
  return ids;
}

void check_against(const Tokenizer& tokenizer, const fs::path& path) {
  const auto reference = looptorch::load_json(path);
  for (const auto& entry : reference["encoded"].as_array()) {
    CAPTURE(entry["text"].dump());
    CHECK(tokenizer.encode(entry["text"].as_string()) == to_ids(entry["ids"]));
    if (to_ids(entry["ids"]).size() > 0) {
      CHECK(tokenizer.decode(to_ids(entry["ids"]), false) == entry["text"].as_string());
    }
  }
  for (const auto& entry : reference["decoded"].as_array()) {
    CAPTURE(entry["ids"].dump());
    CHECK(tokenizer.decode(to_ids(entry["ids"]), false) == entry["text"].as_string());
    CHECK(tokenizer.decode(to_ids(entry["ids"])) == entry["plain"].as_string());
  }
  REQUIRE(reference["encoded"].as_array().size() >= 300);
}

}  // namespace

TEST_CASE("tokenizer: a small one equals `tokenizers`") {
  const auto tokenizer = whisper::load_tokenizer(kData / "small_tokenizer.json");
  CHECK(tokenizer.size() == 301);
  CHECK(tokenizer.token_id("<|endoftext|>") == 295);
  CHECK_FALSE(tokenizer.token_id("<|nothing|>").has_value());
  check_against(tokenizer, kData / "small_tokenizer_reference.json");
}

TEST_CASE("tokenizer: Whisper tiny.en's equals `tokenizers`") {
  const char* folder = std::getenv("LOOPTORCH_WHISPER_CT2");
  if (!folder) {
    std::cout << "skipped: LOOPTORCH_WHISPER_CT2 does not name a folder with Whisper tiny.en's tokenizer.json"
              << std::endl;
    return;
  }
  const auto tokenizer = whisper::load_tokenizer(fs::path(folder) / "tokenizer.json");
  CHECK(tokenizer.size() == 50363);
  check_against(tokenizer, kData / "whisper_tokenizer.json");
}

TEST_CASE("tokenizer: text that is not UTF-8 is refused with the byte") {
  const Tokenizer tokenizer(small_json());
  CHECK_THROWS_AS(tokenizer.encode("ab\xFF"), TokenizerError);
  CHECK_THROWS_WITH(tokenizer.encode("\u0928a\xE0\xA4"), Contains("not UTF-8 at byte 4"));
}

TEST_CASE("tokenizer: half a character decodes to U+FFFD") {
  const Tokenizer tokenizer(small_json());
  auto ids = tokenizer.encode("a\U0001F600");
  ids.pop_back();
  CHECK(tokenizer.decode(ids) == "a\uFFFD");
  CHECK(tokenizer.decode({-1, 1 << 30}) == "");
}

TEST_CASE("tokenizer: older files write merges as text") {
  auto json = small_json();
  auto merges = Json::array();
  for (const auto& merge : json["model"]["merges"].as_array()) {
    merges.push_back(merge.at(0).as_string() + " " + merge.at(1).as_string());
  }
  auto model = json["model"];
  model.set("merges", merges);
  check_against(Tokenizer(json.set("model", model)), kData / "small_tokenizer_reference.json");
}

TEST_CASE("tokenizer: a long run costs no more than prose") {
  const Tokenizer tokenizer(small_json());
  const auto milliseconds = [&](std::size_t size) {
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(tokenizer.decode(tokenizer.encode(std::string(size, 'a'))).size() == size);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  milliseconds(1000);
  CHECK(milliseconds(160'000) < 100 * (1 + milliseconds(10'000)));
}

TEST_CASE("tokenizer: files of another kind are refused") {
  const auto refuses = [](const Json& json, const std::string& message) {
    REQUIRE_THROWS_AS(Tokenizer(json), TokenizerError);
    REQUIRE_THROWS_WITH(Tokenizer(json), Contains(message));
  };
  const auto with = [](const char* key, Json value) { return small_json().set(key, std::move(value)); };
  const auto with_model = [](const char* key, Json value) {
    auto json = small_json();
    auto model = json["model"];
    model.set(key, std::move(value));
    return json.set("model", model);
  };
  const auto splitter = [](const char* key, bool value) {
    return Json::object().set("type", "ByteLevel").set(key, value);
  };

  refuses(Json::parse("[]"), "expected an object, found an array");
  refuses(with("normalizer", Json::object().set("type", "NFC")), "it has a normalizer");
  refuses(with("pre_tokenizer", nullptr), "not ByteLevel");
  refuses(with("pre_tokenizer", Json::object().set("type", "Whitespace")), "not ByteLevel");
  refuses(with("pre_tokenizer", splitter("add_prefix_space", true)), "adds a space");
  refuses(with("pre_tokenizer", splitter("add_prefix_space", false).set("use_regex", false)),
          "does not split");
  refuses(with_model("type", "WordPiece"), "not BPE");
  refuses(with_model("end_of_word_suffix", "</w>"), "end_of_word_suffix");
  refuses(with_model("byte_fallback", true), "byte_fallback");
  refuses(with_model("vocab", Json::object().set("a", 1)), "which stands for a byte");
  refuses(with_model("merges", Json::array({"a"})), "merge \"a\" is not of two tokens");
  refuses(with_model("merges", Json::array({"a zz"})), "lacks \"zz\", part of a merge");
  refuses(with_model("merges", Json::array({"a 9"})), "lacks \"a9\", result of a merge");
  refuses(with("added_tokens", Json::array({Json::object().set("content", "").set("id", 5)})),
          "an added token is empty");
  refuses(with("added_tokens", Json::array({Json::object().set("content", "x").set("id", -5)})),
          "token \"x\" has the id -5");
  refuses(with("added_tokens",
               Json::array({Json::object().set("content", "x").set("id", std::int64_t{1} << 40)})),
          "has the id");
  refuses(
      with("added_tokens",
           Json::array({Json::object().set("content", "x").set("id", 5).set("lstrip", true)})),
      "added token \"x\" is lstrip: it takes away the blanks before it, which this tokenizer does not do; set "
      "\"lstrip\" to false");
  refuses(with("added_tokens",
               Json::array({Json::object().set("content", "x").set("id", 5).set("single_word", true)})),
          "is single_word: it is not found within a word, which this tokenizer does not do");
}

TEST_CASE("tokenizer: a file's name stands in its errors") {
  const looptorch::testing::TemporaryFolder folder;
  CHECK_THROWS_AS(whisper::load_tokenizer(folder / "tokenizer.json"), looptorch::FileError);
  looptorch::write_file_atomically(folder / "tokenizer.json", "{\"model\": 1}");
  CHECK_THROWS_WITH(whisper::load_tokenizer(folder / "tokenizer.json"),
                    Contains("tokenizer.json: not a GPT-2 tokenizer"));
  looptorch::write_file_atomically(folder / "tokenizer.json", "{");
  CHECK_THROWS_AS(whisper::load_tokenizer(folder / "tokenizer.json"), TokenizerError);
}
