// SPDX-License-Identifier: MIT
// Mixed precision: matrix products and convolutions of the forward pass and the loss run in a 16-bit type,
// what needs range or precision stays in fp32; parameters and their gradients stay in fp32 too. Halves
// activation memory and is faster where the hardware has 16-bit units. Use bf16 on GPUs from Ampere on and on
// CPUs with AMX or AVX512-BF16.
#pragma once

#include <looptorch/loop/context.hpp>

#include <ATen/autocast_mode.h>

#include <type_traits>

namespace looptorch {

/// bfloat16: fp32's range, 8 bits of precision; needs no loss scaling.
struct bf16 {
  static constexpr at::ScalarType kType = at::kBFloat16;
};

/// What the variants of Autocast have in common: only one of them may be listed.
struct AutocastFamily {};

namespace detail {

/// Autocast on `device`'s type while it lives; restores the state it met, nesting included.
class AutocastScope {
 public:
  AutocastScope(at::DeviceType device, at::ScalarType type)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        previous_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, type);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, previous_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType previous_;
};

}  // namespace detail

/// Runs the forward pass and the loss, in training and in `evaluate`, under autocast to `Type`.
template <class Type>
struct Autocast {
  static_assert(std::is_same_v<Type, bf16>,
                "looptorch: Autocast<T> needs T = looptorch::bf16. See docs/errors.md#autocast-type");

  using family = AutocastFamily;

  detail::AutocastScope forward_scope(const ForwardContext& context) const {
    return {context.run.device().type(), Type::kType};
  }
};

}  // namespace looptorch
