// SPDX-License-Identifier: MIT
// What is exported is imported again: bit-equal, or within its rounding. tests/parity/whisper_export.py
// compares the files with those of CTranslate2's own converter, byte for byte.
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/state/weights/module_state.hpp>

#include "../ctranslate2_files.hpp"
#include "../reference.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/formats/ctranslate2_export.hpp>
#include <whisper/formats/ctranslate2_import.hpp>

#include <filesystem>

using Catch::Contains;
using looptorch::TensorMap;
using looptorch::testing::TemporaryFolder;
using whisper::CTranslate2Error;
using whisper::ExportType;
using whisper::to_ctranslate2;

namespace {

/// Writes a model and reads it again.
whisper::ConvertedWhisper round_trip(const whisper::WhisperConfig& config, const TensorMap& weights,
                                     ExportType type) {
  const TemporaryFolder folder;
  whisper::save_ctranslate2(folder / "model.bin", to_ctranslate2(config, weights, type));
  CHECK(folder.entries() == 1);
  return whisper::convert_ctranslate2(whisper::load_ctranslate2(folder / "model.bin"), "model.bin");
}

void check_round_trip(const whisper::WhisperConfig& config, const TensorMap& weights) {
  for (const auto type : {ExportType::fp32, ExportType::fp16, ExportType::int8}) {
    const auto again = round_trip(config, weights, type);
    CHECK(again.config.d_model == config.d_model);
    CHECK(again.config.decoder_attention_heads == config.decoder_attention_heads);
    REQUIRE(again.weights.size() == weights.size());
    for (const auto& [name, tensor] : weights) {
      CAPTURE(name);
      const auto& read = again.weights.at(name);
      const bool is_matrix = tensor.dim() > 1 && name.find("embed_positions") == name.npos;
      if (type == ExportType::fp16) {
        CHECK(read.equal(tensor.to(at::kHalf).to(at::kFloat)));
      } else if (type == ExportType::int8 && is_matrix) {
        const auto rows = tensor.flatten(1);
        const auto half_step = rows.abs().amax(1, true) / 127 * 0.5001;  // the last digit of the division
        CHECK(((read.flatten(1) - rows).abs() <= half_step).all().item<bool>());
      } else {
        CHECK(read.equal(tensor));
      }
    }
  }
}

}  // namespace

TEST_CASE("CTranslate2 export: a small model is imported again as it was, or within its rounding") {
  const auto model = whisper_test::tiny_model();
  check_round_trip(model->config(), looptorch::state_dict(model));
}

TEST_CASE("CTranslate2 export: tiny.en is imported again as it was, or within its rounding") {
  const auto folder = whisper_test::real_model_folder();
  if (!folder) return;
  check_round_trip(whisper::load_config(*folder / "config.json"),
                   looptorch::load_safetensors_any(*folder).tensors);
}

TEST_CASE("CTranslate2 export: the bytes are those of an independent writer, the embedding an alias") {
  const TemporaryFolder folder;
  const auto small = whisper_test::tiny_model();
  const auto model = to_ctranslate2(small->config(), looptorch::state_dict(small), ExportType::int8);
  whisper::save_ctranslate2(folder / "model.bin", model);
  CHECK(looptorch::read_file(folder / "model.bin") == whisper_test::write_ctranslate2(model));
  const auto read = whisper::load_ctranslate2(folder / "model.bin");
  CHECK(read.variables.at("decoder/projection/weight")
            .is_alias_of(read.variables.at("decoder/embeddings/weight")));
}

TEST_CASE("CTranslate2 export: rows of 8 bits have the scale of their largest value") {
  const auto [values, scales] = whisper::quantised_rows(
      torch::tensor({{1.0F, -4.0F, 0.5F}, {0.0F, 0.0F, 0.0F}, {2.5F, 127.0F, 3.5F}, {1e-40F, 0.0F, 0.0F}}));
  CHECK(torch::equal(values.slice(0, 0, 3),
                     torch::tensor({{32, -127, 16}, {0, 0, 0}, {2, 127, 4}}, at::kChar)));
  CHECK(torch::equal(scales.slice(0, 0, 3), torch::tensor({31.75F, 1.0F, 1.0F})));
  CHECK(scales.isfinite().all().item<bool>());
}

TEST_CASE(
    "CTranslate2 export: weights that do not fit the sizes are refused by name, and nothing is written") {
  const auto model = whisper_test::tiny_model();
  auto weights = looptorch::state_dict(model);
  weights["model.encoder.conv1.bias"] = torch::full({16}, 1e5);
  CHECK_THROWS_WITH(to_ctranslate2(model->config(), weights, ExportType::fp16),
                    Contains("\"encoder/conv1/bias\" has a value that Half cannot hold"));
  weights["model.encoder.conv1.bias"] = torch::zeros({9});
  CHECK_THROWS_WITH(to_ctranslate2(model->config(), weights, ExportType::fp32),
                    Contains("\"model.encoder.conv1.bias\" has shape [9] instead of [16]"));
  weights.erase("model.encoder.conv1.bias");
  CHECK_THROWS_AS(to_ctranslate2(model->config(), weights, ExportType::fp32), CTranslate2Error);
  CHECK_THROWS_WITH(to_ctranslate2(model->config(), weights, ExportType::fp32),
                    Contains("lack \"model.encoder.conv1.bias\""));
  const TemporaryFolder folder;
  whisper::CTranslate2Model odd{"WhisperSpec", 3, {{"a", torch::zeros({2}, at::kDouble)}}};
  CHECK_THROWS_WITH(whisper::save_ctranslate2(folder / "model.bin", odd),
                    Contains("model.bin: variable \"a\" has the type Double"));
  odd.variables = {{std::string(70'000, 'a'), torch::zeros({2})}};
  CHECK_THROWS_AS(whisper::save_ctranslate2(folder / "model.bin", odd), CTranslate2Error);
  CHECK(folder.entries() == 0);
}
