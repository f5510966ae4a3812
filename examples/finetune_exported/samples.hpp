// SPDX-License-Identifier: MIT
// The dataset of finetune_exported, for PinnedPrefetchLoader. A sample has a tensor for each column
// (columns.hpp); a batch stacks the samples' tensors, and pads shorter ones.
#pragma once

#include <looptorch/data/batch/stack_samples.hpp>

#include "check_fits.hpp"
#include "columns.hpp"
#include "source.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace finetune_exported {

/// The tensors of a sample or a batch, in the order of the columns.
struct Row {
  std::vector<at::Tensor> tensors;

  /// Returns samples [begin, end) of a batch.
  [[nodiscard]] Row slice(std::int64_t begin, std::int64_t end) const {
    Row samples;
    for (const at::Tensor& tensor : tensors) samples.tensors.push_back(tensor.narrow(0, begin, end - begin));
    return samples;
  }
};

/// The dataset for PinnedPrefetchLoader, with its collation: the columns of a source's samples.
class Samples {
 public:
  Samples(std::shared_ptr<const Source> source, std::vector<Column> columns)
      : source_(std::move(source)), columns_(std::move(columns)) {}

  [[nodiscard]] std::int64_t size() const { return source_->size(); }
  [[nodiscard]] Row get(std::int64_t index) const {
    Row row;
    for (const auto& column : columns_) row.tensors.push_back(source_->get(index, column));
    return row;
  }
  /// Returns where a sample comes from, for the loader's messages about skipped samples.
  [[nodiscard]] std::string path(std::int64_t index) const { return source_->place(index); }
  [[nodiscard]] std::string fingerprint(std::int64_t index) const { return source_->fingerprint(index); }

  /// Stacks each column. Pads dimensions of different sizes to the longest, or to the model's fixed size.
  /// Throws DataError for samples with different numbers of dimensions.
  [[nodiscard]] Row collate(std::span<Row> rows) const {
    Row batch;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      std::vector<at::Tensor> column;
      for (auto& row : rows) column.push_back(std::move(row.tensors[c]));
      pad(column, columns_[c]);
      batch.tensors.push_back(lt::StackTensors{}(column));
    }
    return batch;
  }

 private:
  static void pad(std::vector<at::Tensor>& tensors, const Column& column) {
    std::vector<std::int64_t> sizes = tensors.front().sizes().vec();
    for (const auto& tensor : tensors) {
      if (tensor.dim() != std::ssize(sizes))
        throw DataError("samples of a batch have \"" + column.name + "\" of different dimensions");
      for (std::size_t d = 0; d < sizes.size(); ++d)
        sizes[d] = std::max(sizes[d], tensor.size(static_cast<std::int64_t>(d)));
    }
    for (std::size_t d = 0; column.dims && d < sizes.size(); ++d)
      sizes[d] = (*column.dims)[d].size.value_or(sizes[d]);
    for (auto& tensor : tensors) {
      if (tensor.sizes() == sizes) continue;
      std::vector<std::int64_t> behind;
      for (auto d = sizes.size(); d-- > 0;)
        behind.insert(behind.end(), {0, sizes[d] - tensor.size(static_cast<std::int64_t>(d))});
      tensor = at::constant_pad_nd(tensor, behind, column.padding);
    }
  }

  std::shared_ptr<const Source> source_;
  std::vector<Column> columns_;
};

}  // namespace finetune_exported
