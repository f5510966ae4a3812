// SPDX-License-Identifier: MIT
// Seeded mutations of good JSON and good manifests: each is read or refused by a typed error that says where,
// and what is read can be written again. Free of torch, so that it can be compiled alone with
// -fsanitize=address,undefined (with tests/support/main.cpp). See support/mutations.hpp.
// Tests base/json: json
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/manifest/manifest.hpp>

#include "support/catch.hpp"
#include "support/mutations.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace looptorch;
using looptorch::testing::mutation_count;
using looptorch::testing::TemporaryFolder;
using looptorch::testing::write_damaged;

namespace {

/// Edits as faulty disks, editors and attackers make them.
class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  std::string next() {
    std::string text = pick(seeds_);
    for (auto edits = 1 + below(4); edits-- > 0;) mutate(text);
    return text;
  }

 private:
  std::size_t below(std::size_t end) {
    return static_cast<std::size_t>(random_() % std::max<std::size_t>(end, 1));
  }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void mutate(std::string& text) {
    static const std::vector<std::string> kTokens{"{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  ",",
                                                  ":",
                                                  "\"",
                                                  "\"\"",
                                                  "\\",
                                                  "\\u",
                                                  "\\ud800",
                                                  "\\udc00",
                                                  "-",
                                                  "+",
                                                  ".",
                                                  "e",
                                                  "1e999",
                                                  "1e-999",
                                                  "9223372036854775808",
                                                  "null",
                                                  "true",
                                                  "NaN",
                                                  "\n",
                                                  "\r\n",
                                                  "\t",
                                                  " ",
                                                  "\xEF\xBB\xBF",
                                                  "\xFF",
                                                  "\xC0\x80",
                                                  "\xED\xA0\x80",
                                                  "\xF4\x90\x80\x80",
                                                  "\u0915\u094d",
                                                  "\"audio_filepath\":",
                                                  "\"duration\":-1,",
                                                  "{\"a\":",
                                                  std::string(1, '\0'),
                                                  std::string(100, '['),
                                                  std::string(100, '{'),
                                                  std::string(300, '9'),
                                                  std::string(5000, 'a')};
    const auto at = below(text.size() + 1), count = below(1 + std::min<std::size_t>(text.size() - at, 40));
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 2:
        text.insert(at, pick(kTokens));
        break;
      case 3:
        text.erase(at, count);
        break;
      case 4:
        text.insert(below(text.size() + 1), text.substr(at, count));
        break;
      case 5:
        text.resize(at);
        break;
      default:
        text.replace(at, count, pick(seeds_), 0, below(60));
    }
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_{20240511};
};

const std::vector<std::string> kJson{
    R"({"audio_filepath": "clips/a.wav", "text": "कोंकणी भास", "duration": 2.5, "start": 1, "end": 3.5, "speaker": "kok"})",
    R"({"__metadata__":{"format":"pt"},"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"bias":{"dtype":"F16","shape":[],"data_offsets":[24,26]}})",
    R"({"model":{"type":"BPE","vocab":{"!":0,"\"":1,"\u0120t":256,"Ġthe":262},"merges":["Ġ t","h e"]},"added_tokens":[{"id":50257,"content":"<|en|>","special":true}]})",
    R"([0,-0,1.5,-1e-7,9223372036854775807,1e308,"\u0041\ud83d\ude00\n\\",null,true,false,[],{},[[[[[[[[1]]]]]]]]])",
    "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {\n    \"c\": \"d\"\n  }\n}\n"};

const std::vector<std::string> kLines{
    kJson[0] + "\n" + R"({"audio_filepath": "b.wav", "text": "two words"})" + "\r\n\n" +
    R"({"text": "x", "audio_filepath": "/c.wav", "speaker": null, "tags": [1]})" + "\n"};
const std::vector<std::string> kTables{
    "audio_file,text,duration\na.wav,\"one, \"\"two\"\"\",1.5\r\nb.wav,plain,\nc.wav,\"two\nlines\",3\n",
    "\xEF\xBB\xBF"
    "client_id,path,sentence,start,end\nc0ffee,a.mp3,नमस्कार,1,2\n,b.mp3,\"x\",,\n"};

/// Refused lines are in the text; whatever is refused as a whole is a ManifestError that begins with the
/// path.
void read_mutated(const std::string& name, const std::vector<std::string>& seeds) {
  const TemporaryFolder folder;
  const auto path = folder / name;
  Mutator mutator(seeds);
  int read = 0, listed = 0;
  for (int i = 0; i < mutation_count(); ++i) {
    const auto text = mutator.next();
    write_damaged(path, text);
    const auto lines = 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    try {
      const auto manifest = read_manifest(path, {.check_files = false});
      read += !manifest.utterances.empty();
      listed += !manifest.faults.empty();
      if (manifest.utterances.size() + manifest.faults.size() > lines)
        FAIL("more rows than lines in " << text);
      for (const auto& fault : manifest.faults) {
        if (fault.line < 1 || fault.line > lines || fault.reason.empty())
          FAIL("line " << fault.line << " of " << text);
      }
    } catch (const ManifestError& error) {
      if (std::string(error.what()).rfind(path.string() + ":", 0) != 0) FAIL(error.what());
    }
  }
  CHECK(read > mutation_count() / 4);
  CHECK(listed > mutation_count() / 20);
}

}  // namespace

TEST_CASE("mutated JSON is read or refused with its place, and what is read can be written") {
  Mutator mutator(kJson);
  int accepted = 0, refused = 0;
  for (int i = 0; i < mutation_count(); ++i) {
    const auto text = mutator.next();
    try {
      const auto value = Json::parse(text);
      if (Json::parse(value.dump(i % 3)) != value) FAIL("changed by writing: " << text);
      ++accepted;
    } catch (const JsonError& error) {
      if (std::string(error.what()).rfind("line ", 0) != 0) FAIL(error.what());
      ++refused;
    }
  }
  CHECK(accepted > mutation_count() / 100);
  CHECK(refused > mutation_count() / 2);
}

TEST_CASE("mutated manifests of JSON lines are read, listed or refused") { read_mutated("m.jsonl", kLines); }

TEST_CASE("mutated tables are read, listed or refused") { read_mutated("m.csv", kTables); }
