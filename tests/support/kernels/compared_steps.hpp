// SPDX-License-Identifier: MIT
// Runs an optimizer's steps by the CPU's loops and by emulated kernels, from the same numbers, and reports
// where they differ by more than rounding.
#pragma once

#include <looptorch/base/random.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include "support/kernels/emulated_kernels.hpp"

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace looptorch::testing {

using Shape = std::vector<std::int64_t>;

/// What parameters and gradients are like.
struct ComparedLists {
  std::vector<Shape> shapes;
  at::ScalarType type = at::kFloat;
  bool misaligned = false;     ///< Each is a view that begins one element behind its memory.
  double non_finite = 0;       ///< A gradient of this value in every third parameter, in step 2; 0: none.
  bool channels_last = false;  ///< Those of four dimensions.
  int steps = 3;
};

/// Returns `count` shapes of one to three dimensions, with up to `most` elements.
inline std::vector<Shape> random_shapes(int count, std::int64_t most, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<Shape> shapes;
  for (int i = 0; i < count; ++i) {
    Shape shape;
    std::int64_t left = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most)));
    for (std::uint64_t dimensions = 1 + random.below(3); dimensions > 1; --dimensions) {
      shape.push_back(
          1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(std::sqrt(left)) + 1)));
      left = std::max<std::int64_t>(1, left / shape.back());
    }
    shape.push_back(left);
    shapes.push_back(shape);
  }
  return shapes;
}

/// How often the two sides differ by more than the last bits of fp32 arithmetic, and by more than a step of
/// rounding in 8 or 16 bits.
struct Differences {
  std::int64_t wrong = 0;    ///< Numbers that differ by more than they may.
  std::int64_t rounded = 0;  ///< Narrow numbers that were rounded to the other neighbour.
  std::int64_t narrow = 0;   ///< All narrow numbers.
  std::string first;         ///< Where the first wrong one is.

  /// The noise of 7 to 20 bits hits the last bits of fp32 in a few of a million numbers.
  [[nodiscard]] bool none() const { return wrong == 0 && rounded <= 4 + narrow / 4000; }
};

namespace compared {

inline at::Tensor placed(const at::Tensor& values, const ComparedLists& lists) {
  if (lists.channels_last && values.dim() == 4)
    return values.contiguous(at::MemoryFormat::ChannelsLast).clone();
  if (!lists.misaligned) return values.clone();
  const at::Tensor view =
      at::empty({values.numel() + 1}, values.options()).narrow(0, 1, values.numel()).view(values.sizes());
  return view.detach().copy_(values);
}

/// Returns gradients of sizes from 1e-3 to 10, some of them zero.
inline at::Tensor gradient_of(const ComparedLists& lists, std::size_t i, int step) {
  at::Tensor gradient = at::randn(lists.shapes[i]) * std::pow(10.0, static_cast<double>(i % 5) - 3);
  if (i % 3 == 0) gradient = gradient * at::rand(lists.shapes[i]).gt(0.5);
  if (i % 7 == 6) gradient = at::zeros(lists.shapes[i]);
  if (lists.non_finite != 0 && step == 2 && i % 3 == 0 && gradient.numel() > 0)
    gradient.view(-1)[gradient.numel() / 2] = lists.non_finite;
  return gradient.to(lists.type);
}

/// Counts elements of `a` and `b` that differ by more than `tolerance`, a tensor or a number; NaN equals NaN.
inline std::int64_t count_differences(const at::Tensor& a, const at::Tensor& b, const at::Tensor& tolerance) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const at::Tensor same =
      (x - y).abs().le(tolerance).logical_or(x.eq(y)).logical_or(x.isnan().logical_and(y.isnan()));
  return same.logical_not().sum().item<std::int64_t>();
}

/// Compares numbers in 16 bits or codes: `largest` is by how much neighbours differ.
inline void compare_narrow(const std::string& name, const at::Tensor& a, const at::Tensor& b,
                           const at::Tensor& largest, Differences& found) {
  const at::Tensor zero = at::zeros({}, at::kDouble);
  found.narrow += a.numel();
  found.rounded += count_differences(a, b, zero);
  const std::int64_t wrong = count_differences(a, b, largest);
  if (wrong > 0 && found.first.empty()) found.first = name;
  found.wrong += wrong;
}

inline void compare_wide(const std::string& name, const at::Tensor& a, const at::Tensor& b, double absolute,
                         Differences& found) {
  const at::Tensor tolerance = a.to(at::kDouble).abs() * 3e-6 + absolute;
  const std::int64_t wrong = count_differences(a, b, tolerance);
  if (wrong > 0 && found.first.empty()) found.first = name;
  found.wrong += wrong;
}

/// Returns where each element's block has a finite scale.
inline at::Tensor is_finite_block(const at::Tensor& scales, const at::Tensor& codes) {
  return scales.isfinite().repeat_interleave(256).narrow(0, 0, codes.numel()).view(codes.sizes());
}

/// Numbers before their rounding differ by `absolute` at most.
inline void compare_16_bits(const std::string& name, const at::Tensor& a, const at::Tensor& b,
                            double absolute, Differences& found) {
  const at::Tensor larger = at::maximum(a.to(at::kDouble).abs(), b.to(at::kDouble).abs());
  const at::Tensor step = a.scalar_type() == at::kHalf ? larger * 0x1p-10 + 0x1p-24 : larger * 0x1p-7;
  compare_narrow(name, a, b, step + absolute, found);
}

