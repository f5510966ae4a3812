// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "../support.hpp"
#include "support/reference.hpp"

#include <konkanivani/model/loss.hpp>

#include <cmath>
#include <map>
#include <string>
#include <vector>

using namespace konkanivani_test;
using konkanivani::kIgnored;
namespace lt = looptorch;

namespace {

// tests/parity/konkanivani_loss.py has the same.
const std::vector<std::vector<int64_t>> kTexts{{5, 6, 7}, {6, 6, 5}, {}, {7, 7}};
const std::vector<int64_t> kFrames{6, 4, 5, 2};

konkanivani::Encoded encoded() { return {.states_BTD = {}, .lengths_B = ids(kFrames)}; }

at::Tensor recorded(const std::string& name) { return reference::tensors("konkanivani_loss").at(name); }

at::Tensor fixed_ctc_scores() { return (2 * reference::wave({4, 6, 9}, 0.1)).requires_grad_(); }
at::Tensor fixed_decoder_scores() { return (2 * reference::wave({4, 4, 9}, 0.2)).requires_grad_(); }

/// Gives recorded scores in place of a model's; counts how often each head is asked.
struct FixedScores {
  at::Tensor ctc = fixed_ctc_scores(), decoder = fixed_decoder_scores();
  int ctc_calls = 0, decoder_calls = 0;

  FixedScores* operator->() { return this; }
  at::Tensor ctc_scores(const konkanivani::Encoded&) { return ++ctc_calls, ctc; }
  at::Tensor decoder_scores(const at::Tensor&, const at::Tensor&, const konkanivani::Encoded&) {
    return ++decoder_calls, decoder;
  }
};

/// -log of the sum over all alignments, by trying each.
double ctc_by_force(const at::Tensor& log_probs_TV, const std::vector<int64_t>& text) {
  const auto T = log_probs_TV.size(0), V = log_probs_TV.size(1);
  const auto log_probs = log_probs_TV.accessor<double, 2>();
  std::vector<int64_t> path(static_cast<size_t>(T), 0);
  double total = 0;
  for (;;) {
    std::vector<int64_t> collapsed;
    double score = 0;
    for (size_t t = 0; t < path.size(); ++t) {
      score += log_probs[static_cast<int64_t>(t)][path[t]];
      if (path[t] != konkanivani::kBlank && (t == 0 || path[t] != path[t - 1])) collapsed.push_back(path[t]);
    }
    if (collapsed == text) total += std::exp(score);
    size_t t = 0;
    while (t < path.size() && ++path[t] == V) path[t++] = 0;
    if (t == path.size()) return -std::log(total);
  }
}

}  // namespace

TEST_CASE("Targets: CTC's hold characters alone, the decoder's a start and an end") {
  const auto targets = konkanivani::make_targets(kTexts);
  CHECK(at::equal(targets.characters_BL, ids({5, 6, 7, 6, 6, 5, 0, 0, 0, 7, 7, 0}).view({4, 3})));
  CHECK(at::equal(targets.inputs_BL, ids({2, 5, 6, 7, 2, 6, 6, 5, 2, 0, 0, 0, 2, 7, 7, 0}).view({4, 4})));
  const auto I = kIgnored;
  CHECK(at::equal(targets.labels_BL, ids({5, 6, 7, 3, 6, 6, 5, 3, 3, I, I, I, 7, 7, 3, I}).view({4, 4})));
  CHECK(at::equal(targets.input_lengths_B, ids({4, 4, 1, 3})));
  CHECK(at::equal(targets.ctc_frames_B, ids({3, 4, 0, 3})));
  CHECK(targets.weight() == 12);
  CHECK_THROWS_AS(konkanivani::make_targets({}), lt::UsageError);
  const auto padded = konkanivani::make_targets(kTexts, 4);
  CHECK(padded.characters_BL.sizes() == at::IntArrayRef({4, 4}));
  CHECK(at::equal(padded.labels_BL.narrow(1, 0, 4), targets.labels_BL));
  CHECK(padded.labels_BL.select(1, 4).eq(kIgnored).all().item<bool>());
}

