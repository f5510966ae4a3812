// SPDX-License-Identifier: MIT
// Reads samples. A column is an input of the model, or the labels. In safetensors files a column is one
// tensor with one row per sample; in JSON Lines it is one field of every line.
#pragma once

#include <looptorch/audio/decode.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/npy.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "columns.hpp"

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace finetune_exported {

namespace fs = std::filesystem;

/// How fields of JSON that name sounds are read.
struct SoundOptions {
  std::int64_t sample_rate = 16000;
  bool normalize = true;  ///< to mean 0 and variance 1, as transformers' feature extractor does
};

/// Samples by their number. Safe to read from several threads.
class Source {
 public:
  virtual ~Source() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual at::Tensor get(std::int64_t index, const Column& column) const = 0;
  /// Returns "FILE" or "FILE:LINE".
  [[nodiscard]] virtual std::string place(std::int64_t index) const = 0;
  /// Returns a text that identifies the content.
  [[nodiscard]] virtual std::string fingerprint(std::int64_t index) const = 0;
};

/// A safetensors file, or all of a folder in the order of their names.
class TensorFiles final : public Source {
 public:
  TensorFiles(const fs::path& path, const std::vector<Column>& columns) {
    std::vector<fs::path> files{path};
    if (fs::is_directory(path)) {
      files.clear();
      for (const auto& entry : fs::directory_iterator(path))
        if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
      std::ranges::sort(files);
      if (files.empty()) throw DataError(path.string() + ": holds no .safetensors file");
    }
    for (const auto& file : files) add(file, columns);
  }

  [[nodiscard]] std::int64_t size() const override { return shards_.back().end; }
  [[nodiscard]] at::Tensor get(std::int64_t index, const Column& column) const override {
    const auto& shard = shard_of(index);
    const at::Tensor row = shard.tensors.at(column.name).select(0, index - shard.begin);
    return column.dtype ? row.to(*column.dtype) : row;
  }
  [[nodiscard]] std::string place(std::int64_t index) const override { return shard_of(index).name; }
  [[nodiscard]] std::string fingerprint(std::int64_t index) const override {
    const auto& shard = shard_of(index);
    return shard.name + ":" + std::to_string(index - shard.begin) + ":" + std::to_string(shard.bytes);
  }

 private:
  struct Shard {
    std::string name;
    lt::TensorMap tensors;
    std::int64_t begin, end;
    std::uintmax_t bytes;
  };

  void add(const fs::path& file, const std::vector<Column>& columns) {
    const std::int64_t begin = shards_.empty() ? 0 : size();
    Shard shard{file.filename().string(), lt::load_safetensors(file).tensors, begin, -1, fs::file_size(file)};
    for (const auto& column : columns) {
      const auto found = shard.tensors.find(column.name);
      if (found == shard.tensors.end())
        throw DataError(file.string() + ": has no tensor \"" + column.name + "\"; it has " +
                        names_of(shard.tensors));
      const at::Tensor& tensor = found->second;
      if (tensor.dim() == 0 || tensor.size(0) == 0)
        throw DataError(file.string() + ": \"" + column.name + "\" has no samples");
      if (shard.end >= 0 && begin + tensor.size(0) != shard.end)
        throw DataError(lt::message(file.string(), ": \"", column.name, "\" has ", tensor.size(0),
                                    " samples, and \"", columns.front().name, "\" ", shard.end - begin));
      shard.end = begin + tensor.size(0);
      check_fits(file.string(), tensor[0], column, /*padded=*/false);
    }
    shards_.push_back(std::move(shard));
  }
  static std::string names_of(const lt::TensorMap& tensors) {
    std::string names;
    for (const auto& [name, tensor] : tensors) names += (names.empty() ? "" : ", ") + name;
    return names.empty() ? "none" : names;
  }
  [[nodiscard]] const Shard& shard_of(std::int64_t index) const {
    return *std::ranges::find_if(shards_, [index](const Shard& shard) { return index < shard.end; });
  }

  std::vector<Shard> shards_;
};

/// Lines of JSON. A field is a number, a (nested) list of numbers, or a file beside the lines: a NumPy array
/// (.npy), or else a sound.
class JsonLines final : public Source {
 public:
  JsonLines(fs::path path, const std::vector<Column>& columns, const SoundOptions& sounds)
      : path_(std::move(path)), sounds_(sounds) {
    std::ifstream file(path_);
    if (!file) throw DataError(path_.string() + ": cannot be read");
    std::int64_t number = 0;
    for (std::string line; std::getline(file, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      lines_.push_back({line, number + 1});
      check(lines_.back(), columns);
    }
    if (lines_.empty()) throw DataError(path_.string() + ": has no samples");
  }

  [[nodiscard]] std::int64_t size() const override { return std::ssize(lines_); }
  [[nodiscard]] at::Tensor get(std::int64_t index, const Column& column) const override {
    const Line& line = lines_[static_cast<std::size_t>(index)];
    const at::Tensor tensor = tensor_of(line, parsed(line).at(column.name), column);
    check_fits(place(line), tensor, column, /*padded=*/true);
    return column.dtype ? tensor.to(*column.dtype) : tensor;
  }
  [[nodiscard]] std::string place(std::int64_t index) const override {
    return place(lines_[static_cast<std::size_t>(index)]);
  }
  [[nodiscard]] std::string fingerprint(std::int64_t index) const override {
    return lines_[static_cast<std::size_t>(index)].text;
  }

 private:
  struct Line {
    std::string text;
    std::int64_t number;
  };

  [[nodiscard]] std::string place(const Line& line) const {
    return lt::message(path_.string(), ":", line.number);
  }

  [[nodiscard]] lt::Json parsed(const Line& line) const try {
    return lt::Json::parse(line.text);
  } catch (const lt::JsonError& error) {
    throw DataError(place(line) + ": " + error.what());
  }

  void check(const Line& line, const std::vector<Column>& columns) const {
    const lt::Json fields = parsed(line);
    if (!fields.is_object())
      throw DataError(place(line) + ": is " + fields.kind() + ", and no object of inputs");
    for (const auto& column : columns) {
      if (!fields.contains(column.name))
        throw DataError(place(line) + ": has no field \"" + column.name + '"');
      const lt::Json& value = fields.at(column.name);
      if (!value.is_string())
        check_fits(place(line), tensor_of(line, value, column), column, /*padded=*/true);
      else if (column.dtype && !at::isFloatingType(*column.dtype))
        throw DataError(place(line) + ": \"" + column.name +
                        "\" names a file, which has no whole numbers: give a list of them");
      else if (const auto file = path_.parent_path() / value.as_string(); !fs::exists(file))
        throw DataError(place(line) + ": " + file.string() + " is missing");
    }
  }

  [[nodiscard]] at::Tensor tensor_of(const Line& line, const lt::Json& value, const Column& column) const {
    if (value.is_string()) return tensor_of_file(path_.parent_path() / value.as_string());
    std::vector<std::int64_t> sizes;
    std::vector<double> numbers;
    bool whole = true;
    flatten(line, value, column.name, 0, sizes, numbers, whole);
    const at::Tensor tensor = torch::tensor(numbers, torch::kDouble).reshape(sizes);
    const bool is_float =
        !whole || (column.dtype && at::isFloatingType(*column.dtype));  // 1 is a number, too
    return tensor.to(is_float ? torch::kFloat : torch::kLong);
  }

  void flatten(const Line& line, const lt::Json& value, const std::string& name, std::size_t depth,
               std::vector<std::int64_t>& sizes, std::vector<double>& numbers, bool& whole) const {
    if (value.is_array()) {
      const auto& items = value.as_array();
      if (depth == sizes.size() && numbers.empty()) sizes.push_back(std::ssize(items));
      if (depth >= sizes.size() || sizes[depth] != std::ssize(items))
        throw DataError(place(line) + ": \"" + name + "\" has lists of different lengths");
      for (const auto& item : items) flatten(line, item, name, depth + 1, sizes, numbers, whole);
    } else if (value.is_number() && depth == sizes.size()) {
      whole = whole && value.is_int();
      numbers.push_back(value.as_number());
    } else {
      throw DataError(place(line) + ": \"" + name + "\" holds " + value.kind() +
                      ", where a number should be");
    }
  }

  [[nodiscard]] at::Tensor tensor_of_file(const fs::path& file) const {
    if (file.extension() == ".npy") return lt::load_npy(file).to(torch::kFloat);
    const at::Tensor samples_T = lt::audio::decode(file, {.sample_rate = sounds_.sample_rate}).samples_T;
    if (!sounds_.normalize) return samples_T;
    constexpr double kEpsilon = 1e-7;  // transformers'
    return (samples_T - samples_T.mean()) / (samples_T.var(/*unbiased=*/false) + kEpsilon).sqrt();
  }

  fs::path path_;
  SoundOptions sounds_;
  std::vector<Line> lines_;
};

/// Opens a .safetensors file, a folder of them, or a .jsonl file. Throws DataError.
inline std::shared_ptr<const Source> open_source(const fs::path& path, const std::vector<Column>& columns,
                                                 const SoundOptions& sounds) {
  if (!fs::exists(path)) throw DataError(path.string() + ": is missing");
  if (path.extension() == ".jsonl") return std::make_shared<JsonLines>(path, columns, sounds);
  if (path.extension() == ".safetensors" || fs::is_directory(path))
    return std::make_shared<TensorFiles>(path, columns);
  throw DataError(path.string() + ": is neither .safetensors, nor a folder of such files, nor .jsonl");
}

}  // namespace finetune_exported
