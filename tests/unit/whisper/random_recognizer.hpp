// SPDX-License-Identifier: MIT
// A small model without training, which says many things in 30 s.
#pragma once

#include "support/precompiled.hpp"

#include "reference.hpp"

#include <whisper/decoding/recognizer.hpp>

#include <utility>

namespace whisper_test {

/// A recognizer with the tokens of small_tokenizer.json and 1501 timestamps.
inline whisper::Recognizer random_recognizer() {
  torch::manual_seed(5);
  whisper::Whisper model(whisper::WhisperConfig{.vocab_size = 1800,
                                                .d_model = 16,
                                                .encoder_layers = 1,
                                                .decoder_layers = 1,
                                                .encoder_attention_heads = 2,
                                                .decoder_attention_heads = 2,
                                                .encoder_ffn_dim = 16,
                                                .decoder_ffn_dim = 16,
                                                .pad_token_id = 295,
                                                .bos_token_id = 295,
                                                .eos_token_id = 295,
                                                .decoder_start_token_id = 296});
  whisper::DecodingOptions decoding{
      .prompt = {296}, .suppress = {296, 297, 298}, .begin_suppress = {}, .end_of_text = 295};
  decoding.special.start = 296, decoding.special.previous = 297, decoding.special.no_timestamps = 298;
  decoding.max_new_tokens = 24;
  decoding.without_timestamps = false;
  return {std::move(model), whisper::load_tokenizer(kParity / "small_tokenizer.json"), std::move(decoding)};
}

}  // namespace whisper_test
