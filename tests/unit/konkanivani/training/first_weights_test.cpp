// SPDX-License-Identifier: MIT
// --weights of konkanivani_train: a checkpoint of the public project gives the scores that PyTorch computes,
// and what has another size or other characters is refused with what to type. Recorded by
// tests/parity/first_weights.py.
#include "support/precompiled.hpp"

#include <looptorch/state/weights/torch_files/torch_checkpoint.hpp>

#include "../support.hpp"
#include "support/temporary_folder.hpp"

#include <konkanivani/training/first_weights.hpp>

#include <filesystem>
#include <string>
#include <vector>

using namespace konkanivani_test;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;
namespace fs = std::filesystem;
namespace kv = konkanivani;
namespace lt = looptorch;

namespace {

const fs::path kFolder = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/first_weights";
const fs::path kCheckpoint = kFolder / "checkpoint_epoch_15.pt";

kv::Vocabulary four_characters() {
  return kv::Vocabulary::of(std::vector<std::string>{"abcd"}, kv::Unit::code_point);
}

/// The sizes of the recorded checkpoint.
kv::ModelConfig recorded() {
  return {.vocabulary = 9,
          .d_model = 16,
          .encoder_layers = 2,
          .decoder_layers = 1,
          .dropout = 0,
          .subsampling = 1};
}

void refuses(const kv::ModelConfig& config, const lt::app::FirstWeights& weights, const std::string& why) {
  auto model = tiny_model(config);
  const auto before = model->parameters().front().detach().clone();
  CHECK_THROWS_WITH(kv::begin_from_weights(model, weights, four_characters(), false), Contains(why));
  CHECK(model->parameters().front().equal(before));
}

}  // namespace

TEST_CASE("a checkpoint of the public project gives the scores that PyTorch computes from the same frames") {
  auto model = tiny_model(recorded());
  const auto report = lt::app::load_first_weights(
      *model, {.file = kCheckpoint}, {.parts = {}, .translate = kv::translate_public, .advise = {}});
  CHECK(report.names.missing.empty());
  CHECK(report.names.surplus.empty());
  CHECK(report.names.loaded.size() == lt::state_dict(model).size());
  REQUIRE(report.notes.size() == 2);
  CHECK_THAT(report.notes[0], Contains("names are those of the public KonkaniVani project"));
  CHECK_THAT(report.notes[1],
             Contains("only weights carry over, not \"epoch\", \"optimizer_state_dict\", "
                      "\"scheduler_state_dict\", \"scaler_state_dict\", \"val_loss\", \"config\": epochs"));
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto scores = lt::load_torch_checkpoint(kFolder / "konkanivani_scores.pt").tensors;
  const auto encoded = model->encode(scores.at("frames"), ids({20}));
  CHECK(largest_difference(model->ctc_scores(encoded), scores.at("ctc")) < 2e-5);
  CHECK(largest_difference(model->decoder_scores(scores.at("characters"), ids({5}), encoded),
                           scores.at("decoder")) < 2e-5);
}

TEST_CASE("a checkpoint of the public project under DataParallel is the same weights") {
  const TemporaryFolder folder;
  lt::TensorMap wrapped;
  for (const auto& [name, tensor] : lt::load_torch_checkpoint(kCheckpoint).tensors)
    wrapped["module." + name] = tensor;
  lt::save_safetensors(folder / "wrapped.safetensors", wrapped);
  auto plain = tiny_model(recorded()), model = tiny_model(recorded());
  kv::begin_from_weights(plain, {.file = kCheckpoint}, four_characters(), false);
  kv::begin_from_weights(model, {.file = folder / "wrapped.safetensors"}, four_characters(), false);
  const auto expected = lt::state_dict(plain);
  for (const auto& [name, tensor] : lt::state_dict(model)) CHECK(tensor.equal(expected.at(name)));
}

TEST_CASE("names of the public project are translated one by one, and others stay") {
  CHECK(kv::name_from_public("encoder.layers.11.ff1.4.bias") == "encoder.blocks.11.first_half.down.bias");
  CHECK(kv::name_from_public("encoder.layers.0.conv.3.running_var") ==
        "encoder.blocks.0.convolution.batch_norm.running_var");
  CHECK(kv::name_from_public("decoder.decoder.layers.5.norm2.weight") ==
        "decoder.layers.5.cross_norm.weight");
  CHECK(kv::name_from_public("decoder.output_proj.bias") == "decoder.output.bias");
  CHECK(kv::name_from_public("ctc_head.bias") == "ctc_head.bias");
  lt::TensorMap ours = lt::state_dict(tiny_model());
  const auto before = ours.size();
  CHECK(kv::translate_public(ours).empty());
  CHECK(ours.size() == before);
}

TEST_CASE("weights of another width are refused with the flags of their size, and nothing is loaded") {
  auto config = recorded();
  config.d_model = 32, config.encoder_layers = 3;
  refuses(
      config, {.file = kCheckpoint},
      "The file's model is 16 wide with 2 + 1 layers: give --d-model 16 --encoder-layers 2 --decoder-layers 1 --subsampling 1");
}

TEST_CASE("weights of another number of characters are refused, and begin anew where the flags say so") {
  auto config = recorded();
  config.vocabulary = 12;
  refuses(config, {.file = kCheckpoint},
          "The file has 9 characters and the training texts 12: --rename 'ctc_head.*=' ");
  auto model = tiny_model(config);
  const auto head = model->named_parameters()["ctc_head.weight"].detach().clone();
  kv::begin_from_weights(
      model,
      {.file = kCheckpoint, .renames = {"ctc_head.*=", "decoder.embedding.*=", "decoder.output_proj.*="}},
      four_characters(), false);
  CHECK(model->named_parameters()["ctc_head.weight"].equal(head));
  CHECK_FALSE(model->named_parameters()["encoder.blocks.0.norm.bias"].equal(
      tiny_model(config)->named_parameters()["encoder.blocks.0.norm.bias"]));
}

TEST_CASE("weights of a model of other characters are refused by the vocabulary beside them") {
  const TemporaryFolder folder;
  auto saved = tiny_model();
  kv::save_model(saved, folder.path());
  kv::save_vocabulary(folder / "vocabulary.json", four_characters());
  auto model = tiny_model();
  CHECK_NOTHROW(kv::begin_from_weights(model, {.file = folder.path()}, four_characters(), false));
  CHECK_NOTHROW(
      kv::begin_from_weights(model, {.file = folder / "model.safetensors"}, four_characters(), false));
  const auto others = kv::Vocabulary::of(std::vector<std::string>{"abce"}, kv::Unit::code_point);
  CHECK_THROWS_WITH(kv::begin_from_weights(model, {.file = folder.path()}, others, false),
                    Contains("vocabulary.json: the training texts have other characters than the model of "));
  CHECK_NOTHROW(kv::begin_from_weights(
      model, {.file = folder.path(), .renames = {"ctc_head.*=", "decoder.embedding.*=", "decoder.output.*="}},
      others, false));
}
