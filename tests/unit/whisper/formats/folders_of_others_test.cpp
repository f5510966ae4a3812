// SPDX-License-Identifier: MIT
// Folders of fine-tunes as others published them: without settings for generation, with lists of ids, with
// names of weights that wrappers of Python changed.
// Tests whisper/decoding: generation_config, recognizer
// Tests whisper/text: special_token_ids
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/decoding/recognizer.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
using Catch::Contains;
using Catch::EndsWith;
using looptorch::Json;
using looptorch::testing::TemporaryFolder;

namespace {

const fs::path kData = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data";

/// A copy of the English-only model of tests/parity/tiny_whisper.py.
struct Folder : TemporaryFolder {
  Folder() {
    for (const auto* file : {"config.json", "generation_config.json", "model.safetensors"})
      fs::copy_file(kData / "tiny_whisper" / file, *this / file);
    fs::copy_file(kData / "small_tokenizer.json", *this / "tokenizer.json");
  }

  void edit(const char* file, const std::function<void(Json&)>& change) const {
    auto json = looptorch::load_json(*this / file);
    change(json);
    looptorch::write_file_atomically(*this / file, json.dump());
  }
  void set(const char* file, const char* field, const std::string& value) const {
    edit(file, [&](Json& json) { json.set(field, Json::parse(value)); });
  }
  void write(const char* file, const std::string& text) const {
    looptorch::write_file_atomically(*this / file, text);
  }

  /// Gives the tokenizer the special tokens of a multilingual one, from 295 on.
  void speak_two_languages() const {
    edit("tokenizer.json", [](Json& json) {
      auto added = Json::array();
      std::int64_t id = 295;
      for (const auto* token :
           {"<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>",
            "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"})
        added.push_back(Json::object().set("content", token).set("id", id++).set("special", true));
      json.set("added_tokens", added);
    });
    set("config.json", "vocab_size", "310");
  }

  [[nodiscard]] whisper::WhisperConfig config() const { return whisper::load_config(*this / "config.json"); }
  [[nodiscard]] whisper::DecodingOptions decoding(const std::string& language = "en") const {
    return whisper::load_decoding_options(path(), config(), language);
  }

