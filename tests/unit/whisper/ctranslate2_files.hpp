// SPDX-License-Identifier: MIT
// CTranslate2's format, written byte by byte, and a small Whisper in it.
#pragma once

#include <looptorch/state/weights/safetensors.hpp>

#include <ATen/ATen.h>

#include <whisper/formats/ctranslate2.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace whisper_test {

/// Writes the format, sound or not.
class CTranslate2Writer {
 public:
  template <class T>
  CTranslate2Writer& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }

  CTranslate2Writer& text(const std::string& value) {
    number(static_cast<std::uint16_t>(value.size() + 1));
    bytes_.append(value.c_str(), value.size() + 1);
    return *this;
  }

  CTranslate2Writer& raw(const std::string& value) {
    bytes_ += value;
    return *this;
  }

  CTranslate2Writer& head(std::uint32_t variables, const std::string& spec = "WhisperSpec") {
    return number(std::uint32_t{6}).text(spec).number(std::uint32_t{3}).number(variables);
  }

  CTranslate2Writer& variable(const std::string& name, const std::vector<std::uint32_t>& shape,
                              std::uint8_t type, const std::string& data) {
    text(name).number(static_cast<std::uint8_t>(shape.size()));
    for (const auto dim : shape) number(dim);
    return number(type).number(static_cast<std::uint32_t>(data.size())).raw(data);
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// All variables of a Whisper with one layer a side, width 8, 2 heads.
inline whisper::CTranslate2Model small_ctranslate2_model() {
  torch::manual_seed(1);
  whisper::CTranslate2Model model{"WhisperSpec", 3, {}};
  auto& variables = model.variables;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    variables[name] = torch::randn(shape).to(at::kHalf);
  };
  const auto linear = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    add(name + "/weight", {outputs, inputs}), add(name + "/bias", {outputs});
  };
  const auto norm = [&](const std::string& name) { add(name + "/gamma", {8}), add(name + "/beta", {8}); };
  for (const std::string side : {"encoder", "decoder"}) {
    const auto layer = side + "/layer_0/";
    linear(layer + "self_attention/linear_0", 24, 8), linear(layer + "self_attention/linear_1", 8, 8);
    variables[layer + "self_attention/linear_0/bias"].slice(0, 8, 16).zero_();
    linear(layer + "ffn/linear_0", 32, 8), linear(layer + "ffn/linear_1", 8, 32);
    norm(layer + "self_attention/layer_norm"), norm(layer + "ffn/layer_norm"), norm(side + "/layer_norm");
    add(side + "/position_encodings/encodings", {side == "encoder" ? 20 : 10, 8});
    variables[side + "/num_heads"] = torch::tensor(2, at::kShort);
  }
  linear("decoder/layer_0/attention/linear_0", 8, 8), linear("decoder/layer_0/attention/linear_1", 16, 8);
  variables["decoder/layer_0/attention/linear_1/bias"].slice(0, 0, 8).zero_();
  linear("decoder/layer_0/attention/linear_2", 8, 8), norm("decoder/layer_0/attention/layer_norm");
  add("encoder/conv1/weight", {8, 4, 3}), add("encoder/conv1/bias", {8});
  add("encoder/conv2/weight", {8, 8, 3}), add("encoder/conv2/bias", {8});
  add("decoder/embeddings/weight", {30, 8});
  variables["decoder/projection/weight"] = variables["decoder/embeddings/weight"];
  variables["decoder/pre_norm"] = torch::tensor(1, at::kChar);
  return model;
}

/// The bytes of a model.bin; `alias`, if the model has it, is written as one of the embedding.
inline std::string write_ctranslate2(const whisper::CTranslate2Model& model) {
  const std::string alias = "decoder/projection/weight";
  const bool has_alias = model.variables.contains(alias);
  CTranslate2Writer writer;
  writer.head(static_cast<std::uint32_t>(model.variables.size() - has_alias), model.spec);
  for (const auto& [name, tensor] : model.variables) {
    if (name == alias) continue;
    const auto& types = whisper::detail::kCTranslate2Types;
    const auto type = std::find(types.begin(), types.end(), tensor.scalar_type()) - types.begin();
    const auto values = tensor.contiguous();
    writer.variable(name, {tensor.sizes().begin(), tensor.sizes().end()}, static_cast<std::uint8_t>(type),
                    {static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
  }
  writer.number(std::uint32_t{has_alias});
  if (has_alias) writer.text(alias).text("decoder/embeddings/weight");
  return writer.bytes();
}

}  // namespace whisper_test
