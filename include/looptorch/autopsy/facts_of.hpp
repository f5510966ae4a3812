// SPDX-License-Identifier: MIT
// Computes the TensorFacts of a tensor: its range, and which rows hold NaN or infinity. Waits for the device,
// so only reruns and replays of a window call it, never training itself.
#pragma once

#include <looptorch/autopsy/tensor_facts.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace looptorch::detail {

/// Keeps examinations of tensors out of the graph, of autocast and of the operator trace.
class UntracedScope {
 private:
  at::RecordFunctionGuard unwatched_{/*is_enabled=*/false};
  at::NoGradGuard no_gradients_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

/// Sets the least and greatest of `finite`, whose elements must all be finite.
inline void take_range(const at::Tensor& finite, TensorFacts& facts) {
  if (finite.numel() == 0) return;
  const auto [least, most] = at::aminmax(finite);
  facts.least = least.item<double>();
  facts.most = most.item<double>();
}

/// Lists the rows in which `finite` is not true everywhere.
inline void take_rows(const at::Tensor& finite, TensorFacts& facts) {
  const at::Tensor rows = finite.dim() > 1 ? finite.flatten(1).all(1) : finite;
  const at::Tensor bad = at::nonzero(rows.logical_not()).flatten().to(at::kCPU);
  for (std::int64_t i = 0; i < bad.numel(); ++i) facts.bad_rows.push_back(bad[i].item<std::int64_t>());
}

/// Returns the tensor's facts; only its shape if its elements cannot be compared.
[[nodiscard]] inline TensorFacts facts_of(const at::Tensor& given) {
  TensorFacts facts;
  if (!given.defined()) return facts;
  const UntracedScope untraced;
  facts.sizes = given.sizes().vec();
  facts.type = given.scalar_type();
  at::Tensor elements = given.detach();
  if (elements.is_meta() || elements.is_quantized() || elements.scalar_type() == at::kBool) return facts;
  const bool dense = elements.layout() == at::kStrided;
  if (!dense) elements = elements.layout() == at::kSparse ? elements.coalesce()._values() : at::Tensor();
  if (!elements.defined() || elements.numel() == 0) return facts;
  if (elements.is_complex()) elements = at::view_as_real(elements.resolve_conj());
  if (elements.is_floating_point() && elements.element_size() < 4) elements = elements.to(at::kFloat);
  if (at::isBarebonesUnsignedType(elements.scalar_type())) elements = elements.to(at::kDouble);
  take_range(elements, facts);  // NaN if an element is NaN
  if (!elements.is_floating_point() || (std::isfinite(facts.least) && std::isfinite(facts.most)))
    return facts;
  const at::Tensor finite = at::isfinite(elements);
  facts.least = facts.most = std::numeric_limits<double>::quiet_NaN();
  take_range(elements.masked_select(finite), facts);
  facts.nans = at::isnan(elements).sum().item<std::int64_t>();
  facts.infinities = finite.logical_not().sum().item<std::int64_t>() - facts.nans;
  facts.has_positive_infinity = elements.eq(std::numeric_limits<double>::infinity()).any().item<bool>();
  if (dense && given.dim() > 0) take_rows(finite, facts);
  return facts;
}

}  // namespace looptorch::detail
