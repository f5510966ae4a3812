// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/decoding/score_rules.hpp>
#include <whisper/decoding/token_choice.hpp>

#include <cstdint>
#include <vector>

using whisper::DecodingOptions;

namespace {

using Ids = std::vector<int64_t>;

/// Scores of `rows` texts in which every token is as probable as the others.
at::Tensor even_scores(int64_t rows) { return at::zeros({rows, 120}); }

DecodingOptions timed_options() {
  DecodingOptions options{.prompt = {1}, .suppress = {7}, .begin_suppress = {9}, .end_of_text = 10};
  options.without_timestamps = false;
  options.special.no_timestamps = 19;  // the first timestamp is 20
  return options;
}

Ids allowed(const at::Tensor& scores_V) {
  Ids ids;
  for (int64_t id = 0; id < scores_V.size(0); ++id)
    if (scores_V[id].item<float>() > -1e30F) ids.push_back(id);
  return ids;
}

/// Applies the rules to the scores after each text.
void forbid(at::Tensor& scores_RV, const std::vector<Ids>& texts) {
  const whisper::ScoreRules rules(timed_options(), at::kCPU);
  std::vector<whisper::RowInputs> rows;
  for (const auto& text : texts) rows.push_back({.first = rules.first_allowed(text)});
  rules.apply(scores_RV, whisper::StepInputs{whisper::StepInputs::view(rows)}.first_R2(), texts[0].empty());
}

/// The tokens that may follow a text.
Ids allowed_after(const Ids& text, const at::Tensor& scores = even_scores(1)) {
  auto after = scores.clone();
  forbid(after, {text});
  return allowed(after[0]);
}

Ids range(int64_t begin, int64_t end) {
  Ids ids;
  for (; begin < end; ++begin) ids.push_back(begin);
  return ids;
}

}  // namespace

TEST_CASE("Timestamps begin the text, within a second, and come in pairs that enclose some time") {
  CHECK(allowed_after({}) == range(20, 71));  // 0 to 1 s
  const auto text = [](int64_t first_time) {
    auto ids = range(0, 20);
    std::erase_if(ids, [](int64_t id) { return id == 7 || id == 19; });
    const auto times = range(first_time, 120);
    ids.insert(ids.end(), times.begin(), times.end());
    return ids;
  };
  auto sure = at::zeros({1, 120});
  sure.slice(1, 0, 20) += 10;                                 // text is more probable than all timestamps
  CHECK(allowed_after({20}, sure).back() == 18);              // after the first one comes text
  CHECK(allowed_after({20, 11}, sure) == text(21));           // the next one is later
  CHECK(allowed_after({20, 11, 25}) == range(25, 120));       // a pair: the same time again, or later,
  CHECK(allowed_after({20, 11, 25}, sure).front() == 10);     // or the end
  CHECK(allowed_after({20, 11, 25, 25}, sure).back() == 18);  // after a pair comes text
  CHECK(allowed_after({20, 11, 25, 25, 12}, sure) == text(26));
}

TEST_CASE("A timestamp is forced if all of them together are more probable than any token") {
  auto scores = at::zeros({1, 120});
  scores[0][11] = 4;  // e^4 = 55 against 99 timestamps
  CHECK(allowed_after({20, 11}, scores) == range(21, 120));
  scores[0][11] = 5;  // 148
  CHECK(allowed_after({20, 11}, scores).front() == 0);
}

TEST_CASE("Each row follows the rules for its own text") {
  auto scores = even_scores(2);
  scores.slice(1, 0, 20) += 10;
  forbid(scores, {{20}, {20, 11, 25}});
  CHECK(allowed(scores[0]).back() == 18);
  CHECK(allowed(scores[1]).front() == 10);
}

TEST_CASE("Without timestamps only suppressed tokens are forbidden, those of the beginning there") {
  auto options = timed_options();
  options.without_timestamps = true;
  const whisper::ScoreRules rules(options, at::kCPU);
  const auto first = rules.first_allowed({});
  CHECK((first.text == 0 && first.time == 0));
  for (const bool begins : {false, true}) {
    auto scores = even_scores(2);
    rules.apply(scores, at::zeros({2, 2}, at::kLong), begins);
    auto wanted = range(0, 120);
    std::erase_if(wanted, [&](int64_t id) { return id == 7 || (begins && id == 9); });
    CHECK(allowed(scores[0]) == wanted);
    CHECK(allowed(scores[1]) == wanted);
  }
}
