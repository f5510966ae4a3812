// SPDX-License-Identifier: MIT
// Tests base/json: config_rows
#include "support/precompiled.hpp"

#include <looptorch/base/json/config_fields.hpp>

#include "support/temporary_folder.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

using Catch::Contains;
using looptorch::ConfigError;
using looptorch::ConfigField;
using looptorch::Json;
using looptorch::testing::TemporaryFolder;

namespace {

enum class Norm { before, after, none };

struct Config {
  std::int64_t heads = 4;
  int layers = 2;
  double dropout = 0.5;
  float scale = 1;
  bool tied = true;
  std::string name = "plain";
  Norm norm = Norm::after;

  friend bool operator==(const Config&, const Config&) = default;
};

constexpr auto kFields = looptorch::config_fields<Config>(
    looptorch::RequiredValue("model_type", "tested"), looptorch::OnlyValue("gated", false),
    ConfigField("heads", &Config::heads, {.min = 1, .max = 64}, "of each layer"),
    ConfigField("layers", &Config::layers, {.min = 1}),
    ConfigField("dropout", &Config::dropout, {.min = 0, .below = 1}), ConfigField("scale", &Config::scale),
    ConfigField("tied", &Config::tied), ConfigField("name", &Config::name).optional(),
    ConfigField("norm", &Config::norm, {"before", "after", "none"}));

Json json_with(const char* key, Json value) { return kFields.write({}).set(key, std::move(value)); }

std::string refusal(const Json& json) {
  try {
    (void)kFields.read(json, "a/config.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

std::string refusal(const char* key, Json value) { return refusal(json_with(key, std::move(value))); }

}  // namespace

TEST_CASE("A config is written in the order of its fields, and read back equal") {
  const Config config{8, 3, 0.25, 0.5F, false, "other", Norm::none};
  CHECK(kFields.write(config).dump() ==
        R"({"model_type":"tested","gated":false,"heads":8,"layers":3,"dropout":0.25,"scale":0.5,)"
        R"("tied":false,"name":"other","norm":"none"})");
  CHECK(kFields.read(kFields.write(config), "x") == config);
  const TemporaryFolder folder;
  kFields.save(folder / "config.json", config);
  CHECK(kFields.load(folder / "config.json") == config);
}

TEST_CASE("A value of another kind or outside its limits is named with its key") {
  CHECK(refusal("heads", "4") == "a/config.json: heads must be an integer, is \"4\"");
  CHECK(refusal("heads", 4.0) == "a/config.json: heads must be an integer, is 4.0");
  CHECK(refusal("heads", 65) == "a/config.json: heads is 65, outside 1..64");
  CHECK(refusal("layers", std::int64_t{1} << 40) ==
        "a/config.json: layers is 1099511627776, outside 1..2147483647");
  CHECK(refusal("dropout", true) == "a/config.json: dropout must be a number, is true");
  CHECK(refusal("dropout", 1) == "a/config.json: dropout is 1, outside [0, 1)");
  CHECK(refusal("dropout", 0) == "none");
  CHECK(refusal("scale", -7) == "none");
  CHECK(refusal("tied", 1) == "a/config.json: tied must be true or false, is 1");
  CHECK(refusal("name", nullptr) == "a/config.json: name must be a string, is null");
  CHECK(refusal("norm", "RMS") == "a/config.json: norm is \"RMS\", not \"before\", \"after\" or \"none\"");
  CHECK(refusal("norm", 1) == "a/config.json: norm must be a string, is 1");
}

TEST_CASE("Keys that are needed, and values that cannot be varied") {
  CHECK(refusal("model_type", "other") == "a/config.json: model_type is \"other\", not \"tested\"");
  CHECK(refusal("gated", true) == "a/config.json: gated is true, and only false is supported");
  CHECK(refusal(Json::parse("[]")) == "a/config.json: is not a JSON object");
  const auto without = [](std::string_view key) {
    auto json = Json::object();
    const auto whole = kFields.write({});
    for (const auto& [name, value] : whole.as_object())
      if (name != key) json.set(name, value);
    return json;
  };
  CHECK(refusal(without("heads")) == "a/config.json: heads is missing");
  CHECK(refusal(without("model_type")) == "a/config.json: model_type is missing");
  CHECK(refusal(without("gated")) == "none");
  CHECK(kFields.read(without("name"), "x").name == "plain");
}

TEST_CASE("One error lists all that is wrong, unless the config is of another kind") {
  auto json = json_with("heads", 0);
  json.set("dropout", 2).set("gated", true);
  CHECK(refusal(json) ==
        "a/config.json: gated is true, and only false is supported; heads is 0, outside 1..64; dropout is 2, "
        "outside [0, 1)");
  CHECK(refusal(json.set("model_type", 3)) == "a/config.json: model_type is 3, not \"tested\"");
}

TEST_CASE("Unknown keys are ignored, or refused with one that is near") {
  const auto json = json_with("headz", 3);
  CHECK(refusal(json) == "none");
  static constexpr auto kStrict = kFields.refusing_unknown_keys();
  CHECK_THROWS_WITH(kStrict.read(json, "x"), "x: headz is not known; \"heads\" is");
  CHECK_THROWS_WITH(kStrict.read(json_with("quite_another", 3), "x"), "x: quite_another is not known");
  CHECK_NOTHROW(kStrict.read(kFields.write({}), "x"));
}

TEST_CASE("A config is checked without a file, and its keys may be quoted") {
  CHECK_NOTHROW(kFields.check({}, "Model"));
  CHECK_THROWS_WITH(kFields.check({.heads = 0, .norm = static_cast<Norm>(3)}, "Model"),
                    "Model: heads is 0, outside 1..64; norm is 3, not \"before\", \"after\" or \"none\"");
  CHECK_THROWS_WITH(kFields.check({.dropout = std::numeric_limits<double>::quiet_NaN()}, "Model"),
                    "Model: dropout is nan, outside [0, 1)");
  CHECK_THROWS_WITH(kFields.quoting_keys().check({.heads = 0}, "Model"),
                    "Model: field \"heads\" is 0, outside 1..64");
}

TEST_CASE("Differences are listed by field") {
  const Config saved{.heads = 2, .dropout = 0.1, .tied = false, .norm = Norm::before};
  CHECK(kFields.differences(saved, saved).empty());
  CHECK(
      kFields.differences(saved, {}) ==
      "heads 2 instead of 4, dropout 0.1 instead of 0.5, tied false instead of true, norm before instead of after");
  CHECK(kFields.differences(saved, {}, {"dropout", "norm", "tied"}) == "heads 2 instead of 4");
}

TEST_CASE("A table of fields describes itself") {
  CHECK(
      kFields.describe() ==
      "heads = 4, 1..64: of each layer\nlayers = 2, 1..2147483647\ndropout = 0.5, [0, 1)\nscale = 1\ntied = true\n"
      "name = plain\nnorm = after, \"before\", \"after\" or \"none\"\n");
}

TEST_CASE("A file that cannot be read is named") {
  const TemporaryFolder folder;
  const auto file = folder / "config.json";
  CHECK_THROWS_AS(kFields.load(file), looptorch::FileError);
  looptorch::write_file_atomically(file, "{\"heads\": }");
  CHECK_THROWS_AS(kFields.load(file), ConfigError);
  CHECK_THROWS_WITH(kFields.load(file), Contains(file.string() + ": line 1, column 11"));
  looptorch::write_file_atomically(file, json_with("heads", 0).dump());
  CHECK_THROWS_WITH(kFields.load(file), file.string() + ": heads is 0, outside 1..64");
}
