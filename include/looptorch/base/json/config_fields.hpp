// SPDX-License-Identifier: MIT
// Reads, checks, writes and compares structs of settings, such as a model's config.json. One constexpr table
// describes the struct's fields and their limits for all four operations. Errors name the file and each key
// at fault.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/config_rows.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/near_names.hpp>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace looptorch {

/// Thrown for a config that is malformed or has values that are not allowed. The message begins with the
/// file's name and lists all faults.
struct ConfigError : Error {
  using Error::Error;
};

/// Reads, checks, writes and compares configs by a table of fields, which `config_fields` makes:
///
///     inline constexpr auto kFields = looptorch::config_fields<ModelConfig>(
///         looptorch::RequiredValue("model_type", "mine"),
///         looptorch::ConfigField("heads", &ModelConfig::heads, {.min = 1, .max = 64}),
///         looptorch::ConfigField("dropout", &ModelConfig::dropout, {.min = 0, .below = 1}),
///         looptorch::ConfigField("norm", &ModelConfig::norm, {"before", "after"}));
///
///     ModelConfig config = kFields.load("model/config.json");
///
/// A rule between fields (one divides another) needs a function of your own after `load`.
template <class Config, class... Rows>
class ConfigFields {
 public:
  constexpr explicit ConfigFields(Rows... rows) : rows_(rows...) {}

  /// Returns a copy of this table that refuses unknown keys and suggests a near one. By default unknown keys
  /// are ignored.
  [[nodiscard]] constexpr ConfigFields refusing_unknown_keys() const {
    auto fields = *this;
    fields.refuses_unknown_ = true;
    return fields;
  }

  /// Returns a copy of this table whose errors call a key `field "heads"` instead of `heads`.
  [[nodiscard]] constexpr ConfigFields quoting_keys() const {
    auto fields = *this;
    fields.quotes_ = true;
    return fields;
  }

  /// Reads and checks an object; `where` is its name in errors. Throws ConfigError, which lists all faults.
  [[nodiscard]] Config read(const Json& json, std::string_view where) const;

  /// Reads and checks a file. Throws FileError, or ConfigError that names the file.
  [[nodiscard]] Config load(const std::filesystem::path& path) const;

  /// Throws ConfigError, which begins with `where`, for values outside their limits.
  void check(const Config& config, std::string_view where) const;

  /// Returns an object with the keys in the order of the table.
  [[nodiscard]] Json write(const Config& config) const;

  /// Writes `write(config)` to a file, whole or not at all. Throws FileError.
  void save(const std::filesystem::path& path, const Config& config) const {
    write_file_atomically(path, write(config).dump(2) + "\n");
  }

  /// Lists the fields in which `found` differs from `wanted`, "heads 2 instead of 4, ...", except those named
  /// in `except`. Empty if there are none.
  [[nodiscard]] std::string differences(const Config& found, const Config& wanted,
                                        std::initializer_list<std::string_view> except = {}) const;

  /// Lists the fields, a line each: key, default, limits, help.
  [[nodiscard]] std::string describe() const;

 private:
  using Faults = std::vector<std::string>;

  template <class Visit>
  void for_each_row(const Visit& visit) const {
    std::apply([&](const auto&... row) { (visit(row), ...); }, rows_);
  }
  /// Visits the rows of members, and skips those that no member holds.
  template <class Visit>
  void for_each_field(const Visit& visit) const {
    for_each_row([&](const auto& row) {
      if constexpr (requires { row.member; }) visit(row);
    });
  }

  [[nodiscard]] std::string called(std::string_view key) const {
    return quotes_ ? message("field \"", key, '"') : std::string(key);
  }

  template <class Value>
  void read_row(const ConfigField<Config, Value>& field, const Json& json, Config& config,
                Faults& faults) const;
  template <class Value>
  void read_row(const RequiredValue<Value>& row, const Json& json, Config&, Faults& faults) const;
  template <class Value>
  void read_row(const OnlyValue<Value>& row, const Json& json, Config&, Faults& faults) const;
  void list_unknown(const Json& json, Faults& faults) const;
  static void throw_any(const Faults& faults, std::string_view where);

  std::tuple<Rows...> rows_;
  bool refuses_unknown_ = false, quotes_ = false;
};

/// Makes the table of a config's fields. Keys must differ.
template <class Config, class... Rows>
[[nodiscard]] constexpr ConfigFields<Config, Rows...> config_fields(Rows... rows) {
  return ConfigFields<Config, Rows...>(rows...);
}

// ---- Implementation ----

