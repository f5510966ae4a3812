// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <finetune_exported/columns.hpp>

#include <string>
#include <vector>

namespace fe = finetune_exported;
namespace lt = looptorch;
using Catch::Contains;

TEST_CASE("each input of a model is a column without the batch, and only labels are padded with -100") {
  const std::vector<lt::ExportedInput> inputs{
      {.name = "x", .dtype = at::kHalf, .dims = {{.symbol = "s0"}, {.size = 3}, {.symbol = "s1", .max = 16}}},
      {.name = "labels", .dtype = at::kLong, .dims = {{.symbol = "s0"}}}};
  const auto columns = fe::columns_of(inputs, "labels");
  REQUIRE(columns.size() == 2);
  CHECK(columns[0].name == "x");
  CHECK(columns[0].dtype == at::kHalf);
  CHECK(fe::sizes_text(*columns[0].dims) == "[3, s1 <= 16]");
  CHECK(columns[0].padding == 0);
  CHECK(columns[1].dims->empty());
  CHECK(columns[1].padding == -100);
  CHECK(fe::columns_of(inputs, "targets")[1].padding == 0);
}

TEST_CASE("an input without an open batch is refused, by how the model is to be exported") {
  CHECK_THROWS_AS(fe::columns_of({{.name = "x", .dims = {{.size = 8}, {}}}}, "labels"), lt::UsageError);
  CHECK_THROWS_WITH(fe::columns_of({{.name = "x", .dims = {{.size = 8}, {}}}}, "labels"),
                    Contains("the first dimension of the input \"x\" is fixed at 8: export the model with an "
                             "open batch, dynamic_shapes={\"x\": {0: torch.export.Dim.AUTO}, ...}"));
  CHECK_THROWS_WITH(fe::columns_of({{.name = "ok", .dims = {{}}}, {.name = "factor"}}, "labels"),
                    Contains("the first dimension of the input \"factor\" is missing"));
}

TEST_CASE("sizes are written as numbers, symbols and question marks, with what an open one may be") {
  CHECK(fe::sizes_text({}) == "[]");
  CHECK(fe::sizes_text({{.size = 3}}) == "[3]");
  CHECK(fe::sizes_text({{.symbol = "s5", .min = 2}, {.max = 7}, {}}) == "[s5, ? <= 7, ?]");
}
