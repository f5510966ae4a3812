// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/state/weights/module_state.hpp>

#include "../reference.hpp"

#include <whisper/formats/weight_names.hpp>

#include <set>

using whisper::by_variable;
using whisper::weight_names;

TEST_CASE("weight names: transformers' are those of the model, each with its shape") {
  const auto model = whisper_test::tiny_model();
  auto state = looptorch::state_dict(model);
  for (const auto& name : weight_names(model->config())) {
    if (name.huggingface.empty()) continue;
    CAPTURE(name.huggingface);
    REQUIRE(state.contains(name.huggingface));
    CHECK(state.at(name.huggingface).sizes() == at::IntArrayRef(name.shape));
    state.erase(name.huggingface);
  }
  CHECK(state.empty());
}

TEST_CASE("weight names: openai-whisper's differ from one another, and those of fused projections match") {
  const auto names = weight_names({});
  std::set<std::string> openai;
  for (const auto& name : names) {
    CHECK(name.huggingface.empty() == name.openai.empty());
    if (!name.openai.empty()) CHECK(openai.insert(name.openai).second);
  }
  CHECK(openai.size() == 167);
  for (const auto* name :
       {"encoder.positional_embedding", "encoder.conv2.bias", "encoder.blocks.3.mlp.2.weight",
        "decoder.blocks.0.cross_attn_ln.bias", "decoder.token_embedding.weight", "encoder.ln_post.weight",
        "decoder.ln.bias", "decoder.blocks.3.attn.key.weight"})
    CHECK(openai.contains(name));
  CHECK_FALSE(openai.contains("decoder.blocks.3.attn.key.bias"));
}

TEST_CASE("weight names: a variable of CTranslate2 holds its tensors in the order of its rows") {
  const auto names = weight_names({.encoder_layers = 1, .decoder_layers = 1});
  std::map<std::string, std::vector<std::string>> variables;
  for (const auto& rows : by_variable(names)) {
    auto& tensors = variables[rows.front().ctranslate2];
    CHECK(tensors.empty());
    for (const auto& name : rows) {
      CHECK(name.ctranslate2 == rows.front().ctranslate2);
      CHECK(name.shape == rows.front().shape);
      tensors.push_back(name.huggingface);
    }
  }
  const std::string cross = "model.decoder.layers.0.encoder_attn.", own = "model.encoder.layers.0.self_attn.";
  CHECK(variables.at("decoder/layer_0/attention/linear_1/bias") ==
        std::vector<std::string>{"", cross + "v_proj.bias"});
  CHECK(variables.at("encoder/layer_0/self_attention/linear_0/weight") ==
        std::vector<std::string>{own + "q_proj.weight", own + "k_proj.weight", own + "v_proj.weight"});
}
