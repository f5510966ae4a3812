// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/decoding/token_choice.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

using whisper::DecodingOptions;
using whisper::RowInputs;
using whisper::StepInputs;
using whisper::TokenChoice;

namespace {

/// Candidates of each row after `rows`, from a copy of the scores.
at::Tensor chosen(const DecodingOptions& options, const at::Tensor& scores_RV, std::vector<RowInputs> rows,
                  bool begins = false) {
  return TokenChoice(options, at::kCPU)(scores_RV.clone(), StepInputs{StepInputs::view(rows)}, begins);
}

std::vector<RowInputs> plain_rows(std::int64_t count) {
  return std::vector<RowInputs>(static_cast<std::size_t>(count));
}

}  // namespace

TEST_CASE("The numbers of a step's rows are read back as they were sent") {
  std::vector<RowInputs> rows{{.token = 7,
                               .parent = 1,
                               .position = 5,
                               .first = {.text = 3, .time = 9},
                               .number = 0.25,
                               .temperature = 0.5},
                              {.token = 8, .parent = 0, .position = 6, .number = 0.75}};
  const StepInputs inputs{StepInputs::view(rows)};
  CHECK(inputs.tokens_R1().equal(at::tensor({7, 8}, at::kLong).view({2, 1})));
  CHECK(inputs.parents_R().equal(at::tensor({1, 0}, at::kLong)));
  CHECK(inputs.position_1().equal(at::tensor({5}, at::kLong)));
  CHECK(inputs.first_R2().equal(at::tensor({3, 9, 0, 0}, at::kLong).view({2, 2})));
  CHECK(inputs.numbers_R1().equal(at::tensor({0.25, 0.75}, at::kDouble).view({2, 1})));
  CHECK(inputs.temperatures_R1().equal(at::tensor({0.5, 1.0}, at::kDouble).view({2, 1})));
}

TEST_CASE("Greedily the most probable token of each row is taken, with its log-probability") {
  torch::manual_seed(1);
  const auto scores_RV = at::randn({3, 10});
  const auto found = chosen({}, scores_RV, plain_rows(3));
  REQUIRE(found.sizes() == at::IntArrayRef({3, 2}));
  CHECK(found.scalar_type() == at::kFloat);
  const auto [log_probs_R, tokens_R] = at::log_softmax(scores_RV, 1).max(1);
  CHECK(torch::allclose(found.select(1, 0), log_probs_R));
  CHECK(found.select(1, 1).to(at::kLong).equal(tokens_R));
}

TEST_CASE("Suppressed tokens are not chosen, and those of the beginning not there") {
  const auto scores_RV = at::arange(6, at::kFloat).view({1, 6});
  const DecodingOptions options{.suppress = {5}, .begin_suppress = {4}};
  const auto later = chosen(options, scores_RV, plain_rows(1));
  CHECK(later[0][1].item<float>() == 4);
  CHECK(later[0][0].item<double>() ==
        Approx(at::log_softmax(scores_RV.slice(1, 0, 5), 1)[0][4].item<double>()));
  CHECK(chosen(options, scores_RV, plain_rows(1), /*begins=*/true)[0][1].item<float>() == 3);
}

TEST_CASE(
    "A beam has one candidate more than its texts and other ends, best first, as far as there are tokens") {
  const auto scores_RV = at::tensor({1.F, 5.F, 2.F, 4.F, 3.F, 0.F}).view({1, 6});
  DecodingOptions options{.beam_size = 2};
  const auto three = chosen(options, scores_RV, plain_rows(1));
  CHECK(three.slice(1, 3).equal(at::tensor({1.F, 3.F, 4.F}).view({1, 3})));
  CHECK(torch::allclose(three.slice(1, 0, 3),
                        at::log_softmax(scores_RV, 1).index_select(1, at::tensor({1, 3, 4}, at::kLong))));
  options.other_ends = {0};
  CHECK(chosen(options, scores_RV, plain_rows(1)).size(1) == 2 * 4);
  options.beam_size = 20;
  CHECK(chosen(options, scores_RV, plain_rows(1)).size(1) == 2 * 6);
}

TEST_CASE("A token is drawn where its number falls in the distribution, which a temperature flattens") {
  const auto scores_V = at::tensor({0.F, std::log(3.F), 0.F, std::log(5.F)});  // 0.1, 0.3, 0.1, 0.5
  const auto drawn = [&](double number, double temperature, std::vector<std::int64_t> suppress = {}) {
    const DecodingOptions options{.suppress = std::move(suppress), .temperature = 1};
    const auto found =
        chosen(options, scores_V.unsqueeze(0), {{.number = number, .temperature = temperature}});
    return found[0][1].item<float>();
  };
  CHECK(drawn(0, 1) == 0);
  CHECK(drawn(0.09, 1) == 0);
  CHECK(drawn(0.11, 1) == 1);
  CHECK(drawn(0.39, 1) == 1);
  CHECK(drawn(0.45, 1) == 2);
  CHECK(drawn(0.51, 1) == 3);
  CHECK(drawn(0.999999, 1) == 3);
  CHECK(drawn(0.24, 1e6) == 0);  // each a quarter
  CHECK(drawn(0.26, 1e6) == 1);
  CHECK(drawn(0.01, 0.05) == 3);
  CHECK(drawn(0, 1, {0}) == 1);  // what is suppressed has no share
  CHECK(drawn(0.999999, 1, {3}) == 2);
}

TEST_CASE("Each row is drawn by its own number and temperature, with the log-probability at temperature 1") {
  const auto scores_RV = at::tensor({0.F, std::log(9.F), 0.F, std::log(9.F)}).view({2, 2});
  const DecodingOptions options{.temperature = 0.5};
  const auto found =
      chosen(options, scores_RV, {{.number = 0.2, .temperature = 1e6}, {.number = 0.2, .temperature = 1}});
  CHECK(found[0][1].item<float>() == 0);
  CHECK(found[1][1].item<float>() == 1);
  CHECK(found[0][0].item<double>() == Approx(std::log(0.1)));
  CHECK(found[1][0].item<double>() == Approx(std::log(0.9)));
}

TEST_CASE("Choices share a key only if they are computed alike") {
  const auto key = [](const DecodingOptions& options) { return TokenChoice(options, at::kCPU).key(); };
  DecodingOptions options{.suppress = {1, 2}};
  CHECK(key(options) == key({.suppress = {1, 2}, .begin_suppress = {3}}));
  CHECK(key(options) != key({.suppress = {1}}));
  CHECK(key(options) != key({.suppress = {1, 2}, .temperature = 1}));
  CHECK(key(options) != key({.suppress = {1, 2}, .beam_size = 2}));
  auto timed = options;
  timed.without_timestamps = false;
  CHECK(key(options) != key(timed));
}
