// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/accelerator/accelerator.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/fft_rfft.h>

#include <cmath>
#include <functional>
#include <vector>

namespace sim = looptorch_test::accelerator;

namespace {

const at::Device kDevice = sim::device(0);
const at::TensorOptions kHere = at::TensorOptions().device(kDevice);

/// Computes on both devices and compares bits.
void check_same(const std::function<at::Tensor(const at::Tensor&)>& compute) {
  at::manual_seed(1);
  const at::Tensor here = at::randn({3, 4});
  at::manual_seed(2);
  const at::Tensor expected = compute(here);
  at::manual_seed(2);
  CHECK(at::equal(compute(here.to(kDevice)).cpu(), expected));
}

TEST_CASE("sim: arithmetic, views and reductions equal the CPU's") {
  for (const bool behind : {false, true}) {
    const sim::With with({.behind_host = behind, .seed = 3});
    check_same([](const at::Tensor& a) { return (a * 2 + 1).t().contiguous(); });
    check_same([](const at::Tensor& a) { return a.matmul(a.t()).softmax(1); });
    check_same([](const at::Tensor& a) { return a.clone().slice(1, 1, 3).add_(1); });
    check_same([](const at::Tensor& a) { return at::cat({a, a}).unfold(1, 2, 1).contiguous(); });
    check_same([](const at::Tensor& a) { return at::where(a > 0, a, at::zeros_like(a)).sum(); });
    check_same([](const at::Tensor& a) { return std::get<1>(a.max(1)); });
    check_same(
        [](const at::Tensor& a) { return at::add_out(*new at::Tensor(at::empty({0}, a.options())), a, a); });
    check_same([](const at::Tensor& a) { return a.masked_select(a > 0); });
    check_same([](const at::Tensor& a) { return at::nonzero(a > 0); });
    check_same([](const at::Tensor& a) { return a.index({at::tensor({0, 2}).to(a.device())}); });
    check_same([](const at::Tensor& a) { return a.index({a > 0}); });
    check_same([](const at::Tensor& a) { return at::fft_rfft(a).abs(); });
    check_same([](const at::Tensor& a) { return a.to(at::kHalf).to(at::kDouble); });
    check_same([](const at::Tensor& a) { return at::conv1d(a.reshape({1, 3, 4}), a.reshape({2, 3, 2})); });
    check_same([](const at::Tensor& a) {
      at::Tensor running = at::zeros({4}, a.options()), spread = at::ones({4}, a.options());
      (void)at::batch_norm(a, {}, {}, running, spread, true, 0.1, 1e-5, false);  // writes undeclared
      return at::stack({running, spread});
    });
    check_same([](const at::Tensor& a) {
      at::Tensor x = a.clone();
      x.fill_(3).div_(at::scalar_tensor(2.0, at::kDouble));  // a number on the CPU
      return x;
    });
  }
}

TEST_CASE("sim: tensors of two devices are refused, numbers and indices of the CPU are not") {
  const at::Tensor a = at::ones({3, 4}, kHere);
  CHECK_THROWS_WITH(a + at::ones({3, 4}), Catch::Contains("Expected all tensors to be on the same device"));
  CHECK_THROWS_WITH(at::cat({a, at::ones({3, 4})}), Catch::Contains("and cpu! (aten::cat"));
  CHECK_THROWS_WITH(a + a.to(sim::device(1)), Catch::Contains("sim:0 and sim:1"));
  CHECK((a + at::scalar_tensor(1.0, at::kDouble)).scalar_type() == at::kFloat);
  CHECK(a.index({at::tensor({0, 2})}).size(0) == 2);
}

TEST_CASE(
    "sim: random numbers follow a seed and an offset, and the default generator's state can be restored") {
  for (const bool behind : {false, true}) {
    const sim::With with({.behind_host = behind});
    at::manual_seed(5);
    const at::Tensor a = at::rand({3}, kHere), b = at::randn({3}, kHere);
    CHECK_FALSE(at::equal(a, b));
    at::manual_seed(5);
    CHECK(at::equal(a, at::rand({3}, kHere)));
    at::Generator generator = at::globalContext().defaultGenerator(kDevice);
    const at::Tensor state = generator.get_state();
    CHECK(state.numel() == 16);
    const at::Tensor dropped = at::dropout(at::ones({100}, kHere), 0.5, true);
    generator.set_state(state);
    CHECK(at::equal(dropped, at::dropout(at::ones({100}, kHere), 0.5, true)));
    CHECK(std::abs(dropped.mean().item<double>() - 1) < 0.4);
    CHECK(at::randperm(5, kHere.dtype(at::kLong)).sum().item<int>() == 10);
    CHECK(at::multinomial(at::ones({4}, kHere), 2).numel() == 2);
    CHECK_THROWS_WITH(at::rand({3}, at::detail::createCPUGenerator(1), kHere),
                      Catch::Contains("Expected a 'sim' device type for generator"));
  }
}

TEST_CASE("sim: autocast lowers, raises and promotes as CUDA's lists say") {
  at::autocast::set_autocast_enabled(sim::kDeviceType, true);
  at::autocast::set_autocast_dtype(sim::kDeviceType, at::kHalf);
  const at::Tensor a = at::randn({4, 4}, kHere), product = a.matmul(a);
  CHECK(product.scalar_type() == at::kHalf);
  CHECK(at::linear(a, a).scalar_type() == at::kHalf);
  CHECK(at::conv1d(at::randn({2, 3, 10}, kHere), at::randn({4, 3, 3}, kHere)).scalar_type() == at::kHalf);
  CHECK(at::softmax(product, 1).scalar_type() == at::kFloat);
  CHECK(at::layer_norm(product, {4}).scalar_type() == at::kFloat);
  at::autocast::set_autocast_enabled(sim::kDeviceType, false);
  at::autocast::clear_cache();
}

TEST_CASE("sim: a module trains to the CPU's bits, recurrent cells included up to rounding") {
  const auto train = [](at::Device device) {
    torch::manual_seed(0);
    torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                              torch::nn::Linear(8, 1));
    net->to(device);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    for (int i = 0; i < 3; ++i) {
      sgd.zero_grad();
      net->forward(torch::arange(8, at::kFloat).reshape({2, 4}).to(device)).pow(2).mean().backward();
      sgd.step();
    }
    return net->parameters()[0].detach().cpu();
  };
  const at::Tensor expected = train(at::kCPU);
  CHECK(at::equal(train(kDevice), expected));
  CHECK(at::equal(train(sim::device(1)), expected));
  const sim::With with({.behind_host = true, .seed = 1});
  CHECK(at::equal(train(kDevice), expected));

