// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/batch/batch_slice.hpp>

#include <cstdint>
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

/// Has frames of all samples behind one another.
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
