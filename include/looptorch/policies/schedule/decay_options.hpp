// SPDX-License-Identifier: MIT
// Writes the options of a learning rate's decay as text. ScheduleLr saves the text in snapshots, so that a
// resume can tell whether the decay has changed.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/batch/aggregate.hpp>
#include <looptorch/policies/schedule/lr_cycles.hpp>
#include <looptorch/policies/schedule/lr_decay.hpp>
#include <looptorch/policies/schedule/plateau_decay.hpp>

#include <cstddef>
#include <string>
#include <type_traits>

namespace looptorch::detail {

// The number of options in each type, which compilers would find by trial. with_fields rejects a wrong one.
template <>
inline constexpr std::size_t kFieldCount<ConstantLr> = 0;
template <>
inline constexpr std::size_t kFieldCount<LinearDecay> = 2;
template <>
inline constexpr std::size_t kFieldCount<CosineDecay> = 2;
template <>
inline constexpr std::size_t kFieldCount<PolynomialDecay> = 3;
template <>
inline constexpr std::size_t kFieldCount<StepDecay> = 2;
template <>
inline constexpr std::size_t kFieldCount<InverseSqrtDecay> = 1;
template <>
inline constexpr std::size_t kFieldCount<FunctionDecay> = 1;
template <>
inline constexpr std::size_t kFieldCount<OneCycle> = 6;
template <>
inline constexpr std::size_t kFieldCount<CosineRestarts> = 3;
template <>
inline constexpr std::size_t kFieldCount<PlateauDecay> = 8;

/// Returns an option as text; "a function" for any function.
template <class Option>
std::string option_text(const Option& option) {
  if constexpr (std::is_enum_v<Option>)
    return message(static_cast<int>(option));
  else if constexpr (std::is_arithmetic_v<Option> || std::is_convertible_v<const Option&, std::string>)
    return message(option);
  else
    return "a function";
}

/// Collects options as a list. One type serves all decays: a lambda would be compiled for each of them.
struct OptionTexts {
  std::string text = {};

  template <class Option>
  void operator()(const Option& option) {
    text += (text.empty() ? "" : ", ") + option_text(option);
  }
};

}  // namespace looptorch::detail
