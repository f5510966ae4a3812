// SPDX-License-Identifier: MIT
// A batch as a StateDict: all of its fields come back, bit for bit.
#include "support/precompiled.hpp"

#include <looptorch/data/batch/batch_state.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace looptorch;

namespace {

enum class Kind { one, two };
struct Inner {
  std::vector<std::int64_t> lengths;
  at::Tensor undefined;
};
struct Batch {
  at::Tensor features;
  std::int64_t count = 0;
  float scale = 0;
  bool flag = false;
  Kind kind = Kind::one;
  std::vector<std::string> texts;
  std::optional<at::Tensor> mask, none;
  std::pair<at::Tensor, double> pair;
  std::vector<Inner> inner;
};

/// A batch that keeps a tensor to itself.
struct Closed {
  at::Tensor hidden;
  template <class Visit>
  void each_tensor(Visit&& visit) {
    visit(hidden);
  }
  template <class Visit>
  void each_tensor(Visit&& visit) const {
    visit(hidden);
  }
};
struct Open : Closed {
  void state_dict(StateDict& out) const { out.set("hidden", hidden); }
  void load_state_dict(const StateDict& in) { hidden = in.get<at::Tensor>("hidden"); }
};
static_assert(SavableBatch<Batch> && SavableBatch<std::vector<Batch>> && SavableBatch<Open>);
static_assert(!SavableBatch<Closed>);

}  // namespace

TEST_CASE("batch_state: every field comes back") {
  const Batch batch{.features = torch::tensor({1.0, std::nan(""), -1.0}),
                    .count = -3,
                    .scale = 0.1F,
                    .flag = true,
                    .kind = Kind::two,
                    .texts = {"a", "", "ü"},
                    .mask = torch::ones({2}, torch::kBool),
                    .none = {},
                    .pair = {torch::arange(3), 2.5},
                    .inner = {{{1, 2}, {}}, {{}, {}}}};
  const Batch back = batch_of_state<Batch>(batch_state(batch));
  CHECK(back.features.equal(batch.features) == false);  // NaN
  CHECK(back.features.is_same(batch.features) == false);
  CHECK(at::nan_to_num(back.features).equal(at::nan_to_num(batch.features)));
  CHECK((back.count == -3 && back.scale == 0.1F && back.flag && back.kind == Kind::two &&
         back.texts == batch.texts));
  CHECK((back.mask && back.mask->equal(*batch.mask) && !back.none));
  CHECK((back.pair.first.equal(batch.pair.first) && back.pair.second == 2.5));
  REQUIRE(back.inner.size() == 2);
  CHECK((back.inner[0].lengths == batch.inner[0].lengths && !back.inner[0].undefined.defined()));
  CHECK(batch_of_state<Open>(batch_state(Open{{torch::ones({2})}})).hidden.equal(torch::ones({2})));
}

TEST_CASE("batch_state: the state of another batch is refused") {
  CHECK_THROWS_AS(batch_of_state<Batch>(batch_state(std::vector<at::Tensor>{torch::ones({1})})), StateError);
}
