// SPDX-License-Identifier: MIT
// With the weights of tiny.en: the tokens and figures that tests/parity/whisper_decoding.py recorded from
// openai-whisper.
// Tests whisper/decoding: beam_search, decoding, fallback
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>

#include "../reference.hpp"

#include <whisper/decoding/decoding_flags.hpp>

#include <cstdlib>
#include <string>
#include <vector>

using namespace whisper_test;

namespace {

const std::vector<std::string> kClips{"plain", "radio", "noisy", "hum"};

/// The recorded clips, padded to 30 s with their quietest value.
at::Tensor recorded_windows() {
  const auto mels = looptorch::load_safetensors(kParity / "whisper_decoding.safetensors").tensors;
  auto windows = at::empty({static_cast<int64_t>(kClips.size()), 80, 3000});
  for (int64_t clip = 0; clip < windows.size(0); ++clip) {
    const auto mel = mels.at(kClips[static_cast<size_t>(clip)]).to(at::kFloat);
    windows[clip].fill_(mel.min());
    windows[clip].narrow(1, 0, mel.size(1)).copy_(mel);
  }
  return windows;
}

void apply_setting(whisper::Recognizer& recognizer, const std::string& setting) {
  whisper::DecodingFlags options;
  options.fallback = false;
  options.timestamps = setting.starts_with("timestamps");
  if (setting.starts_with("prompted")) options.initial_prompt = "Radio: fower, fife, niner.";
  if (setting == "beam" || setting == "timestamps_beam") options.beam_size = 5;
  if (setting == "patient") options.beam_size = 3, options.patience = 2, options.length_penalty = 0.6;
  if (setting == "prompted_beam") options.beam_size = 2;
  if (setting == "short") options.beam_size = 4;
  options.apply(recognizer);
  if (setting == "short") recognizer.decoding.max_new_tokens = 4;
}

}  // namespace

TEST_CASE("Greedy decoding and beams give openai-whisper's tokens and figures") {
  const auto folder = real_model_folder();
  if (!folder) return;
  const auto settings = looptorch::load_json(kParity / "whisper_decoding.json");
  const bool in_half_weights = GENERATE(false, true);
  CAPTURE(in_half_weights);
  auto recognizer = whisper::load_recognizer(*folder);
  if (in_half_weights) recognizer.model->decoder()->hold_half_weights();
  const auto unchanged = recognizer.decoding;
  torch::NoGradGuard no_grad;
  const auto states = recognizer.model->encoder()(recorded_windows());
  const bool takes_all = !in_half_weights || std::getenv("LOOPTORCH_WHISPER_LONG");  // ctest -C long sets it
  for (const auto& [setting, clips] : settings.as_object()) {
    if (!takes_all && setting != "greedy" && setting != "timestamps_beam") continue;
    recognizer.decoding = unchanged;
    apply_setting(recognizer, setting);
    const auto decoded = whisper::decode(recognizer.model, states, recognizer.decoding);
    for (size_t clip = 0; clip < kClips.size(); ++clip) {
      CAPTURE(setting, kClips[clip]);
      const auto& expected = clips.at(kClips[clip]);
      std::vector<int64_t> tokens;
      for (const auto& id : expected.at("tokens").as_array()) tokens.push_back(id.as_int());
      CHECK(decoded[clip].tokens == tokens);
      CHECK(decoded[clip].average_log_probability ==
            Approx(expected.at("average_log_probability").as_number()).margin(2e-4));
      CHECK(decoded[clip].no_speech_probability ==
            Approx(expected.at("no_speech_probability").as_number()).margin(1e-4));
      const auto text = recognizer.text_of(tokens);
      CHECK(text == expected.at("text").as_string());
      CHECK(whisper::compression_ratio(text) == Approx(expected.at("compression_ratio").as_number()));
    }
  }
}

TEST_CASE("With fallback an unsure text is drawn again, and a hum stays empty") {
  const auto folder = real_model_folder();
  if (!folder) return;
  auto recognizer = whisper::load_recognizer(*folder);
  whisper::use_fallback(recognizer);
  const auto windows = recorded_windows();
  const auto transcripts = recognizer.decode(windows);
  CHECK(transcripts[0].temperature == 0);
  CHECK(transcripts[1].temperature == 0);
  CHECK(transcripts[2].temperature > 0);  // -1.084 at temperature 0
  CHECK((transcripts[2].average_log_probability >= -1 || transcripts[2].temperature == 1));
  CHECK(transcripts[3].temperature == 0);
  CHECK(transcripts[3].text.empty());
  CHECK(transcripts[3].tokens.size() == 1);
  CHECK(transcripts[3].no_speech_probability > 0.6);
  CHECK(transcripts[0].language == "en");
  const auto alone = recognizer.decode(windows.slice(0, 2, 3));
  CHECK(alone[0].text == transcripts[2].text);
  CHECK(alone[0].temperature == transcripts[2].temperature);
}
