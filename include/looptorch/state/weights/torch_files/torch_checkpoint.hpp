// SPDX-License-Identifier: MIT
// Reads the weights in files of Python's torch.save (.pt, .pth, .bin). Such a file is a ZIP archive: a pickle
// names the tensors, and other entries hold their data, which are mapped. Nothing in the file is run: a
// pickle that asks for more than tensors and plain values is refused by an error that names what it asks for.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/mapped_file.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/state/weights/torch_files/checkpoint_parts.hpp>
#include <looptorch/state/weights/torch_files/pickle.hpp>
#include <looptorch/state/weights/torch_files/torch_host.hpp>
#include <looptorch/state/weights/torch_files/zip_directory.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// Thrown for a file that is no valid checkpoint of torch.save. Names the file.
struct TorchCheckpointError : Error {
  using Error::Error;
};

/// The weights in a file of torch.save.
struct TorchCheckpoint {
  TensorMap tensors;
  std::string
      inside;  ///< The key of the dictionary that had them, as "model_state_dict"; empty: the top level.
  std::vector<std::string> beside{};  ///< Keys that were not read, as "epoch" and "optimizer_state_dict".
};

/// Reads the weights of a file of torch.save into CPU tensors: views of the file, mapped privately, or, with
/// `mapped` false, views of copies of its storages. Tied tensors share their memory. Takes the tensors under
/// the key `inside`; if that is empty, under the first usual key ("model_state_dict", "state_dict", "model",
/// ...) that has any, else at the top level, else under the only key that has any; at the top level also
/// where that has the same names, or more tensors, beside an average ("ema"). Throws FileError if the
/// file cannot be read. Throws TorchCheckpointError for an archive or a pickle that is not valid or holds
/// anything but tensors and plain values, and if no key, or more than one, has tensors.
[[nodiscard]] TorchCheckpoint load_torch_checkpoint(const std::filesystem::path& path,
                                                    const std::string& inside = {}, bool mapped = true);

/// Reads all dictionaries of tensors of such a file, for a checkpoint of several models. Throws what
/// load_torch_checkpoint throws for the file, but nothing for its keys.
[[nodiscard]] CheckpointParts load_checkpoint_parts(const std::filesystem::path& path, bool mapped = true);

namespace detail {

inline CheckpointParts read_torch_archive(const std::shared_ptr<MappedFile>& file, bool mapped) {
  constexpr std::size_t kMaxPickle = std::size_t{1} << 28;
  const ZipDirectory archive({reinterpret_cast<const char*>(file->data()), file->size()});
  std::string folder;
  for (const auto& [name, bytes] : archive.files())
    if (name.ends_with("/data.pkl"))
      folder = name.substr(0, name.size() - std::string_view("data.pkl").size());
  if (archive.files().contains(folder + "constants.pkl"))
    throw ZipError(
        "the archive is a TorchScript program. Write its weights alone: python -c \"import torch; "
        "torch.save(torch.jit.load('IN').state_dict(), 'OUT')\"");
  if (folder.empty()) {
    for (const std::string& name : archive.compressed())
      if (name.ends_with("/data.pkl"))
        throw ZipError(
            "the archive has its data.pkl compressed, and only archives without compression are read, as "
            "torch.save writes them");
    throw ZipError("the archive has no data.pkl: torch.save has not written it");
  }
  const auto order = archive.files().find(folder + "byteorder");
  if (order != archive.files().end() && order->second != "little")
    throw ZipError("the archive is of a machine with another order of bytes");
  const std::string_view pickle = archive.files().at(folder + "data.pkl");
  if (pickle.size() > kMaxPickle) throw ZipError("the archive's pickle is larger than 256 MiB");
  TorchHost host(file, archive, folder, mapped);
  Unpickler unpickler(pickle, host);
  host.set_unpickler(unpickler);
  return parts_of(unpickler.run());
}

/// True for a file of torch.save, also one of an older kind. The first eight bytes of safetensors are the
/// length of a header, which is never that large.
[[nodiscard]] inline bool is_torch_checkpoint(const InputFile& file) {
  std::array<char, 8> begin{};
  if (file.size() < begin.size()) return false;
  file.read_at(0, begin.data(), begin.size());
  const std::string_view bytes(begin.data(), begin.size());
  return (ZipDirectory::begins(bytes) && bytes.substr(4) != std::string_view("\0\0\0\0", 4)) ||
         bytes.starts_with("\x80\x02\x8a\x0a");
}

/// Returns what `read` makes of the file's dictionaries. Names the file in errors.
template <class Read>
auto read_torch_file(const std::filesystem::path& path, bool mapped, const Read& read) {
  const InputFile file(path);
  const auto file_bytes = std::make_shared<MappedFile>(file);
  const std::string_view bytes(reinterpret_cast<const char*>(file_bytes->data()), file_bytes->size());
  try {
    if (!bytes.empty() && !ZipDirectory::begins(bytes))
      throw ZipError(
          "is no archive. If an old torch.save wrote it, convert it: python -c \"import torch; "
          "torch.save(torch.load('IN', weights_only=True), 'OUT')\"");
    return read(read_torch_archive(file_bytes, mapped));
  } catch (const ZipError& error) {
    throw TorchCheckpointError(message(path.string(), ": ", error.what()));
  } catch (const PickleError& error) {
    throw TorchCheckpointError(message(path.string(), ": its pickle ", error.what()));
  }
}

/// Returns the weights of one model in a checkpoint. Throws what choose_part throws.
[[nodiscard]] inline TorchCheckpoint weights_of(CheckpointParts parts, const std::string& inside = {}) {
  auto key = choose_part(parts, inside);
  auto beside = parts.beside({key});
  return {std::move(key.empty() ? parts.own : parts.within.at(key)), std::move(key), std::move(beside)};
}

}  // namespace detail

inline CheckpointParts load_checkpoint_parts(const std::filesystem::path& path, bool mapped) {
  return detail::read_torch_file(path, mapped, [](CheckpointParts parts) { return parts; });
}

inline TorchCheckpoint load_torch_checkpoint(const std::filesystem::path& path, const std::string& inside,
                                             bool mapped) {
  return detail::read_torch_file(
      path, mapped, [&](CheckpointParts parts) { return detail::weights_of(std::move(parts), inside); });
}

}  // namespace looptorch
