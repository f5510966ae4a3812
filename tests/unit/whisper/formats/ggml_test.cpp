// SPDX-License-Identifier: MIT
// The file is read field by field as whisper.cpp reads it. tests/parity/whisper_export.py has whisper.cpp
// itself transcribe with one.
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/state/weights/module_state.hpp>

#include "../reference.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/formats/ggml.hpp>

#include <cstring>
#include <map>

using Catch::Contains;
using looptorch::Json;
using looptorch::testing::TemporaryFolder;
using whisper::ExportType;

namespace {

struct GgmlTensor {
  int32_t type;
  std::vector<int64_t> shape;  // as the file has it: the last dimension first
  std::string data;
};

struct GgmlFile {
  std::vector<int32_t> sizes;
  at::Tensor filters;
  std::vector<std::string> tokens;
  std::map<std::string, GgmlTensor> tensors;
};

/// Reads the numbers and bytes of a file one after the other.
struct GgmlReader {
  std::string bytes;
  size_t at = 0;

  std::string text(size_t size) {
    REQUIRE(size <= bytes.size() - at);
    return bytes.substr(std::exchange(at, at + size), size);
  }
  int32_t number() {
    int32_t value = 0;
    std::memcpy(&value, text(4).data(), 4);
    return value;
  }
  bool ends() const { return at == bytes.size(); }
};

int64_t bytes_of(int32_t type, int64_t count) {
  if (type == 8) return count / 32 * 34;
  return type == 0 ? 4 * count : 2 * count;
}

GgmlFile read_ggml(const std::filesystem::path& path) {
  GgmlReader in{looptorch::read_file(path)};
  GgmlFile file;
  CHECK(in.number() == 0x67676d6c);
  for (int i = 0; i < 11; ++i) file.sizes.push_back(in.number());
  const auto bins = in.number(), frequencies = in.number();
  file.filters = torch::empty({bins, frequencies});
  std::memcpy(file.filters.data_ptr(), in.text(file.filters.nbytes()).data(), file.filters.nbytes());
  for (auto count = in.number(); count > 0; --count) file.tokens.push_back(in.text(in.number()));
  while (!in.ends()) {
    const auto dims = in.number(), name_size = in.number();
    GgmlTensor tensor{in.number(), {}, {}};
    int64_t count = 1;
    for (int i = 0; i < dims; ++i) count *= tensor.shape.emplace_back(in.number());
    const auto name = in.text(name_size);
    tensor.data = in.text(bytes_of(tensor.type, count));
    CHECK(file.tensors.emplace(name, std::move(tensor)).second);
  }
  return file;
}

/// Returns a tensor's values, whatever their type.
at::Tensor values_of(const GgmlTensor& tensor) {
  const auto view = [&](at::ScalarType type) {
    return at::from_blob(const_cast<char*>(tensor.data.data()),
                         {static_cast<int64_t>(tensor.data.size() / c10::elementSize(type))}, type)
        .clone();
  };
  if (tensor.type == 0) return view(at::kFloat);
  if (tensor.type == 1) return view(at::kHalf).to(at::kFloat);
  const auto blocks = view(at::kByte).view({-1, 34});
  return (blocks.slice(1, 0, 2).contiguous().view(at::kHalf).to(at::kFloat) *
          blocks.slice(1, 2).contiguous().view(at::kChar).to(at::kFloat))
      .flatten();
}

/// Tokens "!" (id 0), two bytes that are no character, and the empty one; the end of text is number 3.
Json small_tokenizer() {
  return Json::parse(R"({"model": {"vocab": {"!": 0, "ĠÃ": 1, "": 2, "<|endoftext|>": 3}}})");
}

whisper::Whisper small_model() {
  torch::manual_seed(3);
  whisper::Whisper model(whisper::WhisperConfig{.vocab_size = 6,
                                                .d_model = 32,
                                                .encoder_layers = 1,
                                                .decoder_layers = 1,
                                                .encoder_attention_heads = 2,
                                                .decoder_attention_heads = 4,
                                                .encoder_ffn_dim = 64,
                                                .decoder_ffn_dim = 32,
                                                .num_mel_bins = 80,
                                                .max_source_positions = 20,
                                                .max_target_positions = 12,
                                                .pad_token_id = 3,
                                                .bos_token_id = 3,
                                                .eos_token_id = 3,
                                                .decoder_start_token_id = 4});
  return model;
}

GgmlFile written(whisper::Whisper& model, ExportType type) {
  const TemporaryFolder folder;
  whisper::save_ggml(folder / "m.bin", model->config(), looptorch::state_dict(model), small_tokenizer(),
                     type);
  return read_ggml(folder / "m.bin");
}

}  // namespace

TEST_CASE("GGML: sizes, filters and vocabulary come first") {
  auto model = small_model();
  const auto file = written(model, ExportType::fp16);
  CHECK(file.sizes == std::vector<int32_t>{6, 20, 32, 2, 1, 12, 32, 4, 1, 80, 1});
  CHECK(written(model, ExportType::int8).sizes.back() == 2007);
  CHECK(file.tokens == std::vector<std::string>{"!", " \xC3", ""});
  CHECK(file.filters.sizes() == at::IntArrayRef({80, 201}));
  CHECK(std::abs(file.filters[0][1].item<double>() - 0.02486259) < 1e-7);  // openai-whisper's mel_filters.npz
  CHECK(std::abs(file.filters[79][198].item<double>() - 8.97518e-4) < 1e-9);
}

