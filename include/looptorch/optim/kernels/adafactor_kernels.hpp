// SPDX-License-Identifier: MIT
// Launches Adafactor's step as five kernels for hundreds of parameters, in fp32, bf16 or fp16. The kernels
// compute sums of squared gradients, moments, the size of the update, rates, and weights. Sums are added up
// in fp64 over tiles of 128 x 1024. The workspace of the five launches is limited to 1/128 of the weights'
// bytes or to 1 MiB, whichever is more. A parameter that needs more by itself, as a convolution or a large
// matrix may, has launches of its own, and gets it.
#pragma once

#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/base/device/kernel_source.hpp>
#include <looptorch/optim/kernels/adafactor_code.hpp>
#include <looptorch/optim/kernels/adafactor_update_code.hpp>
#include <looptorch/optim/kernels/block_code.hpp>
#include <looptorch/optim/kernels/kernel_table.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

template <class Options, class Call>
[[nodiscard]] AdafactorHeader adafactor_header(const Options& options, const Call& call) {
  return {.lr = options.lr,
          .least_square = options.eps[0],
          .least_size = options.eps[1],
          .clip = options.clip_threshold,
          .decay = options.decay,
          .beta1 = options.beta1,
          .weight_decay = options.weight_decay,
          .rate = rate_or_null(call.rate),
          .divisor = number_or_null(call.factors.divisor),
          .found_inf = number_or_null(call.factors.found_inf),
          .relative = options.relative_step,
          .scaled = options.scale_parameter};
}

/// One parameter's tensors, contiguous; `rows` is undefined for fewer than two dimensions, `first` without
/// beta1.
struct AdafactorTensors {
  at::Tensor weights, gradients, rows, columns, first, step;
};

/// One parameter as the kernels see it, and how much workspace it needs.
struct AdafactorParameter : AdafactorEntry {
  /// Takes a parameter that has elements. `part_elements` is the size of the CPU's parts.
  AdafactorParameter(const AdafactorTensors& tensors, std::int64_t part_elements) {
    weights = memory_or_null(tensors.weights);
    gradients = tensors.gradients.const_data_ptr();
    rows = static_cast<float*>(memory_or_null(tensors.rows));
    columns = static_cast<float*>(memory_or_null(tensors.columns));
    first = static_cast<float*>(memory_or_null(tensors.first));
    step = tensors.step.const_data_ptr<float>();
    const std::int64_t size = tensors.weights.numel();
    width = rows ? tensors.weights.size(-1) : size;
    height = rows ? tensors.weights.size(-2) : 1;
    matrices = size / (width * height);
    // A part is cut from the matrices, or from the rows of one.
    const std::int64_t count = matrices > 1 ? matrices : rows ? height : width;
    part_begin = std::max<std::int64_t>(1, part_elements * count / size);
    part = part_begin * (size / count);
    cut_in_tiles();
    aligned = are_aligned({weights, gradients, first}) && width % 4 == 0 && part % 4 == 0;
  }

  [[nodiscard]] std::int64_t tiles() const { return matrices * row_tiles * strips; }
  [[nodiscard]] std::int64_t moment_blocks() const { return rows ? matrices * (1 + (width + 63) / 64) : 0; }
  /// Returns how many fp32 numbers of workspace the parameter needs.
  [[nodiscard]] std::int64_t floats() const {
    return 2 + (rows ? matrices * (strips * height + row_tiles * width + 1) : 0);
  }
  [[nodiscard]] std::int64_t workspace_bytes() const { return 16 * tiles() + 4 * floats(); }

  /// Takes its workspace from the beginning of two lists.
  void take_workspace(double*& doubles, float*& singles) {
    sums = std::exchange(doubles, doubles + tiles() * 2);
    rates = std::exchange(singles, singles + 2);
    if (!rows) return;
    row_partials = std::exchange(singles, singles + matrices * strips * height);
    column_partials = std::exchange(singles, singles + matrices * row_tiles * width);
    means = std::exchange(singles, singles + matrices);
  }

