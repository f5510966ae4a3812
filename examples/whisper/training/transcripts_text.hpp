// SPDX-License-Identifier: MIT
// Prints some transcripts for a reader to compare, each below the text that was really spoken.
#pragma once

#include <looptorch/metrics/text_example.hpp>

#include "evaluation.hpp"

#include <cstddef>
#include <ostream>

namespace whisper {

/// Prints `count` clips from the whole range: the spoken text and the transcript.
inline void print_transcripts(std::ostream& out, const Transcripts& transcripts, std::size_t count) {
  for (const std::size_t clip : looptorch::evenly_spaced(count, transcripts.references.size())) {
    out << "reference  " << transcripts.references[clip] << "\nhypothesis " << transcripts.hypotheses[clip]
        << "\n\n";
  }
}

/// Prints `count` clips from the whole range: the spoken text, and the transcripts before and after training.
inline void print_side_by_side(std::ostream& out, const Transcripts& before, const Transcripts& after,
                               std::size_t count) {
  for (const std::size_t clip : looptorch::evenly_spaced(count, before.references.size())) {
    out << "\nreference  " << before.references[clip] << "\nbefore     " << before.hypotheses[clip]
        << "\nafter      " << after.hypotheses[clip] << "\n";
  }
  out << "\n";
}

}  // namespace whisper
