// SPDX-License-Identifier: MIT
// Archives of torch.export that a test takes apart, changes and puts together.
#pragma once

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/torch_files/zip_directory.hpp>

#include <caffe2/serialize/inline_container.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

namespace archives {

/// Files by their names, without the archive's root.
using Records = std::map<std::string, std::string>;

inline Records read(const std::filesystem::path& path) {
  const std::string bytes = looptorch::read_file(path);
  Records records;
  const looptorch::detail::ZipDirectory archive(bytes);
  for (const auto& [name, record] : archive.files())
    if (name.find(".data/") == std::string::npos) records[name.substr(name.find('/') + 1)] = record;
  return records;
}

inline void write(const std::filesystem::path& path, const Records& records) {
  std::filesystem::remove(path);
  caffe2::serialize::PyTorchStreamWriter writer(path.string());
  writer.setMinVersion(6);
  for (const auto& [name, bytes] : records)
    if (name != "byteorder") writer.writeRecord(name, bytes.data(), bytes.size());
  writer.writeRecord("byteorder", records.at("byteorder").data(), records.at("byteorder").size());
  writer.writeEndOfFile();
}

/// Replaces each `from` in a file of the archive.
inline Records with(Records records, const std::string& file, const std::string& from,
                    const std::string& to) {
  std::string& text = records.at(file);
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return records;
}

}  // namespace archives
