// SPDX-License-Identifier: MIT
// Names of outputs by the trees of Python's pytree.
// Tests exported/graph: signature
#include "support/precompiled.hpp"

#include <looptorch/exported/graph/signature.hpp>

#include "support/catch.hpp"

namespace lt = looptorch;
using Names = std::vector<std::string>;

namespace {

const std::string leaf = R"({"type": null, "context": null, "children_spec": []})";

std::string tree(const std::string& type, const std::string& context, const std::string& children) {
  return R"({"type": ")" + type + R"(", "context": )" + lt::Json(context).dump() + R"(, "children_spec": [)" +
         children + "]}";
}
Names names(const std::string& of, std::size_t count) {
  return lt::detail::exported::leaf_names("[1, " + of + "]", count);
}

}  // namespace

TEST_CASE("Outputs are named as Python packed them") {
  CHECK(names(leaf, 1) == Names{"output"});
  CHECK(names(tree("builtins.tuple", "null", leaf + ", " + leaf), 2) == Names{"0", "1"});
  const auto list = tree("builtins.list", "null", leaf + ", " + leaf);
  CHECK(names(tree("builtins.dict", R"(["logits", "hidden"])", leaf + ", " + list), 3) ==
        Names{"logits", "hidden.0", "hidden.1"});
  CHECK(
      names(tree("transformers.modeling_outputs.CausalLMOutput", R"(["loss", "logits"])", leaf + ", " + leaf),
            2) == Names{"loss", "logits"});
  CHECK(names(tree("a.Class", R"([["loss", "logits"], "a"])", leaf + ", " + leaf), 2) ==
        Names{"loss", "logits"});
}

TEST_CASE("Contexts that say nothing leave numbers") {
  CHECK(names(tree("a.Class", "no JSON", leaf + ", " + leaf), 2) == Names{"0", "1"});
  CHECK(names(tree("a.Class", R"(["one"])", leaf + ", " + leaf), 2) == Names{"0", "1"});
  CHECK(names(tree("a.Class", "[1, 2]", leaf + ", " + leaf), 2) == Names{"0", "1"});
  CHECK(names(leaf, 2) == Names{"0", "1"});
  CHECK_THROWS_AS(names("{}", 1), lt::JsonError);
}
