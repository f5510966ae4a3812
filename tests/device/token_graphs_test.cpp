// SPDX-License-Identifier: MIT
// Whisper's tokens as graphs: the eager texts, whatever the search, as clips end and windows follow one
// another; how many graphs there are; what a token launches. And CapturedCall, which they are made of.
// Tests graph: capture_graph, captured_call
// Tests whisper/decoding: token_graphs
#include "support/precompiled.hpp"

#include <looptorch/graph/captured_call.hpp>

#include "support/device.hpp"

#include <whisper/decoding/fallback.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using Catch::Contains;
using lt::testing::has_device, lt::testing::is_simulated, lt::testing::test_device;

namespace {

constexpr int64_t kVocabulary = 60, kStart = 40, kNoTimestamps = 42;

whisper::Whisper random_model() {
  torch::manual_seed(7);
  whisper::Whisper model(whisper::WhisperConfig{.vocab_size = kVocabulary,
                                                .d_model = 32,
                                                .encoder_layers = 1,
                                                .decoder_layers = 2,
                                                .encoder_attention_heads = 2,
                                                .decoder_attention_heads = 4,
                                                .encoder_ffn_dim = 32,
                                                .decoder_ffn_dim = 48,
                                                .num_mel_bins = 6,
                                                .max_source_positions = 20,
                                                .max_target_positions = 150});
  const torch::NoGradGuard no_gradients;
  for (auto& parameter : model->decoder()->parameters()) parameter.mul_(2.5);  // texts that differ
  model->to(test_device());
  return model;
}

at::Tensor states_of(int64_t clips, int64_t seed) {
  torch::manual_seed(seed);
  return (at::randn({clips, 12, 32}) * 3).to(test_device());
}

whisper::DecodingOptions options_for(std::optional<int64_t> end = {}) {
  whisper::DecodingOptions options{
      .prompt = {kStart, 3}, .suppress = {kStart}, .begin_suppress = {}, .end_of_text = end.value_or(kStart)};
  options.special.start = kStart, options.special.no_timestamps = kNoTimestamps;
  options.special.no_speech = kNoTimestamps - 1;
  options.max_new_tokens = 100;
  return options;
}

/// The same with timestamps, which end some texts sooner than others.
whisper::DecodingOptions timed_options() {
  auto options = options_for(kNoTimestamps - 1);
  options.without_timestamps = false;
  return options;
}

/// Decodes eagerly and by graphs; the texts must be the same. Returns how many lengths they have.
std::size_t lengths(whisper::Whisper& model, const at::Tensor& states,
                    const whisper::DecodingOptions& options, whisper::TokenGraphs& graphs) {
  const auto eager = whisper::decode(model, states, options);
  const auto replayed = whisper::decode(model, states, options, &graphs);
  REQUIRE(eager.size() == replayed.size());
  std::vector<std::size_t> sizes;
  for (std::size_t clip = 0; clip < eager.size(); ++clip) {
    CHECK(eager[clip].tokens == replayed[clip].tokens);
    CHECK(replayed[clip].average_log_probability == Approx(eager[clip].average_log_probability).margin(1e-4));
    CHECK(replayed[clip].no_speech_probability == eager[clip].no_speech_probability);
    sizes.push_back(eager[clip].tokens.size());
  }
  std::sort(sizes.begin(), sizes.end());
  return static_cast<std::size_t>(std::unique(sizes.begin(), sizes.end()) - sizes.begin());
}

}  // namespace

TEST_CASE("a token's graphs write the eager texts, for any search and any number of clips") {
  if (!has_device()) return;
  auto model = random_model();
  whisper::TokenGraphs graphs(model->decoder()), timed_graphs(model->decoder());
  std::size_t most = 0;
  for (const int64_t clips : {1, 5, 8, 3}) {
    const auto states = states_of(clips, clips);
    const auto endless = whisper::decode(model, states, options_for());
    for (const std::size_t at : {2, 9, 40}) {  // where the first text ends; others do sooner, later or never
      CAPTURE(clips, at);
      for (const bool timed : {false, true}) {
        auto options = timed ? timed_options() : options_for(endless[0].tokens[at]);
        options.max_new_tokens = 60;  // of a text that never ends
        auto& by = timed ? timed_graphs : graphs;
        most = std::max(most, lengths(model, states, options, by));
        options.beam_size = 3;
        most = std::max(most, lengths(model, states, options, by));
        options.temperature = 0.7, options.best_of = 4;
        most = std::max(most, lengths(model, states, options, by));
      }
    }
  }
  CHECK(most >= 5);
  CHECK(graphs.size() <= 20);
  CHECK(timed_graphs.size() <= 20);
}

