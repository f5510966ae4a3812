// SPDX-License-Identifier: MIT
// Defines RunSettings, a policy that saves a program's own settings in snapshots, and refuses to resume from
// a snapshot whose settings differ. Give it each setting that affects what is learnt, unless another policy
// saves that setting:
//
//   lt::Trainer trainer(model, optimizer, objective,
//                       app::RunSettings({{"--mixup", app::setting(options.mixup)}}), ...);
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/hash/checksum.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/loader/data_fingerprint.hpp>

#include <cstdint>
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

/// Returns the samples of a dataset as text, "10 samples with checksum 1234", by their fingerprints in
/// order. Use it for validation data; the loader compares the training data.
template <FingerprintedDataset Data>
[[nodiscard]] std::string samples_of(const Data& data) {
  const looptorch::detail::DataFingerprint fingerprint(
      static_cast<std::int64_t>(data.size()),
      [&data](std::int64_t index) -> std::string { return data.fingerprint(index); });
  looptorch::detail::Checksum sum;
  sum.add(fingerprint.text().data(), fingerprint.text().size());
  return message(data.size(), data.size() == 1 ? " sample" : " samples", " with checksum ", sum.value());
}

/// Holds settings as text, by the names of their flags. Refuses a snapshot of a run with other settings; the
/// error has the name and both values of each that differs.
class RunSettings {
 public:
  /// `data` are the samples_of further data, by name; a snapshot of an earlier version, which lacks them, is
  /// accepted.
  explicit RunSettings(std::map<std::string, std::string> settings,
                       std::map<std::string, std::string> data = {})
      : settings_(std::move(settings)), data_(std::move(data)) {}

  struct State {};  // lets a resume compare the settings before it loads anything

  void state_dict(StateDict& out, State&) const {
    for (const auto* values : {&settings_, &data_})
      for (const auto& [name, value] : *values) out.set(name, value);
  }

  /// Throws StateError.
  void load_state_dict(const StateDict& in, State&) const {
    std::string differences;
    const auto compare = [&](const std::string& name, const std::string& value, const std::string& saved) {
      if (saved == value) return;
      differences += message(differences.empty() ? "" : ", ", name, " is ", value, " here and ", saved,
                             " in the snapshot");
    };
    for (const auto& [name, value] : settings_)
      compare(name, value, in.contains(name) ? in.get<std::string>(name) : "not set");
    for (const auto& [name, value] : data_)
      if (in.contains(name)) compare(name, value, in.get<std::string>(name));
    if (!differences.empty()) throw StateError(differences);
  }

 private:
  std::map<std::string, std::string> settings_, data_;
};

}  // namespace looptorch::app
