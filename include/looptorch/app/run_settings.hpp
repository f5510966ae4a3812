// SPDX-License-Identifier: MIT
// The settings of a program that decide what is learnt and are in no policy's state. They go into snapshots,
// so that a run cannot go on with others unnoticed:
//
//   lt::Trainer trainer(model, optimizer, objective,
//                       app::RunSettings({{"--mixup", app::setting(options.mixup)}}), ...);
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>

#include <map>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch::app {

/// Returns a setting as text: "on" and "off" for a bool.
template <class Value>
[[nodiscard]] std::string setting(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>)
    return value ? "on" : "off";
  else
    return message(value);
}

/// A policy that holds settings as text, by the names of their flags. A snapshot of a run with others is
/// refused, with the name and both values of each that differs.
class RunSettings {
 public:
  explicit RunSettings(std::map<std::string, std::string> settings) : settings_(std::move(settings)) {}

  struct State {};  // so that a snapshot is compared before anything of it is taken over

  void state_dict(StateDict& out, State&) const {
    for (const auto& [name, value] : settings_) out.set(name, value);
  }

  /// Throws StateError.
  void load_state_dict(const StateDict& in, State&) const {
    std::string differences;
    for (const auto& [name, value] : settings_) {
      const auto saved = in.contains(name) ? in.get<std::string>(name) : "not set";
      if (saved == value) continue;
      differences += message(differences.empty() ? "" : ", ", name, " is ", value, " here and ", saved,
                             " in the snapshot");
    }
    if (!differences.empty()) throw StateError(differences);
  }

 private:
  std::map<std::string, std::string> settings_;
};

}  // namespace looptorch::app
