// SPDX-License-Identifier: MIT
// Reads training samples from a .jsonl file, one JSON object a line. Each column of the samples (columns.hpp)
// is a field of the objects.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include "check_fits.hpp"
#include "file_tensor.hpp"
#include "json_tensor.hpp"
#include "source.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace finetune_exported {

namespace fs = std::filesystem;

/// Samples in lines of JSON. A field is a number, a (nested) list of numbers, or the path of a file relative
/// to the .jsonl: a NumPy array (.npy), or else a sound.
class JsonLines final : public Source {
 public:
  /// Checks every line, and that the files exist. Throws DataError.
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
  [[nodiscard]] bool has_sounds() const override { return has_sounds_; }

 private:
  struct Line {
    std::string text;
    std::int64_t number;
  };

  [[nodiscard]] std::string place(const Line& line) const {
    return lt::message(path_.string(), ":", line.number);
  }
  [[nodiscard]] fs::path beside(const std::string& name) const { return path_.parent_path() / name; }

  [[nodiscard]] lt::Json parsed(const Line& line) const try {
    return lt::Json::parse(line.text);
  } catch (const lt::JsonError& error) {
    throw DataError(place(line) + ": " + error.what());
  }

  void check(const Line& line, const std::vector<Column>& columns) {
    const lt::Json fields = parsed(line);
    if (!fields.is_object())
      throw DataError(place(line) + ": is " + fields.kind() + ", and no object of inputs");
    OpenSizes sizes;
    for (const auto& column : columns) {
      if (!fields.contains(column.name))
        throw DataError(place(line) + ": has no field \"" + column.name + '"');
      const lt::Json& value = fields.at(column.name);
      if (value.is_string()) {
        check_file(line, value.as_string(), column);
        has_sounds_ |= !is_array(value.as_string());
        continue;
      }
      const at::Tensor tensor = tensor_of(line, value, column);
      check_fits(place(line), tensor, column, /*padded=*/true);
      sizes.add(place(line), tensor, column);
    }
  }

  void check_file(const Line& line, const std::string& name, const Column& column) const {
    if (column.dtype && !at::isFloatingType(*column.dtype))
      throw DataError(place(line) + ": \"" + column.name +
                      "\" names a file, which has no whole numbers: give a list of them");
    if (!fs::exists(beside(name)))
      throw DataError(place(line) + ": " + beside(name).string() + " is missing");
  }

  [[nodiscard]] at::Tensor tensor_of(const Line& line, const lt::Json& value, const Column& column) const {
    if (value.is_string()) return file_tensor(beside(value.as_string()), sounds_);
    return json_tensor(place(line) + ": \"" + column.name + '"', value, column.dtype);
  }

  fs::path path_;
  SoundOptions sounds_;
  std::vector<Line> lines_;
  bool has_sounds_ = false;
};

}  // namespace finetune_exported
