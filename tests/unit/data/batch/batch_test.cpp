// SPDX-License-Identifier: MIT
// Tests data/batch: aggregate
#include "support/precompiled.hpp"

#include <looptorch/data/batch/batch.hpp>

namespace lt = looptorch;

namespace {

struct Inner {
  at::Tensor weights;
  double scale = 1.0;
};
struct Batch {
  at::Tensor features;
  at::Tensor labels;
  std::vector<at::Tensor> extra;
  std::string name;
  std::vector<std::string> paths;
  std::optional<at::Tensor> mask;
  Inner inner;
  int64_t tokens = 0;
  std::pair<at::Tensor, int> pair;
  std::map<std::string, at::Tensor> named;
};
struct Custom {
  Custom() = default;
  template <class F>
  void each_tensor(F&& f) {
    f(secret_);
  }
  template <class F>
  void each_tensor(F&& f) const {
    f(secret_);
  }

 private:
  at::Tensor secret_ = at::ones({7});
};
class Closed {
 public:
  explicit Closed(int v) : v_(v) {}

 private:
  [[maybe_unused]] int v_;
};
struct Wide16 {
  at::Tensor a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15;
};
struct Wide17 {
  at::Tensor a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16;
};
struct HoldsClosed {
  at::Tensor a;
  Closed closed;
};

static_assert(lt::BatchLike<Batch> && lt::BatchLike<at::Tensor> && lt::BatchLike<Custom> &&
              lt::BatchLike<Wide16>);
static_assert(lt::BatchLike<std::pair<at::Tensor, at::Tensor>> && lt::BatchLike<int> &&
              lt::BatchLike<std::vector<Batch>>);
static_assert(!lt::BatchLike<Closed> && !lt::BatchLike<Wide17> && !lt::BatchLike<HoldsClosed>);

Batch example() {
  return {at::zeros({4, 3}),
          at::zeros({4}),
          {at::zeros({1}), at::zeros({2})},
          "n",
          {"a", "b"},
          at::zeros({5}),
          {at::zeros({6}), 2.0},
          9,
          {at::zeros({8}), 1},
          {{"x", at::zeros({9})}}};
}

}  // namespace

TEST_CASE("every tensor of a batch is visited once, in field order") {
  auto batch = example();
  std::vector<int64_t> sizes;
  lt::for_each_tensor(batch, [&](at::Tensor& t) { sizes.push_back(t.numel()); });
  CHECK(sizes == std::vector<int64_t>{12, 4, 1, 2, 5, 6, 8, 9});
  const auto& fixed = batch;
  int64_t seen = 0;
  lt::for_each_tensor(fixed, [&](const at::Tensor&) { ++seen; });
  CHECK(seen == 8);
}

TEST_CASE("an empty optional and a type with each_tensor") {
  Batch batch = example();
  batch.mask.reset();
  int64_t seen = 0;
  lt::for_each_tensor(batch, [&](at::Tensor&) { ++seen; });
  CHECK(seen == 7);
  Custom custom;
  lt::for_each_tensor(custom, [&](at::Tensor& t) { seen = t.numel(); });
  CHECK(seen == 7);
}

TEST_CASE("sixteen fields are tied in order") {
  Wide16 wide;
  wide.a0 = at::ones({1});
  wide.a15 = at::ones({16});
  std::vector<bool> defined;
  lt::for_each_tensor(wide, [&](at::Tensor& t) { defined.push_back(t.defined()); });
  REQUIRE(defined.size() == 16);
  CHECK((defined.front() && defined.back() && !defined[7]));
}

TEST_CASE("size and device of a batch") {
  auto batch = example();
  CHECK(lt::batch_size(batch) == 4);
  CHECK(lt::batch_size(3) == 0);
  CHECK(lt::is_on(batch, at::kCPU));
  CHECK_FALSE(lt::is_on(batch, at::kMeta));
  batch.inner.weights = batch.inner.weights.to(at::kMeta);
  CHECK_FALSE(lt::is_on(batch, at::kCPU));
  lt::move_to(batch, at::kMeta);
  CHECK(lt::is_on(batch, at::kMeta));
}

TEST_CASE("a batch's size is that of its first tensor with a dimension, and undefined tensors are anywhere") {
  Batch batch;
  batch.features = torch::ones({});
  batch.labels = torch::ones({5, 2});
  CHECK(lt::batch_size(batch) == 5);
  CHECK(lt::is_on(batch, at::kCPU));  // though most of its tensors are undefined
  CHECK(lt::batch_size(Batch{}) == 0);
  CHECK(lt::is_on(Batch{}, at::kMeta));
}
