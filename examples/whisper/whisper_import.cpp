// SPDX-License-Identifier: MIT
// Turns a CTranslate2 Whisper folder (faster-whisper's format) into a Hugging Face folder in fp32, which this example's
// other programs and transformers read. config.json is written last: a folder that has one is complete.
#include "command_line.hpp"
#include "config.hpp"
#include "ctranslate2_whisper.hpp"
#include "tokenizer.hpp"

#include <looptorch/state/atomic_file.hpp>
#include <looptorch/state/json.hpp>
#include <looptorch/state/safetensors.hpp>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>

namespace fs = std::filesystem;
using looptorch::Json;

namespace {

struct Options {
  fs::path source, output;
};

std::int64_t special_id(const whisper::Tokenizer& tokenizer, const std::string& token) {
  if (const auto id = tokenizer.token_id(token)) return *id;
  throw whisper::TokenizerError("tokenizer.json has no " + token);
}

/// The ids as openai published them: end of text also pads and begins.
void set_token_ids(whisper::WhisperConfig& config, const whisper::Tokenizer& tokenizer) {
  config.eos_token_id = config.bos_token_id = config.pad_token_id = special_id(tokenizer, "<|endoftext|>");
  config.decoder_start_token_id = special_id(tokenizer, "<|startoftranscript|>");
}

/// Language tokens lie between start of transcript and the first task.
Json language_ids(const whisper::Tokenizer& tokenizer, const Json& tokenizer_json) {
  auto languages = Json::object();
  const auto first = special_id(tokenizer, "<|startoftranscript|>"), last = special_id(tokenizer, "<|translate|>");
  for (const auto& token : tokenizer_json.at("added_tokens").as_array()) {
    const auto id = token.at("id").as_int();
    if (id > first && id < last) languages.set(token.at("content").as_string(), id);
  }
  return languages;
}

Json generation_config(const whisper::WhisperConfig& config, const Json& ctranslate2, const Json& tokenizer_json,
                       const whisper::Tokenizer& tokenizer) {
  constexpr std::int64_t kEnglishVocabulary = 51864;  // one less than the smallest multilingual one
  const bool is_multilingual = config.vocab_size > kEnglishVocabulary;
  auto json = Json::object();
  json.set("bos_token_id", config.bos_token_id).set("eos_token_id", config.eos_token_id);
  json.set("pad_token_id", config.pad_token_id).set("decoder_start_token_id", config.decoder_start_token_id);
  json.set("no_timestamps_token_id", special_id(tokenizer, "<|notimestamps|>"));
  json.set("prev_sot_token_id", special_id(tokenizer, "<|startofprev|>"));
  json.set("max_length", config.max_target_positions).set("return_timestamps", false);
  json.set("suppress_tokens", ctranslate2.get("suppress_ids", Json::array()));
  json.set("begin_suppress_tokens", ctranslate2.get("suppress_ids_begin", Json::array()));
  if (ctranslate2.contains("alignment_heads")) json.set("alignment_heads", ctranslate2["alignment_heads"]);
  json.set("is_multilingual", is_multilingual);
  if (is_multilingual) {
    json.set("lang_to_id", language_ids(tokenizer, tokenizer_json));
    json.set("task_to_id", Json::object()
                               .set("transcribe", special_id(tokenizer, "<|transcribe|>"))
                               .set("translate", special_id(tokenizer, "<|translate|>")));
  }
  return json;
}

/// What transformers' feature extractor needs to know; the same for all Whispers but for the mel bins.
Json preprocessor_config(const whisper::WhisperConfig& config) {
  auto json = Json::object();
  json.set("feature_extractor_type", "WhisperFeatureExtractor").set("processor_class", "WhisperProcessor");
  json.set("feature_size", config.num_mel_bins).set("sampling_rate", 16000).set("n_fft", 400).set("hop_length", 160);
  json.set("chunk_length", 30).set("n_samples", 480000).set("nb_max_frames", 3000);
  json.set("padding_side", "right").set("padding_value", 0.0).set("return_attention_mask", false);
  return json;
}

Json tokenizer_config(const whisper::WhisperConfig& config) {
  auto json = Json::object();
  json.set("tokenizer_class", "WhisperTokenizer").set("model_max_length", config.max_target_positions);
  for (const auto* token : {"bos_token", "eos_token", "pad_token", "unk_token"}) json.set(token, "<|endoftext|>");
  return json;
}

void check_folders(const Options& options) {
  std::error_code error;
  if (!fs::is_directory(options.source, error)) {
    throw whisper::CommandLineError("--ctranslate2: " + options.source.string() + " is not a folder");
  }
  fs::create_directories(options.output, error);
  if (!fs::is_directory(options.output)) {
    throw whisper::CommandLineError("--output: cannot create the folder " + options.output.string());
  }
  if (fs::equivalent(options.source, options.output)) {
    throw whisper::CommandLineError("--output: must be another folder than --ctranslate2");
  }
}

void write_json(const fs::path& path, const Json& json) { looptorch::write_file_atomically(path, json.dump(2) + "\n"); }

void import_model(const Options& options) {
  check_folders(options);
  const auto tokenizer_path = options.source / "tokenizer.json";
  const auto tokenizer = whisper::load_tokenizer(tokenizer_path);
  const auto tokenizer_json = looptorch::load_json(tokenizer_path);
  const auto ctranslate2 = looptorch::load_json(options.source / "config.json");
  const auto model_path = options.source / "model.bin";
  auto [config, weights] = whisper::convert_ctranslate2(whisper::load_ctranslate2(model_path), model_path.string());
  set_token_ids(config, tokenizer);
  (void)whisper::config_from_json(whisper::config_to_json(config), model_path.string());

  fs::remove(options.output / "config.json");
  looptorch::write_file_atomically(options.output / "tokenizer.json", looptorch::read_file(tokenizer_path));
  write_json(options.output / "tokenizer_config.json", tokenizer_config(config));
  write_json(options.output / "preprocessor_config.json", preprocessor_config(config));
  write_json(options.output / "generation_config.json",
             generation_config(config, ctranslate2, tokenizer_json, tokenizer));
  looptorch::save_safetensors(options.output / "model.safetensors", weights, {{"format", "pt"}});
  whisper::save_config(options.output / "config.json", config);
  std::cout << "wrote " << weights.size() << " tensors to " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  whisper::CommandLine line("whisper_import",
                            "Converts a Whisper model of CTranslate2 (model.bin, config.json, tokenizer.json) to a\n"
                            "Hugging Face folder with fp32 weights. Can be started again if it was cut off.");
  line.required("ctranslate2", "DIR", options.source, "folder with CTranslate2's files");
  line.required("output", "DIR", options.output, "folder to write, made if it is not there");
  return whisper::run_main(argc, argv, line, [&] { import_model(options); });
}
