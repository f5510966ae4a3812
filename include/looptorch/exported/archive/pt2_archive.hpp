// SPDX-License-Identifier: MIT
// Opens a .pt2, the archive that torch.export.save writes since PyTorch 2.9. It holds a program as JSON and
// the bytes of the program's tensors, which are mapped. Pickles in the archive are not read.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/files/mapped_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/state/weights/torch_files/zip_directory.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch::detail::exported {

class Pt2Archive {
 public:
  /// Throws FileError, ZipError, and ExportedModelError for an archive that is no .pt2.
  explicit Pt2Archive(const std::filesystem::path& path)
      : file_(std::make_shared<MappedFile>(InputFile(path))), zip_(bytes_of(*file_)) {
    find_program();
    expect("archive_format", "pt2");
    expect("archive_version", "0");
    expect("byteorder", "little");
    if (has("data/weights/" + program_ + ".pt"))
      throw ExportedModelError(
          "its weights are a pickle, as PyTorch before 2.9 wrote them. Write it again with a newer one: "
          "torch.export.save(torch.export.load('IN'), 'OUT')");
  }

  [[nodiscard]] bool has(const std::string& name) const { return zip_.files().contains(root_ + name); }
  /// Returns the bytes of a file in the archive. Throws ExportedModelError.
  [[nodiscard]] std::string_view record(const std::string& name) const {
    const auto found = zip_.files().find(root_ + name);
    if (found == zip_.files().end()) {
      refuse_compressed(root_ + name);
      throw ExportedModelError("the archive has no \"" + name + '"');
    }
    return found->second;
  }
  /// Returns a file of JSON. Throws ExportedModelError.
  [[nodiscard]] Json json(const std::string& name) const {
    try {
      return Json::parse(record(name));
    } catch (const JsonError& error) {
      throw ExportedModelError(name + ": " + error.what());
    }
  }

  /// Returns "model", the name that torch.export.save gives the program.
  [[nodiscard]] const std::string& program() const { return program_; }
  [[nodiscard]] std::string program_file() const { return "models/" + program_ + ".json"; }
  [[nodiscard]] std::string weights_file() const {
    return "data/weights/" + program_ + "_weights_config.json";
  }
  [[nodiscard]] std::string constants_file() const {
    return "data/constants/" + program_ + "_constants_config.json";
  }

  /// Keeps the mapped bytes, to which records refer, alive.
  [[nodiscard]] const std::shared_ptr<MappedFile>& file() const { return file_; }
  /// Returns the names of all files in the archive, without its root.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : zip_.files())
      if (name.starts_with(root_)) names.push_back(name.substr(root_.size()));
    return names;
  }

 private:
  static std::string_view bytes_of(const MappedFile& file) {
    const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
    if (!ZipDirectory::begins(bytes)) throw ExportedModelError("is no archive of torch.export.save");
    return bytes;
  }

  void find_program() {
    constexpr std::string_view kFolder = "/models/", kSuffix = ".json";
    for (const auto& [name, bytes] : zip_.files()) {
      const auto folder = name.find(kFolder);
      if (folder == std::string::npos || !name.ends_with(kSuffix)) continue;
      if (!program_.empty()) throw ExportedModelError("the archive holds more than one program");
      root_ = name.substr(0, folder + 1);
      program_ = name.substr(folder + kFolder.size());
      program_.resize(program_.size() - kSuffix.size());
    }
    if (!program_.empty()) return;
    refuse_compressed(kFolder);
    for (const auto& [name, bytes] : zip_.files()) {
      if (name.ends_with("/constants.pkl"))
        throw ExportedModelError("is a TorchScript program: export the model by torch.export.save");
      if (name.ends_with("/data.pkl"))
        throw ExportedModelError("is a file of torch.save: export the model by torch.export.save");
      if (name.find("/data/aotinductor/") != std::string::npos)
        throw ExportedModelError("is compiled by AOTInductor: read the file that torch.export.save wrote");
    }
    throw ExportedModelError("the archive has no models/*.json: torch.export.save has not written it");
  }

  /// Throws ExportedModelError if the archive has a compressed file with `part` in its name.
  void refuse_compressed(std::string_view part) const {
    for (const std::string& name : zip_.compressed())
      if (name.find(part) != std::string::npos)
        throw ExportedModelError("its \"" + name +
                                 "\" is compressed, and only archives without compression are read, "
                                 "as torch.export.save writes them");
  }

  void expect(const std::string& name, std::string_view value) const {
    if (!has(name)) return;
    std::string_view found = record(name);
    while (!found.empty() && found.back() == '\n') found.remove_suffix(1);
    if (found != value)
      throw ExportedModelError(message("its ", name, " is \"", found.substr(0, 32), "\", not ", value));
  }

  std::shared_ptr<MappedFile> file_;
  ZipDirectory zip_;
  std::string root_, program_;
};

}  // namespace looptorch::detail::exported
