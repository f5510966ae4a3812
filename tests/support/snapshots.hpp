// SPDX-License-Identifier: MIT
// Makes contents of snapshots for tests, and compares them bit for bit. The contents have everything that a
// snapshot can hold, or only a few hundred bytes.
#pragma once

#include <looptorch/state/snapshot/snapshot_contents.hpp>

#include "support/catch.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace looptorch::testing {

/// True if type, shape and values are equal; undefined tensors are equal.
[[nodiscard]] inline bool bits_equal(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const auto in_memory = [](const at::Tensor& tensor) {
    return tensor.detach().resolve_conj().resolve_neg().contiguous();
  };
  return a.numel() == 0 ||
         std::memcmp(in_memory(a).const_data_ptr(), in_memory(b).const_data_ptr(), a.nbytes()) == 0;
}

[[nodiscard]] inline bool bits_equal(const StateDict::Value& a, const StateDict::Value& b) {
  if (!a.same_type(b)) return false;
  return a.visit([&b]<class T>(const T& value) {
    const T& other = *b.get_if<T>();
    if constexpr (std::is_same_v<T, at::Tensor>)
      return bits_equal(value, other);
    else if constexpr (std::is_same_v<T, double>)
      return std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(other);
    else
      return value == other;
  });
}

template <class Map>
[[nodiscard]] bool maps_equal(const Map& a, const Map& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && bits_equal(x.second, y.second);
         });
}

[[nodiscard]] inline bool bits_equal(const SnapshotContents& a, const SnapshotContents& b) {
  return a.step == b.step && maps_equal(a.model, b.model) && maps_equal(a.averaged, b.averaged) &&
         maps_equal(a.optimizer.values(), b.optimizer.values()) &&
         maps_equal(a.state.values(), b.state.values());
}

/// Returns contents of a few hundred bytes, with other values for another `seed`.
[[nodiscard]] inline SnapshotContents small_contents(std::int64_t step, std::int64_t seed = 0) {
  SnapshotContents contents;
  contents.step = step;
  const auto values = at::arange(4, at::kFloat) + static_cast<double>(step * 8 + seed);
  contents.model["weight"] = values.reshape({2, 2});
  contents.model["bias"] = values.slice(0, 0, 2).clone();
  contents.averaged["weight"] = values.reshape({2, 2}) / 3;
  contents.optimizer.set("weight.exp_avg", values.clone());
  contents.optimizer.set("lr", 0.1 * static_cast<double>(seed));
  contents.state.set("random", values.to(at::kByte));
  contents.state.set("epoch", step / 2);
  return contents;
}

}  // namespace looptorch::testing
