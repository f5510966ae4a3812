// SPDX-License-Identifier: MIT
// Every pair of policies composes or is refused: the compiler's verdict, the declarations and the list in
// docs/policies.md say the same. After a change run `cmake --build BUILD --target write_policy_pairs`.
#include "support/policy_pairs.hpp"

#include <looptorch/trainer.hpp>

#include "policy_pairs_documented.hpp"

#include <torch/torch.h>

namespace {

using namespace policy_pairs;

constexpr Text kTable = table();
static_assert(kTable.view() == kDocumentedPairs,
              "docs/policies.md lists other pairs: cmake --build BUILD --target write_policy_pairs");

/// Each header of include/looptorch/policies has an entry.
constexpr bool is_in_catalogue(std::string_view header) {
  return std::apply([&](const auto&... entry) { return ((entry.header == header) || ...); }, kCatalogue);
}
constexpr bool all_are_in_catalogue() {
  for (const std::string_view header : kPolicyHeaders)
    if (!is_in_catalogue(header)) return false;
  return true;
}
static_assert(all_are_in_catalogue(),
              "a header of include/looptorch/policies is missing in support/policy_pairs.hpp");

using Net = torch::nn::Linear;
using Updates = lt::Update<lt::FusedAdamW, at::Tensor (*)(Net&, const at::Tensor&)>;

/// What the Trainer's checks say of a pair.
template <class A, class B>
constexpr bool fails_to_compile() {
  using Found = lt::detail::Conflicts<A, B>;
  return !std::is_void_v<typename Found::clash> || !std::is_void_v<typename Found::exclusion>;
}

/// The verdicts agree, and what is not refused is a Trainer.
template <std::size_t I, std::size_t J>
constexpr bool holds() {
  using A = policy_t<I>;
  using B = policy_t<J>;
  static_assert(refused<A, B>() == refused<B, A>());
  static_assert(refused<A, B>() == fails_to_compile<A, B>());
  if constexpr (!refused<A, B>() && I < J) return sizeof(lt::Trainer<Net, Updates, A, B>) > 0;
  return true;
}

template <std::size_t I, std::size_t... J>
constexpr bool row_holds(std::index_sequence<J...>) {
  return (holds<I, J>() && ...);
}
template <std::size_t... I>
constexpr bool all_hold(std::index_sequence<I...> all) {
  return (row_holds<I>(all) && ...);
}
static_assert(all_hold(std::make_index_sequence<kSize>{}));

}  // namespace
