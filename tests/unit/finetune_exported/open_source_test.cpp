// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/state/weights/safetensors.hpp>

#include "support/temporary_folder.hpp"
#include "unit/finetune_exported/support.hpp"

#include <finetune_exported/open_source.hpp>

#include <filesystem>
#include <vector>

namespace fe = finetune_exported;
namespace lt = looptorch;
using looptorch::testing::TemporaryFolder;

TEST_CASE("data are opened by what they are: lines, a file of tensors, a folder of those") {
  const TemporaryFolder folder;
  const std::vector<fe::Column> columns{{.name = "x", .dtype = at::kLong}};
  lt::save_safetensors(folder / "a.safetensors", {{"x", torch::arange(3)}});
  exported_data::write_text(folder / "b.jsonl", "{\"x\": 5}\n{\"x\": 6}");
  CHECK(fe::open_source(folder / "a.safetensors", columns, {})->size() == 3);
  CHECK(fe::open_source(folder.path(), columns, {})->size() == 3);
  const auto lines = fe::open_source(folder / "b.jsonl", columns, {});
  CHECK(lines->size() == 2);
  CHECK(lines->get(1, columns[0]).item<std::int64_t>() == 6);
}

TEST_CASE("data that are not there, or of another kind, are refused by name") {
  const TemporaryFolder folder;
  const auto gone = folder / "gone.jsonl", text = folder / "data.csv";
  exported_data::write_text(text, "x");
  CHECK_THROWS_AS(fe::open_source(gone, {}, {}), fe::DataError);
  CHECK_THROWS_WITH(fe::open_source(gone, {}, {}), gone.string() + ": is missing");
  CHECK_THROWS_WITH(fe::open_source(text, {}, {}),
                    text.string() + ": is neither .safetensors, nor a folder of such files, nor .jsonl");
}
