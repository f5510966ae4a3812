// SPDX-License-Identifier: MIT
// Implements the functions by which an exported program computes sizes, such as `_operator.floordiv`, with
// Python's arithmetic on integers, floats and booleans.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/core/ivalue.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch::detail::exported {

using Numbers = std::vector<c10::IValue>;
/// Takes as many numbers as `SizeFunction::arguments` says. Throws UsageError if they have no result.
using SizeOperation = c10::IValue (*)(const Numbers&);

struct SizeFunction {
  SizeOperation call;
  std::size_t arguments;
};

namespace sizes {

[[noreturn]] inline void overflows() { throw UsageError("a size of the program exceeds 64 bits"); }

[[nodiscard]] inline bool is_whole(const Numbers& all) {
  for (const auto& each : all)
    if (each.isDouble()) return false;
  return true;
}
[[nodiscard]] inline std::int64_t whole(const c10::IValue& value) {
  return value.isBool() ? static_cast<std::int64_t>(value.toBool()) : value.toInt();
}
[[nodiscard]] inline double real(const c10::IValue& value) {
  return value.isDouble() ? value.toDouble() : static_cast<double>(whole(value));
}

/// Computes with integers if both numbers are integers or booleans, else with floats.
template <class Whole, class Real>
[[nodiscard]] c10::IValue by_kind(const Numbers& all, const Whole& on_whole, const Real& on_real) {
  if (is_whole(all)) return on_whole(whole(all[0]), whole(all[1]));
  return on_real(real(all[0]), real(all[1]));
}

inline void check_divisor(const Numbers& all) {
  if (real(all[1]) == 0) throw UsageError("the program divides a size by zero");
}

template <class Compare>
[[nodiscard]] c10::IValue compare(const Numbers& all) {
  return by_kind(
      all, [](std::int64_t a, std::int64_t b) { return Compare()(a, b); },
      [](double a, double b) { return Compare()(a, b); });
}

/// Calls `overflow(a, b, &result)`, a compiler's built-in function, for whole numbers.
template <class Real, class Overflow>
[[nodiscard]] c10::IValue checked(const Numbers& all, const Overflow& overflow) {
  const auto on_whole = [&overflow](std::int64_t a, std::int64_t b) {
    if (std::int64_t result; !overflow(a, b, &result)) return result;
    overflows();
  };
  return by_kind(all, on_whole, Real());
}

inline c10::IValue add(const Numbers& all) {
  return checked<std::plus<double>>(all, [](auto... of) { return __builtin_add_overflow(of...); });
}
inline c10::IValue sub(const Numbers& all) {
  return checked<std::minus<double>>(all, [](auto... of) { return __builtin_sub_overflow(of...); });
}
inline c10::IValue mul(const Numbers& all) {
  return checked<std::multiplies<double>>(all, [](auto... of) { return __builtin_mul_overflow(of...); });
}
/// Rounds towards minus infinity, as Python does.
inline c10::IValue floordiv(const Numbers& all) {
  check_divisor(all);
  return by_kind(
      all,
      [](std::int64_t a, std::int64_t b) {
        if (b == -1) return whole(sub({std::int64_t{0}, a}));
        return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
      },
      [](double a, double b) { return std::floor(a / b); });
}
/// Returns the remainder with the divisor's sign, as Python does.
inline c10::IValue mod(const Numbers& all) {
  check_divisor(all);
  return by_kind(
      all,
      [](std::int64_t a, std::int64_t b) {
        const std::int64_t rest = b == -1 ? 0 : a % b;
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
      },
      [](double a, double b) { return a - b * std::floor(a / b); });
}
inline c10::IValue truediv(const Numbers& all) {
  check_divisor(all);
  return real(all[0]) / real(all[1]);
}
inline c10::IValue pow(const Numbers& all) {
  if (!is_whole(all) || whole(all[1]) < 0) return std::pow(real(all[0]), real(all[1]));
  if (whole(all[1]) > 64) overflows();
  c10::IValue product = std::int64_t{1};
  for (std::int64_t i = 0; i < whole(all[1]); ++i) product = mul({product, all[0]});
  return product;
}
inline c10::IValue neg(const Numbers& all) { return sub({std::int64_t{0}, all[0]}); }
inline c10::IValue pos(const Numbers& all) { return all[0]; }
inline c10::IValue max(const Numbers& all) { return compare<std::less<>>(all).toBool() ? all[1] : all[0]; }
inline c10::IValue min(const Numbers& all) { return compare<std::less<>>(all).toBool() ? all[0] : all[1]; }
/// Rounds towards zero.
inline c10::IValue to_int(const Numbers& all) {
  if (is_whole(all)) return whole(all[0]);
  constexpr double kMost = 9e18;
  if (!(std::abs(real(all[0])) < kMost)) overflows();
  return static_cast<std::int64_t>(real(all[0]));
}
inline c10::IValue to_float(const Numbers& all) { return real(all[0]); }
inline c10::IValue sqrt(const Numbers& all) { return std::sqrt(real(all[0])); }
inline c10::IValue both(const Numbers& all) {
  if (all[0].isBool() && all[1].isBool()) return all[0].toBool() && all[1].toBool();
  return whole(all[0]) & whole(all[1]);
}
inline c10::IValue either(const Numbers& all) {
  if (all[0].isBool() && all[1].isBool()) return all[0].toBool() || all[1].toBool();
  return whole(all[0]) | whole(all[1]);
}
inline c10::IValue negate(const Numbers& all) { return real(all[0]) == 0; }
inline c10::IValue choose(const Numbers& all) { return real(all[0]) != 0 ? all[1] : all[2]; }

}  // namespace sizes