TEST_CASE("searches that differ in their rules share no graph, those that differ in temperature do") {
  if (!has_device()) return;
  auto model = random_model();
  whisper::TokenGraphs graphs(model->decoder());
  const auto states = states_of(4, 5);
  auto options = options_for();
  options.max_new_tokens = 20;
  const auto graphs_after = [&](const whisper::DecodingOptions& next) {
    (void)lengths(model, states, next, graphs);
    return graphs.size();
  };
  options.beam_size = 3;
  CHECK(graphs_after(options) == 1);
  options.other_ends = {7};
  CHECK(graphs_after(options) == 2);  // a candidate more
  options.suppress.push_back(whisper::decode(model, states, options)[0].tokens[1]);
  CHECK(graphs_after(options) == 3);
  auto timed = timed_options();
  timed.max_new_tokens = 20, timed.beam_size = 3;
  CHECK(graphs_after(timed) == 4);
  options.best_of = 3;
  for (const double temperature : {0.3, 1.0}) {
    options.temperature = temperature;
    CHECK(graphs_after(options) == 5);
  }
  options.seed = 5;
  CHECK(graphs_after(options) == 5);
}

TEST_CASE("graphs decode the eager texts again at higher temperatures, with and without timestamps") {
  if (!has_device()) return;
  auto model = random_model();
  whisper::TokenGraphs graphs(model->decoder());
  const auto states = states_of(5, 4);
  for (const bool timed : {false, true}) {
    auto options = timed ? timed_options() : options_for();
    options.max_new_tokens = 20, options.best_of = 2, options.beam_size = timed ? 3 : 1;
    std::vector<double> averages;
    for (const auto& text : whisper::decode(model, states, options))
      averages.push_back(text.average_log_probability);
    std::sort(averages.begin(), averages.end());
    const whisper::FallbackOptions fallback{.compression_ratio = {}, .log_probability = averages[2] + 0.01};
    const auto decode = [&](whisper::TokenGraphs* by) {
      return whisper::decode_with_fallback(
          model, states, options, fallback, [](const auto&) { return std::string(); }, by);
    };
    const auto eager = decode(nullptr), replayed = decode(&graphs);
    bool again = false;
    for (std::size_t clip = 0; clip < eager.size(); ++clip) {
      CHECK(eager[clip].tokens == replayed[clip].tokens);
      CHECK(eager[clip].temperature == replayed[clip].temperature);
      again |= eager[clip].temperature > 0;
    }
    CHECK(again);
  }
}

TEST_CASE("graphs serve windows of other lengths of sound, and texts that reach the last position") {
  if (!has_device()) return;
  auto model = random_model();
  whisper::TokenGraphs graphs(model->decoder());
  auto options = options_for();
  options.max_new_tokens = 1000;
  (void)lengths(model, states_of(3, 1), options, graphs);
  CHECK(graphs.size() == 3);  // of 64, 128 and 150 positions
  (void)lengths(model, states_of(4, 2), options, graphs);
  CHECK(graphs.size() == 3);  // four clips are what three are rounded up to
  (void)lengths(model, states_of(4, 2).slice(1, 0, 7), options, graphs);
  CHECK(graphs.size() == 3);  // new ones in other memory
  options.previous = {5, 6, 7, 8, 9};
  options.special.previous = 41;
  (void)lengths(model, states_of(4, 2), options, graphs);
}

TEST_CASE("a row that is not finite spoils no later window") {
  if (!has_device()) return;
  auto model = random_model();
  whisper::TokenGraphs graphs(model->decoder());
  auto broken = states_of(2, 1);
  broken[0].fill_(std::numeric_limits<float>::quiet_NaN());
  (void)whisper::decode(model, broken, options_for(), &graphs);
  (void)lengths(model, states_of(2, 2), options_for(), graphs);
}