// In the first project CTC's targets contained start and end.
TEST_CASE("CTC never sees start or end, whatever a text holds") {
  const auto targets = konkanivani::make_targets(kTexts);
  for (const auto special : {konkanivani::kStart, konkanivani::kEnd, konkanivani::kBlank})
    CHECK_FALSE(targets.characters_BL.eq(special).any().item<bool>());

  const std::vector<std::string> texts{"<sos> a <eos>", "<blank>\x02\x03"};
  const auto vocabulary = konkanivani::Vocabulary::of(texts, konkanivani::Unit::code_point);
  konkanivani::UnknownCharacters unknown;
  for (const auto& text : texts)
    for (const auto id : vocabulary.encode(text, unknown)) CHECK(id >= konkanivani::kUnknown);
}

TEST_CASE("Values and gradients are those of PyTorch") {
  const auto targets = konkanivani::make_targets(kTexts);
  FixedScores scores;
  const auto loss = konkanivani::joint_loss(scores, encoded(), targets, {});
  loss.sum.backward();
  CHECK(reference::difference(konkanivani::ctc_loss_sum(scores.ctc, targets, ids(kFrames)), recorded("ctc")) <
        1e-12);
  CHECK(reference::difference(konkanivani::decoder_loss_sum(scores.decoder, targets, 0.1),
                              recorded("attention")) < 1e-12);
  CHECK(reference::difference(loss.sum, recorded("joint")) < 1e-12);
  CHECK(reference::difference(scores.ctc.grad(), recorded("ctc_gradient")) < 1e-12);
  CHECK(reference::difference(scores.decoder.grad(), recorded("decoder_gradient")) < 1e-12);
  CHECK(loss.weight.number() == 12);
  std::map<std::string, double> metrics;
  for (const auto& metric : loss.metrics) metrics[metric.name] = metric.value.number();
  CHECK(metrics.at("ctc") == Approx(recorded("ctc").item<double>() / 12));
  CHECK(metrics.at("attention") == Approx(recorded("attention").item<double>() / 12));
  CHECK(metrics.at("too_short") == 3.0 / 12);
}

TEST_CASE("CTC is the sum over all alignments") {
  const auto scores = fixed_ctc_scores();
  const auto by_clip = recorded("ctc_by_clip");
  for (int64_t clip : {1, 2}) {
    const auto& text = kTexts[static_cast<size_t>(clip)];
    const auto log_probs_TV =
        at::log_softmax(scores.detach()[clip].narrow(0, 0, kFrames[static_cast<size_t>(clip)]), -1);
    CHECK(ctc_by_force(log_probs_TV, text) == Approx(by_clip[clip].item<double>()));
  }
}

TEST_CASE("A clip too short for its text counts 0, and has no gradient") {
  const auto targets = konkanivani::make_targets(kTexts);
  auto scores = fixed_ctc_scores();
  const auto loss = konkanivani::ctc_loss_sum(scores, targets, ids(kFrames));
  CHECK(std::isfinite(loss.item<double>()));
  loss.backward();
  CHECK(scores.grad()[3].abs().sum().item<double>() == 0);
  CHECK(scores.grad()[1].abs().sum().item<double>() > 0);
}

TEST_CASE("Frames after a clip's length and labels after its end have no gradient") {
  const auto targets = konkanivani::make_targets(kTexts);
  FixedScores scores;
  konkanivani::joint_loss(scores, encoded(), targets, {}).sum.backward();
  CHECK(scores.ctc.grad()[1].narrow(0, 4, 2).abs().sum().item<double>() == 0);
  CHECK(scores.decoder.grad()[2].narrow(0, 1, 3).abs().sum().item<double>() == 0);
  CHECK(scores.decoder.grad()[2][0].abs().sum().item<double>() > 0);
}

