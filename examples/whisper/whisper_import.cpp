// SPDX-License-Identifier: MIT
// Converts a CTranslate2 Whisper folder (faster-whisper's format) or a file of openai-whisper to a Hugging
// Face folder, which this example's other programs and transformers read. Writes config.json last: a folder
// that has one is complete.
#include <looptorch/app/run/output_folder.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/state/weights/save_weights.hpp>
#include <looptorch/state/weights/torch_files/torch_checkpoint.hpp>

#include "formats/ctranslate2_import.hpp"
#include "formats/huggingface_folder.hpp"
#include "formats/openai_import.hpp"
#include "model/config.hpp"
#include "model/pretrained.hpp"
#include "text/tokenizer.hpp"

#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>

namespace app = looptorch::app;
namespace fs = std::filesystem;
using looptorch::Json;

namespace {

struct Options {
  fs::path ctranslate2, openai, tokenizer, output;
  std::string save_dtype = "fp32";
};

/// All files to be written, checked before the first is written.
struct Folder {
  std::string tokenizer;
  Json tokenizer_config, preprocessor_config, generation_config;
  looptorch::TensorMap weights;
  whisper::WhisperConfig config;
};

void check_folders(const Options& options) {
  std::error_code error;
  if (options.ctranslate2.empty() == options.openai.empty())
    throw app::CommandLineError("give either --ctranslate2 DIR or --openai FILE");
  if (options.openai.empty() != options.tokenizer.empty())
    throw app::CommandLineError("--openai needs --tokenizer DIR, and --ctranslate2 has its own");
  const bool is_openai = !options.openai.empty();
  const fs::path& source = is_openai ? options.tokenizer : options.ctranslate2;
  const std::string flag = is_openai ? "--tokenizer" : "--ctranslate2";
  if (!fs::is_directory(source, error)) {
    throw app::CommandLineError(flag + ": " + source.string() + " is not a folder");
  }
  if (fs::equivalent(source, options.output, error)) {
    throw app::CommandLineError("--output: must be another folder than " + flag);
  }
  for (const auto* name : {"summary.json", "run.conf", "snapshots", "metrics.jsonl", "adapter_config.json"})
    if (fs::exists(options.output / name, error))
      throw looptorch::UsageError(
          looptorch::message("--output ", options.output.string(), " holds a training run (", name,
                             "), whose weights the imported ones would replace: choose another folder"));
}

/// Returns a folder's tokenizer; refuses what the other programs would refuse.
std::string tokenizer_of(const fs::path& folder) {
  (void)whisper::load_tokenizer(folder / "tokenizer.json");
  return looptorch::read_file(folder / "tokenizer.json");
}

/// Converts a model with this tokenizer; `converted` has its sizes and weights, read from `model`.
template <class Converted>
Folder folder_of(const std::string& tokenizer, const Json& ids, Converted converted, const fs::path& model) {
  auto [config, weights] = std::move(converted);
  whisper::set_token_ids(config, ids);
  config = whisper::config_from_json(whisper::config_to_json(config), model.string());
  return {.tokenizer = tokenizer,
          .tokenizer_config = whisper::tokenizer_config(config),
          .preprocessor_config = whisper::preprocessor_config(config),
          .generation_config = {},  // set by the caller
          .weights = std::move(weights),
          .config = config};
}

/// Converts openai-whisper's file. Takes what it lacks from a folder with the same vocabulary.
Folder convert_openai(const fs::path& file, const fs::path& of_tokenizer) {
  const auto tokenizer = tokenizer_of(of_tokenizer);
  const auto ids = whisper::added_token_ids(Json::parse(tokenizer));
  auto weights = looptorch::load_torch_checkpoint(file).tensors;
  auto folder = folder_of(tokenizer, ids, whisper::convert_openai(std::move(weights), file.string()), file);
  const auto given = of_tokenizer / "generation_config.json";
  folder.generation_config = fs::exists(given)
                                 ? whisper::settings_for(folder.config, of_tokenizer)
                                 : whisper::generation_config(folder.config, Json::object(), ids);
  return folder;
}

Folder convert_ctranslate2(const fs::path& source) {
  const auto tokenizer = tokenizer_of(source);
  const auto ids = whisper::added_token_ids(Json::parse(tokenizer));
  const auto model = source / "model.bin";
  auto folder = folder_of(
      tokenizer, ids, whisper::convert_ctranslate2(whisper::load_ctranslate2(model), model.string()), model);
  folder.generation_config =
      whisper::generation_config(folder.config, looptorch::load_json(source / "config.json"), ids);
  return folder;
}

void write(const Folder& folder, const fs::path& output, at::ScalarType dtype) {
  const auto write_text = [&](const char* name, const std::string& text) {
    looptorch::write_file_atomically(output / name, text);
  };
  fs::remove(output / "config.json");
  write_text("tokenizer.json", folder.tokenizer);
  write_text("tokenizer_config.json", folder.tokenizer_config.dump(2) + "\n");
  write_text("preprocessor_config.json", folder.preprocessor_config.dump(2) + "\n");
  write_text("generation_config.json", folder.generation_config.dump(2) + "\n");
  looptorch::save_safetensors(output / "model.safetensors", folder.weights, {{"format", "pt"}});
  auto config = whisper::config_to_json(folder.config);
  write_text("config.json", config.set("torch_dtype", whisper::dtype_name(dtype)).dump(2) + "\n");
}

void import_model(const Options& options) {
  check_folders(options);
  const app::OutputFolder locked(options.output);
  const auto dtype = whisper::dtype_of(options.save_dtype);
  auto folder = options.openai.empty() ? convert_ctranslate2(options.ctranslate2)
                                       : convert_openai(options.openai, options.tokenizer);
  looptorch::convert_floating_point(folder.weights, dtype);
  write(folder, options.output, dtype);
  std::cout << "wrote " << folder.weights.size() << " tensors to " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line(
      "whisper_import",
      "Converts a Whisper model of CTranslate2 (model.bin, config.json, tokenizer.json) or of\n"
      "openai-whisper (small.pt) to a Hugging Face folder. Can be started again if it was cut off.");
  line.option("ctranslate2", "DIR", options.ctranslate2, "folder with CTranslate2's files");
  line.option("openai", "FILE", options.openai, "openai-whisper's weights, as small.pt");
  line.option("tokenizer", "DIR", options.tokenizer,
              "with --openai: a Hugging Face folder of a model with the same vocabulary; its\n"
              "tokenizer.json and generation_config.json are taken, the latter's heads for word\n"
              "times only from a model of the same size");
  line.required("output", "DIR", options.output,
                "folder to write, made if it is not there; not one that a training has filled");
  line.choice("save-dtype", options.save_dtype, {"fp32", "fp16", "bf16"},
              "of the weights in --output; 16 bits take half the space");
  return app::run_main(argc, argv, line, [&] { import_model(options); });
}