  torch::manual_seed(0);
  torch::nn::LSTM lstm(3, 5);
  const at::Tensor input = torch::randn({2, 1, 3});
  const at::Tensor here = std::get<0>(lstm(input));
  here.sum().backward();
  const at::Tensor gradient = lstm->parameters()[0].grad().clone();
  lstm->zero_grad();
  lstm->to(kDevice);
  const at::Tensor there = std::get<0>(lstm(input.to(kDevice)));
  there.sum().backward();
  CHECK(at::allclose(there.cpu(), here));
  CHECK(at::allclose(lstm->parameters()[0].grad().cpu(), gradient));
}

TEST_CASE("sim: kernels, copies and waits are counted, and NoWaits refuses a wait") {
  at::Tensor a = at::ones({8}, kHere);
  sim::CountWaits count;
  const at::Tensor b = (a * 2 + 1).sum();
  CHECK(count.counts().kernels == 3);
  CHECK(count.counts().fallbacks == 3);
  CHECK(count.counts().host_waits == 0);
  CHECK(count.operators().at("aten::mul.out") == 1);
  CHECK(b.item<float>() == 24);
  (void)a.cpu();
  (void)at::ones({3}).to(kDevice);
  CHECK(count.counts().items == 1);
  CHECK(count.counts().blocking_copies == 2);
  (void)at::ones({3}).to(kDevice, /*non_blocking=*/true);
  CHECK(count.counts().pageable_uploads == 1);
  CHECK(count.counts().host_waits == 3);
  at::Tensor host = at::empty({8});
  host.copy_(a, /*non_blocking=*/true);
  CHECK(count.counts().pageable_downloads == 1);
  (void)at::equal(a, a + 0);
  (void)at::nonzero(a);
  (void)a.index({a > 0});
  CHECK(count.counts().dynamic_results == 3);
  sim::synchronize(kDevice);
  CHECK(count.counts().device_waits == 1);
  CHECK(count.counts().host_waits == 8);
  CHECK(count.waits().at(0) == "item");
  CHECK(count.waits().at(4) == "dynamic result in aten::equal");
  CHECK_THAT(count.counts().text(), Catch::Contains("items 1") && Catch::Contains("dynamic_results 3"));

  const sim::NoWaits none;
  CHECK_THROWS_WITH(b.item<float>(), Catch::Contains("the host waits for a device: item"));
}

TEST_CASE("sim: sparse tensors equal the CPU's, and the host waits where distinct indices are counted") {
  const auto sparse = [](const at::Tensor& a) {  // two of its rows are one
    const at::Tensor rows = at::tensor({2, 0, 2}, at::kLong).reshape({1, 3}).to(a.device());
    return at::_sparse_coo_tensor_unsafe(rows, a.clone(), {5, 4}, a.options().layout(at::kSparse));
  };
  for (const bool behind : {false, true}) {
    const sim::With with({.behind_host = behind, .seed = 4});
    check_same([&](const at::Tensor& a) { return at::zeros({5, 4}, a.options()).add_(sparse(a), -0.5); });
    check_same([&](const at::Tensor& a) {
      return at::zeros({5, 4}, a.options()).add_(sparse(a) + sparse(a));
    });
    check_same([&](const at::Tensor& a) { return sparse(a).add_(sparse(a)).mul_(3)._values(); });
    check_same([&](const at::Tensor& a) { return sparse(a).coalesce()._values(); });
    check_same([&](const at::Tensor& a) { return sparse(a).coalesce()._indices(); });
  }
  const at::Tensor a = sparse(at::ones({3, 4}, kHere));
  CHECK(a.layout() == at::kSparse);
  CHECK(a.device() == kDevice);
  CHECK(a._nnz() == 3);
  const sim::CountWaits count;
  (void)a.mul(2).add(a);
  CHECK(count.counts().host_waits == 0);
  CHECK(a.coalesce()._nnz() == 2);
  CHECK(count.counts().dynamic_results == 1);
}

TEST_CASE("sim: two devices have their own memory, and a copy between them is ordered on both") {
  for (const bool peer_access : {true, false}) {
    const sim::With with({.peer_access = peer_access});
    const at::Tensor a = at::arange(6, kHere).reshape({2, 3}).t();
    sim::CountWaits count;
    const at::Tensor b = a.to(sim::device(1)), c = at::empty({3, 2}, b.options().dtype(at::kDouble)).copy_(a);
    CHECK(count.counts().host_waits == 0);
    CHECK(count.counts().peer_copies == 2);
    CHECK(count.counts().allocations == (peer_access ? 2 : 4));
    CHECK(at::equal(b.cpu(), a.cpu()));
    CHECK(at::equal(c.cpu(), a.cpu().to(at::kDouble)));
  }
}

}  // namespace
