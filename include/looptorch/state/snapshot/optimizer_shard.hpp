// SPDX-License-Identifier: MIT
// Writes and reads the file in which one rank saves its shard of the optimizers' state (ShardOptimizer). Each
// rank writes its file next to the snapshot, and the rank that writes the snapshot moves all of them into it.
// A resume joins the shards, so it may have another number of ranks than the run that saved them.
//
// The file names a tensor's shard "KEY[BEGIN:END of SIZES]", by the range of its elements. It names a number,
// such as a step count, "KEY[int]", "KEY[double]" or "KEY[bool]".
#pragma once

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/files/output_file.hpp>
#include <looptorch/state/snapshot/snapshot_error.hpp>
#include <looptorch/state/snapshot/snapshot_image.hpp>
#include <looptorch/state/snapshot/snapshot_manifest.hpp>
#include <looptorch/state/snapshot/snapshot_names.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns where rank `rank` writes its shard of the snapshot of `step`; the listing's name adds ".json".
[[nodiscard]] inline std::filesystem::path shard_path(const std::filesystem::path& folder, std::int64_t step,
                                                      std::int64_t rank) {
  return folder / message('.', snapshot_name(step), '.', shard_file_name(rank));
}
/// True for names that `shard_path` makes. A killed run leaves such files behind.
[[nodiscard]] inline bool is_left_shard(std::string_view name) {
  return name.starts_with(".step-") && name.find(".optimizer.rank-") != std::string_view::npos;
}

[[nodiscard]] inline std::string name_of_elements(const std::string& key, std::int64_t begin,
                                                  std::int64_t end, at::IntArrayRef sizes) {
  std::string shape;
  for (const std::int64_t size : sizes) shape += message(shape.empty() ? "" : "x", size);
  return message(key, '[', begin, ':', end, " of ", shape, ']');
}
/// Adds a number to `out` as a tensor of no dimensions.
inline void put_number(const std::string& key, const StateDict::Value& value, TensorMap& out) {
  if (const auto* flag = value.get_if<bool>())
    out.emplace(key + "[bool]", at::scalar_tensor(*flag, at::kBool));
  else if (const auto* whole = value.get_if<std::int64_t>())
    out.emplace(key + "[int]", at::scalar_tensor(*whole, at::kLong));
  else if (const auto* number = value.get_if<double>())
    out.emplace(key + "[double]", at::scalar_tensor(*number, at::kDouble));
}

/// Writes a rank's tensors and their listing. Throws FileError, SafetensorsError.
inline void write_shard(const std::filesystem::path& folder, std::int64_t step, std::int64_t rank,
                        const TensorMap& tensors) {
  const std::filesystem::path path = shard_path(folder, step, rank);
  make_folders(folder);
  FileImage image = image_of_tensors(path, tensors, {});
  image.listed.name = shard_file_name(rank);
  AtomicFile file(path);
  write_image(image, file);
  file.commit();
  SnapshotManifest listing;
  listing.step = step;
  listing.files.push_back(image.listed);
  write_file_atomically(path.string() + ".json", listing.text());
}

/// Removes a shard that belongs to no snapshot, and its listing.
inline void remove_shard(const std::filesystem::path& shard) noexcept {
  std::error_code ignored;
  std::filesystem::remove(shard, ignored);
  std::filesystem::remove(shard.string() + ".json", ignored);
}

/// Returns a shard's entry in the snapshot's manifest. Throws SnapshotError if this rank does not see the
/// file, and what reading it throws.
[[nodiscard]] inline ManifestFile listing_of(const std::filesystem::path& shard) {
  const std::filesystem::path path = shard.string() + ".json";
  if (std::error_code ignored; !std::filesystem::exists(path, ignored))
    throw SnapshotError(
        path.string() +
        ": another rank wrote this file, but this rank cannot find it. With ShardOptimizer the "
        "snapshots' folder must be on a disk that all ranks share");
  auto listing = SnapshotManifest::parse(path, read_file(path, kSnapshotJson.max_bytes));
  if (listing.files.size() != 1)
    throw SnapshotError(path.string() + ": lists another number of files than 1");
  return std::move(listing.files.front());
}

/// Joins the elements of tensors that several ranks have written, and restores numbers.
class JoinedShards {
 public:
  explicit JoinedShards(std::filesystem::path snapshot) : snapshot_(std::move(snapshot)) {}

  /// Throws SnapshotError for a tensor that lacks elements.
  void join(StateDict& state) {
    StateDict whole;
    for (const auto& [key, value] : state.values())
      if (const auto* tensor = value.get_if<at::Tensor>(); !tensor || !take(key, *tensor, whole))
        whole.set(key, value);
    state = StateDict();  // its shards are freed as they are joined
    while (!elements_.empty()) {
      const auto shards = elements_.extract(elements_.begin());
      whole.set(shards.key(), joined(shards.key(), shards.mapped()));
    }
    state = std::move(whole);
  }

 private:
  struct Elements {
    std::map<std::int64_t, at::Tensor> from;  // by the number of the first element
    std::vector<std::int64_t> sizes;
  };

  /// Takes a tensor whose name says that it is a shard or a number. Returns false for any other.
  bool take(const std::string& name, const at::Tensor& tensor, StateDict& whole) {
    const auto open = name.rfind('[');
    if (open == std::string::npos || name.back() != ']') return false;
    const std::string key = name.substr(0, open), what = name.substr(open + 1, name.size() - open - 2);
    if (what == "bool" || what == "int" || what == "double") {
      if (tensor.dim() != 0) return false;
      if (what == "bool")
        whole.set(key, StateDict::Value(tensor.item<bool>()));
      else if (what == "int")
        whole.set(key, StateDict::Value(tensor.item<std::int64_t>()));
      else
        whole.set(key, StateDict::Value(tensor.item<double>()));
      return true;
    }
    const auto colon = what.find(':'), of = what.find(" of ");
    if (colon == std::string::npos || of == std::string::npos) return false;
    Elements& elements = elements_[key];
    elements.from.emplace(std::strtoll(what.c_str(), nullptr, 10), tensor);
    elements.sizes.clear();
    for (const char* at = what.c_str() + of + 3; *at != '\0';) {
      char* end = nullptr;
      elements.sizes.push_back(std::strtoll(at + 1, &end, 10));
      at = end;
    }
    return true;
  }

  at::Tensor joined(const std::string& key, const Elements& elements) const {
    std::vector<at::Tensor> shards;
    std::int64_t done = 0, numel = 1;
    for (const std::int64_t size : elements.sizes) numel *= size;
    for (const auto& [begin, tensor] : elements.from) {
      if (begin != done) break;
      shards.push_back(tensor);
      done += tensor.numel();
    }
    if (done != numel || shards.size() != elements.from.size())
      throw SnapshotError(message(snapshot_.string(), ": of \"", key, "\", which ", numel,
                                  " elements make, those from ", done, " on are missing"));
    return at::cat(shards).view(elements.sizes);
  }

  std::filesystem::path snapshot_;
  std::map<std::string, Elements> elements_;
};

/// Removes shards that a killed run has left in a folder that no other run writes into.
inline void remove_left_shards(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (is_left_shard(entry.path().filename().string())) std::filesystem::remove(entry.path(), ignored);
}

}  // namespace looptorch::detail
