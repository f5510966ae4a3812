// SPDX-License-Identifier: MIT
// Reads a corpus as it was published: this project's own manifests, Common Voice's tables, or the transcripts
// of OpenSLR's corpora. A corpus that was published without training, validation and test parts is split by
// sentence, 80/10/10. The split is the same on every machine.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/equivalent_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/hash/stable_hash.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/base/text/trimmed.hpp>
#include <looptorch/base/unicode/canonical_form.hpp>
#include <looptorch/data/datasets/audio_files.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/manifest/manifest_split.hpp>

#include "../text/vocabulary.hpp"
#include "skipped_items.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace konkanivani {

/// Returns the utterances of the corpus in `folder`, in the first of these forms that exists:
///   1. `train.jsonl`, `validation.jsonl`, `test.jsonl`;
///   2. Common Voice: `train.tsv`, `dev.tsv`, `test.tsv`, audio in `clips`;
///   3. folders `train`, `dev` (or `validation`) and `test`, each with transcripts and audio somewhere below;
///   4. transcripts and audio somewhere below, split by `split_by_sentence`.
/// Transcripts (3 and 4) are files named `line_index*.tsv`, `utt_spk_text.tsv`, `transcripts.txt`,
/// `transcription.txt` or `*.trans.txt` of lines "ID<tab>TEXT", "ID<tab>SPEAKER<tab>TEXT" or "ID TEXT"; a
/// clip is the audio file whose name is its ID, in any normal form of Unicode. Adds each line that cannot be
/// used to `skipped`; with a null `skipped` throws ManifestError, with file and line, for the first. Throws
/// ManifestError also for a folder without a corpus, and FileError.
[[nodiscard]] looptorch::ManifestSplit load_corpus(const std::filesystem::path& folder,
                                                   SkippedItems* skipped = nullptr);

/// Reads a manifest by `looptorch::read_manifest`; lists or throws wrong lines as load_corpus does. If it
/// lists them, keeps lines without audio in any normal form of Unicode: SpeechDataset skips them.
[[nodiscard]] std::vector<looptorch::Utterance> read_manifest(const std::filesystem::path& path,
                                                              SkippedItems* skipped);

/// Splits utterances: a tenth of the different sentences for validation and a tenth for test, at least one
/// each. All clips of a sentence are in one part. The split depends only on the sentences, as `normalize`
/// spells them. Throws ManifestError, which names the corpus by `where`, for fewer than three sentences.
[[nodiscard]] looptorch::ManifestSplit split_by_sentence(std::vector<looptorch::Utterance> utterances,
                                                         const std::filesystem::path& where);

// ---- Implementation ----

namespace detail {

namespace fs = std::filesystem;

inline const std::string kTranscripts =
    "line_index*.tsv, utt_spk_text.tsv, transcripts.txt, transcription.txt and *.trans.txt (OpenSLR)";

[[nodiscard]] inline bool is_transcript(const fs::path& file) {
  const auto name = file.filename().string();
  return (name.starts_with("line_index") && name.ends_with(".tsv")) || name == "utt_spk_text.tsv" ||
         name == "transcripts.txt" || name == "transcription.txt" || name.ends_with(".trans.txt");
}

/// Returns a key that canonically equivalent names share; the name itself if it is not UTF-8.
[[nodiscard]] inline std::string name_key(const std::string& name) {
  return looptorch::find_invalid_utf8(name) == name.npos ? looptorch::canonical_form(name) : name;
}

/// The files below a folder: transcripts in the order of their paths, and audio by file name, extension left
/// out.
struct Found {
  std::vector<fs::path> transcripts;
  std::multimap<std::string, fs::path> audio;  // by name_key

  /// Returns the audio files of a name; only those spelled exactly so, if there are any.
  [[nodiscard]] std::vector<fs::path> audio_called(const std::string& name) const {
    std::vector<fs::path> like, same;
    const auto [begin, end] = audio.equal_range(name_key(name));
    for (auto at = begin; at != end; ++at) {
      like.push_back(at->second);
      if (at->second.stem() == name) same.push_back(at->second);
    }
    return same.empty() ? like : same;
  }
};

[[nodiscard]] inline Found look_below(const fs::path& folder) {
  Found found;
  for (const auto& file : looptorch::files_below(folder)) {
    if (is_transcript(file)) found.transcripts.push_back(file);
    if (looptorch::is_audio_file(file)) found.audio.emplace(name_key(file.stem().string()), file);
  }
  return found;
}

/// Parses id, speaker if there is one, and text, separated by tabs, or by the first blank.
[[nodiscard]] inline looptorch::Utterance parse_line(std::string_view line) {
  const char separator = line.find('\t') == std::string_view::npos ? ' ' : '\t';
  const auto behind_id = line.find(separator);
  if (behind_id == std::string_view::npos) throw looptorch::ManifestError("has an id and no text");
  const auto before_text = separator == ' ' ? behind_id : line.rfind('\t');
  looptorch::Utterance utterance{.audio_filepath = std::string(looptorch::trimmed(line.substr(0, behind_id))),
                                 .text = std::string(looptorch::trimmed(line.substr(before_text + 1)))};
  if (before_text > behind_id)
    utterance.speaker = looptorch::trimmed(line.substr(behind_id + 1, before_text - behind_id - 1));
  if (utterance.text.empty()) throw looptorch::ManifestError("has an empty text");
  if (looptorch::find_invalid_utf8(line) != std::string_view::npos)
    throw looptorch::ManifestError("is not UTF-8");
  return utterance;
}

[[nodiscard]] inline fs::path audio_of(const fs::path& id, const Found& found, const fs::path& folder) {
  const auto name = looptorch::is_audio_file(id) ? id.stem().string() : id.filename().string();
  const auto files = found.audio_called(name);
  if (files.size() > 1)
    throw looptorch::ManifestError("there are several audio files called " + name + " below " +
                                   folder.string());
  if (!files.empty()) return files.front();
  throw looptorch::ManifestError("there is no audio file called " + name + " (" +
                                 looptorch::names_of_audio_extensions() + ") below " + folder.string());
}

[[nodiscard]] inline looptorch::Utterance read_line(std::string_view line, const Found& found,
                                                    const fs::path& folder) {
  auto utterance = parse_line(line);
  utterance.audio_filepath = audio_of(utterance.audio_filepath, found, folder);
  return utterance;
}

/// Returns the clips of all transcripts below a folder; empty if there is none.
[[nodiscard]] inline std::vector<looptorch::Utterance> read_transcripts(const fs::path& folder,
                                                                        SkippedItems* skipped) {
  const auto found = look_below(folder);
  std::vector<looptorch::Utterance> utterances;
  for (const auto& transcript : found.transcripts) {
    const auto contents = looptorch::read_file(transcript, std::uint64_t{1} << 32);
    std::string_view rest = contents;
    if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const auto line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (looptorch::trimmed(line).empty()) continue;
      try {
        utterances.push_back(read_line(line, found, folder));
      } catch (const looptorch::ManifestError& error) {
        auto what = looptorch::message(transcript.string(), ":", number, ": ", error.what());
        if (skipped == nullptr) throw looptorch::ManifestError(what);
        skipped->add(std::move(what));
      }
    }
  }
  return utterances;
}

