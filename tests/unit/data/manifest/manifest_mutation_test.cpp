// SPDX-License-Identifier: MIT
// Damaged manifests and transcripts; see support/mutations.hpp.
// Tests data/manifest: manifest, transcript
#include "support/precompiled.hpp"

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/manifest/transcript.hpp>

#include "support/mutations.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

using namespace looptorch;
using looptorch::testing::Mutator;
using looptorch::testing::run_mutations;
using looptorch::testing::TemporaryFolder;

namespace {

constexpr std::string_view kLines =
    "\xef\xbb\xbf{\"audio_filepath\": \"a.wav\", \"text\": \"hi \\u00e9\", \"duration\": 3.2}\r\n\n"
    "{\"audio_filepath\": \"/b.wav\", \"text\": \"x\", \"start\": 1, \"end\": 2.5, \"speaker\": \"kok\"}\n";
constexpr std::string_view kCommas =
    "audio_file,text,duration,start,end,speaker\r\na.wav,\"left, then \"\"right\"\"\",3.5,0,1.5,bob\r\n"
    "b.wav,\"two\nlines, both\",,,,\n\nc.wav,plain \"q\",1e0,1,2,\"x\"\n";
constexpr std::string_view kTabs =
    "client_id\tpath\tsentence\tup_votes\nabc\ta.mp3\tHello \"x\"\t2\n"
    "abc\tb.mp3\t\"\"\"Hi\"\" he\\\\ said\\\t\"\t2\nabc\tc.mp3\ttwo\\\nlines\t2\n";

/// What tables break at, beside what JSON does.
void mutate_table(Mutator& mutator, std::string& text) {
  constexpr std::string_view kParts[] = {"\"", "\"\"", ",", "\t", "\n", "\r", "\\", "\\\n", "\",\""};
  if (mutator.below(2) == 0) return mutator.mutate(text);
  text.insert(mutator.below(text.size() + 1), kParts[mutator.below(std::size(kParts))]);
}

/// Faults in the order of the lines, and none beyond the text.
void check_faults(const std::vector<ManifestFault>& faults, const std::string& text) {
  const auto lines = 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  std::size_t last = 0;
  for (const auto& fault : faults) {
    REQUIRE((fault.line > last && fault.line <= lines));
    REQUIRE_FALSE(fault.reason.empty());
    last = fault.line;
  }
}

void save_and_load(const std::filesystem::path& path, const std::vector<Utterance>& utterances) {
  save_manifest(path, utterances);
  const auto again = load_manifest(path, {.check_files = false});
  REQUIRE(again.size() == utterances.size());
  for (std::size_t i = 0; i < again.size(); ++i) REQUIRE(again[i].text == utterances[i].text);
}

/// What is read can be saved, which is tried now and then: it waits for the disk.
void read_damaged(const std::filesystem::path& path, const std::string& text, unsigned seed) {
  looptorch::testing::write_damaged(path, text);
  const auto manifest = read_manifest(path, {.check_files = false});
  check_faults(manifest.faults, text);
  for (const auto& utterance : manifest.utterances)
    REQUIRE(find_invalid_utf8(utterance.text) == std::string_view::npos);
  if (seed % 50 == 0) save_and_load(path.parent_path() / "copy.jsonl", manifest.utterances);
  if (!manifest.faults.empty()) (void)load_manifest(path, {.check_files = false});  // throws
}

}  // namespace

TEST_CASE("mutated JSON lines are read or refused by a typed error") {
  const TemporaryFolder folder;
  run_mutations([&](unsigned seed) {
    Mutator mutator(seed);
    std::string text(kLines);
    for (auto edits = 1 + mutator.below(3); edits-- > 0;) mutator.mutate(text);
    read_damaged(folder / "m.jsonl", text, seed);
  });
}

TEST_CASE("mutated tables are read or refused by a typed error") {
  const TemporaryFolder folder;
  const auto [name, whole] =
      GENERATE(table<std::string, std::string_view>({{"m.csv", kCommas}, {"m.tsv", kTabs}}));
  run_mutations([&, name = name, whole = whole](unsigned seed) {
    Mutator mutator(seed);
    std::string text(whole);
    for (auto edits = 1 + mutator.below(4); edits-- > 0;) mutate_table(mutator, text);
    read_damaged(folder / name, text, seed);
  });
}

TEST_CASE("mutated transcripts are read or refused by a typed error") {
  const TemporaryFolder folder;
  const auto json = folder / "talk.json", audio = folder / "talk.wav";
  looptorch::testing::write_damaged(audio, "audio");
  constexpr std::string_view kWhole =
      "[{\"text\": \"turn left\", \"start\": 0, \"duration\": 2.5},\n {\"text\": \"कोंकणी \\\" भास\", "
      "\"start\": 2.5, \"duration\": 4e0},\n {\"text\": \"ab\", \"start\": 70, \"duration\": 40}]";
  run_mutations([&](unsigned seed) {
    Mutator mutator(seed);
    std::string text(kWhole);
    for (auto edits = 1 + mutator.below(3); edits-- > 0;) mutator.mutate(text);
    looptorch::testing::write_damaged(json, text);
    const auto transcript = read_transcript(json, audio);
    for (const auto& utterance : transcript.manifest.utterances) REQUIRE(*utterance.end > *utterance.start);
    for (const auto& fault : transcript.manifest.faults) REQUIRE(fault.line >= 1);
  });
}
