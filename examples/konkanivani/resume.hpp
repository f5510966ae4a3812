// SPDX-License-Identifier: MIT
// A training run that can be stopped: which snapshot to go on from, whether it is of a model of this size
// with these characters, and whose weights are the best. The sizes and characters of a run lie beside its
// snapshots, in `config.json` and `vocabulary.json`.
#pragma once

#include <looptorch/loop/best_so_far.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/state/load_weights.hpp>
#include <looptorch/state/snapshot_folder.hpp>

#include "command_line.hpp"
#include "recognizer.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani {
namespace detail {

/// The newest sound snapshot in `folder`; empty if there is none. Tells which were passed over, and why.
[[nodiscard]] inline std::filesystem::path newest_snapshot(const std::filesystem::path& folder,
                                                           std::ostream& log) {
  const auto newest = looptorch::find_newest_snapshot(folder);
  for (const auto& [path, reason] : newest.passed_over) log << "passed over " << reason << '\n';
  return newest.path;
}

[[nodiscard]] inline std::string only_in(const std::vector<std::string>& a,
                                         const std::vector<std::string>& b) {
  std::vector<std::string> only;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only));
  std::string list;
  for (const auto& character : only) list += (list.empty() ? "" : " ") + ("\"" + character + "\"");
  return list.empty() ? "none" : list;
}

}  // namespace detail

/// The folder that a snapshot lies in; empty for none.
[[nodiscard]] inline std::filesystem::path folder_of(const std::filesystem::path& snapshot) {
  return snapshot.empty() ? snapshot : (snapshot / "..").lexically_normal();
}

/// The snapshot that `--resume VALUE` means, empty to begin anew: the value itself, the newest sound one in
/// it, or for `auto` in `own`, the run's own folder, if there is one. Throws CommandLineError for a value
/// that holds no snapshot, and for none at all where `own` holds some.
[[nodiscard]] inline std::filesystem::path choose_snapshot(const std::string& resume,
                                                           const std::filesystem::path& own,
                                                           std::ostream& log) {
  namespace fs = std::filesystem;
  if (resume.empty()) {
    if (looptorch::list_snapshots(own).empty()) return {};
    throw CommandLineError(own.string() +
                           " holds a run: go on with --resume auto, or choose another --output");
  }
  if (resume == "auto") {
    const auto newest = detail::newest_snapshot(own, log);
    log << (newest.empty() ? "no snapshot to go on from: begins anew" : "goes on from " + newest.string())
        << std::endl;
    return newest;
  }
  if (fs::is_regular_file(resume) || fs::path(resume).extension() == ".pt")
    throw CommandLineError(
        "--resume: " + resume +
        " is a file; a run goes on from a folder, such as OUTPUT/snapshots or a step of it "
        "(checkpoints of PyTorch's, .pt, cannot be read)");
  if (fs::exists(fs::path(resume) / "manifest.json")) return resume;
  const auto newest = detail::newest_snapshot(resume, log);
  if (newest.empty()) throw CommandLineError("--resume: " + resume + " holds no snapshot to go on from");
  return newest;
}

/// Makes `snapshots` and writes what its snapshots are of.
inline void save_identity(const ModelConfig& config, const Vocabulary& vocabulary,
                          const std::filesystem::path& snapshots) {
  std::filesystem::create_directories(snapshots);
  save_config(snapshots / "config.json", config);
  save_vocabulary(snapshots / "vocabulary.json", vocabulary);
}

/// Before a snapshot is read. Throws VocabularyError or ConfigError that names each difference between the
/// run that it is of and this one, and what reading the files throws.
inline void require_same_run(const ModelConfig& config, const Vocabulary& vocabulary,
                             const std::filesystem::path& snapshot) {
  const auto folder = folder_of(snapshot);
  const auto file = (folder / "vocabulary.json").string();
  const auto saved = load_vocabulary(file);
  if (saved.unit() != vocabulary.unit())
    throw VocabularyError(file + ": its characters are code points in one run and graphemes in the other");
  if (!(saved == vocabulary))
    throw VocabularyError(looptorch::detail::message(
        file, ": the training texts have other characters than the run's; only there: ",
        detail::only_in(saved.characters(), vocabulary.characters()),
        "; only in these texts: ", detail::only_in(vocabulary.characters(), saved.characters())));
  require_same_model(load_config(folder / "config.json"), config, (folder / "config.json").string());
}

/// Throws Interrupted for a fit that a signal has ended.
inline void check_interrupted(const looptorch::FitResult& result) {
  if (result.status != looptorch::FitStatus::interrupted) return;
  throw Interrupted(looptorch::detail::message(result.reason, ": stopped after ", result.steps,
                                               " steps; go on with --resume auto"),
                    result.reason.starts_with("SIGINT") ? 130 : 143);
}

/// Loads the weights of the step that `best` names, from the first of `folders` that has its snapshot, unless
/// `last`, the value of the weights that the model has, is as good. Tells what it did.
inline void load_best(const KonkaniVani& model, const looptorch::BestSoFar& best, double last,
                      std::span<const std::filesystem::path> folders, std::ostream& log) {
  if (!best.value() || *best.value() >= last) return;
  for (const auto& folder : folders) {
    for (const auto& [step, path] : looptorch::list_snapshots(folder)) {
      if (step != best.step()) continue;
      looptorch::load_weights(model, path / "model.safetensors");
      log << "keeps the weights of step " << step << " (validation CER " << *best.value()
          << "; the last ones " << last << ")" << std::endl;
      return;
    }
  }
  log << "the snapshot of the best step, " << best.step() << ", is gone: keeps the last weights" << std::endl;
}

}  // namespace konkanivani
