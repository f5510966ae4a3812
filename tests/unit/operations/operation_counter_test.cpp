// SPDX-License-Identifier: MIT
// What is counted of each kind of call, beside PyTorch's FlopCounterMode (tests/parity/operations.py).
//
// Tests operations: formulas, operation_counter, operations
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/operations/operation_counter.hpp>
#include <looptorch/policies/autocast.hpp>

#include <ATen/TensorOperators.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace lt = looptorch;

namespace operation_counter {

using Step = std::function<at::Tensor()>;

lt::Operations counted(const Step& step, bool backward) {
  const lt::OperationCounter counter;
  const at::Tensor loss = step();
  if (backward) loss.backward();
  return counter.count();
}

at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, type).requires_grad_();
}

/// The calls of the script.
std::map<std::string, Step> calls() {
  std::map<std::string, Step> calls;
  calls["mm"] = [] { return at::mm(leaf({3, 4}), leaf({4, 5})).sum(); };
  calls["bmm"] = [] { return at::bmm(leaf({2, 3, 4}), leaf({2, 4, 5})).sum(); };
  calls["linear"] = [] { return at::linear(leaf({2, 7, 4}), leaf({5, 4}), leaf({5})).sum(); };
  calls["addmm"] = [] { return at::addmm(leaf({3, 5}), leaf({3, 4}), leaf({4, 5})).sum(); };
  calls["baddbmm"] = [] { return at::baddbmm(leaf({2, 3, 5}), leaf({2, 3, 4}), leaf({2, 4, 5})).sum(); };
  calls["einsum"] = [] { return at::einsum("bij,kj->bik", {leaf({2, 3, 4}), leaf({5, 4})}).sum(); };
  calls["conv1d"] = [] { return at::conv1d(leaf({2, 3, 20}), leaf({5, 3, 4}), leaf({5}), 2, 1, 2).sum(); };
  calls["conv2d"] = [] {
    return at::conv2d(leaf({2, 3, 9, 11}), leaf({5, 3, 3, 2}), {}, at::IntArrayRef{2, 1},
                      at::IntArrayRef{1, 0})
        .sum();
  };
  calls["conv2d.frozen_input"] = [] {
    return at::conv2d(at::randn({2, 3, 9, 11}), leaf({5, 3, 3, 2})).sum();
  };
  calls["conv3d"] = [] { return at::conv3d(leaf({1, 2, 5, 6, 7}), leaf({3, 2, 2, 3, 2})).sum(); };
  calls["grouped"] = [] {
    return at::conv2d(leaf({2, 6, 8, 8}), leaf({9, 2, 3, 3}), {}, 1, "same", 1, 3).sum();
  };
  calls["depthwise"] = [] {
    return at::conv1d(leaf({2, 6, 20}), leaf({6, 1, 5}), leaf({6}), 1, 2, 1, 6).sum();
  };
  calls["transposed"] = [] {
    return at::conv_transpose2d(leaf({2, 6, 5, 4}), leaf({6, 3, 4, 4}), {}, 2, 1).sum();
  };
  const auto attention = [] {
    return at::scaled_dot_product_attention(leaf({2, 3, 5, 8}), leaf({2, 3, 7, 8}), leaf({2, 3, 7, 8})).sum();
  };
  calls["attention"] = attention;
  calls["attention.math"] = [attention] {
    at::globalContext().setSDPUseFlash(false);
    const at::Tensor sum = attention();
    at::globalContext().setSDPUseFlash(true);
    return sum;
  };
  calls["lstm"] = [] {
    torch::nn::LSTM lstm(torch::nn::LSTMOptions(6, 5).num_layers(2));
    lstm->to(at::kDouble);
    return std::get<0>(lstm(leaf({7, 3, 6}, at::kDouble))).sum();
  };
  calls["gru"] = [] {
    torch::nn::GRU gru(torch::nn::GRUOptions(6, 5).bidirectional(true));
    gru->to(at::kDouble);
    return std::get<0>(gru(leaf({7, 3, 6}, at::kDouble))).sum();
  };
  calls["second_derivative"] = [x = leaf({3, 4})] {
    const auto value = at::mm(x, x.t()).pow(2).sum();
    const auto gradient = torch::autograd::grad({value}, {x}, {}, true, /*create_graph=*/true)[0];
    return gradient.pow(2).sum();
  };
  return calls;
}

}  // namespace operation_counter

using namespace operation_counter;

TEST_CASE("OperationCounter: each kind of call has FlopCounterMode's operations") {
  const auto recorded =
      lt::Json::parse(lt::read_file(LOOPTORCH_SOURCE_DIR "/tests/parity/data/operations/counts.json"));
  for (const auto& [name, step] : calls()) {
    INFO(name);
    const lt::Json& expected = recorded.at(name);
    CHECK(counted(step, false).total() == expected.at("forward").as_int());
    const std::int64_t both = counted(step, true).total();
    CHECK(both == expected.at("corrected").as_int());
    const bool in_groups = name == "grouped" || name == "depthwise";
    CHECK((both == expected.at("both").as_int()) == !in_groups);
  }
}

