// SPDX-License-Identifier: MIT
// Tests konkanivani/decoding: beam_search, ctc_decoding, ctc_prefix_score
#include "support/precompiled.hpp"

#include "../support.hpp"

#include <konkanivani/decoding/beam_search.hpp>
#include <konkanivani/decoding/ctc_decoding.hpp>

#include <algorithm>
#include <cmath>
#include <map>

using namespace konkanivani_test;
using Catch::Contains;
using konkanivani::Hypothesis;
using Ids = std::vector<int64_t>;

namespace {

constexpr int64_t kVocabulary = 8;  // three characters

/// Every text of at most `longest` characters.
std::vector<Ids> all_texts(int64_t longest) {
  std::vector<Ids> texts{{}};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (static_cast<int64_t>(texts[i].size()) == longest) break;
    for (int64_t c = konkanivani::kFirstCharacter; c < kVocabulary; ++c) {
      texts.push_back(texts[i]);
      texts.back().push_back(c);
    }
  }
  return texts;
}

/// By trying every alignment: log p(text), for each text that has any.
std::map<Ids, double> ctc_by_force(const at::Tensor& log_probs_TV, int64_t frames) {
  std::map<Ids, double> sums;
  const auto log_probs = log_probs_TV.accessor<double, 2>();
  const Ids symbols{1, 5, 6, 7};
  std::vector<size_t> path(static_cast<size_t>(frames), 0);
  for (;;) {
    Ids text;
    double score = 0;
    for (size_t t = 0; t < path.size(); ++t) {
      const auto id = symbols[path[t]];
      score += log_probs[static_cast<int64_t>(t)][id];
      if (id != konkanivani::kBlank && (t == 0 || path[t] != path[t - 1])) text.push_back(id);
    }
    sums[text] += std::exp(score);
    size_t t = 0;
    while (t < path.size() && ++path[t] == symbols.size()) path[t++] = 0;
    if (t == path.size()) break;
  }
  for (auto& [text, sum] : sums) sum = std::log(sum);
  return sums;
}

std::vector<Hypothesis> ranked(std::vector<Hypothesis> all) {
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  return all;
}

void check_same(const std::vector<Hypothesis>& got, const std::vector<Hypothesis>& expected, size_t count) {
  REQUIRE(got.size() == std::min(count, expected.size()));
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("place " << i);
    CHECK(got[i].ids == expected[i].ids);
    CHECK(got[i].score == Approx(expected[i].score).epsilon(1e-5));
  }
}

at::Tensor log_probs_of(std::vector<std::vector<double>> blank_and_characters) {
  auto scores =
      at::full({1, static_cast<int64_t>(blank_and_characters.size()), kVocabulary}, -1e9, at::kDouble);
  for (size_t t = 0; t < blank_and_characters.size(); ++t) {
    const Ids symbols{1, 5, 6, 7};
    for (size_t i = 0; i < blank_and_characters[t].size(); ++i)
      scores[0][static_cast<int64_t>(t)][symbols[i]] = std::log(blank_and_characters[t][i]);
  }
  return konkanivani::ctc_log_probs(scores);
}

/// Log p(text, end) by the decoder, the whole text at once.
double decoder_score(konkanivani::KonkaniVani& model, const konkanivani::Encoded& encoded, const Ids& text) {
  Ids given{konkanivani::kStart}, wanted = text;
  given.insert(given.end(), text.begin(), text.end());
  wanted.push_back(konkanivani::kEnd);
  const auto count = static_cast<int64_t>(given.size());
  const auto scores = model->decoder_scores(ids(given).unsqueeze(0), ids({count}), encoded)[0];
  return at::log_softmax(scores.to(at::kDouble), -1).gather(1, ids(wanted).unsqueeze(1)).sum().item<double>();
}

