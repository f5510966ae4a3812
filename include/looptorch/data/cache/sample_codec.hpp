// SPDX-License-Identifier: MIT
// Converts a sample of any type to bytes and back: tensors raw, other fields packed. Finds the fields at
// compile time, as data/batch/batch.hpp does. A type with a field that cannot be written does not compile.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/batch/batch.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

template <class T>
concept StoredScalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;

template <class T>
concept StoredText = std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path>;

/// A vector, list, set or map: default-constructed empty, filled by `insert(end, element)`.
template <class T>
concept StoredRange = std::ranges::input_range<T> && std::default_initializable<T> &&
    requires(T& range, std::ranges::range_value_t<T>&& value) {
  range.insert(range.end(), std::move(value));
};

/// The type that is read for an element: in a map's pair, the key without its const.
template <class T>
struct element {
  using type = T;
};
template <class Key, class Value>
struct element<std::pair<const Key, Value>> {
  using type = std::pair<Key, Value>;
};
template <class T>
using element_t = typename element<std::ranges::range_value_t<T>>::type;

template <class T>
constexpr bool storable();

template <class T, std::size_t... I>
constexpr bool fields_storable(std::index_sequence<I...>) {
  return (storable<std::remove_reference_t<std::tuple_element_t<I, T>>>() && ...);
}

template <class T>
constexpr bool storable() {
  if constexpr (std::is_const_v<T> || !std::default_initializable<T>)
    return false;
  else if constexpr (TensorLike<T> || StoredScalar<T> || StoredText<T>)
    return true;
  else if constexpr (is_optional<T>)
    return storable<typename T::value_type>();
  else if constexpr (TupleLike<T>)
    return fields_storable<T>(std::make_index_sequence<std::tuple_size_v<T>>{});
  else if constexpr (StoredRange<T>)
    return storable<element_t<T>>();
  else if constexpr (KnownAggregate<T>)
    return fields_storable<field_types_t<T>>(std::make_index_sequence<kFieldCount<T>>{});
  else
    return false;
}

/// A type that can be written and read back.
template <class T>
concept Storable = storable<T>();

template <class T, std::size_t... I>
std::string layout_of_fields(std::index_sequence<I...>);