/// Returns the first of the names that the folder has, or the first of all if it has none.
[[nodiscard]] inline fs::path first_of(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const auto* name : names) {
    if (fs::exists(folder / name)) return folder / name;
  }
  return folder / *names.begin();
}

/// Returns the clips of one of the folders `train`, `dev`, `test`.
[[nodiscard]] inline std::vector<looptorch::Utterance> read_part(const fs::path& folder,
                                                                 SkippedItems* skipped) {
  if (!fs::is_directory(folder)) throw looptorch::ManifestError("there is no folder " + folder.string());
  auto utterances = read_transcripts(folder, skipped);
  if (utterances.empty())
    throw looptorch::ManifestError(folder.string() +
                                   ": holds no transcripts that can be used; looked below it for " +
                                   kTranscripts + "; docs/corpora.md has commands for other forms");
  return utterances;
}

}  // namespace detail

inline looptorch::ManifestSplit split_by_sentence(std::vector<looptorch::Utterance> utterances,
                                                  const std::filesystem::path& where) {
  std::set<std::pair<std::uint64_t, std::string>> sentences;  // in an order that is independent of the corpus
  const auto key = [](const looptorch::Utterance& utterance) {
    auto text = normalize(utterance.text);
    return std::pair{looptorch::stable_hash(text), std::move(text)};
  };
  for (const auto& utterance : utterances) sentences.insert(key(utterance));
  if (sentences.size() < 3)
    throw looptorch::ManifestError(looptorch::message(where.string(), ": has ", sentences.size(),
                                                      " different sentences; 3 are the least to split"));

  const auto part = std::max<std::size_t>(1, sentences.size() / 10);
  const auto end_of_test = *std::next(sentences.begin(), static_cast<std::ptrdiff_t>(part)),
             end_of_validation = *std::next(sentences.begin(), static_cast<std::ptrdiff_t>(2 * part));
  looptorch::ManifestSplit split;
  for (auto& utterance : utterances) {
    const auto place = key(utterance);
    auto& to = place < end_of_test ? split.test : place < end_of_validation ? split.validation : split.train;
    to.push_back(std::move(utterance));
  }
  return split;
}

inline std::vector<looptorch::Utterance> read_manifest(const std::filesystem::path& path,
                                                       SkippedItems* skipped) {
  const bool strict = skipped == nullptr;
  auto manifest = looptorch::read_manifest(path, {.check_files = strict, .strict = strict});
  for (const auto& fault : manifest.faults)
    skipped->add(looptorch::message(path.string(), ":", fault.line, ": ", fault.reason));
  if (strict) return std::move(manifest.utterances);
  looptorch::EquivalentFiles files;
  for (auto& utterance : manifest.utterances) {
    if (std::filesystem::exists(utterance.audio_filepath)) continue;
    const auto found = files.find(utterance.audio_filepath);
    if (found.size() == 1) utterance.audio_filepath = found.front();
  }
  return std::move(manifest.utterances);
}

inline looptorch::ManifestSplit load_corpus(const std::filesystem::path& folder, SkippedItems* skipped) {
  const auto load = [&](const char* name) { return read_manifest(folder / name, skipped); };
  if (std::filesystem::exists(folder / "train.jsonl"))
    return {load("train.jsonl"), load("validation.jsonl"), load("test.jsonl")};
  if (std::filesystem::exists(folder / "train.tsv"))
    return {load("train.tsv"), load("dev.tsv"), load("test.tsv")};
  if (!std::filesystem::is_directory(folder))
    throw looptorch::ManifestError(folder.string() + ": is not a folder");
  const auto read = [&](std::initializer_list<const char*> names) {
    return detail::read_part(detail::first_of(folder, names), skipped);
  };
  if (std::filesystem::is_directory(folder / "train"))
    return {read({"train"}), read({"dev", "validation"}), read({"test"})};
  if (auto utterances = detail::read_transcripts(folder, skipped); !utterances.empty())
    return split_by_sentence(std::move(utterances), folder);
  throw looptorch::ManifestError(
      folder.string() +
      ": holds no corpus; looked for train.jsonl, train.tsv (Common Voice), a folder train, and below it for " +
      detail::kTranscripts + "; docs/corpora.md has commands for other forms");
}

}  // namespace konkanivani
