// SPDX-License-Identifier: MIT
// Writes a program's tensors to a .pt2: the bytes of each storage, and a list of where each tensor lies in
// them.
#pragma once

#include <looptorch/base/json/json.hpp>
#include <looptorch/export/files/pt2_schema.hpp>
#include <looptorch/export/program/exported_program.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <caffe2/serialize/inline_container.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail::pt2 {

struct SavedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = false;
};

/// Returns the metadata of a tensor.
[[nodiscard]] inline TensorMeta meta_of(const at::Tensor& tensor) {
  TensorMeta meta{tensor.scalar_type(), tensor.device(), tensor.requires_grad()};
  for (const auto size : tensor.sizes()) meta.sizes.emplace_back(size);
  for (const auto stride : tensor.strides()) meta.strides.emplace_back(stride);
  return meta;
}

/// Writes records `FOLDER/STEM0`, `FOLDER/STEM1`, ... and returns the list. Tensors that share memory share a
/// record; a view of more than the tensors need, as of a mapped file, is copied.
[[nodiscard]] inline Json write_tensors(caffe2::serialize::PyTorchStreamWriter& writer,
                                        const std::vector<SavedTensor>& tensors, const std::string& folder,
                                        const std::string& stem) {
  std::map<const void*, int> users;
  for (const auto& each : tensors) ++users[each.tensor.storage().unsafeGetStorageImpl()];
  std::map<const void*, std::string> records;
  Json config = Json::object();
  int count = 0;
  for (const auto& each : tensors) {
    at::Tensor tensor = each.tensor.detach().cpu();
    const void* const storage = each.tensor.storage().unsafeGetStorageImpl();
    const bool is_alone = users[storage] == 1;
    if (is_alone && tensor.storage().nbytes() != tensor.nbytes())
      tensor = tensor.clone(at::MemoryFormat::Contiguous);
    std::string& record = records[storage];
    if (record.empty()) {
      record = stem + std::to_string(count++);
      writer.writeRecord(folder + "/" + record, tensor.storage().data(), tensor.storage().nbytes());
    }
    auto meta = meta_of(tensor);
    meta.device = each.tensor.device();
    meta.requires_grad = each.tensor.requires_grad();
    config.set(each.name, object({{"path_name", record},
                                  {"is_param", each.is_parameter},
                                  {"use_pickle", false},
                                  {"tensor_meta", tensor_meta(meta, {}, tensor.storage_offset())}}));
  }
  return one("config", std::move(config));
}

}  // namespace looptorch::detail::pt2
