// SPDX-License-Identifier: MIT
// Reads large models as Hugging Face splits them: several files and an index, usually
// `model.safetensors.index.json`, that maps each tensor to its file. The files are safetensors, or those of
// torch.save. Costs what load_safetensors costs.
#pragma once

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/state/weights/torch_files/torch_checkpoint.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>

namespace looptorch {

/// Reads all files that `index` names, in its folder or in folders below. Throws FileError for a file that
/// cannot be read. Throws SafetensorsError for an index that is not valid, names a file elsewhere, or does
/// not list exactly what the files hold.
[[nodiscard]] Safetensors load_safetensors_index(const std::filesystem::path& index,
                                                 const SafetensorsOptions& options = {});

/// Reads a safetensors file, a file of torch.save (see load_torch_checkpoint), an index (`*.json`), or what a
/// folder has of these: `model.safetensors`, `pytorch_model.bin`, or one of them with `.index.json`. Throws
/// what load_safetensors, load_torch_checkpoint and load_safetensors_index throw, and FileError for a folder
/// that has none.
[[nodiscard]] Safetensors load_safetensors_any(const std::filesystem::path& path,
                                               const SafetensorsOptions& options = {});

namespace detail {

inline void require_no_key(const std::string& inside, const std::filesystem::path& path) {
  if (!inside.empty())
    throw UsageError(message(path.string(), ": the key \"", inside,
                             "\" was asked for, and only a whole file of torch.save has keys"));
}

/// Reads a safetensors file or one of torch.save, whichever it is. `inside` is the key under which a file of
/// torch.save has the weights; if it is empty, it is set to that key.
inline Safetensors load_weight_file(const std::filesystem::path& path, const SafetensorsOptions& options,
                                    std::string& inside) {
  if (!is_torch_checkpoint(InputFile(path))) {
    require_no_key(inside, path);
    return load_safetensors(path, options);
  }
  TorchCheckpoint checkpoint = load_torch_checkpoint(path, inside, options.mapped);
  inside = std::move(checkpoint.inside);
  return {std::move(checkpoint.tensors), {}};
}

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
    std::string inside;
    detail::take_shard(index, shard, map,
                       detail::load_weight_file(index.parent_path() / shard, options, inside), out);
  }
  for (const auto& [tensor, shard] : map) {
    if (!out.tensors.contains(tensor)) {
      detail::throw_safetensors_error(index, tensor, "is not in \"", shard, "\", where it should be");
    }
  }
  return out;
}

namespace detail {

/// Loads what load_safetensors_any loads, and sets `inside` for a file of torch.save.
inline Safetensors load_any_weights(const std::filesystem::path& path, const SafetensorsOptions& options,
                                    std::string& inside) {
  std::error_code ignored;  // opening the path reports what is wrong with it
  if (!std::filesystem::is_directory(path, ignored)) {
    if (path.extension() != ".json") return load_weight_file(path, options, inside);
    require_no_key(inside, path);
    return load_safetensors_index(path, options);
  }
  for (const char* const name : {"model.safetensors", "pytorch_model.bin"}) {
    const auto whole = path / name, index = path / (std::string(name) + ".index.json");
    if (std::filesystem::exists(whole, ignored)) return load_weight_file(whole, options, inside);
    if (!std::filesystem::exists(index, ignored)) continue;
    require_no_key(inside, index);
    return load_safetensors_index(index, options);
  }
  return load_safetensors(path / "model.safetensors", options);  // throws
}

}  // namespace detail

inline Safetensors load_safetensors_any(const std::filesystem::path& path,
                                        const SafetensorsOptions& options) {
  std::string inside;
  return detail::load_any_weights(path, options, inside);
}

}  // namespace looptorch
