// SPDX-License-Identifier: MIT
// Defines Recognizer: a model with its vocabulary, which the programs save and load as a folder of
// config.json, model.safetensors and vocabulary.json. Also transcribes batches by any of four decodings.
//
// Shapes: B batch, M mel bins, F mel frames, T encoder frames, V vocabulary.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/base/error.hpp>

#include "../model/model.hpp"
#include "../text/vocabulary.hpp"
#include "beam_search.hpp"
#include "ctc_decoding.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani {

struct Recognizer {
  KonkaniVani model;
  Vocabulary vocabulary;
};

/// Writes the model into `folder`, which must exist: config.json last, without which it cannot be loaded.
inline void save_recognizer(const Recognizer& recognizer, const std::filesystem::path& folder) {
  std::filesystem::remove(folder / "config.json");
  save_vocabulary(folder / "vocabulary.json", recognizer.vocabulary);
  save_model(recognizer.model, folder);
}

/// Loads a recognizer. Throws VocabularyError if model and vocabulary have different sizes, and what reading
/// the files throws.
[[nodiscard]] inline Recognizer load_recognizer(const std::filesystem::path& folder, at::Device device) {
  Recognizer recognizer{load_model(folder), load_vocabulary(folder / "vocabulary.json")};
  const auto size = recognizer.model->config().vocabulary;
  if (size != recognizer.vocabulary.size())
    throw VocabularyError(looptorch::message(folder.string(), ": a vocabulary of ",
                                             recognizer.vocabulary.size(), " for a model of ", size));
  recognizer.model->to(device);
  recognizer.model->eval();
  return recognizer;
}

/// The method of decoding and its settings. `greedy` is CTC's best path, `ctc` CTC's best text by a beam over
/// prefixes, `attention` a beam over the decoder, and `joint` a beam over both heads.
struct DecodingOptions {
  std::string method = "greedy";
  BeamOptions beam{};
};

/// Throws UsageError for a method that is not one of the four.
inline void check_method(const std::string& method) {
  for (const auto* known : {"greedy", "ctc", "attention", "joint"}) {
    if (method == known) return;
  }
  throw looptorch::UsageError("decoding \"" + method + "\" is not greedy, ctc, attention or joint");
}

/// Throws CommandLineError for a flag of `line` that `method` does not use, and UsageError for an unknown
/// method.
inline void check_decoding_flags(const looptorch::app::CommandLine& line, const std::string& method) {
  check_method(method);
  if (method != "joint" && line.is_given("ctc-weight"))
    throw looptorch::app::CommandLineError("--ctc-weight: " + method +
                                           " decoding has no weights, joint decoding has");
  if (method == "greedy" && line.is_given("beam"))
    throw looptorch::app::CommandLineError("--beam: greedy decoding keeps one text");
}

/// Returns the texts of a batch as ids, each clip's `n_best`, best first. Greedy decoding returns one, with
/// score 0. Runs the model in its current mode.
[[nodiscard]] inline std::vector<std::vector<Hypothesis>> recognize(KonkaniVani& model,
                                                                    const Encoded& encoded,
                                                                    const DecodingOptions& options) {
  check_method(options.method);
  const torch::NoGradGuard no_grad;
  auto beam = options.beam;
  if (options.method == "attention") beam.ctc_weight = 0;
  if (options.method == "attention" || options.method == "joint") return beam_search(model, encoded, beam);

  const auto on_host_B = encoded.lengths_B.cpu();
  const std::vector<std::int64_t> frames(on_host_B.const_data_ptr<std::int64_t>(),
                                         on_host_B.const_data_ptr<std::int64_t>() + on_host_B.numel());
  const auto log_probs_BTV = ctc_log_probs(model->ctc_scores(encoded));
  if (options.method == "ctc") return decode_ctc_beam(log_probs_BTV, frames, beam.beam, beam.n_best);
  std::vector<std::vector<Hypothesis>> texts;
  for (auto& ids : decode_ctc_greedily(log_probs_BTV, frames)) texts.push_back({{.ids = std::move(ids)}});
  return texts;
}

/// Returns the texts of log-mel frames. `lengths_B` holds the number of unpadded frames of each clip.
[[nodiscard]] inline std::vector<std::vector<Hypothesis>> recognize(KonkaniVani& model,
                                                                    const at::Tensor& mel_BMF,
                                                                    const at::Tensor& lengths_B,
                                                                    const DecodingOptions& options) {
  const torch::NoGradGuard no_grad;
  return recognize(model, model->encode(mel_BMF, lengths_B), options);
}

}  // namespace konkanivani
