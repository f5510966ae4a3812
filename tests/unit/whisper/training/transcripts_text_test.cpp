// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/training/transcripts_text.hpp>

#include <sstream>

using whisper::Transcripts;

TEST_CASE("Transcripts are printed below what was said") {
  const Transcripts transcripts{
      .references = {"CQ de k1a", "73"}, .hypotheses = {"cq dek1b", "7 3"}, .languages = {"de", "de"}};
  std::ostringstream out;
  whisper::print_transcripts(out, transcripts, 5);
  CHECK(out.str() == "reference  CQ de k1a\nhypothesis cq dek1b\n\nreference  73\nhypothesis 7 3\n\n");
}

TEST_CASE("Transcripts before and after training are printed together, of clips from the whole range") {
  const Transcripts before{.references = {"a", "b", "c", "d"}, .hypotheses = {"1", "2", "3", "4"}};
  const Transcripts after{.references = before.references, .hypotheses = {"5", "6", "7", "8"}};
  std::ostringstream out;
  whisper::print_side_by_side(out, before, after, 2);
  CHECK(out.str() ==
        "\nreference  a\nbefore     1\nafter      5\n\nreference  c\nbefore     3\nafter      7\n\n");
}
