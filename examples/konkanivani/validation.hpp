// SPDX-License-Identifier: MIT
// Measures the validation clips after each epoch: one pass for their loss and for what is heard.
#pragma once

#include <looptorch/app/summary.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/loss.hpp>

#include "data.hpp"
#include "evaluation.hpp"
#include "loss.hpp"
#include "recognizer.hpp"
#include "train_options.hpp"

#include <iostream>

namespace konkanivani {

class Validation {
 public:
  /// Both must outlive it.
  Validation(Recognizer& recognizer, const TrainOptions& options)
      : recognizer_(recognizer), options_(options) {}

  /// For looptorch::Validate: the loss of a batch, whose texts it keeps.
  looptorch::Loss measure(KonkaniVani& model, const Batch& batch) {
    const auto encoded = model->encode(batch.mel_BMF, batch.lengths_B);
    listening_.add(batch, recognize(model, encoded, options_.decoding()), recognizer_.vocabulary);
    return joint_loss(model, encoded, batch.frames, batch.targets, options_.loss());
  }

  /// Publishes and prints the error rates of what was measured, and adds them to the curve.
  void report(looptorch::EpochContext& epoch) {
    const auto heard = listening_.take();
    epoch.run.metrics().publish("validation.cer", heard.character_error_rate);
    add_to_curve(options_.output / "curve.csv", epoch.run.progress().step, stopwatch_.seconds(), heard);
    std::cout << "    CER " << heard.character_error_rate << ", WER " << heard.word_error_rate << "\n";
    print_examples(std::cout, heard, 3);
    std::cout << std::flush;
  }

 private:
  looptorch::app::Stopwatch stopwatch_;
  Recognizer& recognizer_;
  const TrainOptions& options_;
  Listening listening_;
};

}  // namespace konkanivani
