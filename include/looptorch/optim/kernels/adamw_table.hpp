// SPDX-License-Identifier: MIT
// Holds the code that the CUDA kernels of AdamW8bit and AdamWBf16 share: the table of their arguments,
// AdamW's arithmetic, and the launch for a list of parameters. Each optimizer adds the code that updates a
// block of 256 elements.
#pragma once

#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/optim/kernels/kernel_table.hpp>

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace looptorch::detail {

/// `Numbers` are those of optim/narrow/adam_numbers.hpp, computed by one thread of a thread block.
inline constexpr const char* kAdamWCode = R"cuda(
struct Entry {
  void* weights;
  const void* gradients;
  void *first, *second;              // moments, or their codes
  void *first_extra, *second_extra;  // scales of codes
  void* lost;                        // bits that bf16 weights lack, or null
  u64 size_count_aligned;  // size * 16 + the count's place * 2, and 1 more if all pointers are multiples of 16
};

struct Table {
  double lr, beta1, beta2, eps, weight_decay;
  const double* rate;      // in place of lr; null: lr
  const float* divisor;    // null: 1
  const float* found_inf;  // null: 0
  const float* counts[8];  // the steps so far, this one included
  u32 count, padding;      // of tensors
  u32 begins[LT_TENSORS];
  Entry entries[LT_TENSORS];
};

LT_INLINE u64 size_of(const Entry& entry) { return entry.size_count_aligned / 16; }
LT_INLINE bool is_aligned(const Entry& entry) { return entry.size_count_aligned % 2 != 0; }
LT_INLINE bool overflowed(const Table& table) { return table.found_inf && *table.found_inf != 0.0f; }
LT_INLINE double rate_of(const Table& table) { return table.rate ? *table.rate : table.lr; }
LT_INLINE float step_of(const Table& table, const Entry& entry) {
  return *table.counts[entry.size_count_aligned / 2 % 8];
}

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

/// AdamW's hyper-parameters, and the rate, factor and flag of a step on the device.
struct AdamWHeader {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  const double* rate = nullptr;
  const float *divisor = nullptr, *found_inf = nullptr;
  std::array<const float*, 8> counts{};
  std::uint32_t count = 0, padding = 0;

  template <class Options, class Call>
  [[nodiscard]] static AdamWHeader of(const Options& options, const Call& call) {
    return {options.lr,
            options.betas[0],
            options.betas[1],
            options.eps,
            options.weight_decay,
            rate_or_null(call.rate),
            number_or_null(call.factors.divisor),
            number_or_null(call.factors.found_inf)};
  }
};

struct AdamWEntry {
  void* weights;
  const void* gradients;
  void *first, *second, *first_extra, *second_extra, *lost;
  std::uint64_t size_count_aligned;
};

using AdamWTable = KernelTable<AdamWHeader, AdamWEntry, 1>;

/// One parameter's tensors; undefined where the rule has none.
struct AdamWTensors {
  const at::Tensor &weights, &gradients, &first, &second, &first_extra, &second_extra, &lost, &step;
};

/// Launches a kernel for parameters that are added one by one, each time its table is full, and by `flush`.
class AdamWLauncher {
 public:
  /// Takes one of the parameters, which all are of its device and dtype.
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
    AdamWEntry entry{memory_or_null(tensors.weights),     tensors.gradients.const_data_ptr(),
                     memory_or_null(tensors.first),       memory_or_null(tensors.second),
                     memory_or_null(tensors.first_extra), memory_or_null(tensors.second_extra),
                     memory_or_null(tensors.lost),        size * 16};
    entry.size_count_aligned +=
        are_aligned({entry.weights, entry.gradients, entry.first, entry.second, entry.lost});
    if (table_.is_full()) flush();
    entry.size_count_aligned += place_of(tensors.step.const_data_ptr<float>()) * 2;
    table_.add(entry, {thread_blocks_});
    thread_blocks_ += thread_blocks_of(size);
  }

  void flush() {
    if (table_.is_empty()) return;
    runner_.launch(source_, kernel_.c_str(), device_, thread_blocks_, table_.data());
    table_.clear(), thread_blocks_ = 0, counts_ = 0;
  }

 private:
  /// Returns the place of a step count in the table, of which most parameters share one.
  std::uint64_t place_of(const float* count) {
    auto& counts = table_.header().counts;
    for (std::size_t i = 0; i < counts_; ++i)
      if (counts[i] == count) return i;
    if (counts_ == counts.size()) flush();
    table_.header().counts[counts_] = count;
    return counts_++;
  }

  const KernelSource& source_;
  std::string kernel_;
  c10::Device device_;
  KernelRunner& runner_;
  AdamWTable table_;
  std::uint32_t thread_blocks_ = 0;
  std::size_t counts_ = 0;
};

}  // namespace looptorch::detail
