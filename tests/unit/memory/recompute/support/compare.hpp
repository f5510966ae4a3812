// SPDX-License-Identifier: MIT
// A scenario runs twice from the same seed, once with plain calls of its blocks and once with checkpointed
// ones; whatever it returns must be equal bit for bit, and so must the random numbers drawn after it.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/memory/checkpoint.hpp>

#include "support/place.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace checkpointed {

namespace lt = looptorch;
using Tensors = std::vector<at::Tensor>;

/// Calls a block as it is.
struct Plain {
  static constexpr bool recomputes = false;
  [[nodiscard]] int runs() const { return 1; }
  template <class F, class... Arguments>
  decltype(auto) operator()(F&& f, Arguments&&... arguments) const {
    return std::forward<F>(f)(std::forward<Arguments>(arguments)...);
  }
};

/// Calls a block through `checkpoint`.
struct Recomputed {
  static constexpr bool recomputes = true;
  lt::CheckpointOptions options = {};
  [[nodiscard]] int runs() const { return options.mode == lt::CheckpointMode::recompute ? 2 : 1; }
  template <class F, class... Arguments>
  decltype(auto) operator()(F&& f, Arguments&&... arguments) const {
    return lt::checkpoint(options, std::forward<F>(f), std::forward<Arguments>(arguments)...);
  }
};

/// Equal in shape, type and every bit, NaN and the sign of zero included; both undefined is equal too.
[[nodiscard]] inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().cpu().contiguous(), y = b.detach().cpu().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

inline void check_same(const Tensors& plain, const Tensors& recomputed) {
  REQUIRE(plain.size() == recomputed.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    INFO("result " << i << ": " << plain[i] << "\nagainst " << recomputed[i]);
    CHECK(same_bits(plain[i], recomputed[i]));
  }
}

/// What the scenario returns, and random numbers drawn after it.
template <class Scenario, class Call>
[[nodiscard]] Tensors run(const Scenario& scenario, const Call& call, const at::TensorOptions& options) {
  torch::manual_seed(7);
  Tensors results = scenario(call, options);
  results.push_back(torch::rand({3}));
  results.push_back(torch::rand({3}, options));
  return results;
}

template <class Scenario>
void check_same_bits(const at::TensorOptions& options, const Scenario& scenario,
                     const lt::CheckpointOptions& checkpoint = {}) {
  const Tensors plain = run(scenario, Plain{}, options);
  check_same(plain, run(scenario, Recomputed{checkpoint}, options));
}

/// Copies of the gradients of parameters; undefined where there is none.
[[nodiscard]] inline Tensors gradients(const Tensors& parameters) {
  Tensors copies;
  for (const at::Tensor& parameter : parameters)
    copies.push_back(parameter.grad().defined() ? parameter.grad().detach().clone() : at::Tensor());
  return copies;
}
template <class Model>
[[nodiscard]] Tensors gradients(const Model& model) {
  return gradients(model->parameters());
}

/// Copies of a model's buffers.
template <class Model>
[[nodiscard]] Tensors buffers(const Model& model) {
  Tensors copies;
  for (const at::Tensor& buffer : model->buffers()) copies.push_back(buffer.detach().clone());
  return copies;
}

inline Tensors& append(Tensors& to, const Tensors& more) {
  to.insert(to.end(), more.begin(), more.end());
  return to;
}
[[nodiscard]] inline Tensors append(Tensors&& to, const Tensors& more) { return std::move(append(to, more)); }

template <class T>
[[nodiscard]] at::TensorOptions cpu() {
  return at::TensorOptions(c10::CppTypeToScalarType<T>::value);
}

/// At the place of the program's tests.
template <class T>
[[nodiscard]] at::TensorOptions here() {
  return cpu<T>().device(lt::testing::place());
}

}  // namespace checkpointed