/// Returns bf16 weights with the 16 or 8 bits that they lack of fp32.
inline at::Tensor joined(const at::Tensor& weight, const at::Tensor& lost) {
  const int unit = lost.scalar_type() == at::kChar ? 256 : 1;
  return (weight.to(at::kFloat).view(at::kInt) + lost.to(at::kInt) * unit).view(at::kFloat);
}

/// Returns the largest finite size: where two numbers cancel, their last bits remain.
inline double largest(const at::Tensor& numbers) {
  return numbers.numel() == 0 ? 0 : numbers.to(at::kDouble).nan_to_num(0, 0, 0).abs().max().item<double>();
}

/// Compares the weights and moments of one parameter.
inline void compare_states(const std::string& name, const at::Tensor& weight, const at::Tensor& other,
                           const StateDict& state, const StateDict& others, double rate, Differences& found) {
  if (state.contains("lost_bits")) {
    const at::Tensor lost = state.get<at::Tensor>("lost_bits");
    const at::Tensor a = joined(weight, lost), b = joined(other, others.get<at::Tensor>("lost_bits"));
    if (lost.scalar_type() == at::kChar)
      compare_narrow(name + " joined", a, b, a.to(at::kDouble).abs() * 0x1p-15 + rate * 2e-5, found);
    else
      compare_wide(name + " joined", a, b, rate * 2e-5, found);
  } else if (weight.element_size() == 2) {
    compare_16_bits(name, weight, other, rate * 2e-5, found);
  } else {
    compare_wide(name, weight, other, rate * 2e-5, found);
  }
  for (const auto& item : state.values()) {
    const std::string& key = item.first;
    const at::Tensor a = state.get<at::Tensor>(key), b = others.get<at::Tensor>(key);
    const std::string moment = name + " " + key;
    if (key.ends_with("_code")) {
      const at::Tensor finite =
          is_finite_block(state.get<at::Tensor>(key.substr(0, key.size() - 4) + "scale"), a);
      compare_narrow(moment, a.to(at::kInt) * finite, b.to(at::kInt) * finite, at::ones({}, at::kDouble),
                     found);
    } else if (a.scalar_type() == at::kBFloat16) {
      compare_16_bits(moment, a, b, largest(a) * 1e-6, found);
    } else if (key != "lost_bits") {
      compare_wide(moment, a, b, largest(a) * 1e-6, found);
    }
  }
}

/// Copies a parameter's state in place.
inline void take_over(const at::Tensor& weight, const StateDict& state, const at::Tensor& other,
                      const StateDict& others) {
  other.detach().copy_(weight.detach());
  for (const auto& item : state.values())
    others.get<at::Tensor>(item.first).copy_(state.get<at::Tensor>(item.first));
}

template <class Optimizer>
std::vector<at::Tensor> everything(const Optimizer& optimizer, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : parameters) {
    all.push_back(parameter.detach().clone());
    const StateDict state = optimizer.state_of(parameter);
    for (const auto& item : state.values()) all.push_back(state.get<at::Tensor>(item.first).clone());
  }
  return all;
}

/// Compares bits, so that NaN equals itself.
inline bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i)
    same = a[i].nbytes() == b[i].nbytes() &&
           std::memcmp(a[i].contiguous().data_ptr(), b[i].contiguous().data_ptr(), a[i].nbytes()) == 0;
  return same;
}

}  // namespace compared

/// Makes steps on both sides and compares them after each. The second step is preceded on the kernels' side
/// by one that a flag forbids, with gradients of NaN. With `lock_step` the kernels' side then takes over the
/// other's numbers, so that one step is compared at a time.
template <class Optimizer>
Differences compare_steps(const ComparedLists& lists, const typename Optimizer::Options& options,
                          EmulatedKernels& kernels, bool lock_step = true) {
  using namespace compared;
  at::manual_seed(17);
  std::vector<at::Tensor> plain, emulated;
  for (const Shape& shape : lists.shapes) {
    const at::Tensor start = (at::randn(shape) * 0.02).to(lists.type);
    plain.push_back(placed(start, {.channels_last = lists.channels_last}).set_requires_grad(true));
    const GuardedTensors guarded;
    emulated.push_back(placed(start, lists).set_requires_grad(true));
  }
  Optimizer reference(plain, options), tested(emulated, options);
  GradientScale scale;
  scale.multiply(0.37), scale.multiply(at::scalar_tensor(1.5, at::kFloat));
  Differences found;
  for (int step = 1; step <= lists.steps; ++step) {
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const at::Tensor gradient = gradient_of(lists, i, step);
      plain[i].mutable_grad() = placed(gradient, {.channels_last = lists.channels_last});
      const GuardedTensors guarded;
      emulated[i].mutable_grad() = placed(gradient, lists);
    }
    reference.step(scale, at::zeros({}));
    const auto step_by_kernels = [&](const at::Tensor& found_inf) {
      const GuardedTensors guarded;
      const KernelsOnCpu on(kernels);
      tested.step(scale, found_inf);
    };
    if (step == 2) {
      const std::vector<at::Tensor> before = everything(tested, emulated);
      step_by_kernels(at::ones({}));
      if (!same_bits(before, everything(tested, emulated))) found.wrong++, found.first = "a skipped step";
    }
    step_by_kernels(at::zeros({}));
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const StateDict state = reference.state_of(plain[i]), others = tested.state_of(emulated[i]);
      compare_states(message("step ", step, ", parameter ", i, " ", plain[i].sizes()), plain[i].detach(),
                     emulated[i].detach(), state, others, options.lr, found);
      if (lock_step) take_over(plain[i], state, emulated[i], others);
    }
  }
  return found;
}

}  // namespace looptorch::testing