/// Every text of a clip by what beam_search ranks by.
std::vector<Hypothesis> joint_by_force(konkanivani::KonkaniVani& model, const konkanivani::Encoded& encoded,
                                       const konkanivani::BeamOptions& options) {
  const auto frames = encoded.lengths_B.item<int64_t>();
  const auto ctc = ctc_by_force(konkanivani::ctc_log_probs(model->ctc_scores(encoded))[0], frames);
  std::vector<Hypothesis> all;
  for (const auto& text : all_texts(std::min(frames, options.max_length))) {
    const auto found = ctc.find(text);
    if (options.ctc_weight > 0 && found == ctc.end()) continue;
    const double by_ctc = found == ctc.end() ? 0 : found->second;
    all.push_back({text, options.ctc_weight * by_ctc +
                             (1 - options.ctc_weight) * decoder_score(model, encoded, text) +
                             options.length_bonus * static_cast<double>(text.size())});
  }
  return ranked(all);
}

konkanivani::KonkaniVani sharp_model() {
  auto model = tiny_model(tiny_config(kVocabulary));
  const torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    if (item.key().find("ctc_head.weight") != std::string::npos ||
        item.key().find("output.weight") != std::string::npos)
      item.value().mul_(4);
  }
  model->eval();
  return model;
}

}  // namespace

TEST_CASE("Greedy CTC takes repetitions and blanks out of the best path") {
  const auto log_probs =
      log_probs_of({{.1, .9, 0, 0}, {.1, .9, 0, 0}, {.9, .1, 0, 0}, {.1, .9, 0, 0}, {.1, 0, .9, 0}});
  CHECK(konkanivani::decode_ctc_greedily(log_probs, Ids{5})[0] == Ids{5, 5, 6});
}

// In the first project greedy CTC ignored lengths.
TEST_CASE("CTC decoding looks at a clip's own frames alone") {
  const auto log_probs = log_probs_of({{.1, .9, 0, 0}, {.8, .1, .1, 0}, {.1, 0, .9, 0}, {.1, 0, 0, .9}});
  const auto batch = log_probs.expand({3, -1, -1}).contiguous();
  CHECK(konkanivani::decode_ctc_greedily(batch, Ids{4, 2, 0}) == std::vector<Ids>{{5, 6, 7}, {5}, {}});
  const auto beams = konkanivani::decode_ctc_beam(batch, Ids{4, 2, 0}, 8);
  CHECK(beams[0][0].ids == Ids{5, 6, 7});
  CHECK(beams[1][0].ids == Ids{5});
  CHECK(beams[2][0].ids.empty());
}

// In the first project the "beam" was an argmax.
TEST_CASE("The prefix beam adds up alignments, which the best path does not") {
  const auto log_probs = log_probs_of({{.6, .4, 0, 0}, {.6, .4, 0, 0}});
  CHECK(konkanivani::decode_ctc_greedily(log_probs, Ids{2})[0].empty());
  const auto best = konkanivani::decode_ctc_beam(log_probs, Ids{2}, 4, 2)[0];
  CHECK(best[0].ids == Ids{5});
  CHECK(best[0].score == Approx(std::log(1 - .6 * .6)));
  CHECK(best[1].ids.empty());
  CHECK(best[1].score == Approx(std::log(.6 * .6)));
}

TEST_CASE("A wide prefix beam ranks all texts as their alignments add up") {
  torch::manual_seed(1);
  for (int round = 0; round < 4; ++round) {
    const auto log_probs = konkanivani::ctc_log_probs(at::randn({3, 5, kVocabulary}) * 2);
    const Ids frames{5, 3, 1};
    const auto got = konkanivani::decode_ctc_beam(log_probs, frames, 1000, 20);
    for (int64_t clip = 0; clip < 3; ++clip) {
      std::vector<Hypothesis> all;
      for (const auto& [text, score] : ctc_by_force(log_probs[clip], frames[static_cast<size_t>(clip)]))
        all.push_back({text, score});
      check_same(got[static_cast<size_t>(clip)], ranked(all), 20);
    }
  }
}