TEST_CASE("a replayed token is one launch and a copy each way, and waits once, whatever the search") {
  if (!is_simulated()) return;
  namespace sim = looptorch_test::accelerator;
  auto model = random_model();
  whisper::TokenGraphs graphs(model->decoder());
  const auto states = states_of(4, 3);
  const auto per_token = [&](whisper::DecodingOptions options, whisper::TokenGraphs* by) {
    const auto count = [&](int64_t tokens) {
      options.max_new_tokens = tokens;
      (void)whisper::decode(model, states, options, by);
      const sim::CountWaits counted;
      (void)whisper::decode(model, states, options, by);
      const auto counts = counted.counts();
      return std::pair(counts.cuda_launches, counts.host_waits);
    };
    const auto [few, few_waits] = count(10);
    const auto [many, many_waits] = count(30);
    return std::pair(static_cast<double>(many - few) / 20, static_cast<double>(many_waits - few_waits) / 20);
  };
  const auto check = [&](const whisper::DecodingOptions& options, double moves) {
    const auto eager = per_token(options, nullptr), replayed = per_token(options, &graphs);
    CHECK(eager.first >= 85);
    CHECK(eager.second == 1);
    CHECK(replayed.second == 1);
    CHECK(replayed.first >= 3);
    CHECK(replayed.first <= 3 + moves);
  };
  for (auto options : {options_for(), timed_options()}) {
    check(options, 0);
    options.beam_size = 3;
    check(options, 2);  // where the beam's rows change places
    options.temperature = 0.7, options.best_of = 4;
    check(options, 0);
  }
}

TEST_CASE("a captured call computes from what its inputs hold at each replay") {
  if (!has_device()) return;
  const auto x = at::ones({3}, at::TensorOptions(test_device()));
  at::Tensor y = x * 2 + 1;
  lt::CapturedCall call(test_device(), [&] { y = x * 2 + 1; });
  lt::CapturedCall other(
      test_device(), [&] { x.add_(y); }, &call);
  for (const double number : {4.0, -1.0}) {
    x.fill_(number);
    call.replay();
    other.replay();
    CHECK(x.cpu().equal(at::full({3}, 3 * number + 1)));
  }
}

TEST_CASE("calls that share memory take what the others have freed, and overwrite it") {
  if (!has_device()) return;
  const auto x = at::ones({1000}, at::TensorOptions(test_device()));
  const void* freed = nullptr;
  at::Tensor sum, tripled = x * 3;
  const auto add = [&] {
    const at::Tensor doubled = x * 2;
    freed = doubled.const_data_ptr();
    sum = doubled + 1;
  };
  add();
  lt::CapturedCall first(test_device(), add);
  lt::CapturedCall second(
      test_device(), [&] { tripled = x * 3; }, &first);
  CHECK(tripled.const_data_ptr() == freed);
  second.replay();
  CHECK(tripled.cpu().equal(at::full({1000}, 3.0)));
  first.replay();
  CHECK(sum.cpu().equal(at::full({1000}, 3.0)));
  CHECK(tripled.cpu().equal(at::full({1000}, 2.0)));
}

TEST_CASE("a capture has the memory that eager work has left, and says if that is not enough") {
  if (!is_simulated()) return;  // on CUDA: tests/cuda_runtime
  const looptorch_test::accelerator::With small({.cap_bytes = 80 << 20});
  const auto make = [] { return at::empty({10 << 20}, at::TensorOptions(test_device()).dtype(at::kFloat)); };
  { const auto left = make(); }
  at::Tensor result;
  lt::CapturedCall call(test_device(), [&] { result = make(); });
  CHECK_THROWS_AS(lt::CapturedCall(test_device(), [&] { (void)make(); }), c10::OutOfMemoryError);
}

TEST_CASE("a call that cannot be captured is refused, and the device goes on") {
  CHECK_FALSE(lt::CapturedCall::is_supported(at::kCPU));
  CHECK_THROWS_WITH(lt::CapturedCall(at::kCPU, [] {}), Contains("cpu has no graphs"));
  if (!has_device()) return;
  CHECK(lt::CapturedCall::is_supported(test_device()));
  const auto x = at::ones({3}, at::TensorOptions(test_device()));
  CHECK_THROWS_WITH(lt::CapturedCall(test_device(), [&] { (void)x.sum().item<double>(); }),
                    Contains("cannot be captured as a graph"));
  CHECK((x + at::rand({3}, x.options())).sum().item<double>() > 3);
}
