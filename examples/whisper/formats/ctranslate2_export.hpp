// SPDX-License-Identifier: MIT
// Converts Whisper's weights from Hugging Face's layout to that of CTranslate2, the engine of faster-whisper,
// in fp32, fp16 or int8. The result equals that of CTranslate2's own converter bit for bit.
// ctranslate2_import.hpp converts in the other direction.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "../model/config.hpp"
#include "ctranslate2.hpp"
#include "weight_names.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace whisper {

/// How weights are stored: unchanged, rounded to 16 bits, or matrices in 8 bits with a scale for each row.
enum class ExportType { fp32, fp16, int8 };

/// Returns the values in 16 bits. Throws looptorch::UsageError, which names the tensor, for a value beyond
/// fp16's range.
[[nodiscard]] inline at::Tensor in_fp16(const std::string& name, const at::Tensor& values) {
  looptorch::TensorMap tensors{{name, values}};
  looptorch::convert_floating_point(tensors, at::kHalf);
  return tensors.at(name);
}

/// Converts fp32 weights, named as in transformers. Tensors that need no change share their storage. Throws
/// CTranslate2Error for a weight that is missing or of another shape than `config` says, and what in_fp16
/// throws.
[[nodiscard]] CTranslate2Model to_ctranslate2(const WhisperConfig& config,
                                              const looptorch::TensorMap& weights, ExportType type);

/// Writes a `model.bin`, in one step. Variables that share a tensor are written once, the others as aliases
/// of the first. Throws looptorch::FileError, and CTranslate2Error for what the format cannot hold.
void save_ctranslate2(const std::filesystem::path& path, const CTranslate2Model& model);

/// Returns int8 values, and each row's scale: 127 divided by the row's largest absolute value.
[[nodiscard]] inline std::pair<at::Tensor, at::Tensor> quantised_rows(const at::Tensor& weight) {
  const auto rows = weight.to(at::kFloat).flatten(1);
  auto largest = rows.abs().amax(1);
  largest = at::where(largest == 0, at::scalar_tensor(127.0F), largest);
  // A row of denormals has no finite scale.
  largest = largest.clamp_min(127.0F / std::numeric_limits<float>::max());
  const auto scales = 127.0F / largest;
  return {(rows * scales.unsqueeze(1)).round_().to(at::kChar).view(weight.sizes()), scales};
}

namespace detail {

class CTranslate2Exporter {
 public:
  CTranslate2Exporter(const WhisperConfig& config, const looptorch::TensorMap& weights, ExportType type)
      : config_(config), weights_(weights), type_(type) {}

  [[nodiscard]] CTranslate2Model convert() && {
    const auto names = weight_names(config_);
    for (const auto& rows : by_variable(names)) add(rows.front().ctranslate2, joined(rows));
    out_.variables["decoder/projection/weight"] = out_.variables.at("decoder/embeddings/weight");
    add_settings();
    return std::move(out_);
  }

 private:
  template <class... Parts>
  [[noreturn]] static void fail(const Parts&... parts) {
    throw CTranslate2Error(looptorch::message(parts...));
  }

  [[nodiscard]] at::Tensor weight_of(const WeightName& name) const {
    if (name.huggingface.empty()) return at::zeros(name.shape);
    const auto found = weights_.find(name.huggingface);
    if (found == weights_.end()) fail("the weights lack \"", name.huggingface, "\"");
    if (found->second.sizes() != at::IntArrayRef(name.shape)) {
      fail("the weight \"", name.huggingface, "\" has shape ", found->second.sizes(), " instead of ",
           at::IntArrayRef(name.shape));
    }
    return found->second.detach().cpu().to(at::kFloat);
  }

  [[nodiscard]] at::Tensor joined(std::span<const WeightName> rows) const {
    if (rows.size() == 1) return weight_of(rows.front());
    std::vector<at::Tensor> parts;
    for (const auto& name : rows) parts.push_back(weight_of(name));
    return at::cat(parts);
  }

  /// CTranslate2 quantises what it multiplies by: all weights but those of norms, and no biases or positions.
  void add(const std::string& name, const at::Tensor& values) {
    if (type_ == ExportType::int8 && name.ends_with("/weight")) {
      auto [rows, scales] = quantised_rows(values);
      out_.variables[name] = std::move(rows);
      out_.variables[name + "_scale"] = std::move(scales);
    } else {
      out_.variables[name] = type_ == ExportType::fp16 ? in_fp16(name, values) : values.to(at::kFloat);
    }
  }