TEST_CASE("Only characters are written") {
  auto scores = at::zeros({1, 6, kVocabulary});
  for (const auto id : {konkanivani::kPad, konkanivani::kStart, konkanivani::kEnd, konkanivani::kUnknown})
    scores.select(2, id).fill_(50);
  scores.select(2, 6).fill_(1);
  const auto log_probs = konkanivani::ctc_log_probs(scores);
  CHECK(konkanivani::decode_ctc_greedily(log_probs, Ids{6})[0] == Ids{6});
  const auto texts = konkanivani::decode_ctc_beam(log_probs, Ids{6}, 50, 50);
  REQUIRE(texts[0].size() == 50);
  for (const auto& best : texts[0])
    CHECK(std::all_of(best.ids.begin(), best.ids.end(),
                      [](auto id) { return id >= konkanivani::kFirstCharacter; }));
}

TEST_CASE("The prefix score is the probability of all texts that begin so, the end's that of the text") {
  torch::manual_seed(2);
  const int64_t frames = 5;
  const auto log_probs = konkanivani::ctc_log_probs(at::randn({1, 7, kVocabulary}) * 2);
  const auto all = ctc_by_force(log_probs[0], frames);
  const konkanivani::CtcPrefixScorer scorer(log_probs.accessor<double, 3>()[0], frames);
  for (const auto& text : all_texts(3)) {
    auto state = scorer.start();
    for (const auto id : text) state = scorer.extended(state, id);
    const auto exact = all.find(text);
    CHECK(konkanivani::CtcPrefixScorer::ended(state) ==
          (exact == all.end() ? Approx(konkanivani::detail::kImpossible) : Approx(exact->second)));
    const auto extensions = scorer.extensions(state);
    for (int64_t c = 0; c < kVocabulary; ++c) {
      auto longer = text;
      longer.push_back(c);
      double sum = 0;
      for (const auto& [other, score] : all) {
        if (other.size() >= longer.size() && std::equal(longer.begin(), longer.end(), other.begin()))
          sum += std::exp(score);
      }
      CHECK(std::exp(extensions[static_cast<size_t>(c)]) == Approx(sum).margin(1e-12));
    }
  }
}

TEST_CASE("A wide joint beam finds the best texts of all, by either head and by both, in a padded batch") {
  const torch::NoGradGuard no_grad;
  auto model = sharp_model();
  torch::manual_seed(4);
  const Ids lengths{16, 5, 12};
  const auto mel_BMF = at::randn({3, 6, 16}) * 2;
  const auto encoded = model->encode(mel_BMF, ids(lengths));
  for (const double weight : {0.0, 0.3, 0.7, 1.0}) {
    for (const double bonus : {0.0, 0.5, -0.5}) {
      konkanivani::BeamOptions options{
          .beam = 200, .n_best = 12, .ctc_weight = weight, .length_bonus = bonus};
      const auto got = konkanivani::beam_search(model, encoded, options);
      for (int64_t clip = 0; clip < 3; ++clip) {
        INFO("ctc weight " << weight << ", bonus " << bonus << ", clip " << clip);
        const auto frames = lengths[static_cast<size_t>(clip)];
        const auto alone = model->encode(mel_BMF.narrow(0, clip, 1).narrow(2, 0, frames), ids({frames}));
        check_same(got[static_cast<size_t>(clip)], joint_by_force(model, alone, options), options.n_best);
      }
    }
  }
}

TEST_CASE("CTC alone: the joint search and the prefix beam agree") {
  const torch::NoGradGuard no_grad;
  auto model = sharp_model();
  const auto encoded = model->encode(at::randn({2, 6, 20}), ids({20, 13}));
  const auto joint = konkanivani::beam_search(model, encoded, {.beam = 400, .n_best = 5, .ctc_weight = 1});
  const auto prefix = konkanivani::decode_ctc_beam(konkanivani::ctc_log_probs(model->ctc_scores(encoded)),
                                                   Ids{5, 4}, 1000, 5);
  for (size_t i = 0; i < 2; ++i) check_same(joint[i], prefix[i], 5);
}

