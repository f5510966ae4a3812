// SPDX-License-Identifier: MIT
// Prints some transcripts below what was said, for a reader to compare.
#pragma once

#include "evaluation.hpp"

#include <algorithm>
#include <cstddef>
#include <ostream>

namespace whisper {

/// Prints `count` clips from the whole range: the spoken text and the transcript.
inline void print_transcripts(std::ostream& out, const Transcripts& transcripts, std::size_t count) {
  const auto size = transcripts.references.size();
  for (std::size_t i = 0; i < std::min(count, size); ++i) {
    const auto clip = i * size / std::min(count, size);
    out << "reference  " << transcripts.references[clip] << "\nhypothesis " << transcripts.hypotheses[clip]
        << "\n\n";
  }
}

/// Prints `count` clips from the whole range: the spoken text, and the transcripts before and after training.
inline void print_side_by_side(std::ostream& out, const Transcripts& before, const Transcripts& after,
                               std::size_t count) {
  const auto size = before.references.size();
  for (std::size_t i = 0; i < std::min(count, size); ++i) {
    const auto clip = i * size / std::min(count, size);
    out << "\nreference  " << before.references[clip] << "\nbefore     " << before.hypotheses[clip]
        << "\nafter      " << after.hypotheses[clip] << "\n";
  }
  out << "\n";
}

}  // namespace whisper
