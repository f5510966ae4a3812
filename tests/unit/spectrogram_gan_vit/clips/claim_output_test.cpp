// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/temporary_folder.hpp"
#include "unit/spectrogram_gan_vit/support.hpp"

#include <spectrogram_gan_vit/clips/claim_output.hpp>
#include <spectrogram_gan_vit/gan/config.hpp>

#include <filesystem>

using namespace spectrogram_gan;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;

namespace {

GanConfig taller() {
  auto config = spectrogram_gan_test::tiny_config();
  config.n_mels *= 2;
  return config;
}

}  // namespace

TEST_CASE("A folder is claimed for one model, and refused to another with the difference") {
  const TemporaryFolder folder;
  const auto config = spectrogram_gan_test::tiny_config();
  const auto output = folder / "new/run";
  CHECK_NOTHROW(require_claimable(output, {}, config, load_config));  // which does not exist yet
  CHECK_FALSE(std::filesystem::exists(output));
  claim_output(output, config);
  CHECK(load_config(output / "config.json") == config);
  CHECK_NOTHROW(require_claimable(output, {}, config, load_config));
  CHECK_THROWS_AS(require_claimable(output, {}, taller(), load_config), looptorch::ConfigError);
  CHECK_THROWS_WITH(require_claimable(output, {}, taller(), load_config),
                    Contains(output.string()) && Contains("n_mels 16 instead of 32"));
}

TEST_CASE("The model of the run that is resumed must be the same, wherever its snapshot lies") {
  const TemporaryFolder folder;
  const auto config = spectrogram_gan_test::tiny_config();
  claim_output(folder / "earlier", config);
  const auto snapshot = folder / "earlier/snapshots/step_2.snapshot";
  CHECK_NOTHROW(require_claimable(folder / "new", snapshot, config, load_config));
  CHECK_THROWS_WITH(require_claimable(folder / "new", snapshot, taller(), load_config),
                    Contains((folder / "earlier").string()) && Contains("n_mels 16 instead of 32"));
}