/// Returns the type's structure, such as `{Tn4s[n8]}`. A sample can only be read as the structure that was
/// written.
template <Storable T>
std::string layout_of() {
  if constexpr (TensorLike<T>)
    return "T";
  else if constexpr (StoredScalar<T>)
    return (std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u") + std::to_string(sizeof(T));
  else if constexpr (StoredText<T>)
    return "s";
  else if constexpr (is_optional<T>)
    return "?" + layout_of<typename T::value_type>();
  else if constexpr (TupleLike<T>)
    return layout_of_fields<T>(std::make_index_sequence<std::tuple_size_v<T>>{});
  else if constexpr (StoredRange<T>)
    return "[" + layout_of<element_t<T>>() + "]";
  else
    return layout_of_fields<field_types_t<T>>(std::make_index_sequence<kFieldCount<T>>{});
}

template <class T, std::size_t... I>
std::string layout_of_fields(std::index_sequence<I...>) {
  return "{" + (std::string() + ... + layout_of<std::remove_reference_t<std::tuple_element_t<I, T>>>()) + "}";
}

/// A contiguous range of numbers.
template <class T>
concept StoredArray = StoredRange<T> && std::ranges::contiguous_range<T> &&
    std::is_arithmetic_v<std::ranges::range_value_t<T>> && requires(T& range) {
  range.resize(1);
};

/// Returns the tensor as it is stored and read: contiguous, without a graph, a plain bit pattern.
inline at::Tensor plain_tensor(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided || tensor.is_quantized())
    throw UsageError(message("CachedDataset: a sample holds a tensor that is not a plain one of the CPU: ",
                             tensor.toString()));
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

/// Converts the sample's tensors to the form in which they will be read, strides included.
template <class T>
void make_plain(T& value) {
  using Value = std::remove_const_t<T>;  // a map's keys are const
  if constexpr (TensorLike<Value>) {
    if (value.defined()) value = plain_tensor(value);
  } else if constexpr (StoredScalar<Value> || StoredText<Value>) {
    return;
  } else if constexpr (is_optional<Value>) {
    if (value) make_plain(*value);
  } else if constexpr (TupleLike<Value>) {
    std::apply([](auto&... field) { (make_plain(field), ...); }, value);
  } else if constexpr (StoredRange<Value>) {
    if constexpr (!StoredScalar<std::ranges::range_value_t<Value>>)
      for (auto& item : value) make_plain(item);
  } else {
    visit_fields(value, [](auto& field) { make_plain(field); });
  }
}

/// Splits a sample: small fields and the shapes of tensors go into `fields`, the tensors into `tensors`.
class SampleWriter {
 public:
  template <Storable T>
  void write(const T& value) {
    if constexpr (TensorLike<T>) {
      write_tensor(value);
    } else if constexpr (StoredScalar<T>) {
      put(&value, sizeof(value));
    } else if constexpr (StoredText<T>) {
      const std::string& text = value;
      write_count(text.size());
      put(text.data(), text.size());
    } else if constexpr (is_optional<T>) {
      write(value.has_value());
      if (value) write(*value);
    } else if constexpr (TupleLike<T>) {
      std::apply([&](const auto&... field) { (write(field), ...); }, value);
    } else if constexpr (StoredArray<T>) {
      write_count(std::ranges::size(value));
      put(std::ranges::data(value), std::ranges::size(value) * sizeof(std::ranges::range_value_t<T>));
    } else if constexpr (StoredRange<T>) {
      write_count(static_cast<std::size_t>(std::ranges::distance(value)));
      for (auto&& item : value) {
        const std::ranges::range_value_t<T>& element = item;
        write(static_cast<const element_t<T>&>(element));
      }
    } else {
      visit_fields(value, [this](const auto& field) { this->write(field); });
    }
  }

  std::string fields;
  std::vector<at::Tensor> tensors;  ///< contiguous, on the CPU, none empty

 private:
  void put(const void* data, std::size_t size) { fields.append(static_cast<const char*>(data), size); }
  void write_count(std::size_t count) { write(static_cast<std::uint64_t>(count)); }

  void write_tensor(const at::Tensor& tensor) {
    write(tensor.defined());
    if (!tensor.defined()) return;
    write(tensor.scalar_type());
    write(tensor.sizes().vec());
    if (tensor.numel() > 0) tensors.push_back(plain_tensor(tensor));
  }
};

/// Thrown if the written type is not the one being read.
struct SampleMismatch : Error {
  using Error::Error;
};

/// Reassembles a sample.
class SampleReader {
 public:
  /// Reads the next contents into a tensor's memory.
  using ReadData = std::function<void(void* data, std::size_t size)>;

  SampleReader(std::string_view fields, ReadData read_data)
      : left_(fields), read_data_(std::move(read_data)) {}

  bool at_end() const { return left_.empty(); }

  /// Replaces `value`, which may hold its type's defaults.
  template <Storable T>
  void read(T& value) {
    if constexpr (TensorLike<T>) {
      read_tensor(value);
    } else if constexpr (StoredScalar<T>) {
      take(&value, sizeof(value));
    } else if constexpr (StoredText<T>) {
      value = std::string(next(read_count(1)));
    } else if constexpr (is_optional<T>) {
      value.reset();
      if (read_as<bool>()) read(value.emplace());
    } else if constexpr (TupleLike<T>) {
      std::apply([&](auto&... field) { (read(field), ...); }, value);
    } else if constexpr (StoredArray<T>) {
      value.resize(read_count(sizeof(std::ranges::range_value_t<T>)));
      take(std::ranges::data(value), std::ranges::size(value) * sizeof(std::ranges::range_value_t<T>));
    } else if constexpr (StoredRange<T>) {
      value = T{};
      for (std::uint64_t left = read_as<std::uint64_t>(); left > 0; --left) {
        element_t<T> item{};
        read(item);
        value.insert(value.end(), std::move(item));
      }
    } else {
      visit_fields(value, [this](auto& field) { this->read(field); });
    }
  }

 private:
  std::string_view next(std::size_t size) {
    if (size > left_.size()) throw SampleMismatch("a cached sample ends early");
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }

  void take(void* data, std::size_t size) {
    if (const auto from = next(size); size > 0) std::memcpy(data, from.data(), size);
  }

  template <class T>
  T read_as() {
    T value{};
    read(value);
    return value;
  }

  std::size_t read_count(std::size_t element) {
    const auto count = read_as<std::uint64_t>();
    if (count > left_.size() / element) throw SampleMismatch("a cached sample ends early");
    return static_cast<std::size_t>(count);
  }

  void read_tensor(at::Tensor& tensor) {
    tensor = at::Tensor();
    if (!read_as<bool>()) return;
    const auto type = read_as<at::ScalarType>();
    tensor = at::empty(read_as<std::vector<std::int64_t>>(), at::TensorOptions().dtype(type));
    if (tensor.numel() > 0) read_data_(tensor.mutable_data_ptr(), tensor.nbytes());
  }

  std::string_view left_;
  ReadData read_data_;
};

}  // namespace looptorch::detail
