// SPDX-License-Identifier: MIT
// Reads training samples from safetensors files. For each column of the samples (columns.hpp), a file has a
// tensor of the same name, with one row per sample.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/files_at.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "check_fits.hpp"
#include "source.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace finetune_exported {

namespace fs = std::filesystem;

/// A safetensors file, or all such files of a folder, in the order of their names.
class TensorFiles final : public Source {
 public:
  /// Throws DataError for a folder without such a file, and for a file without the columns or with different
  /// numbers of samples in them. Throws what load_safetensors throws.
  TensorFiles(const fs::path& path, const std::vector<Column>& columns) {
    for (const auto& file : lt::files_at<DataError>(path, ".safetensors")) add(file, columns);
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
    OpenSizes sizes;
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
      sizes.add(file.string(), tensor[0], column);
    }
    shards_.push_back(std::move(shard));
  }
  static std::string names_of(const lt::TensorMap& tensors) {
    std::string names;
    for (const auto& [name, tensor] : tensors) names += (names.empty() ? "" : ", ") + name;
    return names.empty() ? "none" : names;
  }
  [[nodiscard]] const Shard& shard_of(std::int64_t index) const {
    return *std::ranges::upper_bound(shards_, index, {}, &Shard::end);
  }

  std::vector<Shard> shards_;
};

}  // namespace finetune_exported
