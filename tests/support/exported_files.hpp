// SPDX-License-Identifier: MIT
// Writes the .pt2 files of tests/parity/exported_models.py as torch.export.save does. The repository holds
// them compressed.
#pragma once

#include <caffe2/serialize/inline_container.h>

#include <filesystem>
#include <string>

namespace looptorch::testing {

/// Writes `folder`/NAME.pt2 with the entries of the compressed file, stored and aligned, and returns its
/// path.
inline std::filesystem::path stored_pt2(const std::string& name, const std::filesystem::path& folder) {
  const auto kept =
      std::filesystem::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/exported" / (name + ".pt2");
  const auto path = folder / (name + ".pt2");
  caffe2::serialize::PyTorchStreamReader reader(kept.string());
  caffe2::serialize::PyTorchStreamWriter writer(path.string());
  for (const auto& entry : reader.getAllRecords()) {
    if (entry.starts_with(".data/")) continue;  // which the writer makes
    const auto [data, size] = reader.getRecord(entry);
    writer.writeRecord(entry, data.get(), size);
  }
  writer.writeEndOfFile();
  return path;
}

}  // namespace looptorch::testing
