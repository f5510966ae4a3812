// SPDX-License-Identifier: MIT
// What is counted of each kind of call, beside PyTorch's FlopCounterMode (tests/parity/flops.py).
//
// Tests flops: formulas, flop_counter, flops
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/flops/flop_counter.hpp>
#include <looptorch/policies/autocast.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lt = looptorch;

namespace flop_counter {

using Step = std::function<at::Tensor()>;

lt::Flops counted(const Step& step, bool backward) {
  const lt::FlopCounter counter;
  const at::Tensor loss = step();
  if (backward) loss.backward();
  return counter.count();
}

std::int64_t flops_of(const char* name, const std::vector<c10::IValue>& inputs) {
  return lt::detail::flop_formula(name)(lt::detail::OperatorInputs(inputs.data(), inputs.size()));
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

}  // namespace flop_counter

using namespace flop_counter;

TEST_CASE("FlopCounter: each kind of call has FlopCounterMode's FLOPs") {
  const auto recorded =
      lt::Json::parse(lt::read_file(LOOPTORCH_SOURCE_DIR "/tests/parity/data/flops/counts.json"));
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

TEST_CASE("FlopCounter: a recurrent layer counts the same fused") {
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

TEST_CASE("formulas: operators that only CUDA has take the inputs that are read, at their places") {
  using Places = std::vector<std::pair<std::size_t, const char*>>;
  const Places attention{{0, "query"}, {1, "key"}, {2, "value"}};
  const Places attention_backward{{1, "query"}, {2, "key"}, {3, "value"}};
  const Places convolution{{0, "input"},   {1, "weight"},   {3, "stride"},
                           {4, "padding"}, {5, "dilation"}, {6, "transposed"}};
  const std::map<std::string, Places> read{
      {"aten::_scaled_dot_product_flash_attention", attention},
      {"aten::_scaled_dot_product_efficient_attention", attention},
      {"aten::_scaled_dot_product_cudnn_attention", attention},
      {"aten::_scaled_dot_product_fused_attention_overrideable", attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
      {"aten::_scaled_dot_product_flash_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_efficient_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_cudnn_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_fused_attention_overrideable_backward", attention_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
      {"aten::convolution", convolution},
      {"aten::_convolution", convolution},
      {"aten::convolution_overrideable", convolution},
      {"aten::convolution_backward",
       {{0, "grad_output"}, {1, "input"}, {2, "weight"}, {7, "transposed"}, {10, "output_mask"}}},
      {"aten::_cudnn_rnn", {{0, "input"}, {1, "weight"}}},
      {"aten::_cudnn_rnn_backward", {{0, "input"}, {1, "weight"}}},
      {"aten::mkldnn_rnn_layer", {{0, "input"}, {1, "weight0"}, {2, "weight1"}}},
      {"aten::mkldnn_rnn_layer_backward", {{0, "input"}, {1, "weight1"}, {2, "weight2"}}}};
  for (const auto& [name, places] : read) {
    INFO(name);
    CHECK(lt::detail::flop_formula(name));
    const auto operation = c10::Dispatcher::singleton().findSchema({name, ""});
    REQUIRE(operation);
    for (const auto& [place, input] : places)
      CHECK(operation->schema().arguments().at(place).name() == input);
  }
}

TEST_CASE(
    "formulas: cuDNN's recurrent layers, as those of the CPU, and attention with values of another width") {
  const std::vector<c10::IValue> layers{
      at::ones({7, 3, 6}), std::vector<at::Tensor>{at::ones({20, 6}), at::ones({20, 5}), at::ones({20})}};
  CHECK(flops_of("aten::_cudnn_rnn", layers) == 2 * 7 * 3 * 20 * (6 + 5));
  CHECK(flops_of("aten::_cudnn_rnn_backward", layers) == 4 * 7 * 3 * 20 * (6 + 5));
  const std::vector<c10::IValue> heads{at::ones({2, 3, 5, 9}), at::ones({2, 3, 5, 8}), at::ones({2, 3, 7, 8}),
                                       at::ones({2, 3, 7, 9})};
  CHECK(flops_of("aten::_scaled_dot_product_flash_attention_backward", heads) ==
        2 * 2 * 3 * 5 * 7 * (3 * 8 + 2 * 9));
  const std::vector<c10::IValue> few{at::ones({2, 3}), c10::IValue()};
  for (const char* name :
       {"aten::mm", "aten::addmm", "aten::convolution_backward", "aten::_scaled_dot_product_flash_attention"})
    CHECK(flops_of(name, few) == 0);  // no tensor where one is read
}

TEST_CASE("FlopCounter: FLOPs count by the arithmetic that does them") {
  lt::Flops expected;
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
  lt::Flops narrow;
  narrow[lt::Arithmetic::fp64] = 120, narrow[lt::Arithmetic::fp16] = 2 * 3;
  CHECK(counted(
            [] {
              at::mm(at::ones({1, 3}, at::kHalf), at::ones({3, 1}, at::kHalf));
              return at::mm(leaf({3, 4}, at::kDouble), leaf({4, 5}, at::kDouble)).sum();
            },
            false) == narrow);
}

TEST_CASE("FlopCounter: calls within calls and out of its life do not count") {
  at::mm(leaf({3, 4}), leaf({4, 5}));
  const lt::FlopCounter outer;
  CHECK(outer.is_active());
  CHECK(outer.count() == lt::Flops{});
  at::Tensor out = at::empty({3, 5});
  at::mm_out(out, at::ones({3, 4}), at::ones({4, 5}));
  out.addmm_(at::ones({3, 4}), at::ones({4, 5}));
  CHECK(outer.count().total() == 240);
  {
    const lt::FlopCounter inner;
    at::mm(leaf({3, 4}), leaf({4, 5}));
    CHECK(inner.count().total() == 120);
    std::thread([] {
      const lt::FlopCounter other;
      CHECK(!other.is_active());
      at::mm(leaf({3, 4}), leaf({4, 5}));
      lt::FlopCounter::add(lt::Flops{{1, 2, 3}});
      CHECK(other.count().total() == 0);
    }).join();
    CHECK(inner.count().total() == 120);
  }
  CHECK(outer.count().total() == 360);
  lt::FlopCounter::add(lt::Flops{{0, 7}});
  CHECK(outer.count()[lt::Arithmetic::fp32] == 367);
}

TEST_CASE("FlopCounter: one that counts alone, and lives that overlap") {
  auto first = std::make_unique<lt::FlopCounter>();
  const lt::FlopCounter around;
  {
    const lt::FlopCounter alone(/*alone=*/true);
    const lt::FlopCounter within;
    CHECK(!within.is_active());
    first.reset();  // as a phase that ends in a capture
    at::mm(leaf({3, 4}), leaf({4, 5}));
    CHECK(within.count().total() == 0);
    CHECK(alone.count().total() == 120);
  }
  CHECK(around.count().total() == 0);
  const lt::FlopCounter last;
  at::mm(leaf({3, 4}), leaf({4, 5}));
  CHECK(last.count().total() == 120);
}

TEST_CASE("FlopCounter: a call that throws, empty tensors and other operators are no trouble") {
  const lt::FlopCounter counter;
  CHECK_THROWS(at::mm(at::ones({3, 4}), at::ones({5, 4})));
  const std::int64_t before = counter.count().total();
  CHECK(at::mm(at::ones({0, 4}), at::ones({4, 5})).numel() == 0);
  CHECK(at::relu(at::ones({3})).sum().item<float>() == 3);
  at::mv(at::ones({3, 4}), at::ones({4}));
  CHECK(counter.count().total() == before);
  at::mm(at::ones({3, 4}), at::ones({4, 5}));
  CHECK(counter.count().total() == before + 120);
}