 private:
  void cut_in_tiles() {
    constexpr std::int64_t kColumns = 1024, kRows = 128;
    const std::int64_t across = (width + kColumns - 1) / kColumns;
    strips = static_cast<std::uint32_t>(across);
    strip_width = static_cast<std::uint32_t>(((width + across - 1) / across + 3) / 4 * 4);
    row_tiles = static_cast<std::uint32_t>((height + kRows - 1) / kRows);
  }
};

using AdafactorTable = KernelTable<AdafactorHeader, AdafactorEntry, 2>;

inline constexpr KernelSource kAdafactorSource{
    "Adafactor",
    {kBlockCode, kAdafactorStructs, kAdafactorSumsCode, kAdafactorUpdateCode},
    AdafactorTable::kHeaderBytes,
    AdafactorTable::kEntryBytes};

/// Updates parameters of one device and dtype, which are added one by one. Launches when a table is full,
/// when the next parameter's workspace would go beyond a limit, and by `flush`.
class AdafactorLauncher {
 public:
  /// `weight_bytes` is the size of all parameters.
  AdafactorLauncher(c10::Device device, at::ScalarType type, const ReadyKernels& ready,
                    const AdafactorHeader& header, std::int64_t weight_bytes)
      : device_(device),
        type_(type),
        runner_(*ready.runner),
        table_(header, ready.table_bytes),
        capacity_(kAdafactorSource.tensors_in(ready.table_bytes)),
        workspace_limit_(std::max(kLeastWorkspace, weight_bytes / 128)) {}

  void add(const AdafactorTensors& tensors, std::int64_t part_elements) {
    if (tensors.weights.numel() == 0) return;
    const AdafactorParameter parameter(tensors, part_elements);
    if (workspace_bytes_ + parameter.workspace_bytes() > workspace_limit_) flush();
    parameters_.push_back(parameter);
    workspace_bytes_ += parameter.workspace_bytes();
    if (parameters_.size() == capacity_) flush();
  }

  void flush() {
    if (parameters_.empty()) return;
    const at::Tensor workspace = fill_table();
    launch(kernel_name("adafactor_squares", type_), tiles_);
    launch("adafactor_moments", moment_blocks_);
    launch(kernel_name("adafactor_sizes", type_), tiles_);
    launch("adafactor_rates", table_.count());
    launch(kernel_name("adafactor_weights", type_), tiles_);
    parameters_.clear();
    workspace_bytes_ = 0;
  }

 private:
  static constexpr std::int64_t kLeastWorkspace = std::int64_t{1} << 20;

  /// Returns the workspace, which the allocator keeps for this stream's next use once it is freed.
  at::Tensor fill_table() {
    std::int64_t tiles = 0, floats = 0;
    for (const AdafactorParameter& parameter : parameters_)
      tiles += parameter.tiles(), floats += parameter.floats();
    const at::Tensor workspace =
        at::empty({tiles * 2 + (floats + 1) / 2}, at::TensorOptions(device_).dtype(at::kDouble));
    auto* doubles = static_cast<double*>(workspace.mutable_data_ptr());
    auto* singles = reinterpret_cast<float*>(doubles + tiles * 2);
    table_.clear();
    tiles_ = moment_blocks_ = 0;
    for (AdafactorParameter& parameter : parameters_) {
      parameter.take_workspace(doubles, singles);
      table_.add(parameter, {tiles_, moment_blocks_});
      tiles_ += static_cast<std::uint32_t>(parameter.tiles());
      moment_blocks_ += static_cast<std::uint32_t>(parameter.moment_blocks());
    }
    return workspace;
  }

  void launch(const std::string& kernel, std::uint32_t blocks) {
    if (blocks > 0) runner_.launch(kAdafactorSource, kernel.c_str(), device_, blocks, table_.data());
  }

  c10::Device device_;
  at::ScalarType type_;
  KernelRunner& runner_;
  AdafactorTable table_;
  std::size_t capacity_;
  std::int64_t workspace_limit_, workspace_bytes_ = 0;
  std::vector<AdafactorParameter> parameters_;
  std::uint32_t tiles_ = 0, moment_blocks_ = 0;
};

}  // namespace looptorch::detail
