// SPDX-License-Identifier: MIT
// Stores the keys and values of an attention layer that decodes token by token. Appending a token writes one
// position in place; concatenation would copy the whole past for each token and layer.
//
// Shapes: B rows, H heads, N new positions, S stored positions, d width of a head.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace looptorch {

/// Projected keys and values of one attention layer, each `[B, H, S, d]`; undefined before the first.
struct KeyValues {
  at::Tensor keys{};
  at::Tensor values{};

  /// Takes the rows that `rows` (int64 `[R]`) lists, in its order; a row may be listed several times.
  void select(const at::Tensor& rows) {
    keys = keys.index_select(0, rows);
    values = values.index_select(0, rows);
  }
};

/// The queries, keys and values of self-attention.
struct QueriesKeyValues {
  at::Tensor queries_BHTd;
  KeyValues source;
};

/// The past of a self-attention layer, in preallocated memory. Capacity grows by doubling: decoding L tokens
/// copies at most 2 L positions a row. Holds at most twice the memory of its positions (and at least 32
/// positions). The first `select` that keeps the number of rows doubles this memory: it reads from one block
/// and writes to another.
///
/// A copy has memory of its own. Not for training: appending records nothing for backward.
class KeyValueCache {
 public:
  KeyValueCache() = default;

  /// Makes room for `positions` at the first `append`.
  explicit KeyValueCache(std::int64_t positions) : reserved_(positions) {}

  KeyValueCache(const KeyValueCache& other);
  KeyValueCache(KeyValueCache&&) noexcept = default;
  KeyValueCache& operator=(KeyValueCache other) noexcept;
  ~KeyValueCache() = default;

  /// Returns the number of positions held, S.
  [[nodiscard]] std::int64_t length() const { return length_; }

  /// Returns the number of positions that fit without reallocation.
  [[nodiscard]] std::int64_t capacity() const { return keys_.defined() ? keys_.size(2) : 0; }

  /// Returns the stored keys and values, `[B, H, S, d]` each: views, valid until the next `select`.
  [[nodiscard]] KeyValues view() const;

  /// Appends N positions, `[B, H, N, d]` each. Throws UsageError for keys or values of another shape, type or
  /// device than those held, and for any that require gradients.
  void append(const KeyValues& next);

  /// Replaces the rows by those that `rows` (int64 `[R]`, on the device of the keys) lists, in its order: the
  /// rows that continue, or the parents of a beam. A row may be listed several times.
  void select(const at::Tensor& rows);

 private:
  static constexpr std::int64_t kFirstPositions = 32;

  void check(const at::Tensor& held, const at::Tensor& next, const char* name) const;
  static at::Tensor grown(const at::Tensor& held, const at::Tensor& next, std::int64_t length,
                          std::int64_t capacity);
  static void take_rows(at::Tensor& held, at::Tensor& spare, const at::Tensor& rows, std::int64_t length);

  at::Tensor keys_, values_;              // [B, H, capacity, d]
  at::Tensor spare_keys_, spare_values_;  // where `select` writes to
  std::int64_t length_ = 0, reserved_ = 0;
};

// ---- Implementation ----

inline KeyValueCache::KeyValueCache(const KeyValueCache& other)
    : keys_(other.keys_.defined() ? other.keys_.clone() : at::Tensor()),
      values_(other.values_.defined() ? other.values_.clone() : at::Tensor()),
      length_(other.length_),
      reserved_(other.reserved_) {}

inline KeyValueCache& KeyValueCache::operator=(KeyValueCache other) noexcept {
  std::swap(keys_, other.keys_);
  std::swap(values_, other.values_);
  std::swap(spare_keys_, other.spare_keys_);
  std::swap(spare_values_, other.spare_values_);
  std::swap(length_, other.length_);
  std::swap(reserved_, other.reserved_);
  return *this;
}

inline KeyValues KeyValueCache::view() const {
  if (!keys_.defined()) return {};
  return {keys_.narrow(2, 0, length_), values_.narrow(2, 0, length_)};
}

inline void KeyValueCache::append(const KeyValues& next) {
  check(keys_, next.keys, "keys");
  check(values_, next.values, "values");
  const auto count = next.keys.size(2);
  if (next.values.size(2) != count)
    throw UsageError(message("KeyValueCache: keys ", next.keys.sizes(), " and values ", next.values.sizes(),
                             " are not of the same number of positions"));
  if (const auto needed = length_ + count; !keys_.defined() || needed > capacity()) {
    const auto room = std::max({needed, 2 * capacity(), reserved_, kFirstPositions});
    keys_ = grown(keys_, next.keys, length_, room);
    values_ = grown(values_, next.values, length_, room);
    spare_keys_.reset();
    spare_values_.reset();
  }
  keys_.narrow(2, length_, count).copy_(next.keys);
  values_.narrow(2, length_, count).copy_(next.values);
  length_ += count;
}

inline void KeyValueCache::select(const at::Tensor& rows) {
  if (!keys_.defined()) return;
  take_rows(keys_, spare_keys_, rows, length_);
  take_rows(values_, spare_values_, rows, length_);
}

inline void KeyValueCache::check(const at::Tensor& held, const at::Tensor& next, const char* name) const {
  if (!next.defined() || next.dim() != 4)
    throw UsageError(message("KeyValueCache: expected ", name, " [B, H, N, d], got ",
                             next.defined() ? message(next.sizes()) : "an undefined tensor"));
  if (next.requires_grad() && at::GradMode::is_enabled())
    throw UsageError(message("KeyValueCache: gradients are wanted of the ", name,
                             ", and none flow through a cache; decode under torch::NoGradGuard"));
  if (!held.defined()) return;
  const bool fits =
      held.size(0) == next.size(0) && held.size(1) == next.size(1) && held.size(3) == next.size(3);
  if (!fits || held.scalar_type() != next.scalar_type() || held.device() != next.device())
    throw UsageError(message("KeyValueCache: ", name, ' ', next.sizes(), ' ', next.scalar_type(), " on ",
                             next.device(), " do not continue those held, ",
                             held.narrow(2, 0, length_).sizes(), ' ', held.scalar_type(), " on ",
                             held.device()));
}

inline at::Tensor KeyValueCache::grown(const at::Tensor& held, const at::Tensor& next, std::int64_t length,
                                       std::int64_t capacity) {
  auto room = at::empty({next.size(0), next.size(1), capacity, next.size(3)}, next.options());
  if (held.defined()) room.narrow(2, 0, length).copy_(held.narrow(2, 0, length));
  return room;
}

/// Copies rows from one block to the other and swaps them, so that selecting for each token of a beam search
/// allocates nothing.
inline void KeyValueCache::take_rows(at::Tensor& held, at::Tensor& spare, const at::Tensor& rows,
                                     std::int64_t length) {
  auto shape = held.sizes().vec();
  shape[0] = rows.numel();
  if (!spare.defined() || spare.sizes() != at::IntArrayRef(shape)) spare = at::empty(shape, held.options());
  auto taken = spare.narrow(2, 0, length);
  at::index_select_out(taken, held.narrow(2, 0, length), 0, rows);
  std::swap(held, spare);
  if (spare.size(0) != held.size(0)) spare.reset();
}

}  // namespace looptorch