TEST_CASE("A narrow beam gives each clip what it gives it alone") {
  const torch::NoGradGuard no_grad;
  auto model = sharp_model();
  torch::manual_seed(5);
  const Ids lengths{64, 9, 40, 21, 50};
  const auto mel_BMF = at::randn({5, 6, 64}) * 2;
  for (const size_t beam : {1, 3}) {
    const konkanivani::BeamOptions options{.beam = beam, .n_best = 3, .ctc_weight = 0.3, .max_length = 9};
    const auto all = konkanivani::beam_search(model, model->encode(mel_BMF, ids(lengths)), options);
    for (int64_t clip = 0; clip < 5; ++clip) {
      const auto frames = lengths[static_cast<size_t>(clip)];
      const auto encoded = model->encode(mel_BMF.narrow(0, clip, 1).narrow(2, 0, frames), ids({frames}));
      const auto alone = konkanivani::beam_search(model, encoded, options)[0];
      check_same(all[static_cast<size_t>(clip)], alone, alone.size());
      for (const auto& text : alone) CHECK(text.ids.size() <= 9);
    }
  }
}

TEST_CASE("A beam of one follows the decoder's best character until it ends") {
  const torch::NoGradGuard no_grad;
  auto model = sharp_model();
  torch::manual_seed(6);
  const auto encoded = model->encode(at::randn({1, 6, 40}), ids({40}));
  // Continues to the limit unless an end is settled before; the best of the prefixes that it went through.
  Ids text, best;
  double best_score = konkanivani::detail::kImpossible;
  for (int64_t length = 0; length <= 6; ++length) {
    const double ended = decoder_score(model, encoded, text);
    if (ended > best_score) best = text, best_score = ended;
    Ids given{konkanivani::kStart};
    given.insert(given.end(), text.begin(), text.end());
    const auto scores = model->decoder_scores(ids(given).unsqueeze(0), ids({length + 1}), encoded)[0][-1];
    const auto log_probs = at::log_softmax(scores.to(at::kDouble), -1);
    text.push_back(log_probs.narrow(0, 5, kVocabulary - 5).argmax().item<int64_t>() + 5);
  }
  const auto got =
      konkanivani::beam_search(model, encoded, {.beam = 1, .ctc_weight = 0, .max_length = 6})[0][0];
  CHECK(got.ids == best);
  CHECK(got.score == Approx(best_score).epsilon(1e-5));
}

TEST_CASE("Settings and shapes that cannot be right are refused") {
  auto model = sharp_model();
  const auto encoded = model->encode(at::randn({1, 6, 8}), ids({8}));
  CHECK_THROWS_WITH(konkanivani::beam_search(model, encoded, {.beam = 0}), Contains("a beam of 0"));
  CHECK_THROWS_WITH(konkanivani::beam_search(model, encoded, {.ctc_weight = 1.5}),
                    Contains("ctc_weight is 1.5, outside [0, 1]"));
  const auto log_probs = konkanivani::ctc_log_probs(at::zeros({1, 4, kVocabulary}));
  CHECK_THROWS_WITH(konkanivani::decode_ctc_greedily(log_probs, Ids{5}),
                    Contains("a clip of 5 frames among 4"));
  CHECK_THROWS_WITH(konkanivani::decode_ctc_greedily(log_probs, Ids{4, 4}),
                    Contains("2 lengths for 1 clips"));
  CHECK_THROWS_WITH(konkanivani::decode_ctc_greedily(log_probs.to(at::kFloat), Ids{4}),
                    Contains("in fp64 on the host"));
  CHECK_THROWS_WITH(konkanivani::decode_ctc_beam(log_probs, Ids{4}, 0), Contains("a beam of 0"));
}
