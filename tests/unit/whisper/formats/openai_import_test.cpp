// SPDX-License-Identifier: MIT
// Weights under openai-whisper's names become those of Hugging Face, bit by bit, or are refused by name.
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/formats/openai_import.hpp>
#include <whisper/formats/weight_names.hpp>

using Catch::Contains;
using whisper::convert_openai;

namespace {

whisper::WhisperConfig small_config() {
  whisper::WhisperConfig config;
  config.vocab_size = 70;
  config.d_model = 128;
  config.encoder_layers = 2, config.decoder_layers = 3;
  config.encoder_attention_heads = config.decoder_attention_heads = 2;
  config.encoder_ffn_dim = config.decoder_ffn_dim = 256;
  config.max_source_positions = 12, config.max_target_positions = 9;
  return config;
}

looptorch::TensorMap openai_weights() {
  torch::manual_seed(1);
  looptorch::TensorMap weights;
  for (const auto& name : whisper::weight_names(small_config()))
    if (!name.openai.empty()) weights.emplace(name.openai, at::randn(name.shape).to(at::kHalf));
  return weights;
}

}  // namespace

TEST_CASE("openai-whisper's weights have transformers' names, in fp32, and their sizes are found") {
  const auto weights = openai_weights();
  const auto [config, converted] = convert_openai(weights, "small.pt");
  const auto expected = small_config();
  CHECK(config.vocab_size == expected.vocab_size);
  CHECK(config.d_model == expected.d_model);
  CHECK(config.encoder_layers == 2);
  CHECK(config.decoder_layers == 3);
  CHECK(config.encoder_attention_heads == 2);
  CHECK(config.encoder_ffn_dim == 256);
  CHECK(config.max_source_positions == 12);
  CHECK(config.max_target_positions == 9);
  CHECK(config.num_mel_bins == expected.num_mel_bins);
  CHECK(converted.size() == weights.size());
  for (const auto& name : whisper::weight_names(expected))
    if (!name.huggingface.empty())
      CHECK(converted.at(name.huggingface).equal(weights.at(name.openai).to(at::kFloat)));
}

TEST_CASE("what is no openai-whisper model is refused, by the tensor at fault") {
  auto weights = openai_weights();
  weights.erase("decoder.token_embedding.weight");
  CHECK_THROWS_WITH(convert_openai(weights, "small.pt"),
                    "small.pt: \"decoder.token_embedding.weight\" is missing: it is no openai-whisper model");
  weights = openai_weights();
  weights.erase("encoder.blocks.1.attn_ln.bias");
  CHECK_THROWS_WITH(convert_openai(weights, "small.pt"),
                    Contains("\"encoder.blocks.1.attn_ln.bias\" is missing"));
  weights = openai_weights();
  weights["decoder.blocks.2.mlp.2.weight"] = at::zeros({128, 255});
  CHECK_THROWS_WITH(convert_openai(weights, "small.pt"),
                    Contains("has shape [128, 255] instead of [128, 256]"));
  weights = openai_weights();
  weights["decoder.extra"] = at::zeros({1});
  CHECK_THROWS_WITH(convert_openai(weights, "small.pt"),
                    Contains("\"decoder.extra\" has no place in Whisper"));
}

TEST_CASE("heads for word times are taken from a model of the same size only") {
  const looptorch::testing::TemporaryFolder folder;
  looptorch::write_file_atomically(folder / "generation_config.json",
                                   "{\"alignment_heads\": [[1, 0]], \"max_length\": 9}");
  const auto heads_for = [&](std::int64_t layers) {
    whisper::WhisperConfig config = small_config();
    config.decoder_layers = layers;
    const auto settings = whisper::settings_for(config, folder.path());
    CHECK(settings.at("max_length").as_int() == 9);
    return settings.contains("alignment_heads");
  };
  CHECK(!heads_for(3));  // of a model that is not known
  whisper::WhisperConfig other = small_config();
  other.vocab_size = whisper::WhisperConfig().vocab_size;
  looptorch::write_file_atomically(folder / "config.json", whisper::config_to_json(other).dump());
  CHECK(heads_for(3));
  CHECK(!heads_for(4));
}
