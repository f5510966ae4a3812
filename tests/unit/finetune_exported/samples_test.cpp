// SPDX-License-Identifier: MIT
// Tests finetune_exported: source
#include "support/precompiled.hpp"

#include <looptorch/data/batch/batch_slice.hpp>

#include <finetune_exported/samples.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fe = finetune_exported;
namespace lt = looptorch;

namespace {

/// Sample i of column "x" is a row of i + 1 numbers i, and of "y" the number i.
struct Counted final : fe::Source {
  [[nodiscard]] std::int64_t size() const override { return 5; }
  [[nodiscard]] at::Tensor get(std::int64_t index, const fe::Column& column) const override {
    if (column.name == "y") return torch::tensor(index, at::kLong);
    return torch::full({index + 1}, static_cast<double>(index), at::kFloat);
  }
  [[nodiscard]] std::string place(std::int64_t index) const override { return "p" + std::to_string(index); }
  [[nodiscard]] std::string fingerprint(std::int64_t index) const override {
    return "f" + std::to_string(index);
  }
};

fe::Samples samples(std::vector<fe::Column> columns) {
  return {std::make_shared<Counted>(), std::move(columns)};
}
fe::Row batch(const fe::Samples& samples, const std::vector<std::int64_t>& indices) {
  std::vector<fe::Row> rows;
  for (const auto index : indices) rows.push_back(samples.get(index));
  return samples.collate(rows);
}

}  // namespace

TEST_CASE("a sample has a tensor for each column, in their order, and its source's place and fingerprint") {
  const auto data = samples({{.name = "y"}, {.name = "x"}});
  CHECK(data.size() == 5);
  const auto row = data.get(2);
  REQUIRE(row.tensors.size() == 2);
  CHECK(row.tensors[0].item<std::int64_t>() == 2);
  CHECK(row.tensors[1].equal(torch::full({3}, 2.0F)));
  CHECK(data.path(3) == "p3");
  CHECK(data.fingerprint(3) == "f3");
}

TEST_CASE("a batch stacks each column, and pads shorter tensors with the column's number") {
  const auto data = samples({{.name = "x", .padding = -100}, {.name = "y"}});
  const auto made = batch(data, {0, 2, 1});
  CHECK(made.tensors[0].equal(torch::tensor({{0.F, -100.F, -100.F}, {2.F, 2.F, 2.F}, {1.F, 1.F, -100.F}})));
  CHECK(made.tensors[1].equal(torch::tensor({0, 2, 1}, at::kLong)));
  CHECK(batch(data, {1}).tensors[0].equal(torch::ones({1, 2})));
}

TEST_CASE("a batch is padded to the model's fixed size, and not to the most of an open one") {
  const auto fixed = samples({{.name = "x", .dims = {{{.size = 6}}}}});
  CHECK(batch(fixed, {0, 1}).tensors[0].sizes() == at::IntArrayRef({2, 6}));
  CHECK(batch(fixed, {1}).tensors[0].equal(torch::tensor({{1.F, 1.F, 0.F, 0.F, 0.F, 0.F}})));
  const auto open = samples({{.name = "x", .dims = {{{.symbol = "s1", .max = 6}}}}});
  CHECK(batch(open, {0, 1}).tensors[0].sizes() == at::IntArrayRef({2, 2}));
}

TEST_CASE("each dimension is padded after its numbers") {
  const auto data = samples({{.name = "x", .padding = 9}});
  std::vector<fe::Row> rows{{{torch::ones({2, 1})}}, {{torch::ones({1, 3})}}};
  const auto made = data.collate(rows).tensors[0];
  CHECK(made.equal(torch::tensor({{{1.F, 9.F, 9.F}, {1.F, 9.F, 9.F}}, {{1.F, 1.F, 1.F}, {9.F, 9.F, 9.F}}})));
}

TEST_CASE("samples of different dimensions are refused by their column") {
  const auto data = samples({{.name = "x"}});
  std::vector<fe::Row> rows{{{torch::ones({2, 1})}}, {{torch::ones({3})}}};
  CHECK_THROWS_AS(data.collate(rows), fe::DataError);
  rows = {{{torch::ones({2, 1})}}, {{torch::ones({3})}}};
  CHECK_THROWS_WITH(data.collate(rows), "samples of a batch have \"x\" of different dimensions");
}

TEST_CASE("a batch is split by its samples, also one of as many samples as columns") {
  const auto data = samples({{.name = "x"}, {.name = "y"}});
  const auto part = lt::slice_batch(batch(data, {0, 1}), 1, 2);
  REQUIRE(part.tensors.size() == 2);
  CHECK(part.tensors[0].equal(torch::ones({1, 2})));
  CHECK(part.tensors[1].equal(torch::ones({1}, at::kLong)));
}
