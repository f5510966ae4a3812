// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"
#include "unit/finetune_exported/support.hpp"

#include <finetune_exported/json_lines.hpp>

#include <string>
#include <vector>

namespace fe = finetune_exported;
namespace lt = looptorch;
using Catch::Contains;
using exported_data::write_text;
using looptorch::testing::TemporaryFolder;

namespace {

const fe::Column kIds{.name = "ids", .dtype = at::kInt, .dims = {{{.symbol = "s1", .max = 4}}}};
const fe::Column kSound{.name = "sound", .dtype = at::kFloat, .dims = {{{.symbol = "s2"}}}};

}  // namespace

TEST_CASE("each line that is not blank is a sample, known by its number in the file") {
  const TemporaryFolder folder;
  const auto file =
      write_text(folder / "a.jsonl", "{\"ids\": [1, 2]}\n\n  \r\n{\"ids\": [3], \"more\": null}");
  const fe::JsonLines lines(file, {kIds}, {});
  CHECK(lines.size() == 2);
  CHECK(lines.get(0, kIds).equal(torch::tensor({1, 2}, at::kInt)));
  CHECK(lines.get(1, kIds).equal(torch::tensor({3}, at::kInt)));
  CHECK(lines.place(0) == file.string() + ":1");
  CHECK(lines.place(1) == file.string() + ":4");
  CHECK(lines.fingerprint(0) == "{\"ids\": [1, 2]}");
  CHECK(lines.fingerprint(0) != lines.fingerprint(1));
}

TEST_CASE("a field may name an array or a sound beside the lines, or anywhere") {
  const TemporaryFolder folder, elsewhere;
  exported_data::save_npy(folder / "a.npy", torch::tensor({0.5, 0.25}, at::kDouble));
  lt::audio::encode(elsewhere / "b.wav", {torch::full({8}, 0.5F), 16000});
  const auto file =
      write_text(folder / "a.jsonl", "{\"sound\": \"a.npy\"}\n{\"sound\": \"" +
                                         (elsewhere / "b.wav").string() + "\"}\n{\"sound\": [1]}");
  const fe::JsonLines lines(file, {kSound}, {.normalize = false});
  CHECK(lines.get(0, kSound).equal(torch::tensor({0.5F, 0.25F})));
  CHECK(torch::allclose(lines.get(1, kSound), torch::full({8}, 0.5F), 0, 1e-4));
  CHECK(lines.get(2, kSound).equal(torch::tensor({1.0F})));
  CHECK(lines.has_sounds());
  write_text(folder / "arrays.jsonl", "{\"sound\": \"a.npy\"}\n{\"sound\": [1]}");
  CHECK_FALSE(fe::JsonLines(folder / "arrays.jsonl", {kSound}, {}).has_sounds());
}

TEST_CASE("a line whose inputs differ in a size that they share is refused") {
  const TemporaryFolder folder;
  auto mask = kIds;
  mask.name = "mask";
  const auto file = write_text(folder / "a.jsonl", R"({"ids": [1], "mask": [1]}
{"ids": [1, 2], "mask": [1]})");
  CHECK_THROWS_WITH(fe::JsonLines(file, {kIds, mask}, {}),
                    Contains(file.string() + ":2: \"mask\" has a size of 1 and \"ids\" of 2"));
}

TEST_CASE("a line that does not fit is refused with file and line when the file is opened") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& line, const std::string& why, const fe::Column& column = kIds) {
    const auto file = write_text(folder / "a.jsonl", "{\"ids\": [1], \"sound\": [1]}\n" + line + "\n");
    CHECK_THROWS_AS(fe::JsonLines(file, {column}, {}), fe::DataError);
    CHECK_THROWS_WITH(fe::JsonLines(file, {column}, {}), Contains(file.string() + ":2: " + why));
  };
  refused("{\"other\": 1}", "has no field \"ids\"");
  refused("[1]", "is an array, and no object of inputs");
  refused("{\"ids\": [1]", "");  // the parser's words
  refused("{\"ids\": [1.5]}", "\"ids\" is Float, and the model takes Int");
  refused("{\"ids\": 1}", "\"ids\" has sizes [] in each sample, and the model takes [s1 <= 4]");
  refused("{\"ids\": [1, 2, 3, 4, 5]}", "\"ids\" has sizes [5] in each sample");
  refused("{\"ids\": [[1], [1, 2]]}", "\"ids\" has lists of different lengths");
  refused("{\"ids\": \"a.npy\"}", "\"ids\" names a file, which has no whole numbers: give a list of them");
  refused("{\"sound\": \"gone.wav\"}", (folder / "gone.wav").string() + " is missing", kSound);
}

TEST_CASE("a file that is found unfit only when it is read is refused then") {
  const TemporaryFolder folder;
  exported_data::save_npy(folder / "a.npy", torch::zeros({2, 2}));
  const auto file = write_text(folder / "a.jsonl", "{\"sound\": \"a.npy\"}");
  const fe::JsonLines lines(file, {kSound}, {});
  CHECK_THROWS_WITH(lines.get(0, kSound), file.string() +
                                              ":1: \"sound\" has sizes [2, 2] in each sample, and "
                                              "the model takes [s2]");
}

TEST_CASE("a list may be shorter than a fixed size, to which a batch pads it") {
  const TemporaryFolder folder;
  const fe::Column fixed{.name = "ids", .dtype = at::kLong, .dims = {{{.size = 4}}}};
  const auto file = write_text(folder / "a.jsonl", "{\"ids\": [1]}");
  CHECK(fe::JsonLines(file, {fixed}, {}).get(0, fixed).size(0) == 1);
}

TEST_CASE("a file without samples, and one that cannot be read, are refused") {
  const TemporaryFolder folder;
  for (const char* text : {"", "\n \t\n"}) {
    const auto file = write_text(folder / "a.jsonl", text);
    CHECK_THROWS_WITH(fe::JsonLines(file, {kIds}, {}), file.string() + ": has no samples");
  }
  CHECK_THROWS_WITH(fe::JsonLines(folder / "gone.jsonl", {kIds}, {}),
                    (folder / "gone.jsonl").string() + ": cannot be read");
}
