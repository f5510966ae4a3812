// SPDX-License-Identifier: MIT
// Tells all ranks the cause of a NaN. Each rank has searched its own micro-batches before
// (redo/traced_rerun.hpp). A rank that has found a cause keeps it; the others get that of the first rank that
// has one. Under SyncBN a NaN spreads to all ranks, so a rank whose own operator made it takes precedence.
// All ranks then end with the same error. Costs two small collectives, only in a window with a NaN.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/window_state.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace looptorch::detail {

/// Returns this rank's finding, or if it has none the first rank's that has one, with that rank's number.
[[nodiscard]] inline Finding reduce_finding(Ranks& ranks, Finding own, const std::string& point) {
  const bool found = own.is_found();
  const bool may_be_passed_on = ranks.syncs_batch_norm() && own.cause == Finding::Cause::outside;
  // A maximum picks the rank. 0: no finding. 1 to size(): found by a rank, to which BatchNorm may have passed
  // it. size()+1 to 2*size(): found by that rank itself. The first rank has the largest number of each kind.
  const auto bid_of = [&](bool is_made, std::int64_t rank) {
    return ranks.size() - rank + (is_made ? ranks.size() : 0);
  };
  std::int64_t first = found ? bid_of(!may_be_passed_on, ranks.rank()) : 0;
  std::optional<std::string> sentence, passed_on, trouble;
  if (found) (may_be_passed_on ? passed_on : sentence) = own.text();
  if (own.cause == Finding::Cause::unknown) trouble = own.why_unknown;
  RankReduction reduction;
  reduction.max("first", first);
  reduction.first_text("sentence", sentence);
  reduction.first_text("passed on", passed_on);
  reduction.first_text("trouble", trouble);
  ranks.all_reduce(reduction, point);
  own.ranks = ranks.size();
  const bool is_made = first > ranks.size();  // a rank's own operator, batch or weight is at fault
  const bool is_own = found && !(may_be_passed_on && is_made);
  if (own.ranks > 1 && first > 0) own.rank = is_own ? ranks.rank() : bid_of(is_made, 0) - first;
  if (is_own) return own;
  if (!sentence) sentence = passed_on;
  own.cause = sentence ? Finding::Cause::elsewhere : trouble ? Finding::Cause::unknown : Finding::Cause::none;
  own.sentence = sentence.value_or("");
  own.why_unknown = trouble.value_or("");
  return own;
}

/// Returns the sentence of the first rank whose part holds the fault; of all ranks if none does.
[[nodiscard]] inline std::string reduce_sentence(Ranks& ranks, const Finding& finding, std::string sentence,
                                                 const std::string& point) {
  std::optional<std::string> said;
  if (finding.cause != Finding::Cause::elsewhere) said = std::move(sentence);
  RankReduction reduction;
  reduction.first_text("sentence", said);
  ranks.all_reduce(reduction, point);
  return said.value_or("");
}

/// Names a collective of the search, for error messages.
template <class Engine>
[[nodiscard]] std::string point_of_search(const Engine& engine, std::size_t update, const char* what) {
  return message("step ", engine.progress().step, " (", what, " of update ", update + 1, ")");
}

/// Makes all ranks end with one sentence.
inline void reduce_error(Ranks& ranks, const std::string& update, UpdateWork& work,
                         const WindowOrigin& window, const std::string& point) {
  const WindowOrigin origin = work.found.origin(work.fault, window);
  const std::string own =
      origin
          .error<NonFiniteWindow>(work.found.in_loss ? subject_of_loss(update) : subject_of_gradients(update),
                                  "")
          .what();
  work.found.full_error = reduce_sentence(ranks, *work.found.finding, own, point);
}

}  // namespace looptorch::detail
