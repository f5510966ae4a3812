// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/state/weights/safetensors.hpp>

#include "support/temporary_folder.hpp"

#include <finetune_exported/tensor_files.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace fe = finetune_exported;
namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;

namespace {

const std::vector<fe::Column> kColumns{{.name = "x", .dtype = at::kFloat, .dims = {{{.size = 2}}}},
                                       {.name = "y", .dtype = at::kLong}};

/// Writes samples `first` to `first + count - 1`: x are [n, -n], y is n.
void write(const std::filesystem::path& file, std::int64_t first, std::int64_t count) {
  const at::Tensor n = torch::arange(first, first + count);
  lt::save_safetensors(file,
                       {{"x", torch::stack({n, -n}, 1).to(at::kFloat)}, {"y", n}, {"unused", n.clone()}});
}

}  // namespace

TEST_CASE("samples are the rows of a file's tensors, with the column's type") {
  const TemporaryFolder folder;
  write(folder / "data.safetensors", 4, 3);
  const fe::TensorFiles files(folder / "data.safetensors", kColumns);
  CHECK(files.size() == 3);
  CHECK(files.get(2, kColumns[0]).equal(torch::tensor({6.0F, -6.0F})));
  CHECK(files.get(0, kColumns[1]).equal(torch::tensor(4, at::kLong)));
  CHECK(files.get(1, {.name = "x", .dtype = at::kDouble}).equal(torch::tensor({5.0, -5.0}, at::kDouble)));
  CHECK(files.get(1, {.name = "x"}).scalar_type() == at::kFloat);
  CHECK(files.place(2) == "data.safetensors");
}

TEST_CASE("a folder's files are one row of samples in the order of their names") {
  const TemporaryFolder folder;
  for (const char name : std::string("dgafbec"))  // the last one of the order has five samples
    write(folder / (std::string(1, name) + ".safetensors"), name - 'a', name == 'g' ? 5 : 1);
  std::filesystem::copy_file(folder / "a.safetensors", folder / "other.bin");
  const fe::TensorFiles files(folder.path(), kColumns);
  REQUIRE(files.size() == 11);
  std::string places;
  std::set<std::string> fingerprints;
  for (std::int64_t i = 0; i < files.size(); ++i) {
    CHECK(files.get(i, kColumns[1]).item<std::int64_t>() == i);
    places += files.place(i).substr(0, 1);
    fingerprints.insert(files.fingerprint(i));
  }
  CHECK(places == "abcdefggggg");
  CHECK(fingerprints.size() == 11);
}

TEST_CASE("the fingerprints of a file that grew are others") {
  const TemporaryFolder folder;
  write(folder / "a.safetensors", 0, 2);
  const auto before = fe::TensorFiles(folder.path(), kColumns).fingerprint(1);
  CHECK(fe::TensorFiles(folder.path(), kColumns).fingerprint(1) == before);
  write(folder / "a.safetensors", 0, 3);
  CHECK(fe::TensorFiles(folder.path(), kColumns).fingerprint(1) != before);
}

TEST_CASE("files that do not have the columns are refused by name") {
  const TemporaryFolder folder;
  const auto refused = [&](const lt::TensorMap& tensors, const std::string& why) {
    write(folder / "a.safetensors", 0, 2);  // the first of the folder is right
    lt::save_safetensors(folder / "b.safetensors", tensors);
    CHECK_THROWS_AS(fe::TensorFiles(folder.path(), kColumns), fe::DataError);
    CHECK_THROWS_WITH(fe::TensorFiles(folder.path(), kColumns),
                      Contains((folder / "b.safetensors").string() + ": " + why));
  };
  const auto x = torch::zeros({3, 2});
  const auto y = torch::zeros({3}, at::kLong);
  refused({{"x", x}, {"z", y}}, "has no tensor \"y\"; it has x, z");
  refused({}, "has no tensor \"x\"; it has none");
  refused({{"x", x}, {"y", y[0].clone()}}, "\"y\" has no samples");
  refused({{"x", torch::zeros({0, 2})}, {"y", y}}, "\"x\" has no samples");
  refused({{"x", x}, {"y", torch::zeros({2}, at::kLong)}}, "\"y\" has 2 samples, and \"x\" 3");
  refused({{"x", x}, {"y", torch::zeros({3})}}, "\"y\" is Float, and the model takes Long");
  refused({{"x", torch::zeros({3, 1})}, {"y", y}},
          "\"x\" has sizes [1] in each sample, and the model takes [2]");
}

TEST_CASE("a folder without safetensors, an empty file and a missing one are refused") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(fe::TensorFiles(folder.path(), kColumns),
                    folder.path().string() + ": holds no .safetensors");
  std::ofstream(folder / "empty.safetensors").flush();
  CHECK_THROWS_WITH(fe::TensorFiles(folder / "empty.safetensors", kColumns), Contains("empty.safetensors"));
  CHECK_THROWS_WITH(fe::TensorFiles(folder / "gone.safetensors", kColumns), Contains("gone.safetensors"));
}
