// SPDX-License-Identifier: MIT
// Gradient accumulation: one step learns from N micro-batches as from one batch N times as large, even if the
// micro-batches' loss weights differ or an epoch's last window is shorter. Costs memory for one micro-batch
// only. N = 1 compiles to nothing. Use it when the batch you want does not fit.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/policies/accumulation/at_run_time.hpp>

#include <cstdint>

namespace looptorch {

/// The family of `Accumulate<4>` and `Accumulate<>{4}`: only one of them may be listed.
struct AccumulateFamily {};

/// N micro-batches a window, N fixed at compile time: `Accumulate<16>{}`.
template <std::int64_t N = detail::kAtRunTime>
struct Accumulate {
  static_assert(N >= 1,
                "looptorch: Accumulate<N> needs N >= 1 micro-batches a window. Use Accumulate<1> for no "
                "accumulation. See docs/errors.md#accumulate");
  using family = AccumulateFamily;
  constexpr std::int64_t micro_batches() const { return N; }
};

/// Takes N at run time: `Accumulate<>{n}`. Throws UsageError for n below 1.
template <>
struct Accumulate<detail::kAtRunTime> {
  explicit Accumulate(std::int64_t n) : n_(n) {
    if (n < 1) throw UsageError(message("Accumulate<>{n} needs at least 1 micro-batch a window, got ", n));
  }
  using family = AccumulateFamily;
  std::int64_t micro_batches() const { return n_; }

 private:
  std::int64_t n_;
};

}  // namespace looptorch
