// SPDX-License-Identifier: MIT
// Reads and writes safetensors, Hugging Face's format for weights: a JSON header, then raw little-endian
// tensors. Reading checks the whole header against the file, then maps the data, and costs almost nothing
// until a tensor is used. Writing is atomic (AtomicFile), and the file has the bytes that Python's
// safetensors would write.
#pragma once

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/mapped_file.hpp>
#include <looptorch/state/weights/safetensors_header.hpp>
#include <looptorch/state/weights/safetensors_layout.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace looptorch {

/// The contents of a safetensors file.
struct Safetensors {
  TensorMap tensors;
  SafetensorsMetadata metadata;
};

/// Options for reading a file.
struct SafetensorsOptions {
  /// Makes the tensors views of the file, mapped privately: writing to one changes neither the file nor other
  /// readers. False reads all data at once into memory of their own, for a file that may be overwritten in
  /// place while the tensors live.
  bool mapped = true;
};

/// Reads a file into CPU tensors, each with a storage of its own. Throws FileError if the file cannot be read
/// or changes meanwhile. Throws SafetensorsError, which names file and tensor, if the header is not valid:
/// its length, its JSON, a dtype or shape against the data, overlaps, holes.
[[nodiscard]] Safetensors load_safetensors(const std::filesystem::path& path,
                                           const SafetensorsOptions& options = {});

/// Writes tensors of any device, strided, contiguous or not; one at a time is copied to the CPU. Throws
/// FileError. Throws SafetensorsError for a tensor or name that the format cannot hold and for tensors that
/// share memory, judged from first element to last, so that interleaved views count as sharing. Then the
/// target is unchanged.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const SafetensorsMetadata& metadata = {});

namespace detail {

inline at::Tensor allocate_tensor(const SafetensorsEntry& entry) {
  return at::empty(shape_in_torch(*entry.type, entry.shape),
                   at::TensorOptions().dtype(entry.type->scalar_type));
}

inline std::size_t bytes_of(const SafetensorsEntry& entry) {
  return static_cast<std::size_t>(entry.end - entry.begin);
}

inline bool is_aligned(const void* data, at::ScalarType type) {
  return reinterpret_cast<std::uintptr_t>(data) % c10::elementSize(type) == 0;
}

inline at::Tensor copy_tensor(const std::byte* data, const SafetensorsEntry& entry) {
  auto tensor = allocate_tensor(entry);
  std::memcpy(tensor.mutable_data_ptr(), data, bytes_of(entry));
  return tensor;
}

/// Returns a view that keeps the mapping alive, or a copy if another writer left the data unaligned.
inline at::Tensor map_tensor(const std::shared_ptr<MappedFile>& file, std::uint64_t data_begin,
                             const SafetensorsEntry& entry) {
  if (entry.begin == entry.end) return allocate_tensor(entry);
  std::byte* data = file->data() + data_begin + entry.begin;
  if (!is_aligned(data, entry.type->scalar_type)) return copy_tensor(data, entry);
  const auto shape = shape_in_torch(*entry.type, entry.shape);
  const auto keep_alive = [file](void*) {};
  return at::from_blob(data, shape, keep_alive, at::TensorOptions().dtype(entry.type->scalar_type));
}

inline TensorMap map_tensors(const InputFile& file, const SafetensorsHeader& header) {
  const auto mapped = std::make_shared<MappedFile>(file);
  TensorMap tensors;
  for (const auto& entry : header.entries) {
    tensors.emplace(entry.name, map_tensor(mapped, header.data_begin, entry));
  }
  return tensors;
}

inline TensorMap read_tensors(const InputFile& file, const SafetensorsHeader& header) {
  TensorMap tensors;
  for (const auto& entry : header.entries) {
    auto tensor = allocate_tensor(entry);
    file.read_at(header.data_begin + entry.begin, tensor.mutable_data_ptr(), bytes_of(entry));
    tensors.emplace(entry.name, std::move(tensor));
  }
  file.expect_unchanged();
  return tensors;
}

inline void write_tensor(AtomicFile& file, const at::Tensor& tensor) {
  const auto values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
  file.write(values.const_data_ptr(), values.nbytes());
}

}  // namespace detail

inline Safetensors load_safetensors(const std::filesystem::path& path, const SafetensorsOptions& options) {
  const InputFile file(path);
  auto header = detail::read_safetensors_header(file);
  auto tensors = options.mapped ? detail::map_tensors(file, header) : detail::read_tensors(file, header);
  return {std::move(tensors), std::move(header.metadata)};
}

namespace detail {

/// Writes `convert(name, tensor)` for each tensor, one at a time; floating-point results are in `dtype`.
template <class Convert>
void save_converted(const std::filesystem::path& path, const TensorMap& tensors,
                    const SafetensorsMetadata& metadata, std::optional<at::ScalarType> dtype,
                    Convert&& convert) {
  const auto entries = lay_out(path, tensors, dtype);
  check_sharing(path, tensors);
  const auto header = format_safetensors_header(path, entries, metadata);
  AtomicFile file(path);
  file.write(header);
  for (const auto& entry : entries) write_tensor(file, convert(entry.name, tensors.find(entry.name)->second));
  file.commit();
}

}  // namespace detail

inline void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                             const SafetensorsMetadata& metadata) {
  detail::save_converted(path, tensors, metadata, std::nullopt,
                         [](const std::string&, const at::Tensor& tensor) { return tensor; });
}

}  // namespace looptorch