TEST_CASE("Under autocast both losses are computed in fp32") {
  const auto targets = konkanivani::make_targets(kTexts);
  const auto ctc = fixed_ctc_scores().detach().to(at::kBFloat16),
             decoder = fixed_decoder_scores().detach().to(at::kBFloat16);
  const auto expected_ctc = konkanivani::ctc_loss_sum(ctc.to(at::kFloat), targets, ids(kFrames));
  const auto expected_decoder = konkanivani::decoder_loss_sum(decoder.to(at::kFloat), targets, 0.1);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto got_ctc = konkanivani::ctc_loss_sum(ctc, targets, ids(kFrames));
  const auto got_decoder = konkanivani::decoder_loss_sum(decoder, targets, 0.1);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(got_ctc.scalar_type() == at::kFloat);
  CHECK(got_ctc.equal(expected_ctc));
  CHECK(got_decoder.scalar_type() == at::kFloat);
  CHECK(got_decoder.equal(expected_decoder));
}

TEST_CASE("A head of weight 0 is not computed") {
  const auto targets = konkanivani::make_targets(kTexts);
  for (const double weight : {0.0, 0.3, 1.0}) {
    FixedScores scores;
    const auto loss = konkanivani::joint_loss(scores, encoded(), targets, {.ctc_weight = weight});
    CHECK(scores.ctc_calls == (weight > 0));
    CHECK(scores.decoder_calls == (weight < 1));
    const double expected =
        weight * recorded("ctc").item<double>() + (1 - weight) * recorded("attention").item<double>();
    CHECK(loss.sum.item<double>() == Approx(expected));
  }
}

// In the first project the last partial window leaked into the next epoch.
TEST_CASE("Windows of two micro-batches, the last one short, train as whole batches do, epoch after epoch") {
  struct Clips {
    at::Tensor mel_BMF, lengths_B;
    std::vector<std::vector<int64_t>> texts;
  };
  const auto mel = at::randn({4, 6, 32}, at::kDouble);
  const std::vector<int64_t> mel_frames{32, 20, 27, 9};
  const auto clips = [&](int64_t first, int64_t count) {
    Clips clips{mel.narrow(0, first, count), ids(mel_frames).narrow(0, first, count), {}};
    for (int64_t i = first; i < first + count; ++i) clips.texts.push_back(kTexts[static_cast<size_t>(i)]);
    return clips;
  };
  const auto train = [&](const std::vector<Clips>& batches, int64_t window) {
    auto model = tiny_model();
    model->to(at::kDouble);
    model->eval();  // a batch norm would see other batches
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    lt::Trainer trainer(
        model, optimizer,
        [](konkanivani::KonkaniVani& net, const Clips& clips) {
          const auto encoded = net->encode(clips.mel_BMF, clips.lengths_B);
          return konkanivani::joint_loss(net, encoded, konkanivani::make_targets(clips.texts), {});
        },
        lt::Accumulate<>{window});
    CHECK(trainer.fit(batches, {.epochs = 3}).steps == 6);
    return lt::state_dict(model);
  };
  const auto whole = train({clips(0, 3), clips(3, 1)}, 1),
             parts = train({clips(0, 1), clips(1, 2), clips(3, 1)}, 2);
  for (const auto& [name, tensor] : whole) {
    INFO(name);
    CHECK(reference::difference(tensor, parts.at(name)) < 1e-10);
  }
}

TEST_CASE("A few steps on one batch lower both losses") {
  const looptorch::detail::SingleIntraOpThread one_thread;
  auto model = tiny_model();
  const std::vector<std::vector<int64_t>> texts{{5, 6, 7, 8}, {8, 5}};
  const auto targets = konkanivani::make_targets(texts);
  const auto mel = at::randn({2, 6, 40});
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  std::vector<double> ctc, attention;
  for (int step = 0; step < 40; ++step) {
    optimizer.zero_grad();
    const auto encoded = model->encode(mel, ids({40, 22}));
    const auto loss = konkanivani::joint_loss(model, encoded, targets, {});
    loss.sum.backward();
    optimizer.step();
    ctc.push_back(loss.metrics[0].value.number());
    attention.push_back(loss.metrics[1].value.number());
  }
  CHECK(ctc.back() < 0.3 * ctc.front());
  CHECK(attention.back() < 0.5 * attention.front());
}