TEST_CASE("GGML: every tensor is there, by openai-whisper's name and in the right type") {
  auto model = small_model();
  const auto state = looptorch::state_dict(model);
  for (const auto type : {ExportType::fp16, ExportType::int8}) {
    const auto file = written(model, type);
    CHECK(file.tensors.size() == state.size());
    for (const auto& name : whisper::weight_names(model->config())) {
      if (name.huggingface.empty()) continue;
      CAPTURE(name.openai);
      REQUIRE(file.tensors.contains(name.openai));
      const auto& tensor = file.tensors.at(name.openai);
      const auto& expected = state.at(name.huggingface);
      const bool is_matrix = expected.dim() > 1 && name.openai.find("positional") == name.openai.npos;
      const int32_t matrix_type = type == ExportType::fp16 || expected.dim() == 3 ? 1 : 8;
      CHECK(tensor.type == (is_matrix ? matrix_type : 0));
      auto shape = expected.sizes().vec();
      if (name.openai.starts_with("encoder.conv") && expected.dim() == 1) shape.push_back(1);
      std::reverse(shape.begin(), shape.end());
      CHECK(tensor.shape == shape);
      const auto values = values_of(tensor), flat = expected.flatten();
      if (tensor.type == 0) CHECK(values.equal(flat));
      if (tensor.type == 1) CHECK(values.equal(flat.to(at::kHalf).to(at::kFloat)));
      if (tensor.type == 8) {
        const auto largest = flat.view({-1, 32}).abs().amax(1, true);
        const auto error = (values - flat).view({-1, 32}).abs();
        CHECK((error <= largest * (0.501 / 127 + 1e-3)).all().item<bool>());  // the scale has 11 bits
      }
    }
  }
}

TEST_CASE("GGML: a block of 8 bits has its scale, and halves are rounded away from zero") {
  auto values = torch::zeros({2, 32});
  values[0][0] = -127, values[0][1] = 2.5, values[0][2] = -2.5, values[0][31] = 0.4;
  const auto blocks = whisper::q8_blocks(values);
  REQUIRE(blocks.sizes() == at::IntArrayRef({2, 34}));
  CHECK(blocks.slice(1, 0, 2).contiguous().view(at::kHalf).flatten().equal(
      torch::tensor({1.0, 0.0}, at::kHalf)));
  const auto numbers = blocks.slice(1, 2).contiguous().view(at::kChar);
  CHECK(numbers[0].slice(0, 0, 3).equal(torch::tensor({-127, 3, -3}, at::kChar)));
  CHECK(numbers.slice(1, 3).count_nonzero().item<int64_t>() == 0);
}

TEST_CASE("GGML: what the format cannot hold is refused, and the old file stays") {
  auto model = small_model();
  const TemporaryFolder folder;
  looptorch::write_file_atomically(folder / "m.bin", "old");
  const auto refuses = [&](const looptorch::TensorMap& weights, const Json& tokenizer,
                           const std::string& message) {
    const auto save = [&] {
      whisper::save_ggml(folder / "m.bin", model->config(), weights, tokenizer, ExportType::int8);
    };
    CHECK_THROWS_AS(save(), whisper::GgmlError);
    CHECK_THROWS_WITH(save(), Contains(message));
    CHECK(looptorch::read_file(folder / "m.bin") == "old");
    CHECK(folder.entries() == 1);
  };
  const auto weights = looptorch::state_dict(model);
  auto others = weights;
  others["model.decoder.layer_norm.bias"] = torch::zeros({3});
  refuses(others, small_tokenizer(), "\"model.decoder.layer_norm.bias\" has shape [3] instead of [32]");
  others.erase("model.decoder.layer_norm.bias");
  refuses(others, small_tokenizer(), "lack \"model.decoder.layer_norm.bias\"");
  refuses(weights, Json::parse(R"({"model": {"vocab": {"!": 0, "a": 2}}})"),
          "has 2 tokens before the end of text, 3");
  CHECK_THROWS_WITH(written(model, ExportType::fp32), Contains("write 16 bits or 8"));
  others = weights;
  others["model.decoder.layers.0.fc1.weight"] = weights.at("model.decoder.layers.0.fc1.weight") + 1e5;
  CHECK_THROWS_WITH(
      whisper::save_ggml(folder / "m.bin", model->config(), others, small_tokenizer(), ExportType::fp16),
      Contains("\"decoder.blocks.0.mlp.0.weight\" has a value that Half cannot hold"));
  CHECK(looptorch::read_file(folder / "m.bin") == "old");
  model = whisper_test::tiny_model();
  refuses(looptorch::state_dict(model), Json::parse(R"({"model": {"vocab": {}}})"),
          "cannot have 8 bits: its rows are not multiples of 32");
}
