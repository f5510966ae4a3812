// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/flag_effects.hpp>

#include "support/parse_words.hpp"

#include <string>

namespace app = looptorch::app;
using looptorch::testing::parse_words;

TEST_CASE("app: a flag that would do nothing is refused with the reason, if it is given") {
  bool masks = false, sound = true;
  std::int64_t bins = 27;
  app::CommandLine line("train", "");
  line.toggle("spec-augment", masks, "");
  line.option("mask-bins", "N", bins, "");
  line.toggle("sound", sound, "");
  app::require_effect(
      line, {"mask-bins", "sound"}, [&] { return masks; }, "without --spec-augment");
  CHECK_NOTHROW(parse_words(line, {}));
  CHECK_NOTHROW(parse_words(line, {"--no-sound"}));
  CHECK_NOTHROW(parse_words(line, {"--mask-bins", "3", "--spec-augment", "--sound"}));
  masks = false;
  CHECK_THROWS_WITH(parse_words(line, {"--mask-bins", "27"}),
                    "--mask-bins has no effect without --spec-augment");
  CHECK_THROWS_WITH(parse_words(line, {"--sound"}), "--sound has no effect without --spec-augment");
}
