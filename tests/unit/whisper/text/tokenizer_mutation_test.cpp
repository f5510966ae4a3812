// SPDX-License-Identifier: MIT
// Damaged tokenizer files, thousands of them from a seed (support/mutations.hpp): what is read must encode
// and decode whatever text it is given. Free of torch, as the tokenizer is.
// Tests whisper/text: tokenizer, tokenizer_file
#include <looptorch/base/json/json.hpp>

#include "support/catch.hpp"
#include "support/mutations.hpp"

#include <whisper/text/tokenizer.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

using looptorch::Json;
using looptorch::testing::Mutator;
using looptorch::testing::run_mutations;

namespace {

const std::filesystem::path kFile =
    std::filesystem::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/small_tokenizer.json";

const std::string kText =
    "the cat's hat 1234 \u0928\u092e\u0938\u094d\u0924\u0947 <|en|>x two words\n\n \U0001F600 " +
    std::string(60, 'a');

void use(const whisper::Tokenizer& tokenizer) {
  auto ids = tokenizer.encode(kText);
  for (const auto id : ids) REQUIRE((id >= 0 && id < tokenizer.size()));
  ids.insert(ids.end(), {-1, 0, tokenizer.size() - 1, tokenizer.size()});
  (void)tokenizer.decode(ids), (void)tokenizer.decode(ids, false);
}

/// One of the values that the file is made of, at any depth, in place of another.
void mutate_value(Mutator& mutator, Json& json) {
  static const std::vector<Json> kValues{nullptr,
                                         true,
                                         0,
                                         -1,
                                         5,
                                         1 << 19,
                                         1 << 20,
                                         std::int64_t{1} << 40,
                                         0.5,
                                         "",
                                         "a",
                                         "a b",
                                         " ",
                                         "\u0120t",
                                         Json::array(),
                                         Json::object(),
                                         Json::array({"a", "b"}),
                                         Json::array({"a", "b", "c"}),
                                         Json::object().set("content", "x").set("id", 7)};
  if (json.is_object() && !json.as_object().empty() && mutator.below(8) > 0) {
    const auto& members = json.as_object();
    const auto& member = members.begin()[static_cast<std::ptrdiff_t>(mutator.below(members.size()))];
    auto value = member.second;
    mutate_value(mutator, value);
    json.set(std::string(member.first), std::move(value));
  } else if (json.is_array() && !json.as_array().empty() && mutator.below(8) > 0) {
    auto elements = json.as_array();
    mutate_value(mutator, elements[mutator.below(elements.size())]);
    json = std::move(elements);
  } else {
    json = kValues[mutator.below(kValues.size())];
  }
}

}  // namespace

TEST_CASE("tokenizer mutations: a damaged file is refused by a typed error, or encodes and decodes") {
  const auto original = looptorch::read_file(kFile);
  use(whisper::Tokenizer(Json::parse(original)));
  run_mutations([&](unsigned seed) {
    auto text = original;
    Mutator(seed).mutate(text);
    use(whisper::Tokenizer(Json::parse(text)));
  });
}

TEST_CASE("tokenizer mutations: sound JSON with other values in it is refused, or encodes and decodes") {
  const auto original = looptorch::load_json(kFile);
  run_mutations([&](unsigned seed) {
    auto json = original;
    Mutator mutator(seed);
    mutate_value(mutator, json);
    use(whisper::Tokenizer(json));
  });
}