template <class Config, class... Rows>
Config ConfigFields<Config, Rows...>::read(const Json& json, std::string_view where) const {
  if (!json.is_object()) throw ConfigError(message(where, ": is not a JSON object"));
  Config config;
  Faults faults;
  for_each_row([&](const auto& row) {
    if constexpr (requires { row.tells_kind; }) read_row(row, json, config, faults);
  });
  throw_any(faults, where);  // a config of another kind has other fields
  for_each_row([&](const auto& row) {
    if constexpr (!requires { row.tells_kind; }) read_row(row, json, config, faults);
  });
  if (refuses_unknown_) list_unknown(json, faults);
  throw_any(faults, where);
  return config;
}

template <class Config, class... Rows>
Config ConfigFields<Config, Rows...>::load(const std::filesystem::path& path) const {
  try {
    return read(load_json(path), path.string());
  } catch (const JsonError& error) {
    throw ConfigError(error.what());
  }
}

template <class Config, class... Rows>
void ConfigFields<Config, Rows...>::check(const Config& config, std::string_view where) const {
  Faults faults;
  for_each_field([&](const auto& field) {
    if (const auto fault = detail::fault_of(config.*field.member, field.limits); !fault.empty())
      faults.push_back(called(field.key) + fault);
  });
  throw_any(faults, where);
}

template <class Config, class... Rows>
Json ConfigFields<Config, Rows...>::write(const Config& config) const {
  auto json = Json::object();
  for_each_row([&](const auto& row) {
    if constexpr (requires { row.member; })
      json.set(row.key, detail::to_json(config.*row.member, row.limits));
    else
      json.set(row.key, row.value);
  });
  return json;
}

template <class Config, class... Rows>
std::string ConfigFields<Config, Rows...>::differences(const Config& found, const Config& wanted,
                                                       std::initializer_list<std::string_view> except) const {
  std::string text;
  for_each_field([&](const auto& field) {
    if (found.*field.member == wanted.*field.member) return;
    if (std::find(except.begin(), except.end(), field.key) != except.end()) return;
    text += message(text.empty() ? "" : ", ", field.key, ' ',
                    detail::value_text(found.*field.member, field.limits), " instead of ",
                    detail::value_text(wanted.*field.member, field.limits));
  });
  return text;
}

template <class Config, class... Rows>
std::string ConfigFields<Config, Rows...>::describe() const {
  std::string text;
  const Config defaults;
  for_each_field([&](const auto& field) {
    const auto limits = detail::limits_text(field.limits);
    text += message(field.key, " = ", detail::value_text(defaults.*field.member, field.limits),
                    limits.empty() ? "" : ", " + limits, *field.help == '\0' ? "" : ": ", field.help, '\n');
  });
  return text;
}

template <class Config, class... Rows>
template <class Value>
void ConfigFields<Config, Rows...>::read_row(const ConfigField<Config, Value>& field, const Json& json,
                                             Config& config, Faults& faults) const {
  const Json* value = json.as_object().find(field.key);
  if (!value) {
    if (!field.is_optional) faults.push_back(called(field.key) + " is missing");
    return;
  }
  if (const auto fault = detail::read_value(*value, field.limits, config.*field.member); !fault.empty())
    faults.push_back(called(field.key) + fault);
}

template <class Config, class... Rows>
template <class Value>
void ConfigFields<Config, Rows...>::read_row(const RequiredValue<Value>& row, const Json& json, Config&,
                                             Faults& faults) const {
  const Json* found = json.as_object().find(row.key);
  const Json wanted(row.value);
  if (!found)
    faults.push_back(called(row.key) + " is missing");
  else if (*found != wanted)
    faults.push_back(message(called(row.key), " is ", found->dump(), ", not ", wanted.dump()));
}

template <class Config, class... Rows>
template <class Value>
void ConfigFields<Config, Rows...>::read_row(const OnlyValue<Value>& row, const Json& json, Config&,
                                             Faults& faults) const {
  const Json* found = json.as_object().find(row.key);
  const Json wanted(row.value);
  if (found && *found != wanted)
    faults.push_back(
        message(called(row.key), " is ", found->dump(), ", and only ", wanted.dump(), " is supported"));
}

template <class Config, class... Rows>
void ConfigFields<Config, Rows...>::list_unknown(const Json& json, Faults& faults) const {
  std::vector<std::string> keys;
  for_each_row([&](const auto& row) { keys.emplace_back(row.key); });
  for (const auto& [key, value] : json.as_object()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const auto near = near_names(key, keys, 1);
    faults.push_back(
        message(called(key), " is not known", near.empty() ? "" : "; \"" + near.front() + "\" is"));
  }
}

template <class Config, class... Rows>
void ConfigFields<Config, Rows...>::throw_any(const Faults& faults, std::string_view where) {
  if (faults.empty()) return;
  auto text = message(where, ": ");
  for (const auto& fault : faults) text += (&fault == &faults.front() ? "" : "; ") + fault;
  throw ConfigError(text);
}

}  // namespace looptorch
