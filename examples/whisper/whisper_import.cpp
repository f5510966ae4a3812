// SPDX-License-Identifier: MIT
// Turns a CTranslate2 Whisper folder (faster-whisper's format) into a Hugging Face folder, which this example's
// other programs and transformers read. config.json is written last: a folder that has one is
// complete.
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "config.hpp"
#include "formats/ctranslate2_import.hpp"
#include "formats/huggingface_folder.hpp"
#include "pretrained.hpp"
#include "tokenizer.hpp"

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
  fs::path source, output;
  std::string save_dtype = "fp32";
};

/// All that is written, checked before anything is.
struct Folder {
  std::string tokenizer;
  Json tokenizer_config, preprocessor_config, generation_config;
  looptorch::TensorMap weights;
  whisper::WhisperConfig config;
};

void check_folders(const Options& options) {
  std::error_code error;
  if (!fs::is_directory(options.source, error)) {
    throw app::CommandLineError("--ctranslate2: " + options.source.string() + " is not a folder");
  }
  fs::create_directories(options.output, error);
  if (!fs::is_directory(options.output, error)) {
    throw app::CommandLineError("--output: cannot create the folder " + options.output.string());
  }
  if (fs::equivalent(options.source, options.output)) {
    throw app::CommandLineError("--output: must be another folder than --ctranslate2");
  }
}

Folder convert(const fs::path& source) {
  (void)whisper::load_tokenizer(source /
                                "tokenizer.json");  // refuses one that the other programs would refuse
  const auto tokenizer = looptorch::read_file(source / "tokenizer.json");
  const auto ids = whisper::added_token_ids(Json::parse(tokenizer));
  const auto model = source / "model.bin";
  auto [config, weights] = whisper::convert_ctranslate2(whisper::load_ctranslate2(model), model.string());
  whisper::set_token_ids(config, ids);
  config = whisper::config_from_json(whisper::config_to_json(config), model.string());
  const auto ctranslate2 = looptorch::load_json(source / "config.json");
  return {.tokenizer = tokenizer,
          .tokenizer_config = whisper::tokenizer_config(config),
          .preprocessor_config = whisper::preprocessor_config(config),
          .generation_config = whisper::generation_config(config, ctranslate2, ids),
          .weights = std::move(weights),
          .config = config};
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
  const auto dtype = whisper::dtype_of(options.save_dtype);
  auto folder = convert(options.source);
  looptorch::convert_floating_point(folder.weights, dtype);
  write(folder, options.output, dtype);
  std::cout << "wrote " << folder.weights.size() << " tensors to " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line(
      "whisper_import",
      "Converts a Whisper model of CTranslate2 (model.bin, config.json, tokenizer.json) to a\n"
      "Hugging Face folder. Can be started again if it was cut off.");
  line.required("ctranslate2", "DIR", options.source, "folder with CTranslate2's files");
  line.required("output", "DIR", options.output, "folder to write, made if it is not there")
      .alias("output-dir");
  line.choice("save-dtype", options.save_dtype, {"fp32", "fp16", "bf16"},
              "of the weights in --output; 16 bits take half the space");
  return app::run_main(argc, argv, line, [&] { import_model(options); });
}
