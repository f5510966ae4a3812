// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/text/languages.hpp>

#include <string>

TEST_CASE("A language is known by its code and its names, in any case") {
  for (const auto& [text, code] : {std::pair("en", "en"),
                                   {"EN", "en"},
                                   {"English", "en"},
                                   {"Castilian", "es"},
                                   {"yue", "yue"},
                                   {"haitian creole", "ht"},
                                   {"xx", ""},
                                   {"", ""},
                                   {"auto", ""},
                                   {"en ", ""},
                                   {"english2", ""}})
    CHECK(whisper::code_of_language(text) == code);
}

TEST_CASE("A flag's language becomes its code; one that only the model may know stays") {
  std::string language;
  looptorch::app::CommandLine line("transcribe", "Transcribes.");
  line.option("language", "CODE", language, "what is spoken");
  whisper::accept_language_name(line, language);
  const auto parsed = [&](std::string given) {
    std::string program = "transcribe", flag = "--language";
    char* words[] = {program.data(), flag.data(), given.data()};
    REQUIRE(line.parse(3, words));
    return language;
  };
  CHECK(parsed("German") == "de");
  CHECK(parsed("auto") == "auto");
  CHECK(parsed("tlh") == "tlh");
}
