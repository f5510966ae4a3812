// SPDX-License-Identifier: MIT
// Packs texts into byte tensors of one size, so that ranks can gather them: 8 bytes for the length, then the
// text.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace looptorch::detail {

inline constexpr std::size_t kTextHead = sizeof(std::uint64_t);

/// Returns a tensor with the length of `text` and its first `capacity` bytes.
[[nodiscard]] inline at::Tensor packed_text(const std::string& text, std::size_t capacity) {
  const at::Tensor packed = at::empty({static_cast<std::int64_t>(kTextHead + capacity)}, at::kByte);
  auto* const bytes = packed.mutable_data_ptr<std::uint8_t>();
  const std::uint64_t length = text.size();
  std::memcpy(bytes, &length, kTextHead);
  std::memcpy(bytes + kTextHead, text.data(), std::min(text.size(), capacity));
  return packed;
}

[[nodiscard]] inline std::size_t text_length(const at::Tensor& packed) {
  std::uint64_t length = 0;
  std::memcpy(&length, packed.const_data_ptr<std::uint8_t>(), kTextHead);
  return length;
}
[[nodiscard]] inline std::size_t longest_text(const std::vector<at::Tensor>& packed) {
  std::size_t longest = 0;
  for (const at::Tensor& each : packed) longest = std::max(longest, text_length(each));
  return longest;
}

/// Returns the texts of tensors that hold them whole.
[[nodiscard]] inline std::vector<std::string> unpacked_texts(const std::vector<at::Tensor>& packed) {
  std::vector<std::string> texts;
  for (const at::Tensor& each : packed)
    texts.emplace_back(static_cast<const char*>(each.const_data_ptr()) + kTextHead, text_length(each));
  return texts;
}

}  // namespace looptorch::detail
