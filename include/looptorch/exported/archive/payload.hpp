// SPDX-License-Identifier: MIT
// Reads the weights and constants in a .pt2. A JSON list in the archive gives each tensor's file and bytes;
// the tensors are views of the mapped archive.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/exported/archive/pt2_archive.hpp>
#include <looptorch/exported/archive/schema_values.hpp>
#include <looptorch/state/weights/torch_files/strided_bounds.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace looptorch::detail::exported {

/// A tensor of the archive, on the CPU whatever device it was saved from.
struct StoredTensor {
  std::string name;
  at::Tensor tensor;
  at::Device device = at::kCPU;  ///< as saved
  bool is_parameter = false;
};

/// Returns the sizes or strides of a tensor. Throws ExportedModelError and JsonError.
[[nodiscard]] inline std::vector<std::int64_t> stored_numbers(const Json& list) {
  constexpr std::size_t kMost = 64;
  if (list.as_array().size() > kMost) throw ExportedModelError("has a tensor of more than 64 dimensions");
  std::vector<std::int64_t> numbers;
  for (const Json& number : list.as_array()) {
    numbers.push_back(number.at("as_int").as_int());
    if (numbers.back() < 0) throw ExportedModelError("has a tensor of a negative size or stride");
  }
  return numbers;
}

/// Returns a tensor that is known to lie within `bytes`.
[[nodiscard]] inline at::Tensor stored_view(const at::Tensor& bytes, const Json& meta) {
  return at::empty({0}, at::TensorOptions(dtype_of(meta.at("dtype"))))
      .set_(bytes.storage(), meta.at("storage_offset").at("as_int").as_int(),
            stored_numbers(meta.at("sizes")), stored_numbers(meta.at("strides")));
}

/// Returns the bytes of a file in the archive, as a view of the mapping; a file that is not aligned is
/// copied.
[[nodiscard]] inline at::Tensor bytes_of(std::string_view record, std::shared_ptr<MappedFile> file) {
  if (record.empty()) return at::empty({0}, at::kByte);
  auto* const data = const_cast<char*>(record.data());  // the mapping is private
  const at::Tensor bytes = at::from_blob(
      data, {static_cast<std::int64_t>(record.size())}, [kept = std::move(file)](void*) {},
      at::TensorOptions(at::kByte));
  constexpr std::uintptr_t kAlignment = 16;  // PyTorch aligns to 64
  return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0 ? bytes : bytes.clone();
}

class PayloadReader {
 public:
  /// `folder` is "data/weights/" or "data/constants/". Both outlive this object.
  PayloadReader(const Pt2Archive& archive, std::string folder)
      : archive_(archive), folder_(std::move(folder)) {}

  /// Returns the tensors of a list in its order. Entries for the same bytes, type and shape share one tensor.
  /// Throws ExportedModelError and JsonError.
  [[nodiscard]] std::vector<StoredTensor> read(const Json& list) {
    std::vector<StoredTensor> all;
    for (const auto& [name, meta] : list.at("config").as_object()) all.push_back(read_one(name, meta));
    return all;
  }

 private:
  StoredTensor read_one(const std::string& name, const Json& meta) {
    const Json& file = meta.at("path_name");
    if (meta.at("use_pickle").as_bool() || meta.at("tensor_meta").is_null())
      throw ExportedModelError("\"" + name +
                               "\" is pickled, as tensors of classes of their own and custom objects are. No "
                               "pickle is read: make it a plain tensor before exporting");
    const Json& tensor = meta.at("tensor_meta");
    (void)layout_of(tensor.at("layout"));
    const bool is_parameter = meta.at("is_param").as_bool();
    StoredTensor stored{name, view(name, file.as_string(), tensor, is_parameter),
                        device_of(tensor.at("device")), is_parameter};
    const bool trains = tensor.at("requires_grad").as_bool();
    if (trains && !stored.tensor.is_floating_point() && !stored.tensor.is_complex())
      throw ExportedModelError("\"" + name + "\" requires gradients, and is of integers");
    if (is_parameter) stored.tensor.set_requires_grad(trains);
    return stored;
  }

  at::Tensor view(const std::string& name, const std::string& file, const Json& meta, bool is_parameter) {
    const auto dtype = dtype_of(meta.at("dtype"));
    const auto sizes = stored_numbers(meta.at("sizes")), strides = stored_numbers(meta.at("strides"));
    const auto offset = meta.at("storage_offset").at("as_int").as_int();
    at::Tensor& known = views_[{file, dtype, sizes, strides, offset}];
    if (known.defined()) return known;
    at::Tensor& bytes = files_[file];
    if (!bytes.defined()) bytes = bytes_of(archive_.record(folder_ + file), archive_.file());
    const auto available = bytes.numel() / static_cast<std::int64_t>(c10::elementSize(dtype));
    if (!lies_within(offset, sizes, strides, available))
      throw ExportedModelError(message("\"", name, "\" of sizes ", at::IntArrayRef(sizes), " and strides ",
                                       at::IntArrayRef(strides), " from ", offset, " on reaches beyond ",
                                       file, ", which has ", available, " elements"));
    known = stored_view(bytes, meta);
    if (is_parameter && known.numel() > available)
      throw ExportedModelError("the parameter \"" + name + "\" lies upon itself");
    return known;
  }

  using Place = std::tuple<std::string, at::ScalarType, std::vector<std::int64_t>, std::vector<std::int64_t>,
                           std::int64_t>;
  const Pt2Archive& archive_;
  std::string folder_;
  std::map<std::string, at::Tensor> files_;
  std::map<Place, at::Tensor> views_;
};

}  // namespace looptorch::detail::exported
