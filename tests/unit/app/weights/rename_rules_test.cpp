// SPDX-License-Identifier: MIT
// --rename OLD=NEW: what a pattern matches, what it makes, and which are refused.
#include "support/precompiled.hpp"

#include <looptorch/app/weights/rename_rules.hpp>

#include <string>
#include <vector>

namespace app = looptorch::app;
namespace lt = looptorch;
using Catch::Contains;

namespace {

std::string by(const std::vector<std::string>& rules, const std::string& name) {
  return app::renamed(name, app::rename_rules(rules));
}

}  // namespace

TEST_CASE("app: a rename rule replaces whole names, beginnings, and what its stars stand for") {
  CHECK(by({"fc.weight=head.weight"}, "fc.weight") == "head.weight");
  CHECK(by({"fc.weight=head.weight"}, "a.fc.weight") == "a.fc.weight");
  CHECK(by({"encoder.layers.=encoder.blocks."}, "encoder.layers.3.up.bias") == "encoder.blocks.3.up.bias");
  CHECK(by({"encoder.=enc."}, "my.encoder.up") == "my.encoder.up");
  CHECK(by({"module.="}, "module.fc.weight") == "fc.weight");
  CHECK(by({"=generator."}, "fc.weight") == "generator.fc.weight");
  CHECK(by({"layers.*.fc1.*=blocks.*.up.*"}, "layers.12.fc1.weight") == "blocks.12.up.weight");
  CHECK(by({"*.gamma=*.weight"}, "a.norm.gamma") == "a.norm.weight");
  CHECK(by({"*.x.*=*-*"}, "a.x.b.x.c") == "a-b.x.c");  // the first star takes as little as it can
  CHECK(by({"a*=b"}, "a") == "b");
  CHECK(by({"a*b=c"}, "ab") == "c");
  CHECK(by({"a*a=c"}, "a") == "a");  // one letter is not two
  CHECK(by({"fc?=x"}, "fc1") == "fc1");
}

TEST_CASE("app: several rules may stand in one text, apart by commas") {
  CHECK(by({"a.=b., b.x=c,c=d"}, "a.x") == "d");
  CHECK_THROWS_WITH(app::rename_rules({"a=b,"}), Contains("--rename: \"\" is not OLD=NEW"));
}

TEST_CASE("app: an empty NEW leaves tensors out, and rules apply one after the other") {
  CHECK(by({"head.*="}, "head.weight").empty());
  CHECK(by({"head.*=", "=model."}, "head.weight").empty());
  CHECK(by({"a.=b.", "b.=c."}, "a.x") == "c.x");
  CHECK(by({"head.weight="}, "head.bias") == "head.bias");
}

TEST_CASE("app: texts that are no rules are refused with the flag") {
  const auto refused = [](const std::string& text, const std::string& why) {
    CHECK_THROWS_WITH(app::rename_rules({text}), Contains("--rename: \"" + text + "\" " + why));
    CHECK_THROWS_AS(app::rename_rules({text}), app::CommandLineError);
  };
  refused("head", "is not OLD=NEW");
  refused("", "is not OLD=NEW");
  refused("=", "replaces the beginning of names");
  refused("a.=b", "replaces the beginning of names");
  refused("=b", "replaces the beginning of names");
  refused("a.*=b.*.*", "has more * on the right than on the left");
  refused("a=a", "changes nothing");
  refused("a.=a.", "changes nothing");
}

TEST_CASE("app: a rule that matches nothing is refused, with near names as the rules before it leave them") {
  const std::vector<std::string> names{"encoder.up.weight", "encoder.up.bias"};
  const auto check = [&](const std::vector<std::string>& rules) {
    app::require_matches(names, app::rename_rules(rules), "a.pt");
  };
  CHECK_NOTHROW(check({"encoder.=enc.", "enc.up.bias=enc.up.shift"}));
  CHECK_THROWS_WITH(
      check({"encoder.up.weigth=w"}),
      Contains("--rename encoder.up.weigth=w: matches no name in a.pt; near: encoder.up.weight"));
  CHECK_THROWS_AS(check({"encoder.=enc.", "encoder.up.bias=x"}), lt::UsageError);
}
