// SPDX-License-Identifier: MIT
// Recognises a sound that equals the previous one of the same name, so that LogMetrics writes a validation's
// unchanged recordings to TensorBoard's files only once.
#pragma once

#include <looptorch/base/example.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace looptorch::detail {

class KnownSounds {
 public:
  /// Returns true if the last sound with this tag was the same.
  bool is_known(const std::string& tag, const Example& example) {
    const auto* sound = std::get_if<SoundExample>(&example);
    if (!sound) return false;
    const std::string_view bytes(reinterpret_cast<const char*>(sound->samples.data()),
                                 sound->samples.size() * sizeof(float));
    const std::size_t hash = std::hash<std::string_view>()(bytes);
    const auto [known, is_new] = hashes_.try_emplace(tag, hash);
    return !is_new && std::exchange(known->second, hash) == hash;
  }

 private:
  std::map<std::string, std::size_t> hashes_;
};

}  // namespace looptorch::detail
