// SPDX-License-Identifier: MIT
// Opens the data files that are given by --train and --validation. Each becomes a Source, from which samples
// are read.
#pragma once

#include "check_fits.hpp"
#include "json_lines.hpp"
#include "source.hpp"
#include "tensor_files.hpp"

#include <filesystem>
#include <memory>
#include <vector>

namespace finetune_exported {

/// Opens a .safetensors file, a folder of them, or a .jsonl file. Throws DataError.
inline std::shared_ptr<const Source> open_source(const fs::path& path, const std::vector<Column>& columns,
                                                 const SoundOptions& sounds) {
  if (!fs::exists(path)) throw DataError(path.string() + ": is missing");
  if (path.extension() == ".jsonl") return std::make_shared<JsonLines>(path, columns, sounds);
  if (path.extension() == ".safetensors" || fs::is_directory(path))
    return std::make_shared<TensorFiles>(path, columns);
  throw DataError(path.string() + ": is neither .safetensors, nor a folder of such files, nor .jsonl");
}

}  // namespace finetune_exported
