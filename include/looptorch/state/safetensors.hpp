// SPDX-License-Identifier: MIT
// safetensors, the format in which Hugging Face keeps weights: a JSON header, then raw little-endian tensors.
// Reading checks the whole header against the file before it allocates; tensors are read in place, so the
// peak is the size of the data. Writing gives the bytes that Python's safetensors gives, by AtomicFile.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/state/atomic_file.hpp>
#include <looptorch/state/safetensors_header.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// Tensors by name, in the order of their names.
using TensorMap = std::map<std::string, at::Tensor, std::less<>>;

/// What a safetensors file holds.
struct Safetensors {
  TensorMap tensors;
  SafetensorsMetadata metadata;
};

/// Reads a file into CPU tensors. Throws FileError if it cannot be read, and SafetensorsError, which names
/// file and tensor, if the header is not sound: its length, its JSON, a dtype or shape against the data,
/// overlaps, holes.
[[nodiscard]] Safetensors load_safetensors(const std::filesystem::path& path);

/// Writes tensors of any device, strided, contiguous or not; one at a time is copied to the CPU. Throws
/// FileError, and SafetensorsError for a tensor or name that the format cannot hold; then the target is as it
/// was.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const SafetensorsMetadata& metadata = {});

namespace detail {

inline SafetensorsEntry describe_tensor(const std::filesystem::path& path, const std::string& name,
                                        const at::Tensor& tensor) {
  if (!tensor.defined()) throw_safetensors_error(path, name, "is undefined");
  if (tensor.layout() != at::kStrided) throw_safetensors_error(path, name, "is not strided");
  const auto* type = find_safetensors_type(tensor.scalar_type());
  if (!type) {
    throw_safetensors_error(path, name, "has a dtype that safetensors lacks: ", tensor.scalar_type());
  }
  return {name, type, tensor.sizes().vec()};
}

/// Python's order, which keeps every tensor aligned: widest type first, then by name.
inline std::vector<SafetensorsEntry> lay_out(const std::filesystem::path& path, const TensorMap& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back(describe_tensor(path, name, tensor));
  std::stable_sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.type < b.type; });
  std::uint64_t offset = 0;
  for (auto& entry : entries) {
    entry.begin = offset;
    entry.end = offset += static_cast<std::uint64_t>(tensors.find(entry.name)->second.nbytes());
  }
  return entries;
}

}  // namespace detail

inline Safetensors load_safetensors(const std::filesystem::path& path) {
  const InputFile file(path);
  auto header = detail::read_safetensors_header(file);
  Safetensors out{{}, std::move(header.metadata)};
  for (const auto& entry : header.entries) {
    auto tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.type->scalar_type));
    file.read_at(header.data_begin + entry.begin, tensor.data_ptr(),
                 static_cast<std::size_t>(entry.end - entry.begin));
    out.tensors.emplace(entry.name, std::move(tensor));
  }
  return out;
}

inline void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                             const SafetensorsMetadata& metadata) {
  const auto entries = detail::lay_out(path, tensors);
  const auto header = detail::format_safetensors_header(path, entries, metadata);
  AtomicFile file(path);
  file.write(header);
  for (const auto& entry : entries) {
    const auto tensor =
        tensors.find(entry.name)->second.detach().cpu().resolve_conj().resolve_neg().contiguous();
    file.write(tensor.data_ptr(), tensor.nbytes());
  }
  file.commit();
}

}  // namespace looptorch
