// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../support.hpp"
#include "support/temporary_folder.hpp"

#include <string>
#include <utility>

using namespace konkanivani_test;
using Catch::Contains;
using konkanivani::ModelConfig;
using konkanivani::Positions;
using looptorch::testing::TemporaryFolder;
namespace lt = looptorch;

// The first project's script for small memory resumed 256-wide weights into a 192-wide model.
TEST_CASE("A model of another size is refused with each difference") {
  const TemporaryFolder folder;
  konkanivani::save_model(tiny_model(), folder.path());
  auto config = tiny_config();
  config.d_model = 12;
  config.encoder_layers = 1;
  config.positions = Positions::relative;
  const auto saved = konkanivani::load_config(folder / "config.json");
  CHECK_THROWS_AS(konkanivani::require_same_model(saved, config, "there"), konkanivani::ConfigError);
  CHECK_THROWS_WITH(
      konkanivani::require_same_model(saved, config, "there"),
      "there: holds another model than the one asked for: d_model 16 instead of 12, encoder_layers 2 "
      "instead of 1, positions sinusoidal instead of relative");
  config = tiny_config();
  config.dropout = 0.5;
  CHECK_NOTHROW(konkanivani::require_same_model(saved, config, "there"));
}

TEST_CASE("Sizes that make no model are refused by name") {
  const auto refused = [](auto change) {
    auto config = tiny_config();
    change(config);
    try {
      konkanivani::KonkaniVani model(config);
    } catch (const konkanivani::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK(refused([](ModelConfig& c) { c.d_model = 18, c.heads = 4; }) ==
        "KonkaniVani: d_model is 18; it must be even and a multiple of the 4 heads");
  CHECK(refused([](ModelConfig& c) { c.d_model = 15, c.heads = 3; }) ==
        "KonkaniVani: d_model is 15; it must be even and a multiple of the 3 heads");
  CHECK(refused([](ModelConfig& c) { c.vocabulary = 5; }) ==
        "KonkaniVani: vocabulary is 5, outside 6..1048576");
  CHECK(refused([](ModelConfig& c) { c.kernel = 30; }) == "KonkaniVani: kernel is 30; it must be odd");
  CHECK(refused([](ModelConfig& c) { c.dropout = 1; }) == "KonkaniVani: dropout is 1, outside [0, 1)");
  CHECK(refused([](ModelConfig& c) { c.encoder_layers = 0; }) ==
        "KonkaniVani: encoder_layers is 0, outside 1..1024");
}

TEST_CASE("A config.json that describes no model is refused by file and field") {
  const auto json = konkanivani::config_to_json(tiny_config());
  CHECK(konkanivani::config_from_json(json, "x") == tiny_config());
  const auto refused = [&](const char* field, lt::Json value) {
    auto changed = json;
    changed.set(field, std::move(value));
    try {
      (void)konkanivani::config_from_json(changed, "x");
    } catch (const konkanivani::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK(refused("model_type", "whisper") == "x: model_type is \"whisper\", not \"konkanivani\"");
  CHECK(refused("positions", "rotary") ==
        "x: positions is \"rotary\", neither \"sinusoidal\" nor \"relative\"");
  CHECK(refused("heads", "two") == "x: heads must be an integer, is \"two\"");
  CHECK(refused("kernel", 4) == "x: kernel is 4; it must be odd");
  const TemporaryFolder folder;
  lt::write_file_atomically(folder.path() / "config.json", "{");
  CHECK_THROWS_WITH(konkanivani::load_config(folder.path() / "config.json"),
                    Contains((folder.path() / "config.json").string()));
}
