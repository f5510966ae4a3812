// SPDX-License-Identifier: MIT
// What the compiler knows of policies: hooks, near misses, order, families and exclusions.
// Tests loop/compose: declared_members, hooks
#include <looptorch/trainer.hpp>

#include <torch/torch.h>

#include <type_traits>
#include <vector>

namespace lt = looptorch;
namespace d = looptorch::detail;

namespace {

struct Plain {
  void on_window_end(lt::WindowContext&) const {}
};
struct Inherits : Plain {};
struct Noexcept {
  void on_window_end(lt::WindowContext&) const noexcept {}
};
struct WithState {
  struct State {};
  void on_window_end(lt::WindowContext&, State&) const {}
};
struct StateForgotten {
  struct State {};
  void on_window_end(lt::WindowContext&) const {}
};
struct ByValue {
  void on_window_end(lt::WindowContext) const {}
};
struct NotConst {
  void on_window_end(lt::WindowContext&) {}
};
struct ReturnsSomething {
  int on_window_end(lt::WindowContext&) const { return 0; }
};
struct Static {
  static void on_window_end(lt::WindowContext&) {}
};
struct Data {
  int on_window_end = 0;
};
struct Template {
  template <class T>
  void on_window_end(T&) const {}
};
class Private {
  void on_window_end(lt::WindowContext&) const {}
};
struct Final final {
  void on_window_end(lt::WindowContext&) const {}
};
struct FinalWrong final {
  void on_window_end(int) const {}
};
struct Overloaded {
  void on_window_end(lt::WindowContext&) const {}
  void on_window_end(int) const {}
};
struct Misspelt {
  void on_windows_end(lt::WindowContext&) const {}
};

using Hook = d::on_window_end_hook;
static_assert(Hook::valid<Plain>() && Hook::valid<Inherits>() && Hook::valid<Noexcept>() &&
              Hook::valid<WithState>() && Hook::valid<Final>());
static_assert(!d::near_miss<Hook, Plain> && !d::near_miss<Hook, Inherits> && !d::near_miss<Hook, WithState> &&
              !d::near_miss<Hook, Final>);
static_assert(d::near_miss<Hook, StateForgotten> && d::near_miss<Hook, ByValue> &&
              d::near_miss<Hook, NotConst>);
static_assert(d::near_miss<Hook, ReturnsSomething> && d::near_miss<Hook, Static> && d::near_miss<Hook, Data>);
static_assert(d::near_miss<Hook, Template> && d::near_miss<Hook, Private> && d::near_miss<Hook, Overloaded> &&
              d::near_miss<Hook, FinalWrong>);
static_assert(!d::near_miss<Hook, Misspelt> &&
              !d::HasHook<Misspelt>);  // cannot be told from an ordinary member
static_assert(!d::near_miss<d::before_update_hook, Plain>);

struct WrongFitEnd {
  void on_fit_end(lt::EpochContext&) const {}
};
struct WrongEpochBegin {
  void on_epoch_begin(lt::FitContext&) const {}
};
struct WrongLossScale {
  double loss_scale(const lt::Run&) const { return 0; }
};
static_assert(d::near_miss<d::on_fit_end_hook, WrongFitEnd> &&
              d::near_miss<d::on_epoch_begin_hook, WrongEpochBegin>);
static_assert(d::near_miss<d::loss_scale_hook, WrongLossScale> &&
              !d::near_miss<d::on_fit_begin_hook, WrongFitEnd>);

// States that the Trainer cannot make, phases that it would not see.
struct NoDefault {
  struct State {
    explicit State(int) {}
  };
};
class PrivateState {
  struct State {};
};
struct IntPhase {
  static constexpr int phase = 1;
};
static_assert(d::names_State<NoDefault>() && !d::HasState<NoDefault> && d::names_State<PrivateState>() &&
              !d::HasState<PrivateState>);
static_assert(d::HasState<WithState> && d::names_State<WithState>() && !d::names_State<Plain>());
static_assert(d::names_phase<IntPhase>() && !d::HasPhase<IntPhase> && !d::names_phase<Plain>());

// Order: by phase.
template <lt::Phase P>
struct At {
  static constexpr lt::Phase phase = P;
  void on_window_end(lt::WindowContext&) const {}
};
using Clip = At<lt::Phase::clip>;
using Average = At<lt::Phase::average>;
using Unscale = At<lt::Phase::check>;
static_assert(d::phase_of<Plain>() == lt::Phase::observe);
static_assert(d::running_order<Average, Plain, Unscale, Clip>() == std::array<std::size_t, 4>{2, 3, 0, 1});
static_assert(d::running_order<Clip, Unscale, Plain, Average>() == std::array<std::size_t, 4>{1, 0, 3, 2});
static_assert(d::running_order<Plain, Inherits>() ==
              std::array<std::size_t, 2>{0, 1});  // nothing declared: as listed
static_assert(d::running_order<>().empty());
static_assert(lt::Phase::prepare < lt::Phase::check && lt::Phase::check < lt::Phase::clip &&
              lt::Phase::clip < lt::Phase::update && lt::Phase::update < lt::Phase::evaluate &&
              lt::Phase::evaluate < lt::Phase::schedule && lt::Phase::schedule < lt::Phase::average &&
              lt::Phase::average < lt::Phase::observe);

// Families.
static_assert(d::same_family<lt::Accumulate<4>, lt::Accumulate<8>> &&
              d::same_family<lt::Accumulate<4>, lt::Accumulate<>>);
static_assert(d::same_family<lt::CacheFlushEvery<4>, lt::CacheFlushEvery<>> &&
              d::same_family<lt::ClipGradNorm, lt::ClipGradNorm>);
static_assert(!d::same_family<lt::Accumulate<4>, lt::CacheFlushEvery<4>> && !d::same_family<Clip, Average>);
static_assert(!d::same_family<lt::On<lt::Phase::clip, void (*)(lt::UpdateContext&)>,
                              lt::On<lt::Phase::clip, void (*)(lt::UpdateContext&)>>);

// Exclusions are data, found from either side and by family.
struct Proud {
  using excludes =
      lt::ExclusionList<lt::Excludes<lt::AccumulateFamily, "it frees gradients early", "Use a larger batch">,
                        lt::Excludes<Clip, "of a", "quarrel">,
                        lt::Excludes<lt::CacheFlushEvery<3>, "three", "is many">>;
  void on_window_end(lt::WindowContext&) const {}
};
static_assert(lt::exclusion_between<Proud, lt::Accumulate<7>>()->reason == "it frees gradients early");
static_assert(lt::exclusion_between<lt::Accumulate<7>, Proud>()->remedy == "Use a larger batch");
static_assert(lt::exclusion_between<Proud, Clip>()->reason == "of a");
static_assert(lt::exclusion_between<Proud, lt::CacheFlushEvery<3>>() &&
              !lt::exclusion_between<Proud, lt::CacheFlushEvery<4>>());
static_assert(!lt::exclusion_between<Proud, Average>() && !lt::exclusion_between<Clip, lt::Accumulate<2>>());

// Deduction gives the type that one would spell.
using Net = torch::nn::Linear;
using Sgd = torch::optim::SGD;
at::Tensor objective(Net&, const at::Tensor&);
using Objective = decltype(&objective);
static_assert(std::is_same_v<decltype(lt::Trainer(std::declval<Net&>(), std::declval<Sgd&>(), objective,
                                                  lt::Accumulate<2>{})),
                             lt::Trainer<Net, lt::Update<Sgd, Objective>, lt::Accumulate<2>>>);
static_assert(
    std::is_same_v<decltype(lt::Trainer(std::declval<Net&>(), lt::Update{std::declval<Sgd&>(), objective},
                                        lt::Update{std::declval<Sgd&>(), objective})),
                   lt::Trainer<Net, lt::Update<Sgd, Objective>, lt::Update<Sgd, Objective>>>);
static_assert(std::is_same_v<decltype(lt::Trainer(std::declval<Net&>(), std::declval<std::shared_ptr<Sgd>>(),
                                                  objective)),
                             lt::Trainer<Net, lt::Update<Sgd, Objective>>>);
static_assert(
    std::is_same_v<decltype(lt::Trainer(std::declval<std::shared_ptr<torch::nn::LinearImpl>&>(),
                                        std::declval<Sgd&>(), objective)),
                   lt::Trainer<std::shared_ptr<torch::nn::LinearImpl>, lt::Update<Sgd, Objective>>>);
static_assert(std::is_same_v<decltype(lt::When{true, lt::Accumulate<2>{}}), lt::When<lt::Accumulate<2>>>);

// An absent policy leaves nothing behind, not even bytes.
static_assert(d::PolicyStack<>::size() == 0 && std::is_empty_v<d::state_t<Plain>>);

// What fit asks of a range.
static_assert(d::kRepeatable<std::vector<int>> && !d::SkippableRange<std::vector<int>> &&
              !d::EpochRange<std::vector<int>>);

}  // namespace

// In a template, clang 14 also tried to make a measure of Validate's options.
template <class Model>
void validate_in_template(Model& model, torch::optim::SGD& sgd, const std::vector<at::Tensor>& batches) {
  const auto objective = [](Model& model, const at::Tensor& x) { return model(x).mean(); };
  lt::Trainer trainer(model, sgd, objective, lt::Validate{batches, {.every = 100}});
}
template void validate_in_template(torch::nn::Linear&, torch::optim::SGD&, const std::vector<at::Tensor>&);
static_assert(!std::is_aggregate_v<lt::OwnObjective>);
