// SPDX-License-Identifier: MIT
// Generates the table of policy pairs in docs/policies.md from the policies' declarations, at compile time.
#pragma once

#include <looptorch/policies.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/profile.hpp>
#include <looptorch/policies/save_weights.hpp>
#include <looptorch/trainer.hpp>

#include <torch/nn/modules/linear.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <vector>

namespace policy_pairs {

namespace lt = looptorch;

struct OnWindow {
  void operator()(lt::WindowContext&) const {}
};

/// A policy of the catalogue: its name in the table, and its header.
template <class P>
struct Entry {
  using Policy = P;
  std::string_view name;
  std::string_view header;
};

inline constexpr std::tuple kCatalogue{
    Entry<lt::Accumulate<4>>{"Accumulate", "accumulate"},
    Entry<lt::Autocast<lt::fp16>>{"Autocast<fp16>", "autocast"},
    Entry<lt::Autocast<lt::bf16>>{"Autocast<bf16>", "autocast"},
    Entry<lt::Autopsy>{"Autopsy", "autopsy"},
    Entry<lt::AverageWeights>{"AverageWeights", "average_weights"},
    Entry<lt::BackendFlags>{"BackendFlags", "backend_flags"},
    Entry<lt::CacheFlushEvery<50>>{"CacheFlushEvery", "cache_flush_every"},
    Entry<lt::CaptureGraphs>{"CaptureGraphs", "capture_graphs"},
    Entry<lt::Checkpointed<torch::nn::Linear>>{"Checkpointed", "checkpointed"},
    Entry<lt::ClipGradNorm>{"ClipGradNorm", "clip_grad_norm"},
    Entry<lt::ClipGradValue>{"ClipGradValue", "clip_grad_value"},
    Entry<lt::Freeze>{"Freeze", "freeze"},
    Entry<lt::LogMetrics>{"LogMetrics", "log_metrics"},
    Entry<lt::Autocast<>>{"Autocast<>", "autocast"},
    Entry<lt::On<lt::Phase::observe, OnWindow>>{"On", "on"},
    Entry<lt::PinnedPrefetchLoader<void, lt::SequentialSampler, lt::DefaultCollate>>{"PinnedPrefetchLoader",
                                                                                     ""},
    Entry<lt::Profile>{"Profile", "profile"},
    Entry<lt::RestoreBest>{"RestoreBest", "restore_best"},
    Entry<lt::RetryOnOom>{"RetryOnOom", "retry_on_oom"},
    Entry<lt::SaveWeights>{"SaveWeights", "save_weights"},
    Entry<lt::ScheduleLr>{"ScheduleLr", "schedule_lr"},
    Entry<lt::ShowProgress>{"ShowProgress", "show_progress"},
    Entry<lt::SkipBadWindows>{"SkipBadWindows", "skip_bad_windows"},
    Entry<lt::SnapshotEvery>{"SnapshotEvery", "snapshot_every"},
    Entry<lt::StopEarly>{"StopEarly", "stop_early"},
    Entry<lt::UnfreezeAt>{"UnfreezeAt", "unfreeze_at"},
    Entry<lt::UpdateInBackward<>>{"UpdateInBackward", "update_in_backward"},
    Entry<lt::UpdateInBackward<lt::SumsInBf16>>{"UpdateInBackward<Sums>", "update_in_backward"},
    Entry<lt::Validate<std::vector<at::Tensor>>>{"Validate", "validate"},
    Entry<lt::WatchMemory>{"WatchMemory", "watch_memory"},
    Entry<lt::WatchRounding>{"WatchRounding", "watch_rounding"},
};
inline constexpr std::size_t kSize = std::tuple_size_v<std::remove_const_t<decltype(kCatalogue)>>;

template <std::size_t I>
using policy_t = typename std::tuple_element_t<I, std::remove_const_t<decltype(kCatalogue)>>::Policy;

template <class A, class B>
constexpr bool refused() {
  return lt::detail::same_family<A, B> || lt::exclusion_between<A, B>().has_value();
}

/// A text that can be assembled at compile time.
struct Text {
  std::array<char, 16384> characters{};
  std::size_t size = 0;
  constexpr void add(std::string_view text) {
    for (const char c : text) characters[size++] = c;
  }
  [[nodiscard]] constexpr std::string_view view() const { return {characters.data(), size}; }
};

template <std::size_t I, std::size_t... J>
constexpr void add_row(Text& text, std::index_sequence<J...>) {
  text.add("| `");
  text.add(std::get<I>(kCatalogue).name);
  text.add("` |");
  (text.add(refused<policy_t<I>, policy_t<J>>() ? " no |" : " + |"), ...);
  text.add("\n");
}

/// Appends one line for each exclusion that a policy declares.
template <std::size_t I, std::size_t J>
constexpr void add_reason(Text& text) {
  if constexpr (constexpr auto exclusion = lt::detail::declared_exclusion<policy_t<I>, policy_t<J>>();
                exclusion) {
    text.add("\n`");
    text.add(std::get<I>(kCatalogue).name);
    text.add("` and `");
    text.add(std::get<J>(kCatalogue).name);
    text.add("`: ");
    text.add(exclusion->reason);
    text.add(". ");
    text.add(exclusion->remedy);
    text.add(".\n");
  }
}

/// Returns the Markdown table of all pairs, and the reasons below it.
constexpr Text table() {
  Text text;
  text.add("| |");
  std::apply([&](const auto&... entry) { ((text.add(" `"), text.add(entry.name), text.add("` |")), ...); },
             kCatalogue);
  text.add("\n|---|");
  for (std::size_t i = 0; i < kSize; ++i) text.add("---|");
  text.add("\n");
  lt::detail::for_each_index<kSize>([&](auto i) { add_row<i>(text, std::make_index_sequence<kSize>{}); });
  lt::detail::for_each_index<kSize>(
      [&](auto i) { lt::detail::for_each_index<kSize>([&](auto j) { add_reason<i, j>(text); }); });
  return text;
}

}  // namespace policy_pairs
