// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/decoding/generation_config.hpp>

#include <cstdint>
#include <vector>

namespace {

looptorch::Json multilingual_json() {
  return looptorch::Json::parse(R"({"is_multilingual": true, "no_timestamps_token_id": 50363,
      "lang_to_id": {"<|en|>": 50259, "<|mr|>": 50320}, "task_to_id": {"transcribe": 50359, "translate": 50358},
      "suppress_tokens": [1, 2], "begin_suppress_tokens": [220, 50257]})");
}

}  // namespace

TEST_CASE("Which tokens are suppressed is written where it is read") {
  const looptorch::testing::TemporaryFolder folder;
  const auto file = folder / "generation_config.json";
  looptorch::write_file_atomically(file, R"({"is_multilingual": false, "no_timestamps_token_id": 43,
      "suppress_tokens": [1, 2, 41], "begin_suppress_tokens": [3, 40], "other": "kept"})");
  const whisper::WhisperConfig config{
      .vocab_size = 60, .max_target_positions = 12, .eos_token_id = 40, .decoder_start_token_id = 41};
  auto options = whisper::load_decoding_options(folder.path(), config);
  whisper::allow_all_signs(options);
  whisper::allow_empty_texts(options);
  whisper::save_suppressed(folder.path(), options);
  const auto again = whisper::load_decoding_options(folder.path(), config);
  CHECK(again.suppress == std::vector<std::int64_t>{41});
  CHECK(again.begin_suppress == std::vector<std::int64_t>{3});
  CHECK(looptorch::load_json(file)["other"] == "kept");
  CHECK(looptorch::load_json(file)["suppress_tokens"].as_array().size() == 1);
}

TEST_CASE("The prompt follows from generation_config.json") {
  const whisper::WhisperConfig config;
  SECTION("multilingual") {
    const auto options = whisper::detail::decoding_options(multilingual_json(), config, "mr");
    CHECK(options.prompt == std::vector<int64_t>{50258, 50320, 50359, 50363});
    CHECK(options.suppress == std::vector<int64_t>{1, 2});
    CHECK(options.begin_suppress == std::vector<int64_t>{220, 50257});
    CHECK(options.end_of_text == 50257);
  }
  SECTION("English only") {
    auto json = looptorch::Json::parse(R"({"is_multilingual": false, "no_timestamps_token_id": 50362})");
    CHECK(whisper::detail::decoding_options(json, config, "en").prompt == std::vector<int64_t>{50258, 50362});
  }
  SECTION("an unknown language") {
    CHECK_THROWS_WITH(whisper::detail::decoding_options(multilingual_json(), config, "xx"),
                      "the model does not know the language \"xx\"");
  }
  SECTION("a token that the model does not have") {
    auto json = multilingual_json();
    json.set("suppress_tokens", looptorch::Json::array({70000}));
    CHECK_THROWS_WITH(whisper::detail::decoding_options(json, config, "en"),
                      "token 70000 is outside the vocabulary of 51865");
  }
}
