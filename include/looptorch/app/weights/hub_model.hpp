// SPDX-License-Identifier: MIT
// Lets a flag name a model of the Hugging Face Hub instead of a folder. The model must have been downloaded
// before, since this code downloads nothing:
//
//   line.required("model", "DIR", options.model, "folder of the model, or its name on the Hub");
//   app::accept_hub_name(line, options.model);
//
// huggingface_hub documents the layout of its cache: the file models--ORG--NAME/refs/main holds the name of a
// folder in models--ORG--NAME/snapshots, and that folder has links to the model's files.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace looptorch::app {

/// Returns the folder in which Hugging Face's programs keep what they download: HF_HUB_CACHE or
/// HUGGINGFACE_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
/// ~/.cache/huggingface/hub.
[[nodiscard]] inline std::filesystem::path hub_cache() {
  const auto named = [](const char* variable) -> std::filesystem::path {
    const char* const value = std::getenv(variable);
    return value ? value : "";
  };
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (!named(variable).empty()) return named(variable);
  if (!named("HF_HOME").empty()) return named("HF_HOME") / "hub";
  if (!named("XDG_CACHE_HOME").empty()) return named("XDG_CACHE_HOME") / "huggingface" / "hub";
  return named("HOME") / ".cache" / "huggingface" / "hub";
}

namespace detail {

/// True for "openai/whisper-small": two parts of letters, digits, dots, hyphens and underscores.
[[nodiscard]] inline bool is_hub_name(std::string_view name) {
  const auto is_part = [](std::string_view part) {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return !part.empty() && part.front() != '.' && part.find_first_not_of(kLetters) == part.npos;
  };
  const auto slash = name.find('/');
  return slash != name.npos && is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
}

/// Returns the snapshot that `refs/main` names, else the only one; none if there is no such folder.
[[nodiscard]] inline std::optional<std::filesystem::path> hub_snapshot(
    const std::filesystem::path& of_model) {
  std::error_code none;
  const auto main = of_model / "refs" / "main";
  if (std::filesystem::is_regular_file(main, none)) {
    std::string hash = read_file(main, 4096);
    hash.erase(
        std::find_if(hash.begin(), hash.end(), [](char c) { return c == '\n' || c == '\r' || c == '/'; }),
        hash.end());
    const auto snapshot = of_model / "snapshots" / hash;
    if (!hash.empty() && std::filesystem::is_directory(snapshot, none)) return snapshot;
  }
  std::vector<std::filesystem::path> all;
  for (const auto& entry : std::filesystem::directory_iterator(of_model / "snapshots", none))
    if (entry.is_directory(none)) all.push_back(entry.path());
  if (all.size() == 1) return all.front();
  return std::nullopt;
}

}  // namespace detail

/// Returns the folder of a model: `named` itself if it exists or is no name of the Hub, else what was
/// downloaded under that name. Throws UsageError, with the command that downloads the model, if there is no
/// such download or it lacks config.json.
[[nodiscard]] inline std::filesystem::path model_folder(const std::filesystem::path& named) {
  std::error_code none;
  const std::string name = named.string();
  if (std::filesystem::exists(named, none) || !detail::is_hub_name(name)) return named;
  const auto slash = name.find('/');
  const auto cache = hub_cache();
  const auto of_model = cache / message("models--", name.substr(0, slash), "--", name.substr(slash + 1));
  const auto snapshot = detail::hub_snapshot(of_model);
  if (snapshot && std::filesystem::exists(*snapshot / "config.json", none)) return *snapshot;
  const std::string folder = name.substr(slash + 1);
  throw UsageError(message(name,
                           snapshot ? ": was downloaded without config.json"
                                    : ": is no folder, and no model of this name was downloaded",
                           " to ", cache.string(), ". Download it: hf download ", name, " --local-dir ",
                           folder, ", and give ", folder));
}

/// Lets the flag that sets `target` take a model's name on the Hub, too. Call it after all other flags, so
/// that a run records its settings as they were typed.
inline void accept_hub_name(CommandLine& line, std::filesystem::path& target) {
  line.on_parsed([&target](const CommandLine&) {
    if (!target.empty()) target = model_folder(target);
  });
}

}  // namespace looptorch::app
