// SPDX-License-Identifier: MIT
// Writes an ExportedModel to a .pt2 after training. The new file is a copy of the one that was read, with the
// model's current weights. Python's torch.export.load reads both files in the same way.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/export/files/archive_file.hpp>
#include <looptorch/exported/archive/payload.hpp>
#include <looptorch/exported/exported_model.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <caffe2/serialize/inline_container.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch {
namespace detail::exported {

/// The place of a file's tensors in the archive.
struct Place {
  const at::Tensor* tensor;
  Json meta;
};

/// Returns the tensors of the model by the files of the archive that hold them.
[[nodiscard]] inline std::map<std::string, std::vector<Place>> places(const ProgramFile& file) {
  std::map<std::string, std::vector<Place>> all;
  const auto add = [&](const std::string& list, const std::string& folder) {
    const Json config = file.archive->json(list);
    for (const auto& [name, meta] : config.at("config").as_object())
      if (const auto found = file.tensors.by_name.find(name); found != file.tensors.by_name.end())
        all[folder + meta.at("path_name").as_string()].push_back({&found->second, meta.at("tensor_meta")});
  };
  add(file.archive->weights_file(), "data/weights/");
  add(file.archive->constants_file(), "data/constants/");
  return all;
}

/// Returns a file's bytes with the current tensors.
[[nodiscard]] inline at::Tensor with_tensors(const at::Tensor& before, const std::vector<Place>& places) {
  at::Tensor bytes = before.clone();
  for (const auto& [tensor, meta] : places) {
    at::Tensor target = stored_view(bytes, meta), source = *tensor;
    for (std::int64_t dim = 0; dim < target.dim(); ++dim)
      if (target.stride(dim) == 0 && target.size(dim) > 1)  // of `expand`: written once
        target = target.narrow(dim, 0, 1), source = source.narrow(dim, 0, 1);
    target.copy_(source);
  }
  return bytes;
}

inline void write_again(const ProgramFile& file, const std::filesystem::path& path) {
  for (const auto& [node, linear] : file.tensors.linears)
    if (linear->has_adapter() || linear->is_int8())
      throw UsageError(
          "the model has adapters, or weights in 8 bits, which its program knows nothing of: call "
          "fold_lora before it is exported");
  const at::NoGradGuard no_gradients;
  const auto changed = places(file);
  ArchiveFile target(path);
  {
    caffe2::serialize::PyTorchStreamWriter writer(target.writer());
    writer.setMinVersion(6);
    for (const std::string& name : file.archive->names()) {
      if (name.starts_with(".data/") || name == "version") continue;  // the writer's own
      const std::string_view record = file.archive->record(name);
      const auto found = changed.find(name);
      if (found == changed.end() || record.empty()) {
        writer.writeRecord(name, record.data(), record.size());
        continue;
      }
      const at::Tensor bytes = with_tensors(bytes_of(record, file.archive->file()), found->second);
      writer.writeRecord(name, bytes.const_data_ptr(), bytes.nbytes());
    }
    writer.writeEndOfFile();
  }
  target.commit();
}

}  // namespace detail::exported

/// Writes the program that the model was read from, with the model's current weights, whole or not at all.
/// Throws UsageError for a model with adapters or 8-bit weights, and FileError.
inline void save_exported(const ExportedModel& model, const std::filesystem::path& path) {
  detail::exported::write_again(model->program(), path);
}

}  // namespace looptorch