  void rename_weights(const std::function<std::string(const std::string&)>& rename) const {
    looptorch::TensorMap renamed;
    for (const auto& [name, tensor] :
         looptorch::load_safetensors(kData / "tiny_whisper/model.safetensors", {.mapped = false}).tensors)
      renamed[rename(name)] = tensor;
    looptorch::save_safetensors(*this / "model.safetensors", renamed);
  }
};

using Ids = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("Without generation_config.json, or with a minimal one, special tokens are the tokenizer's") {
  const Folder folder;
  const auto whole = folder.decoding();
  REQUIRE(whole.prompt == Ids{296, 298});
  const auto text = GENERATE(as<std::string>(), "", "{}", R"({"eos_token_id": 295, "suppress_tokens": null})",
                             R"({"is_multilingual": false})",
                             R"({"no_timestamps_token_id": null, "forced_decoder_ids": [[1, 298]]})");
  CAPTURE(text);
  if (text.empty())
    fs::remove(folder / "generation_config.json");
  else
    folder.write("generation_config.json", text);
  const auto options = folder.decoding();
  CHECK(options.prompt == whole.prompt);
  CHECK(options.special.no_timestamps == 298);
  CHECK(options.end_of_text == 295);
  CHECK(options.suppress.empty());
  CHECK(options.begin_suppress == (text.empty() ? Ids{220} : Ids{}));  // config.json's, which the model has
  CHECK(whisper::load_recognizer(folder.path()).decoding.prompt == whole.prompt);
}

TEST_CASE("Languages are those of Whisper by name or code, for an English-only model too") {
  const Folder folder;
  for (const auto* language : {"en", "EN", "English"})
    CHECK(whisper::load_recognizer(folder.path(), at::kCPU, language).language == "en");
  CHECK(whisper::load_recognizer(folder.path(), at::kCPU, "Haitian Creole").language == "ht");
  for (const std::string wrong : {"", "xx", "nan", "/tmp"})
    CHECK_THROWS_WITH(whisper::load_recognizer(folder.path(), at::kCPU, wrong),
                      (folder / "generation_config.json").string() + ": \"" + wrong +
                          "\" is no language of Whisper's: give its name or code, as German or de");
}

TEST_CASE("A multilingual model's languages and tasks are the tokenizer's, if its settings lack them") {
  const Folder folder;
  folder.speak_two_languages();
  const auto text = GENERATE(as<std::string>(), "", "{}", R"({"is_multilingual": true, "task_to_id": null})",
                             R"({"lang_to_id": {"<|de|>": 298}, "no_timestamps_token_id": 304})");
  CAPTURE(text);
  if (text.empty())
    fs::remove(folder / "generation_config.json");
  else
    folder.write("generation_config.json", text);
  const auto options = folder.decoding("de");
  CHECK(options.prompt == Ids{296, 298, 300, 304});
  CHECK(options.special.translate == 299);
  CHECK(options.special.no_speech == 303);
  CHECK(options.special.previous == 302);
  CHECK_THROWS_WITH(folder.decoding("fr"), Contains("the model does not know the language \"fr\""));
}

TEST_CASE("Which vocabulary is English only") {
  const auto ids = [](std::int64_t end) {
    return Json::parse(R"({"<|startoftranscript|>": )" + std::to_string(end + 1) + R"(, "<|en|>": )" +
                       std::to_string(end + 2) + R"(, "<|translate|>": )" + std::to_string(end + 3) +
                       R"(, "<|transcribe|>": )" + std::to_string(end + 4) + R"(, "<|endoftext|>": )" +
                       std::to_string(end) + "}");
  };
  CHECK_FALSE(whisper::detail::is_multilingual(51864, ids(50256)));
  CHECK_FALSE(whisper::detail::is_multilingual(51866, ids(50256)));  // with two tokens of its own
  CHECK(whisper::detail::is_multilingual(51865, ids(50257)));
  CHECK(whisper::detail::is_multilingual(51866, ids(50257)));
  CHECK(whisper::detail::is_multilingual(310, ids(295)));
}

TEST_CASE("The older form of a tokenizer gives the special tokens too") {
  const Folder folder;
  const auto json = looptorch::load_json(folder / "tokenizer.json");
  folder.write("vocab.json", json["model"]["vocab"].dump());
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : json["model"]["merges"].as_array())
    merges += merge.is_array() ? merge.at(0).as_string() + " " + merge.at(1).as_string() + "\n"
                               : merge.as_string() + "\n";
  folder.write("merges.txt", merges);
  folder.write("added_tokens.json",
               R"({"<|endoftext|>": 295, "<|startoftranscript|>": 296, "<|notimestamps|>": 298})");
  fs::remove(folder / "tokenizer.json");
  fs::remove(folder / "generation_config.json");
  CHECK(folder.decoding().prompt == Ids{296, 298});
}

TEST_CASE("Settings that are missing in the tokenizer too are named") {
  const Folder folder;
  fs::remove(folder / "generation_config.json");
  folder.edit("tokenizer.json", [](Json& json) { json.set("added_tokens", Json::array()); });
  CHECK_THROWS_AS(folder.decoding(), whisper::GenerationConfigError);
  CHECK_THROWS_WITH(folder.decoding(), (folder / "generation_config.json").string() +
                                           ": is not there; tokenizer.json lacks the token <|notimestamps|>");
}

