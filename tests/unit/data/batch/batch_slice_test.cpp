// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/batch/batch_slice.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

using looptorch::slice_batch;
using looptorch::SliceableBatch;

namespace batch_slice_test {

struct Clips {
  at::Tensor mel;                  // [B, 2]
  std::optional<at::Tensor> mask;  // [B]
  std::vector<std::string> names;  // B
  std::vector<at::Tensor> layers;  // two of [B, 1]
  at::Tensor scale;                // 0-dim
  std::int64_t width = 7;
};

/// Has frames of all samples after one another.
struct Packed {
  template <class Visit>
  void each_tensor(Visit&& visit) {
    visit(frames);
  }
  template <class Visit>
  void each_tensor(Visit&& visit) const {
    visit(frames);
  }
  Packed slice(std::int64_t begin, std::int64_t end) const { return {frames.slice(0, 3 * begin, 3 * end)}; }
  at::Tensor frames;
};

struct Closed {
  template <class Visit>
  void each_tensor(Visit&&) const {}
};

static_assert(SliceableBatch<at::Tensor> && SliceableBatch<std::tuple<at::Tensor, at::Tensor>>);
static_assert(SliceableBatch<Clips> && SliceableBatch<Packed> && !SliceableBatch<Closed>);
static_assert(SliceableBatch<std::map<std::string, at::Tensor>>);
static_assert(!SliceableBatch<std::tuple<at::Tensor, std::vector<double>>>);  // of two tasks, or samples?
static_assert(!SliceableBatch<std::tuple<at::Tensor, std::vector<std::vector<std::int64_t>>>>);

}  // namespace batch_slice_test

TEST_CASE("slice_batch takes samples of tensors and of containers with one element a sample") {
  using batch_slice_test::Clips;
  const at::Tensor mel = at::arange(8).reshape({4, 2});
  const Clips clips{.mel = mel,
                    .mask = at::arange(4),
                    .names = {"a", "b", "c", "d"},
                    .layers = {at::zeros({4, 1}), at::ones({4, 1})},
                    .scale = at::scalar_tensor(2)};
  const Clips part = slice_batch(clips, 1, 3);
  CHECK(part.mel.equal(mel.slice(0, 1, 3)));
  CHECK(part.mel.data_ptr() == mel[1].data_ptr());  // a view
  CHECK(part.mask->equal(at::arange(1, 3)));
  CHECK((part.names == std::vector<std::string>{"b", "c"}));
  CHECK((part.layers.size() == 2 && part.layers[1].equal(at::ones({2, 1}))));
  CHECK((part.scale.item<double>() == 2 && part.width == 7));
  CHECK(clips.mel.size(0) == 4);
}

TEST_CASE(
    "slice_batch asks a type that has its own slice, and refuses tensors that are not one row a sample") {
  const batch_slice_test::Packed packed{at::arange(12)};
  CHECK(slice_batch(packed, 1, 2).frames.equal(at::arange(3, 6)));
  CHECK_THROWS_WITH(
      slice_batch(std::tuple(at::zeros({4, 2}), at::zeros({5})), 0, 2),
      "a batch of 4 samples has a tensor of shape [5], which cannot be split by samples; give the "
      "batch a member `slice(std::int64_t begin, std::int64_t end) const`");
}

TEST_CASE("slice_batch takes samples of a map's tensors, whatever their number") {
  const std::map<std::string, at::Tensor> batch{{"x", at::arange(2)}, {"y", at::arange(2, 4)}};
  const auto part = slice_batch(batch, 1, 2);
  CHECK(part.size() == 2);
  CHECK((part.at("x").equal(at::arange(1, 2)) && part.at("y").equal(at::arange(3, 4))));
}

TEST_CASE("slice_batch refuses a list of tensors that may have one element a sample or not") {
  using List = std::vector<at::Tensor>;
  const auto split = [](const List& list) { return slice_batch(std::tuple(at::zeros({2, 8}), list), 1, 2); };
  CHECK_THROWS_WITH(
      split({at::zeros({2, 8}), at::zeros({2})}),
      "a batch of 2 samples has a list of 2, whose elements may be those of a sample each, or of "
      "all samples; give the batch a member `slice(std::int64_t begin, std::int64_t end) const`");
  CHECK(std::get<1>(split({at::zeros({5}), at::ones({3})})).at(0).equal(at::ones({3})));  // one a sample
  CHECK(std::get<1>(split({at::zeros({2}), at::zeros({2}), at::zeros({2, 3})})).size() == 3);
  CHECK(std::get<1>(split({at::scalar_tensor(1), at::scalar_tensor(2)})).at(0).item<double>() == 2);
}
