// SPDX-License-Identifier: MIT
// Norms beside fp64, at sizes at which LibTorch's own are wrong.
#include "support/precompiled.hpp"

#include <looptorch/optim/gradients/finite_gradients.hpp>
#include <looptorch/optim/gradients/norms.hpp>

namespace lt = looptorch;
using lt::detail::long_norm;
using lt::detail::norm_of_one;

namespace {

constexpr int64_t kLarge = (1 << 20) + 77;  // LibTorch is off by 4e-4 for p = 2, and by 1e-2 for p = 1

double by_fp64(const at::Tensor& tensor, double p) {
  const auto wide = tensor.to(at::kDouble).abs();
  return std::isinf(p) ? wide.max().item<double>() : std::pow(wide.pow(p).sum().item<double>(), 1 / p);
}

}  // namespace

TEST_CASE("a norm of many elements is right to 1e-5, in each type, layout and order") {
  torch::manual_seed(1);
  const auto equal = torch::full({kLarge}, 0.02), random = torch::randn({1031, 1021});
  CHECK(std::abs(at::linalg_vector_norm(equal, 2).item<double>() / by_fp64(equal, 2) - 1) > 1e-4);
  for (const auto& tensor :
       {equal, random, random.t(), equal.to(at::kBFloat16), random.to(at::kHalf), equal.to(at::kDouble),
        torch::randn({2, 3, 400, 500}).to(at::MemoryFormat::ChannelsLast),
        torch::full({kLarge, 2}, 0.02).select(1, 0), torch::ones({4097}), torch::ones({8192})})
    for (const double p : {2.0, 1.0, 3.0, double(INFINITY)}) {
      INFO(tensor.scalar_type() << " " << tensor.sizes() << " " << tensor.strides() << " p = " << p);
      CHECK(long_norm(tensor, p).scalar_type() == at::kDouble);
      CHECK(long_norm(tensor, p).item<double>() == Approx(by_fp64(tensor, p)).epsilon(3e-5));
      CHECK(norm_of_one(tensor, p).item<double>() == Approx(by_fp64(tensor, p)).epsilon(3e-5));
    }
  CHECK(norm_of_one(equal, 2).scalar_type() == at::kFloat);
  CHECK(norm_of_one(equal.to(at::kBFloat16), 2).scalar_type() == at::kFloat);
  CHECK(long_norm(torch::zeros({0}), 2).item<double>() == 0.0);
  CHECK(std::isnan(long_norm(torch::cat({equal, torch::full({1}, NAN)}), 2).item<double>()));
}

TEST_CASE("short tensors have LibTorch's norm, bit for bit, and lists keep their order") {
  torch::manual_seed(2);
  const auto small = torch::randn({50, 3}), large = torch::full({kLarge}, 0.02), other = torch::randn({4096});
  const auto norms = lt::detail::norms_of_each({small, large, other, large, small}, 2);
  REQUIRE(norms.size() == 5);
  CHECK(norms[0].equal(at::linalg_vector_norm(small, 2)));
  CHECK(norms[2].equal(at::linalg_vector_norm(other, 2)));
  CHECK(norms[4].equal(norms[0]));
  CHECK(norms[1].item<double>() == Approx(by_fp64(large, 2)).epsilon(1e-5));
  CHECK(norms[3].equal(norms[1]));
  CHECK(lt::detail::joined_norm(norms, 2).equal(at::linalg_vector_norm(
      at::cat({norms[0].view(1), norms[1].view(1), norms[2].view(1), norms[3].view(1), norms[4].view(1)}),
      2)));
  CHECK(lt::detail::norm_of({large, small}) ==
        Approx(std::hypot(by_fp64(large, 2), by_fp64(small, 2))).epsilon(1e-5));
}

TEST_CASE("an empty tensor has a norm of 0, alone and among others, whatever the type of the norm") {
  const auto empty = torch::empty({0, 3}), some = torch::tensor({3.f, -4.f});
  const auto narrow = torch::empty({0}, at::kBFloat16);
  for (const double p : {0.5, 1.0, 2.0, 3.0, double(INFINITY)}) {
    CAPTURE(p);
    CHECK(long_norm(empty, p).item<double>() == 0);
    CHECK(norm_of_one(empty, p).item<double>() == 0);
    CHECK(norm_of_one(narrow, p).scalar_type() == at::kFloat);
    const auto norms = lt::detail::norms_of_each({empty, some, narrow}, p);
    REQUIRE(norms.size() == 3);
    CHECK(norms[0].item<double>() == 0);
    CHECK(norms[1].equal(at::linalg_vector_norm(some, p)));
    CHECK(norms[2].item<double>() == 0);
    CHECK(lt::detail::joined_norm(norms, p).item<double>() == Approx(by_fp64(some, p)).epsilon(1e-6));
    CHECK(lt::detail::joined_norm(lt::detail::norms_of_each({empty}, p), p).item<double>() == 0);
  }
}