TEST_CASE("An id may be a list of one, and eos_token_id a list with the tokenizer's end of text") {
  const Folder folder;
  for (const auto* field : {"eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id"})
    folder.edit("config.json", [&](Json& json) { json.set(field, Json::array({json.at(field)})); });
  folder.set("generation_config.json", "eos_token_id", "[295]");
  CHECK(folder.config().eos_token_id == 295);
  CHECK(folder.config().decoder_start_token_id == 296);
  CHECK(folder.decoding().end_of_text == 295);
  for (const auto* list : {"[295, 296]", "[296, 295]", "[295, 295]"}) {
    folder.set("config.json", "eos_token_id", list);
    folder.set("generation_config.json", "eos_token_id", list);
    CHECK(folder.decoding().end_of_text == 295);
    CHECK(whisper::load_recognizer(folder.path()).decoding.end_of_text == 295);
    const bool has_other = list != std::string_view("[295, 295]");
    CHECK(folder.decoding().other_ends == (has_other ? Ids{296} : Ids{}));
  }
  folder.set("config.json", "eos_token_id", "295");
  folder.set("generation_config.json", "eos_token_id", "[295, 297, 296]");
  CHECK(folder.decoding().other_ends == Ids{297, 296});
  folder.set("config.json", "eos_token_id", "[295, 297]");
  folder.set("generation_config.json", "eos_token_id", "295");
  CHECK(folder.decoding().other_ends.empty());
  const auto kept = looptorch::read_file(folder / "generation_config.json");
  fs::remove(folder / "generation_config.json");
  CHECK(folder.decoding().other_ends == Ids{297});
  whisper::save_suppressed(folder.path(), folder.decoding());
  CHECK(folder.decoding().other_ends == Ids{297});
  looptorch::write_file_atomically(folder / "generation_config.json", kept);
  const auto refuses = [&](const char* field, const char* value, const std::string& message) {
    folder.set("config.json", field, value);
    CHECK_THROWS_AS(folder.config(), whisper::ConfigError);
    CHECK_THROWS_WITH(folder.config(),
                      Contains((folder / "config.json").string() + ": ") && Contains(message));
  };
  refuses("eos_token_id", "[296, 297]",
          "field \"eos_token_id\" is [296,297], and \"<|endoftext|>\" of the tokenizer is 295");
  refuses("eos_token_id", "[295, 40]", "field \"eos_token_id\" is [295,40], and 40 spells text");
  refuses("eos_token_id", "[295, null]", "spells text");
  refuses("eos_token_id", "[295, 5000]", "and 5000 is outside the vocabulary of ");
  refuses("eos_token_id", "[295, -1]", "and -1 is outside the vocabulary of ");
  refuses("eos_token_id", "[]", "field \"eos_token_id\"");
  folder.set("config.json", "eos_token_id", "295");
  refuses("pad_token_id", "[295, 296]", "field \"pad_token_id\" must be an integer, is [295,296]");
  folder.set("config.json", "pad_token_id", "295");
  folder.set("config.json", "eos_token_id", "[295, 296]");
  fs::remove(folder / "tokenizer.json");
  CHECK_THROWS_WITH(folder.config(), Contains("no tokenizer beside it says which one \"<|endoftext|>\" is"));
}

TEST_CASE("Ids that config.json leaves open are the tokenizer's") {
  const Folder folder;
  for (const auto* field : {"eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id"})
    folder.set("config.json", field, "null");
  CHECK(folder.config().eos_token_id == 295);
  CHECK(folder.config().pad_token_id == 295);
  CHECK(folder.config().bos_token_id == 295);
  CHECK(folder.config().decoder_start_token_id == 296);
}

TEST_CASE("Files that contradict each other are refused by file and key") {
  const Folder folder;
  const auto refuses = [&](const char* file, const char* field, const char* value, const std::string& why) {
    const auto before = looptorch::load_json(folder / file);
    folder.set(file, field, value);
    CHECK_THROWS_WITH(whisper::load_recognizer(folder.path()), (folder / file).string() + ": " + why);
    folder.write(file, before.dump());
  };
  refuses("generation_config.json", "eos_token_id", "296",
          "\"eos_token_id\" is 296, and config.json has 295");
  refuses("generation_config.json", "eos_token_id", "[296, 297]",
          "\"eos_token_id\" is [296,297], and config.json has 295");
  refuses("generation_config.json", "eos_token_id", "[295, 40]",
          "\"eos_token_id\" is [295,40], and 40 spells text");
  refuses("generation_config.json", "eos_token_id", "[5000, 295]",
          "\"eos_token_id\" is [5000,295], and 5000 is outside the vocabulary of " +
              std::to_string(folder.config().vocab_size));
  refuses("generation_config.json", "eos_token_id", "[]", "\"eos_token_id\" is [], and config.json has 295");
  refuses("generation_config.json", "decoder_start_token_id", "[296, 40]",
          "\"decoder_start_token_id\" is [296,40], and config.json has 296");
  refuses("generation_config.json", "decoder_start_token_id", "297",
          "\"decoder_start_token_id\" is 297, and config.json has 296");
  refuses("generation_config.json", "no_timestamps_token_id", "299",
          "\"no_timestamps_token_id\" is 299, and \"<|notimestamps|>\" of the tokenizer is 298");
  refuses("config.json", "eos_token_id", "294",
          "\"eos_token_id\" is 294, and \"<|endoftext|>\" of the tokenizer is 295");
  refuses("config.json", "decoder_start_token_id", "297",
          "\"decoder_start_token_id\" is 297, and \"<|startoftranscript|>\" of the tokenizer is 296");
}

