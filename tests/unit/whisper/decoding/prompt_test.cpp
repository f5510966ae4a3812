// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/decoding/prompt.hpp>

#include <cstdint>
#include <string>
#include <vector>

using whisper::DecodingOptions, whisper::Task;
using Ids = std::vector<std::int64_t>;

namespace {

DecodingOptions multilingual() {
  DecodingOptions options{.prompt = {1}};
  options.special = {.start = 1, .transcribe = 4, .translate = 5, .no_timestamps = 9};
  options.special.languages = {{"de", 2}, {"tlh", 3}};
  return options;
}

}  // namespace

TEST_CASE("A multilingual model knows what it lists, under other names too") {
  whisper::SpecialTokens special{.start = 1, .no_timestamps = 9};
  special.languages = {{"de", 2}, {"tlh", 3}};
  CHECK(whisper::language_code(special, "German") == "de");
  CHECK(whisper::language_code(special, "tlh") == "tlh");
  for (const std::string unknown : {"", "en", "French"})
    CHECK_THROWS_WITH(whisper::language_code(special, unknown),
                      "the model does not know the language \"" + unknown + "\"");
}

TEST_CASE("A multilingual prompt names language, task and whether there are times") {
  auto options = multilingual();
  whisper::set_prompt(options, "de");
  CHECK(options.prompt == Ids{1, 2, 4, 9});
  options.without_timestamps = false;
  whisper::set_prompt(options, "tlh", Task::translate);
  CHECK(options.prompt == Ids{1, 3, 5});
  CHECK_THROWS_WITH(whisper::set_prompt(options, "en"), "the model does not know the language \"en\"");
}

TEST_CASE("A model of English has a prompt without language and task, and cannot translate") {
  DecodingOptions options{.prompt = {}};
  options.special = {.start = 1, .no_timestamps = 9};
  whisper::set_prompt(options, "en");
  CHECK(options.prompt == Ids{1, 9});
  CHECK_THROWS_WITH(whisper::set_prompt(options, "en", Task::translate),
                    "the model cannot translate: it knows English only");
}

TEST_CASE("A clip's language changes the prompt, none leaves it") {
  const auto options = multilingual();
  CHECK(whisper::decoding_in(options, "de").prompt == Ids{1, 2, 4, 9});
  CHECK(whisper::decoding_in(options, "").prompt == Ids{1});
}
