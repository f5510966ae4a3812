// SPDX-License-Identifier: MIT
// Generates docs/policies.md's list of policies that cannot be combined, from the policies' declarations.
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
    Entry<lt::Autocast<>>{"Autocast<>", "autocast"},
    Entry<lt::Autocast<lt::bf16>>{"Autocast<bf16>", "autocast"},
    Entry<lt::Autocast<lt::fp16>>{"Autocast<fp16>", "autocast"},
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

template <std::size_t I>
constexpr void add_name(Text& text) {
  text.add("`");
  text.add(std::get<I>(kCatalogue).name);
  text.add("`");
}

/// True if policy I excludes J and the next one, another form of J, for one reason.
template <std::size_t I, std::size_t J>
constexpr bool shares_row() {
  if constexpr (J < kSize - 1) {
    constexpr auto one = lt::exclusion_between<policy_t<I>, policy_t<J>>(),
                   other = lt::exclusion_between<policy_t<I>, policy_t<J + 1>>();
    return lt::detail::same_family<policy_t<J>, policy_t<J + 1>> && one && other &&
           one->reason == other->reason && one->remedy == other->remedy;
  }
  return false;
}

/// Appends a row for a pair that is refused, unless the row before has it.
template <std::size_t I, std::size_t J>
constexpr void add_refused(Text& text) {
  using A = policy_t<I>;
  using B = policy_t<J>;
  if constexpr (I < J && refused<A, B>()) {
    if constexpr (shares_row<I, J - 1>()) return;
    text.add("| ");
    add_name<I>(text);
    text.add(" | ");
    add_name<J>(text);
    if constexpr (shares_row<I, J>()) {
      text.add(", ");
      add_name<J + 1>(text);
    }
    text.add(" | ");
    if constexpr (constexpr auto exclusion = lt::exclusion_between<A, B>(); exclusion) {
      text.add(exclusion->reason);
      text.add(". ");
      text.add(exclusion->remedy);
    } else {
      text.add("two forms of one policy. List one of them");
    }
    text.add(" |\n");
  }
}

/// Returns what does not go together, as Markdown: which policies may be listed twice, and the pairs that
/// are refused.
constexpr Text table() {
  Text text;
  text.add("- Twice in one Trainer:");
  lt::detail::for_each_index<kSize>([&](auto i) {
    if constexpr (!refused<policy_t<i>, policy_t<i>>()) {
      text.add(" ");
      add_name<i>(text);
      text.add(",");
    }
  });
  text.size -= 1;
  text.add(" may be, every other policy may not.\n- These pairs are refused:\n\n");
  text.add("| policy | does not go with | reason and remedy |\n|---|---|---|\n");
  lt::detail::for_each_index<kSize>(
      [&](auto i) { lt::detail::for_each_index<kSize>([&](auto j) { add_refused<i, j>(text); }); });
  return text;
}

}  // namespace policy_pairs
