// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../random_recognizer.hpp"

#include <whisper/training/objective.hpp>

#include <vector>

TEST_CASE("The loss is the mean over the labels, from sound or from what the encoder made of it") {
  auto model = whisper_test::random_recognizer().model;
  model->eval();
  const torch::NoGradGuard no_grad;
  std::vector<whisper::Sample> samples{
      {.mel_MT = at::randn({80, 400}), .tokens = {296, 298, 5, 6, 295}, .text = "a"},
      {.mel_MT = at::randn({80, 400}), .tokens = {296, 298, 295}, .text = "b"}};
  auto batch = whisper::collate(samples, 295);
  const auto logits_BLV = model->forward(batch.mel_BMT, batch.tokens_BL);
  const auto expected = at::cross_entropy_loss(logits_BLV.flatten(0, 1), batch.labels_BL.flatten(), {},
                                               at::Reduction::Mean, whisper::kIgnored);
  CHECK(at::allclose(whisper::loss_of(model, batch), expected));

  const auto states_BSD = whisper::states_of(model, batch);
  CHECK(at::equal(states_BSD, model->encoder()(batch.mel_BMT)));
  batch.mel_BMT = states_BSD, batch.encoded = true;
  CHECK(whisper::states_of(model, batch).is_same(states_BSD));
  CHECK(at::allclose(whisper::loss_of(model, batch), expected));
}
