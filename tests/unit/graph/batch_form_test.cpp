// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/graph/batch_form.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

using namespace looptorch::detail;

namespace {

enum class Kind { a, b };
struct Inner {
  at::Tensor x;
  std::vector<std::string> texts;
};
struct Batch {
  at::Tensor x = at::zeros({2, 3});
  std::int64_t count = 1;
  bool flag = false;
  Kind kind = Kind::a;
  double number = 0.5;
  std::string text = "a";
  std::optional<at::Tensor> maybe = {};
  std::filesystem::path path = "p";
  std::vector<Inner> inner = {};
};

std::string values_of(const Batch& batch) {
  std::string out;
  bool is_complete = true;
  append_host_values(out, batch, is_complete);
  CHECK(is_complete);
  return out;
}

struct Closed {
  at::Tensor x;
  template <class F>
  void each_tensor(F&& f) {
    f(x);
  }
  template <class F>
  void each_tensor(F&& f) const {
    f(x);
  }
};

}  // namespace

TEST_CASE("the form of a batch is that of its tensors") {
  const Batch batch;
  CHECK(form_of(batch) == form_of(Batch{.x = at::ones({2, 3})}));
  CHECK(form_of(batch) == form_of(Batch{.count = 2, .text = "b"}));
  for (const at::Tensor& other : {at::zeros({3, 2}), at::zeros({2, 3}, at::kDouble), at::zeros({3, 2}).t(),
                                  at::Tensor(), at::zeros({2, 3, 1})})
    CHECK(form_of(batch) != form_of(Batch{.x = other}));
  CHECK(form_of(batch) != form_of(Batch{.maybe = at::zeros({2})}));
}

TEST_CASE("each value that only the host knows tells batches apart, and tensors do not") {
  const std::string of = values_of({});
  CHECK(of == values_of({.x = at::ones({5})}));
  for (const Batch& other : {Batch{.count = 2}, Batch{.flag = true}, Batch{.kind = Kind::b},
                             Batch{.number = 0.25}, Batch{.text = "b"}, Batch{.maybe = at::zeros({1})},
                             Batch{.path = "q"}, Batch{.inner = {{at::zeros({1}), {}}}}})
    CHECK(of != values_of(other));
  // What runs together at a border does not look the same.
  CHECK(values_of({.inner = {{{}, {"ab", "c"}}}}) != values_of({.inner = {{{}, {"a", "bc"}}}}));
  CHECK(values_of({.inner = {{{}, {"a"}}, {{}, {}}}}) != values_of({.inner = {{{}, {}}, {{}, {"a"}}}}));
}

TEST_CASE("batches whose optional fields and lists are others have another structure") {
  struct Lists {
    std::optional<at::Tensor> a, b;
    std::vector<std::vector<at::Tensor>> lists = {};
    std::vector<std::string> texts = {};
  };
  const auto structure = [](const Lists& batch) {
    std::string out;
    append_structure(out, batch);
    return out;
  };
  const at::Tensor x = at::zeros({1});
  CHECK(structure({x, {}}) != structure({{}, x}));
  CHECK(structure({{}, {}, {{x}, {x, x}}}) != structure({{}, {}, {{x, x}, {x}}}));
  CHECK(structure({{}, {}, {}, {"a"}}) == structure({{}, {}, {}, {"b", "c"}}));
}

TEST_CASE("tensors that copies cannot stand for are named") {
  CHECK(reason_against_tensors(Batch{}) == nullptr);
  CHECK(std::string(reason_against_tensors(Batch{.x = at::ones({2}).set_requires_grad(true)}))
            .find("gradient") != std::string::npos);
  CHECK(std::string(reason_against_tensors(Batch{.x = at::ones({2, 2}).to_sparse()})).find("sparse") !=
        std::string::npos);
}

TEST_CASE("a type that shows its tensors alone is not known whole") {
  std::string out;
  bool is_complete = true;
  append_host_values(out, std::vector<Closed>{{at::zeros({1})}}, is_complete);
  CHECK_FALSE(is_complete);
}
