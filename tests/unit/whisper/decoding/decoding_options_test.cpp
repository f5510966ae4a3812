// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/decoding/decoding_options.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

using whisper::DecodingOptions;
using Ids = std::vector<std::int64_t>;

TEST_CASE("The first tokens are the prompt, with the last of the earlier text before it") {
  DecodingOptions options{.prompt = {1, 2}};
  options.special.previous = 7;
  CHECK(options.first_tokens() == Ids{1, 2});
  options.previous = {30, 31};
  CHECK(options.first_tokens() == Ids{7, 30, 31, 1, 2});
  options.previous.resize(500);
  std::iota(options.previous.begin(), options.previous.end(), 0);
  const auto tokens = options.first_tokens();
  REQUIRE(tokens.size() == 1 + 223 + 2);
  CHECK(tokens[0] == 7);
  CHECK(tokens[1] == 500 - 223);
  CHECK(tokens[223] == 499);
  CHECK(tokens[224] == 1);
  options.max_length = 8;
  CHECK(options.first_tokens() == Ids{7, 497, 498, 499, 1, 2});
}

TEST_CASE("A text ends at its end and at the other ends") {
  const DecodingOptions options{.end_of_text = 5, .other_ends = {6, 8}};
  for (const std::int64_t end : {5, 6, 8}) CHECK(options.ends_text(end));
  for (const std::int64_t token : {0, 7}) CHECK_FALSE(options.ends_text(token));
}

TEST_CASE("A beam follows several texts, unless they are drawn") {
  CHECK_FALSE(DecodingOptions{}.uses_beam());
  CHECK(DecodingOptions{.beam_size = 2}.uses_beam());
  CHECK_FALSE(DecodingOptions{.beam_size = 2, .temperature = 0.2}.uses_beam());
}

TEST_CASE("Timestamps begin after the token that stands for none") {
  CHECK(whisper::SpecialTokens{.no_timestamps = 41}.first_timestamp() == 42);
}
