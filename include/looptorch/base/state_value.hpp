// SPDX-License-Identifier: MIT
// Holds one value of a StateDict: a flag, an integer, a number, a text or a tensor. Used instead of a
// `std::variant`, which would cost every file that trains about a fifth of the trainer's compile time.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch {

namespace detail {

template <class T>
concept HeldByState = std::same_as<T, bool> || std::same_as<T, std::int64_t> || std::same_as<T, double> ||
                      std::same_as<T, std::string> || std::same_as<T, at::Tensor>;

}  // namespace detail

/// A flag, a whole number, a number, a text or a tensor, held by handle. `T` is bool, std::int64_t, double,
/// std::string or at::Tensor below.
class StateValue {
 public:
  StateValue(std::same_as<bool> auto value) : kind_(Kind::flag), flag_(value) {}
  StateValue(std::int64_t value) : kind_(Kind::whole), whole_(value) {}
  StateValue(double value) : kind_(Kind::number), number_(value) {}
  StateValue(std::string value) : kind_(Kind::text), text_(std::move(value)) {}
  StateValue(at::Tensor value) : kind_(Kind::tensor), tensor_(std::move(value)) {}

  /// Returns the value, or nullptr if it is no T.
  template <detail::HeldByState T>
  [[nodiscard]] const T* get_if() const {
    if constexpr (std::is_same_v<T, bool>)
      return kind_ == Kind::flag ? &flag_ : nullptr;
    else if constexpr (std::is_same_v<T, std::int64_t>)
      return kind_ == Kind::whole ? &whole_ : nullptr;
    else if constexpr (std::is_same_v<T, double>)
      return kind_ == Kind::number ? &number_ : nullptr;
    else if constexpr (std::is_same_v<T, std::string>)
      return kind_ == Kind::text ? &text_ : nullptr;
    else
      return kind_ == Kind::tensor ? &tensor_ : nullptr;
  }

  /// True if both hold the same type.
  [[nodiscard]] bool same_type(const StateValue& other) const { return kind_ == other.kind_; }

  /// Calls `visitor` with the value and returns its result, of one type for all five.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    switch (kind_) {
      case Kind::flag: return visitor(flag_);
      case Kind::whole: return visitor(whole_);
      case Kind::number: return visitor(number_);
      case Kind::text: return visitor(text_);
      default: return visitor(tensor_);
    }
  }

 private:
  enum class Kind : std::uint8_t { flag, whole, number, text, tensor };

  Kind kind_;
  bool flag_ = false;
  std::int64_t whole_ = 0;
  double number_ = 0;
  std::string text_;
  at::Tensor tensor_;
};

}  // namespace looptorch
