// SPDX-License-Identifier: MIT
// Holds the code that the CUDA kernels of AdamW8bit and AdamWBf16 share: the table of their arguments,
// AdamW's arithmetic, and the launch for a list of parameters. Each optimizer adds the code that updates a
// block of 256 elements.
#pragma once

#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/base/device/kernel_source.hpp>
#include <looptorch/optim/kernels/kernel_table.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

namespace looptorch::detail {

// clang-format off
LOOPTORCH_DETAIL_KERNEL_STRUCTS(kAdamWStructs,

/// AdamW's hyper-parameters, and the rate, factor and flag of a step on the device.
struct AdamWHeader {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  const double* rate = nullptr;      ///< In place of `lr`; null: `lr`.
  const float* divisor = nullptr;    ///< Of gradients; null: 1.
  const float* found_inf = nullptr;  ///< Not 0: the launch changes nothing; null: 0.
  const float* steps[8] = {};        ///< Steps so far, this one included. Most parameters share one count.
  u32 count = 0;                     ///< The number of parameters.
  u32 padding = 0;                   ///< To a multiple of 8 bytes.
};

/// One parameter.
struct AdamWEntry {
  void* weights;
  const void* gradients;
  void* first;         ///< First moments, or their codes.
  void* second;        ///< Second moments, or the codes of their roots.
  void* first_scales;   ///< Scales of the codes; null for moments in fp32.
  void* second_scales;  ///< Scales of the second codes.
  void* lost;          ///< Bits that bf16 weights lack; null: none are kept.
  u64 size;            ///< Elements.
  u32 step;            ///< Index into `steps`.
  u32 aligned;         ///< 1: all pointers are multiples of 16.
};
)
// clang-format on

/// `Numbers` are those of optim/narrow/adam_numbers.hpp, computed by one thread of a thread block.
inline constexpr const char* kAdamWCode = R"cuda(
typedef AdamWEntry Entry;

struct Table : AdamWHeader {
  u32 begins[LT_TENSORS];
  Entry entries[LT_TENSORS];
};

LT_INLINE bool overflowed(const Table& table) { return table.found_inf && *table.found_inf != 0.0f; }
LT_INLINE double rate_of(const Table& table) { return table.rate ? *table.rate : table.lr; }
LT_INLINE float step_of(const Table& table, const Entry& entry) { return *table.steps[entry.step]; }

struct Numbers {
  float gradient_factor, first_share, second_kept, second_share, weight_kept, rate, root_factor, eps;

  // As in adam_numbers.hpp: the sign bit of the share tells which form it is.
  LT_INLINE float first(float before, float gradient) const {
    return (bits_of(first_share) & kSignBit ? gradient : before) + (gradient - before) * first_share;
  }
  LT_INLINE float second(float before, float gradient) const {
    return before * second_kept + gradient * gradient * second_share;
  }
  LT_INLINE float weight(float before, float mean, float root) const {
    return before * weight_kept - rate * mean / (root * root_factor + eps);
  }
};

LT_INLINE Numbers numbers_of(const Table& table, double step) {
  const double lr = rate_of(table);
  Numbers numbers;
  numbers.gradient_factor = table.divisor ? (float)(1.0 / (double)*table.divisor) : 1.0f;
  const float share = (float)(1.0 - table.beta1);
  numbers.first_share = share < 0.5f ? share : number_of(bits_of(1.0f - share) | kSignBit);
  numbers.second_kept = (float)table.beta2;
  numbers.second_share = (float)(1.0 - table.beta2);
  numbers.weight_kept = (float)(1.0 - lr * table.weight_decay);
  numbers.rate = (float)(lr / (1.0 - pow(table.beta1, step)));
  numbers.root_factor = (float)(1.0 / sqrt(1.0 - pow(table.beta2, step)));
  numbers.eps = (float)table.eps;
  return numbers;
}

// Calls `update(entry, step, numbers, lane, thread_block)` for the parameter of this thread block, unless gradients
// have overflowed.
template <class Update>
LT_INLINE void update_parameter(const Table& table, const Update& update) {
  __shared__ Numbers numbers;
  if (overflowed(table)) return;
  const u32 index = tensor_of(table.begins, table.count, blockIdx.x);
  const Entry& entry = table.entries[index];
  const float step = step_of(table, entry);
  if (threadIdx.x == 0) numbers = numbers_of(table, (double)step);
  __syncthreads();
  update(entry, step, numbers, threadIdx.x % kWarp, blockIdx.x - table.begins[index]);
}
)cuda";

template <class Options, class Call>
[[nodiscard]] AdamWHeader adamw_header(const Options& options, const Call& call) {
  return {.lr = options.lr,
          .beta1 = options.betas[0],
          .beta2 = options.betas[1],
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .rate = rate_or_null(call.rate),
          .divisor = number_or_null(call.factors.divisor),
          .found_inf = number_or_null(call.factors.found_inf)};
}

using AdamWTable = KernelTable<AdamWHeader, AdamWEntry, 1>;

/// One parameter's tensors; undefined where the rule has none.
struct AdamWTensors {
  const at::Tensor &weights, &gradients, &first, &second, &first_scales, &second_scales, &lost, &step;
};

/// Launches a kernel for parameters that are added one by one, each time its table is full, and by `flush`.
class AdamWLauncher {
 public:
  /// Takes one of the parameters; all of them have its device and dtype.
  AdamWLauncher(const KernelSource& source, const char* kernel, const at::Tensor& one,
                const ReadyKernels& ready, const AdamWHeader& header)
      : source_(source),
        kernel_(kernel_name(kernel, one.scalar_type())),
        device_(one.device()),
        runner_(*ready.runner),
        table_(header, ready.table_bytes) {}

  void add(const AdamWTensors& tensors) {
    const auto size = static_cast<std::uint64_t>(tensors.weights.numel());
    if (size == 0) return;
    AdamWEntry entry{.weights = memory_or_null(tensors.weights),
                     .gradients = tensors.gradients.const_data_ptr(),
                     .first = memory_or_null(tensors.first),
                     .second = memory_or_null(tensors.second),
                     .first_scales = memory_or_null(tensors.first_scales),
                     .second_scales = memory_or_null(tensors.second_scales),
                     .lost = memory_or_null(tensors.lost),
                     .size = size,
                     .step = 0,
                     .aligned = 0};
    entry.aligned = are_aligned({entry.weights, entry.gradients, entry.first, entry.second, entry.lost});
    if (table_.is_full()) flush();
    entry.step = index_of_step(tensors.step.const_data_ptr<float>());
    table_.add(entry, {thread_blocks_});
    thread_blocks_ += thread_blocks_of(size);
  }

  void flush() {
    if (table_.is_empty()) return;
    runner_.launch(source_, kernel_.c_str(), device_, thread_blocks_, table_.data());
    table_.clear(), thread_blocks_ = 0, steps_ = 0;
  }

 private:
  /// Returns the index of a step count in the table. Adds a count that is missing; launches first if the
  /// table has no room for it.
  std::uint32_t index_of_step(const float* step) {
    auto& steps = table_.header().steps;
    for (std::uint32_t i = 0; i < steps_; ++i)
      if (steps[i] == step) return i;
    if (steps_ == std::size(steps)) flush();
    steps[steps_] = step;
    return steps_++;
  }

  const KernelSource& source_;
  std::string kernel_;
  c10::Device device_;
  KernelRunner& runner_;
  AdamWTable table_;
  std::uint32_t thread_blocks_ = 0;
  std::uint32_t steps_ = 0;  // counts in the table
};

}  // namespace looptorch::detail
