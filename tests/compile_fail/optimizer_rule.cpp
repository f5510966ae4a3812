// SPDX-License-Identifier: MIT
// expect: looptorch: this is no rule of an optimizer.
// alone
#include <looptorch/optim/fused/fused_optimizer.hpp>

#include <array>
#include <tuple>

struct OwnOptions {
  double lr = 0.1;
};
struct OwnMoments {
  std::vector<at::Tensor> steps;
};
struct OwnRule {
  using Options = OwnOptions;
  using Moments = OwnMoments;
  static constexpr const char* kName = "Own";
  static constexpr std::tuple<> kOptions{};
  static constexpr std::array<looptorch::detail::MomentField<Moments, Options>, 1> kFields{
      {{.key = "step", .list = &Moments::steps, .counter = true}}};
  static void check(const Options&) {}
#ifdef LOOPTORCH_TWIN
  static void apply(const Options&, const looptorch::detail::FusedCall<Moments>&) {}
#endif
};

inline void use(looptorch::detail::FusedOptimizer<OwnRule>& own) { own.step(); }