  void add_settings() {
    const auto add_number = [this](const std::string& name, std::int64_t value, at::ScalarType type) {
      out_.variables[name] = at::scalar_tensor(value, type);
    };
    add_number("encoder/num_heads", config_.encoder_attention_heads, at::kShort);
    add_number("decoder/num_heads", config_.decoder_attention_heads, at::kShort);
    constexpr std::array kSettings{std::pair{"pre_norm", 1},
                                   std::pair{"activation", 3 /* GELU */},
                                   std::pair{"alibi", 0},
                                   std::pair{"alibi_use_positive_positions", 0},
                                   std::pair{"scale_alibi", 0},
                                   std::pair{"scale_embeddings", 0},
                                   std::pair{"start_from_zero_embedding", 0}};
    for (const auto& [name, value] : kSettings) add_number(std::string("decoder/") + name, value, at::kChar);
    add_number("decoder/alignment_heads", 1, at::kShort);
    add_number("decoder/alignment_layer", -1, at::kShort);
  }

  const WhisperConfig& config_;
  const looptorch::TensorMap& weights_;
  ExportType type_;
  CTranslate2Model out_{"WhisperSpec", 3, {}};
};

/// Writes the format's numbers and strings.
class CTranslate2Writer {
 public:
  explicit CTranslate2Writer(const std::filesystem::path& path) : path_(path), file_(path) {}

  void write(const CTranslate2Model& model) {
    const auto aliases = find_aliases(model.variables);
    put(kCTranslate2Version);
    put(model.spec);
    put(model.revision);
    put(static_cast<std::uint32_t>(model.variables.size() - aliases.size()));
    for (const auto& [name, tensor] : model.variables) {
      if (!aliases.contains(name)) put_variable(name, tensor);
    }
    put(static_cast<std::uint32_t>(aliases.size()));
    for (const auto& [alias, name] : aliases) put(alias), put(name);
    file_.commit();
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw CTranslate2Error(looptorch::message(path_.string(), ": ", parts...));
  }

  template <class T>
  requires std::is_arithmetic_v<T>
  void put(T number) { file_.write(&number, sizeof(T)); }

  void put(const std::string& text) {
    if (text.size() >= std::numeric_limits<std::uint16_t>::max() || text.find('\0') != text.npos)
      fail("the name \"", text, "\" cannot be written");
    put(static_cast<std::uint16_t>(text.size() + 1));
    file_.write(text.c_str(), text.size() + 1);
  }

  void put_variable(const std::string& name, const at::Tensor& tensor) {
    const auto type = std::find(kCTranslate2Types.begin(), kCTranslate2Types.end(), tensor.scalar_type());
    if (type == kCTranslate2Types.end())
      fail("variable \"", name, "\" has the type ", tensor.scalar_type(), ", which the format lacks");
    const auto values = tensor.detach().cpu().contiguous();
    if (values.nbytes() > std::numeric_limits<std::uint32_t>::max())
      fail("variable \"", name, "\" of ", values.nbytes(), " bytes is too large for the format");
    put(name);
    put(static_cast<std::uint8_t>(values.dim()));
    for (const auto size : values.sizes()) put(static_cast<std::uint32_t>(size));
    put(static_cast<std::uint8_t>(type - kCTranslate2Types.begin()));
    put(static_cast<std::uint32_t>(values.nbytes()));
    file_.write(values.const_data_ptr(), values.nbytes());
  }

  /// Returns the aliases: by each further name of a shared tensor, its first name.
  static std::map<std::string, std::string> find_aliases(const looptorch::TensorMap& variables) {
    std::map<std::string, std::string> aliases;
    std::map<const void*, std::string> firsts;
    for (const auto& [name, tensor] : variables) {
      if (tensor.dim() == 0) continue;
      const auto [first, is_new] = firsts.emplace(tensor.const_data_ptr(), name);
      if (!is_new && variables.at(first->second).sizes() == tensor.sizes())
        aliases.emplace(name, first->second);
    }
    return aliases;
  }

  std::filesystem::path path_;
  looptorch::AtomicFile file_;
};

}  // namespace detail

inline CTranslate2Model to_ctranslate2(const WhisperConfig& config, const looptorch::TensorMap& weights,
                                       ExportType type) {
  return detail::CTranslate2Exporter(config, weights, type).convert();
}

inline void save_ctranslate2(const std::filesystem::path& path, const CTranslate2Model& model) {
  detail::CTranslate2Writer(path).write(model);
}

}  // namespace whisper