/// Returns the operation of a name in a file, such as "_operator.add"; null for unknown names.
[[nodiscard]] inline const SizeFunction* size_function(std::string_view target) {
  static const std::map<std::string_view, SizeFunction> kKnown{
      {"_operator.add", {sizes::add, 2}},
      {"_operator.sub", {sizes::sub, 2}},
      {"_operator.mul", {sizes::mul, 2}},
      {"_operator.floordiv", {sizes::floordiv, 2}},
      {"_operator.mod", {sizes::mod, 2}},
      {"_operator.truediv", {sizes::truediv, 2}},
      {"_operator.pow", {sizes::pow, 2}},
      {"_operator.neg", {sizes::neg, 1}},
      {"_operator.pos", {sizes::pos, 1}},
      {"_operator.eq", {sizes::compare<std::equal_to<>>, 2}},
      {"_operator.ne", {sizes::compare<std::not_equal_to<>>, 2}},
      {"_operator.lt", {sizes::compare<std::less<>>, 2}},
      {"_operator.le", {sizes::compare<std::less_equal<>>, 2}},
      {"_operator.gt", {sizes::compare<std::greater<>>, 2}},
      {"_operator.ge", {sizes::compare<std::greater_equal<>>, 2}},
      {"_operator.and_", {sizes::both, 2}},
      {"_operator.or_", {sizes::either, 2}},
      {"math.trunc", {sizes::to_int, 1}},
      {"torch.sym_int", {sizes::to_int, 1}},
      {"torch.sym_float", {sizes::to_float, 1}},
      {"torch.sym_max", {sizes::max, 2}},
      {"torch.sym_min", {sizes::min, 2}},
      {"torch.sym_not", {sizes::negate, 1}},
      {"torch.sym_ite", {sizes::choose, 3}},
      {"torch.sym_sqrt", {sizes::sqrt, 1}},
      {"torch._sym_sqrt", {sizes::sqrt, 1}}};
  const auto found = kKnown.find(target);
  return found == kKnown.end() ? nullptr : &found->second;
}

}  // namespace looptorch::detail::exported
