// SPDX-License-Identifier: MIT
// Converts a batch to a StateDict and back, so that a saved window can be replayed in another process. Walks
// a batch as data/batch/batch.hpp does; numbers, texts and sizes of lists are saved, too.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/batch/batch.hpp>

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch {
namespace detail {

template <class T>
concept SavesItself = requires(const T& saved, T& loaded, StateDict& out, const StateDict& in) {
  saved.state_dict(out);
  loaded.load_state_dict(in);
};

template <class T>
constexpr bool batch_savable();

template <class T, std::size_t... I>
constexpr bool fields_savable(std::index_sequence<I...>) {
  return (batch_savable<std::remove_cvref_t<std::tuple_element_t<I, T>>>() && ...);
}

template <class T>
constexpr bool batch_savable() {
  if constexpr (SavesItself<T> || TensorLike<T> || std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path>)
    return true;
  else if constexpr (EachTensor<T> || Opaque<T>)
    return false;  // what else it holds is unknown, or it does not own what it shows
  else if constexpr (is_optional<T>)
    return batch_savable<typename T::value_type>();
  else if constexpr (TupleLike<T>)
    return fields_savable<T>(std::make_index_sequence<std::tuple_size_v<T>>{});
  else if constexpr (std::ranges::input_range<T>)
    return batch_savable<std::ranges::range_value_t<T>>() &&
           requires(T & list, std::ranges::range_value_t<T> one) {
      list.push_back(std::move(one));
    };
  else if constexpr (KnownAggregate<T>)
    return fields_savable<field_types_t<T>>(std::make_index_sequence<kFieldCount<T>>{});
  else
    return false;
}

template <class T>
void save_batch(const T& value, const std::string& key, StateDict& out);
template <class T>
void load_batch(T& value, const std::string& key, const StateDict& in);

/// Calls `visit(field, key)` for each field of an aggregate or a tuple.
template <class T, class Visit>
void each_field(T& value, const std::string& key, const Visit& visit) {
  std::size_t number = 0;
  const auto one = [&](auto& field) { visit(field, message(key, ".", number++)); };
  if constexpr (TupleLike<std::remove_const_t<T>>)
    std::apply([&](auto&... field) { (one(field), ...); }, value);
  else
    visit_fields(value, one);
}

template <class T>
void save_batch(const T& value, const std::string& key, StateDict& out) {
  if constexpr (SavesItself<T>) {
    StateDict nested;
    value.state_dict(nested);
    out.set(key, nested);
  } else if constexpr (TensorLike<T>) {
    if (value.defined()) out.set(key, value.detach());
  } else if constexpr (std::is_same_v<T, bool>) {
    out.set(key, StateDict::Value(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    out.set(key, StateDict::Value(static_cast<double>(value)));
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    out.set(key, StateDict::Value(static_cast<std::int64_t>(value)));
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path>) {
    out.set(key, StateDict::Value(std::string(value)));
  } else if constexpr (is_optional<T>) {
    out.set(key + ".has", StateDict::Value(value.has_value()));
    if (value) save_batch(*value, key + ".value", out);
  } else if constexpr (!TupleLike<T> && std::ranges::input_range<T>) {
    std::int64_t size = 0;
    for (const std::ranges::range_value_t<T>& item : value) save_batch(item, message(key, ".", size++), out);
    out.set(key + ".size", size);
  } else {
    each_field(value, key, [&](const auto& field, const std::string& name) { save_batch(field, name, out); });
  }
}

template <class T>
void load_batch(T& value, const std::string& key, const StateDict& in) {
  if constexpr (SavesItself<T>) {
    value.load_state_dict(in.under(key));
  } else if constexpr (TensorLike<T>) {
    value = in.contains(key) ? in.get<at::Tensor>(key) : at::Tensor();
  } else if constexpr (std::is_same_v<T, bool>) {
    value = in.get<bool>(key);
  } else if constexpr (std::is_floating_point_v<T>) {
    value = static_cast<T>(in.get<double>(key));
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    value = static_cast<T>(in.get<std::int64_t>(key));
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path>) {
    value = in.get<std::string>(key);
  } else if constexpr (is_optional<T>) {
    if (value.reset(); in.get<bool>(key + ".has")) load_batch(value.emplace(), key + ".value", in);
  } else if constexpr (!TupleLike<T> && std::ranges::input_range<T>) {
    value.clear();
    for (std::int64_t i = 0; i < in.get<std::int64_t>(key + ".size"); ++i) {
      std::ranges::range_value_t<T> item{};
      load_batch(item, message(key, ".", i), in);
      value.push_back(std::move(item));
    }
  } else {
    each_field(value, key, [&](auto& field, const std::string& name) { load_batch(field, name, in); });
  }
}

}  // namespace detail

/// A batch type that can be written to disk and read again: an aggregate of tensors, numbers, strings, lists,
/// optionals and further aggregates, or a type with `state_dict(StateDict&) const` and
/// `load_state_dict(const StateDict&)`.
template <class T>
concept SavableBatch = BatchLike<T> && std::default_initializable<T> && detail::batch_savable<T>();

/// Returns the batch as a StateDict, whose tensors share memory with the batch's.
template <SavableBatch Batch>
[[nodiscard]] StateDict batch_state(const Batch& batch) {
  StateDict out;
  detail::save_batch(batch, "batch", out);
  return out;
}

/// Returns the batch that `batch_state` saved. Throws StateError for a state of another type of batch.
template <SavableBatch Batch>
[[nodiscard]] Batch batch_of_state(const StateDict& in) {
  Batch batch{};
  detail::load_batch(batch, "batch", in);
  return batch;
}

}  // namespace looptorch