TEST_CASE("Settings of several languages for an English-only tokenizer are a contradiction") {
  CHECK(whisper::detail::is_english_only(51864, 295));
  CHECK(whisper::detail::is_english_only(51866, 50256));
  CHECK_FALSE(whisper::detail::is_english_only(51865, 50257));
  const Folder folder;
  folder.edit("generation_config.json", [](Json& json) {
    json.set("is_multilingual", true).set("task_to_id", Json::parse(R"({"transcribe": 297})"));
    json.set("lang_to_id", Json::parse(R"({"<|en|>": 296})"));
  });
  CHECK_THROWS_AS(whisper::load_recognizer(folder.path()), whisper::GenerationConfigError);
  CHECK_THROWS_WITH(whisper::load_recognizer(folder.path()),
                    (folder / "generation_config.json").string() +
                        ": \"is_multilingual\" is true, and the tokenizer is English-only");
}

TEST_CASE("Suppressed tokens can be saved where there was no generation_config.json") {
  const Folder folder;
  fs::remove(folder / "generation_config.json");
  auto options = folder.decoding();
  options.suppress = {3};
  whisper::save_suppressed(folder.path(), options);
  const auto json = looptorch::load_json(folder / "generation_config.json");
  CHECK(json["suppress_tokens"] == Json::array({3}));
  CHECK(json["decoder_start_token_id"] == Json(296));
  CHECK(json["eos_token_id"] == Json(295));
  CHECK(json["no_timestamps_token_id"] == Json(298));
  CHECK(folder.decoding().suppress == Ids{3});
}

TEST_CASE("Weights without \"model.\", or with what wrappers add, are taken and told") {
  const Folder folder;
  const auto plain = whisper::load_pretrained(folder.path());
  const auto [before, change] = GENERATE(table<std::string, std::string>({
      {"", "without \"model.\" in front"},
      {"module.", "with \"module.\" for \"model.\""},
      {"module.model.", "with \"module.\" in front"},
      {"_orig_mod.", "with \"_orig_mod.\" for \"model.\""},
      {"_orig_mod.model.", "with \"_orig_mod.\" in front"},
      {"model.model.", "with \"model.\" in front"},
      {"module._orig_mod.model.", "with \"module._orig_mod.\" in front"},
  }));
  CAPTURE(before);
  folder.rename_weights([&, before = before](const std::string& name) { return before + name.substr(6); });
  auto recognizer = whisper::load_recognizer(folder.path());
  const auto theirs = looptorch::state_dict(recognizer.model);
  for (const auto& [name, tensor] : looptorch::state_dict(plain)) CHECK(theirs.at(name).equal(tensor));
  std::ostringstream told;
  whisper::tell_renamed(recognizer, folder.path(), told);
  CHECK_THAT(told.str(),
             Contains(folder.path().string() + ": weights: ") && Contains("; renamed: ") && Contains(change));
  folder.rename_weights([](const std::string& name) { return name; });
  told.str({});
  whisper::tell_renamed(whisper::load_recognizer(folder.path()), folder.path(), told);
  CHECK(told.str().empty());
}
