// SPDX-License-Identifier: MIT
// 10,000 drawn strings against the ids that tests/parity/whisper_tokenizer_strings.py recorded with the
// Python package `tokenizers`, and checked against tiktoken. LOOPTORCH_WHISPER_CT2 names the folder with the
// English tokenizer.json; LOOPTORCH_WHISPER_MULTILINGUAL, the file that the script makes.
// Tests whisper/text: gpt2_split, tokenizer, unicode_classes
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include <whisper/text/tokenizer.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using looptorch::Json;
using whisper::Tokenizer;
using whisper::TokenizerError;

namespace {

const fs::path kData = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data";

/// SplitMix64, as in the script.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::size_t below(std::size_t bound) {
    auto z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return static_cast<std::size_t>((z ^ (z >> 31)) % bound);
  }

  const Json& of(const Json& list) { return list.at(below(list.as_array().size())); }

 private:
  std::uint64_t state_;
};

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// The script's `draw_strings`, draw for draw.
std::vector<std::string> draw_strings(const Json& spec) {
  Random random(static_cast<std::uint64_t>(spec["seed"].as_int()));
  const auto& kinds = spec["kinds"];
  const auto count = kinds.as_array().size();
  std::vector<std::string> strings(static_cast<std::size_t>(spec["count"].as_int()));
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const auto style = i % (count + 2);
    for (auto left = 1 + random.below(12); left > 0; --left) {
      const auto source = random.below(8);
      const auto& kind = style < count ? kinds.at(style) : random.of(kinds);
      if (style == count + 1 && source < 3) {
        strings[i] += from_hex(random.of(spec["broken"]).as_string());
      } else if (source == 7) {
        strings[i] += random.of(spec["common"]).as_string();
      } else if (source % 2 == 1) {
        strings[i] += random.of(kind["words"]).as_string();
      } else {
        const auto& range = random.of(kind["ranges"]);
        const auto first = range.at(std::size_t{0}).as_int(), last = range.at(1).as_int();
        const auto offset = random.below(static_cast<std::size_t>(last - first + 1));
        looptorch::append_utf8(strings[i], static_cast<char32_t>(first) + static_cast<char32_t>(offset));
      }
    }
  }
  return strings;
}

std::int32_t hash_of(const std::vector<std::int64_t>& ids) {
  std::uint32_t value = 2166136261U;
  for (const auto id : ids) value = (value ^ static_cast<std::uint32_t>(id)) * 16777619U;
  return static_cast<std::int32_t>(value);
}

struct Reference {
  looptorch::Safetensors file = looptorch::load_safetensors(kData / "whisper_tokenizer_strings.safetensors");
  std::vector<std::string> strings = draw_strings(Json::parse(file.metadata.at("strings")));

  [[nodiscard]] std::vector<std::int32_t> column(const char* name) const {
    const auto& tensor = file.tensors.at(name);
    const auto* data = tensor.const_data_ptr<std::int32_t>();
    return {data, data + tensor.numel()};
  }
};

/// A string as JSON, and its number, which the script takes.
std::string describe(std::size_t number, const std::string& text) {
  return looptorch::message("string ", number, ": ", Json(text).dump());
}

void check_strings(const Tokenizer& tokenizer, const char* vocabulary) {
  const Reference reference;
  const auto hashes = reference.column(vocabulary);
  REQUIRE(hashes.size() == 10'000);
  REQUIRE(reference.strings.size() == hashes.size());
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const auto text = looptorch::replace_invalid_utf8(reference.strings[i]);
    const auto ids = tokenizer.encode(text);
    if (hash_of(ids) != hashes[i]) FAIL_CHECK(describe(i, text) << " became " << Json::array(ids).dump());
    if (tokenizer.decode(ids, false) != text) FAIL_CHECK(describe(i, text) << " does not come back");
  }
}

}  // namespace

TEST_CASE("tokenizer: 10,000 strings of all scripts become the ids of `tokenizers`, and come back") {
  check_strings(whisper::load_tokenizer(kData / "small_tokenizer.json"), "small");
}

TEST_CASE("tokenizer: 10,000 strings with Whisper's English vocabulary") {
  const char* folder = std::getenv("LOOPTORCH_WHISPER_CT2");
  if (!folder) {
    std::cout << "skipped: LOOPTORCH_WHISPER_CT2 does not name a folder with Whisper tiny.en's tokenizer.json"
              << std::endl;
    return;
  }
  check_strings(whisper::load_tokenizer(fs::path(folder) / "tokenizer.json"), "english");
}

TEST_CASE("tokenizer: 10,000 strings with Whisper's multilingual vocabulary") {
  const char* file = std::getenv("LOOPTORCH_WHISPER_MULTILINGUAL");
  if (!file) {
    std::cout << "skipped: LOOPTORCH_WHISPER_MULTILINGUAL does not name the file that "
                 "tests/parity/whisper_tokenizer_strings.py makes"
              << std::endl;
    return;
  }
  check_strings(whisper::load_tokenizer(file), "multilingual");
}

TEST_CASE("tokenizer: strings that are not UTF-8 are refused at the byte at which Python's decoder stops") {
  const Tokenizer tokenizer = whisper::load_tokenizer(kData / "small_tokenizer.json");
  const Reference reference;
  const auto faults = reference.column("fault");
  std::size_t refused = 0;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    std::string said;
    try {
      (void)tokenizer.encode(reference.strings[i]);
    } catch (const TokenizerError& error) {
      said = error.what();
      ++refused;
    }
    const auto expected = faults[i] < 0 ? "" : looptorch::message("text is not UTF-8 at byte ", faults[i]);
    if (said != expected) FAIL_CHECK(i << ": \"" << said << "\" instead of \"" << expected << '"');
  }
  CHECK(refused > 1000);
}
