// SPDX-License-Identifier: MIT
// Holds the state of a policy, an optimizer or a loader: named numbers, texts and tensors. Policies write one
// in `state_dict` and read it in `load_state_dict`; snapshots put them on disk.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

namespace detail {

template <class T>
concept HeldByState = std::same_as<T, bool> || std::same_as<T, std::int64_t> || std::same_as<T, double> ||
                      std::same_as<T, std::string> || std::same_as<T, at::Tensor>;

}  // namespace detail

/// A flag, a whole number, a number, a text or a tensor, held by handle. `T` is bool, std::int64_t, double,
/// std::string or at::Tensor below. A `std::variant` would cost every file that trains about a fifth of the
/// trainer's compile time.
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

  /// Calls `visitor` with the value and returns its result, whose type must be the same for all five.
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

/// Thrown for a state that lacks a key or holds another type under it.
struct StateError : Error {
  using Error::Error;
};

/// Thrown by a `load_state_dict` for a setting that differs from the state's. A resumed fit that lists the
/// difference shows it as "what: saved -> here".
struct SettingDiffers : StateError {
  SettingDiffers(const std::string& what, const std::string& here, const std::string& saved)
      : StateError(message(what, " is ", here, " here, ", saved, " in the state")),
        change(message(what, ": ", saved, " -> ", here)) {}
  std::string change;
};

/// A flat dictionary. Nested ones have keys with dots. Tensors are held by handle: use `set(key,
/// tensor.clone())` for one that will change.
class StateDict {
 public:
  using Value = StateValue;

  void set(const std::string& key, Value value) { values_.insert_or_assign(key, std::move(value)); }
  void erase(const std::string& key) { values_.erase(key); }
  void set(const std::string& key, const char* text) { set(key, std::string(text)); }
  // clang-format off
  template <class Integer>
    requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>)
  void set(const std::string& key, Integer number) {
    set(key, Value(static_cast<std::int64_t>(number)));
  }
  // clang-format on

  /// Sets the tensors under `key.0`, `key.1`, ...
  void set(const std::string& key, const std::vector<at::Tensor>& tensors) {
    set(key + ".size", tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) set(key + "." + std::to_string(i), tensors[i]);
  }

  /// Sets all values of `nested`, each under `prefix`, a dot and its key.
  void set(const std::string& prefix, const StateDict& nested) {
    for (const auto& [key, value] : nested.values_) set(prefix + "." + key, value);
  }

  /// Returns a value; T is bool, std::int64_t, double, std::string or at::Tensor. Throws StateError that
  /// names the key.
  template <class T>
  [[nodiscard]] const T& get(const std::string& key) const {
    constexpr bool is_held = detail::HeldByState<T>;
    static_assert(is_held,
                  "looptorch: a StateDict gives bool, std::int64_t, double, std::string and at::Tensor by "
                  "get<T>(key), and a list of tensors by tensors(key). See docs/errors.md#state-dict");
    const auto found = values_.find(key);
    if (found == values_.end()) throw StateError("a state has nothing under '" + key + "'");
    if constexpr (is_held)
      if (const T* value = found->second.template get_if<T>()) return *value;
    throw StateError("a state holds something of another type under '" + key + "'");
  }

  /// Returns the tensors that were set under `key` as a vector.
  [[nodiscard]] std::vector<at::Tensor> tensors(const std::string& key) const {
    std::vector<at::Tensor> result;
    const std::int64_t size = get<std::int64_t>(key + ".size");
    for (std::int64_t i = 0; i < size; ++i) result.push_back(get<at::Tensor>(key + "." + std::to_string(i)));
    return result;
  }

  /// Returns the values whose keys begin with `prefix` and a dot, by the rest of the key; may be empty.
  [[nodiscard]] StateDict under(const std::string& prefix) const {
    StateDict nested;
    for (auto it = values_.lower_bound(prefix + "."); it != values_.end(); ++it) {
      if (it->first.compare(0, prefix.size() + 1, prefix + ".") != 0) break;
      nested.values_.emplace(it->first.substr(prefix.size() + 1), it->second);
    }
    return nested;
  }

  [[nodiscard]] bool contains(const std::string& key) const { return values_.count(key) > 0; }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] const std::map<std::string, Value>& values() const { return values_; }

 private:
  std::map<std::string, Value> values_;
};

namespace detail {

/// Throws SettingDiffers if the state holds another text under `key` than `here`. Accepts a state without
/// this key, as earlier versions wrote.
inline void require_same(const StateDict& in, const std::string& key, const std::string& what,
                         const std::string& here) {
  if (!in.contains(key)) return;
  if (const auto& saved = in.get<std::string>(key); saved != here) throw SettingDiffers(what, here, saved);
}

/// Returns a copy in which each tensor is replaced by `copy_tensor(tensor)`.
template <class CopyTensor>
[[nodiscard]] StateDict copied(const StateDict& state, CopyTensor&& copy_tensor) {
  StateDict copy;
  for (const auto& [key, value] : state.values()) {
    const auto* tensor = value.template get_if<at::Tensor>();
    copy.set(key, tensor ? StateDict::Value(copy_tensor(*tensor)) : value);
  }
  return copy;
}

/// Returns a copy with tensors of its own.
[[nodiscard]] inline StateDict copied(const StateDict& state) {
  return copied(state, [](const at::Tensor& tensor) { return tensor.detach().clone(); });
}

}  // namespace detail
}  // namespace looptorch
