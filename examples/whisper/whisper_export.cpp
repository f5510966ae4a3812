// SPDX-License-Identifier: MIT
// Converts a Hugging Face folder, such as whisper_finetune writes, for other programs: a CTranslate2 folder
// for faster-whisper, a GGML file for whisper.cpp, or files of torch.export.
#include <looptorch/app/run/output_files.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/weights/hub_model.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/module_state.hpp>

#include "decoding/generation_config.hpp"
#include "formats/ctranslate2_export.hpp"
#include "formats/ctranslate2_folder.hpp"
#include "formats/ggml.hpp"
#include "formats/torch_export.hpp"
#include "model/pretrained.hpp"

#include <torch/torch.h>

#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>
#include <vector>

namespace app = looptorch::app;
namespace fs = std::filesystem;
using looptorch::Json;
using whisper::ExportType;

namespace {

struct Options {
  fs::path model, ctranslate2, ggml, pt2;
  std::optional<ExportType> type;  ///< Without one: fp32 for CTranslate2, fp16 for GGML.
};

/// Returns the files from which a model may be read.
std::vector<app::NamedPath> files_of(const fs::path& model) {
  std::vector<app::NamedPath> files;
  std::error_code none;
  for (const auto& folder : whisper::folders_of(model))
    for (const auto& entry : fs::directory_iterator(folder, none)) {
      const auto extension = entry.path().extension();
      if (extension == ".safetensors" || extension == ".json" || extension == ".txt")
        files.push_back({"model", entry.path()});
    }
  return files;
}

void check_targets(const Options& options) {
  if (options.ctranslate2.empty() && options.ggml.empty() && options.pt2.empty())
    throw app::CommandLineError("nothing to write: give --ctranslate2, --ggml or --pt2");
  if (options.type && options.ctranslate2.empty() && options.ggml.empty())
    throw app::CommandLineError("--fp32, --fp16 and --int8 are for --ctranslate2 and --ggml");
  app::require_distinct_files({{"ggml", options.ggml}}, files_of(options.model));
  if (!options.pt2.empty()) app::create_output_folder("pt2", options.pt2);
  if (!options.ggml.empty() && options.type == ExportType::fp32)
    throw app::CommandLineError("--fp32: whisper.cpp cannot compute with it; give --fp16 or --int8");
  if (options.ctranslate2.empty()) return;
  app::create_output_folder("ctranslate2", options.ctranslate2);
  std::error_code error;
  for (const auto& folder : whisper::folders_of(options.model))
    if (fs::equivalent(options.ctranslate2, folder, error))
      throw app::CommandLineError("--ctranslate2: must be another folder than --model");
  for (const auto* name : {"model.safetensors", "generation_config.json", "adapter_config.json"})
    if (fs::exists(options.ctranslate2 / name, error))
      throw app::CommandLineError(looptorch::message(
          "--ctranslate2 ", options.ctranslate2.string(), " holds a model of transformers (", name,
          "), whose config.json would be replaced: choose another folder"));
}

/// The source of an export, read and checked before anything is written.
struct Source {
  whisper::Whisper model;
  Json tokenizer, generation, preprocessor;
};

Source load(const fs::path& model_folder) {
  auto model = whisper::load_pretrained(model_folder);
  looptorch::require_no_nan(*model);
  const auto folder = whisper::described_by(model_folder);
  (void)whisper::load_folder_tokenizer(folder);  // refuses one that the other programs would refuse
  const auto preprocessor = folder / "preprocessor_config.json";
  return {.model = model,
          .tokenizer = whisper::load_tokenizer_json(folder),
          .generation = whisper::load_generation_config(folder, model->config()),
          .preprocessor = fs::exists(preprocessor) ? looptorch::load_json(preprocessor)
                                                   : whisper::preprocessor_config(model->config())};
}

/// model.bin is written last: a folder that has one is complete.
void write_ctranslate2(const Source& source, const fs::path& output, ExportType type) {
  const auto& config = source.model->config();
  const auto write_json = [&](const char* name, const Json& json) {
    looptorch::write_file_atomically(output / name, json.dump(2) + "\n");
  };
  const auto settings = whisper::ctranslate2_config(config, source.generation, source.tokenizer);
  const auto vocabulary = whisper::ctranslate2_vocabulary(source.tokenizer, config.vocab_size);
  const auto model = whisper::to_ctranslate2(config, looptorch::state_dict(source.model), type);
  fs::remove(output / "model.bin");
  write_json("config.json", settings);
  write_json("vocabulary.json", vocabulary);
  write_json("preprocessor_config.json", source.preprocessor);
  looptorch::write_file_atomically(output / "tokenizer.json", source.tokenizer.dump() + "\n");
  whisper::save_ctranslate2(output / "model.bin", model);
}

void export_model(const Options& options) {
  check_targets(options);
  auto source = load(options.model);
  if (!options.pt2.empty()) {
    torch::manual_seed(0);  // example inputs are saved in each file: makes them the same each time
    whisper::save_torch_export(options.pt2, source.model);
    std::cout << "wrote " << options.pt2.string() << std::endl;
  }
  if (!options.ctranslate2.empty()) {
    write_ctranslate2(source, options.ctranslate2, options.type.value_or(ExportType::fp32));
    std::cout << "wrote " << options.ctranslate2.string() << std::endl;
  }
  if (!options.ggml.empty()) {
    whisper::save_ggml(options.ggml, source.model->config(), looptorch::state_dict(source.model),
                       source.tokenizer, options.type.value_or(ExportType::fp16));
    std::cout << "wrote " << options.ggml.string() << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("whisper_export",
                        "Writes a Whisper model as other programs read it. Can be started again if it was\n"
                        "cut off.");
  line.required(
      "model", "DIR", options.model,
      "Hugging Face folder of the model, or the name of one that was downloaded; adapters in it are merged into theirs first");
  app::accept_hub_name(line, options.model);
  line.option("ctranslate2", "DIR", options.ctranslate2, "folder to write for faster-whisper (CTranslate2)");
  line.option("ggml", "FILE", options.ggml, "file to write for whisper.cpp");
  line.option("pt2", "DIR", options.pt2,
              "folder to write for PyTorch, AOTInductor and ONNX: encoder.pt2 and decoder.pt2, in fp32");
  line.flag("fp32", options.type, ExportType::fp32,
            "weights of 32 bits: the default of --ctranslate2, not for --ggml")
      .one_of("type");
  line.flag("fp16", options.type, ExportType::fp16,
            "weights of 16 bits: half the size; the default of --ggml")
      .one_of("type");
  line.flag("int8", options.type, ExportType::int8,
            "matrices of 8 bits with scales: a quarter of the size (q8_0 in GGML)")
      .one_of("type");
  return app::run_main(argc, argv, line, [&] { export_model(options); });
}
