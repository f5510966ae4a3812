// SPDX-License-Identifier: MIT
// Reads large models as Hugging Face splits them: several safetensors files and an index, usually
// `model.safetensors.index.json`, that maps each tensor to its file. Costs what load_safetensors costs.
#pragma once

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>

namespace looptorch {

/// Reads all files that `index` names, which lie beside it or in folders below. Throws FileError for a file
/// that cannot be read. Throws SafetensorsError for an index that is not sound, names a file elsewhere, or
/// does not list exactly what the files hold.
[[nodiscard]] Safetensors load_safetensors_index(const std::filesystem::path& index,
                                                 const SafetensorsOptions& options = {});

/// Reads a safetensors file, an index (`*.json`), or the `model.safetensors` or
/// `model.safetensors.index.json` of a folder. Throws what load_safetensors and load_safetensors_index throw,
/// and FileError for a folder that has neither.
[[nodiscard]] Safetensors load_safetensors_any(const std::filesystem::path& path,
                                               const SafetensorsOptions& options = {});

namespace detail {

/// File names by tensor name.
using WeightMap = std::map<std::string, std::string, std::less<>>;

/// Throws SafetensorsError for a file name outside the index's folder, so that an index cannot reach other
/// files on the disk.
inline void check_shard_name(const std::filesystem::path& index, const std::string& tensor,
                             const std::string& shard) {
  const std::filesystem::path path(shard);
  bool is_below = path.is_relative() && path.has_filename() && shard.find('\0') == std::string::npos;
  for (const auto& part : path) is_below = is_below && part != "..";
  if (!is_below)
    throw_safetensors_error(index, tensor, "is in \"", shard, "\", which is not below the index");
}

inline WeightMap read_weight_map(const std::filesystem::path& index) {
  WeightMap map;
  try {
    const auto json = Json::parse(read_file(index, JsonLimits{}.max_bytes));
    for (const auto& [tensor, shard] : json.at("weight_map").as_object()) {
      check_shard_name(index, tensor, shard.as_string());
      map.emplace(tensor, shard.as_string());
    }
  } catch (const JsonError& error) {
    throw SafetensorsError(message(index.string(), ": ", error.what()));
  }
  return map;
}

/// Moves one file's tensors to `to`. Throws SafetensorsError for a tensor that the index does not list in
/// this file.
inline void take_shard(const std::filesystem::path& index, const std::string& shard, const WeightMap& map,
                       Safetensors from, Safetensors& to) {
  for (auto& [name, tensor] : from.tensors) {
    const auto listed = map.find(name);
    if (listed == map.end() || listed->second != shard) {
      throw_safetensors_error(index, name, "is in \"", shard, "\", which the index does not say");
    }
    to.tensors.emplace(name, std::move(tensor));
  }
  to.metadata.merge(std::move(from.metadata));
}

}  // namespace detail

inline Safetensors load_safetensors_index(const std::filesystem::path& index,
                                          const SafetensorsOptions& options) {
  const auto map = detail::read_weight_map(index);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map) shards.insert(shard);
  Safetensors out;
  for (const auto& shard : shards) {
    detail::take_shard(index, shard, map, load_safetensors(index.parent_path() / shard, options), out);
  }
  for (const auto& [tensor, shard] : map) {
    if (!out.tensors.contains(tensor)) {
      detail::throw_safetensors_error(index, tensor, "is not in \"", shard, "\", where it should be");
    }
  }
  return out;
}

inline Safetensors load_safetensors_any(const std::filesystem::path& path,
                                        const SafetensorsOptions& options) {
  std::error_code ignored;  // opening the path reports what is wrong with it
  if (!std::filesystem::is_directory(path, ignored)) {
    return path.extension() == ".json" ? load_safetensors_index(path, options)
                                       : load_safetensors(path, options);
  }
  const auto whole = path / "model.safetensors", index = path / "model.safetensors.index.json";
  if (std::filesystem::exists(whole, ignored)) return load_safetensors(whole, options);
  if (std::filesystem::exists(index, ignored)) return load_safetensors_index(index, options);
  if (std::filesystem::exists(path / "pytorch_model.bin", ignored))
    throw FileError(path.string() +
                    ": holds pytorch_model.bin and no model.safetensors; save the model as safetensors "
                    "(transformers' save_pretrained does)");
  return load_safetensors(whole, options);  // throws
}

}  // namespace looptorch