TEST_CASE("OperationCounter: a recurrent layer counts the same fused") {
  const auto of = [](at::ScalarType type, bool backward) {
    torch::nn::LSTM lstm(torch::nn::LSTMOptions(6, 5).num_layers(2));
    lstm->to(type);
    return counted([&] { return std::get<0>(lstm(leaf({7, 3, 6}, type))).sum(); }, backward);
  };
  CHECK(of(at::kFloat, false)[lt::Arithmetic::fp32] == of(at::kDouble, false)[lt::Arithmetic::fp64]);
  // Fused layers differentiate the first state too, which is zero and needs no gradient.
  const auto fused = of(at::kFloat, true).total(), plain = of(at::kDouble, true).total();
  CHECK(fused == 3 * of(at::kFloat, false).total());
  CHECK((plain <= fused && plain > 0.9 * static_cast<double>(fused)));
}

TEST_CASE("OperationCounter: operations count by the arithmetic that does them") {
  lt::Operations expected;
  expected[lt::Arithmetic::bf16] = 3 * 120;
  const at::Tensor a = leaf({3, 4}), b = leaf({4, 5});
  CHECK(counted(
            [&] {
              at::autocast::set_autocast_enabled(at::kCPU, true);
              const auto product = at::mm(a, b);  // in bf16, although its inputs are not
              at::autocast::set_autocast_enabled(at::kCPU, false);
              return product.sum();
            },
            true) == expected);
  at::autocast::clear_cache();
  lt::Operations narrow;
  narrow[lt::Arithmetic::fp64] = 120, narrow[lt::Arithmetic::fp16] = 2 * 3;
  CHECK(counted(
            [] {
              at::mm(at::ones({1, 3}, at::kHalf), at::ones({3, 1}, at::kHalf));
              return at::mm(leaf({3, 4}, at::kDouble), leaf({4, 5}, at::kDouble)).sum();
            },
            false) == narrow);
}

TEST_CASE("OperationCounter: calls within calls and out of its life do not count") {
  at::mm(leaf({3, 4}), leaf({4, 5}));
  const lt::OperationCounter outer;
  CHECK(outer.is_active());
  CHECK(outer.count() == lt::Operations{});
  at::Tensor out = at::empty({3, 5});
  at::mm_out(out, at::ones({3, 4}), at::ones({4, 5}));
  out.addmm_(at::ones({3, 4}), at::ones({4, 5}));
  CHECK(outer.count().total() == 240);
  {
    const lt::OperationCounter inner;
    at::mm(leaf({3, 4}), leaf({4, 5}));
    CHECK(inner.count().total() == 120);
    std::thread([] {
      const lt::OperationCounter other;
      CHECK(!other.is_active());
      at::mm(leaf({3, 4}), leaf({4, 5}));
      lt::OperationCounter::add(lt::Operations{{1, 2, 3}});
      CHECK(other.count().total() == 0);
    }).join();
    CHECK(inner.count().total() == 120);
  }
  CHECK(outer.count().total() == 360);
  lt::OperationCounter::add(lt::Operations{{0, 7}});
  CHECK(outer.count()[lt::Arithmetic::fp32] == 367);
}

TEST_CASE("OperationCounter: one that counts alone, and lives that overlap") {
  auto first = std::make_unique<lt::OperationCounter>();
  const lt::OperationCounter around;
  {
    const lt::OperationCounter alone(/*alone=*/true);
    const lt::OperationCounter within;
    CHECK(!within.is_active());
    first.reset();  // as a phase that ends in a capture
    at::mm(leaf({3, 4}), leaf({4, 5}));
    CHECK(within.count().total() == 0);
    CHECK(alone.count().total() == 120);
  }
  CHECK(around.count().total() == 0);
  const lt::OperationCounter last;
  at::mm(leaf({3, 4}), leaf({4, 5}));
  CHECK(last.count().total() == 120);
}

TEST_CASE("OperationCounter: a call that throws, empty tensors and other operators are no trouble") {
  const lt::OperationCounter counter;
  CHECK_THROWS(at::mm(at::ones({3, 4}), at::ones({5, 4})));
  const std::int64_t before = counter.count().total();
  CHECK(at::mm(at::ones({0, 4}), at::ones({4, 5})).numel() == 0);
  CHECK(at::relu(at::ones({3})).sum().item<float>() == 3);
  at::mv(at::ones({3, 4}), at::ones({4}));
  CHECK(counter.count().total() == before);
  at::mm(at::ones({3, 4}), at::ones({4, 5}));
  CHECK(counter.count().total() == before + 120);
}
