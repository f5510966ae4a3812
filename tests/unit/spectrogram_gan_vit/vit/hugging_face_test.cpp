// SPDX-License-Identifier: MIT
// Tests spectrogram_gan_vit/vit: config, images, model
#include "support/precompiled.hpp"

#include <looptorch/state/weights/save_weights.hpp>

#include "support/reference.hpp"
#include "support/temporary_folder.hpp"

#include <spectrogram_gan_vit/vit/hugging_face.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using reference::difference;
using spectrogram_vit::ConfigError;
using spectrogram_vit::Extent;
using spectrogram_vit::ViTConfig;
namespace lt = looptorch;
namespace vit = spectrogram_vit;
namespace fs = std::filesystem;

namespace {

const fs::path kRecorded = LOOPTORCH_SOURCE_DIR "/tests/parity/data/vit";

const at::Tensor& recorded_vit(const std::string& name) {
  return reference::tensors("vit/recorded").at(name);
}

/// The integers of noise() in tests/parity/vit.py.
at::Tensor recorded_noise(at::IntArrayRef shape, std::int64_t number, double scale) {
  auto x = at::arange(c10::multiply_integers(shape), at::kLong) + 1'000'003'000 * (number + 1);
  x.mul_(6364136223846793005);
  x.bitwise_xor_(x.bitwise_right_shift(33)).mul_(-49064778989728563);
  x.bitwise_xor_(x.bitwise_right_shift(29)).bitwise_and_(255);
  return x.to(at::kFloat).sub_(127.5).mul_(scale).reshape(shape);
}

/// weight() in tests/parity/vit.py.
at::Tensor weight_of(const std::string& name, at::IntArrayRef shape, std::int64_t number) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("layernorm") && name.ends_with("weight")) return recorded_noise(shape, number, 0x1p-9).add_(1);
  if (has("token") || has("position")) return recorded_noise(shape, number, 0x1p-7);
  return recorded_noise(shape, number, name.ends_with("bias") ? 0x1p-10 : 0x1p-11);
}

/// The names of ViTForImageClassification's tensors at ViT-B/16-224's size, with their shapes.
std::vector<std::pair<std::string, std::vector<std::int64_t>>> base_names() {
  std::ifstream file(kRecorded / "base_names.txt");
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> names;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    names.emplace_back();
    words >> names.back().first;
    for (std::int64_t size; words >> size;) names.back().second.push_back(size);
  }
  return names;
}

/// Writes a Hugging Face folder with the recorded weights of ViT-B/16-224, in half precision, which holds
/// them exactly.
void write_base_folder(const fs::path& folder) {
  lt::TensorMap tensors;
  std::int64_t number = 0;
  for (const auto& [name, shape] : base_names())
    tensors.emplace(name, weight_of(name, shape, number++).to(at::kHalf));
  lt::save_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
  vit::save_config(folder / "config.json", ViTConfig{});
}

ViTConfig tiny_vit_config() {
  return {.hidden_size = 8,
          .layers = 2,
          .heads = 2,
          .intermediate_size = 12,
          .channels = 1,
          .n_mels = 6,
          .image = {6, 8},
          .patch = {3, 2}};
}

vit::ViT tiny_vit(const ViTConfig& config = tiny_vit_config()) {
  torch::manual_seed(7);
  vit::ViT model(config);
  model->eval();
  return model;
}

void copy_folder(const fs::path& from, const fs::path& to) {
  for (const auto* file : {"config.json", "model.safetensors"})
    std::ofstream(to / file, std::ios::binary) << std::ifstream(from / file, std::ios::binary).rdbuf();
}

/// A copy of a recorded folder whose config.json says otherwise of a key.
std::string refusal_with(const std::string& key, const lt::Json& value) {
  const TemporaryFolder folder;
  copy_folder(kRecorded / "model", folder.path());
  std::ofstream(folder / "config.json")
      << lt::load_json(kRecorded / "model/config.json").set(key, value).dump();
  try {
    (void)vit::load_hugging_face(folder.path());
  } catch (const ConfigError& error) {
    return std::string(error.what()).substr((folder / "config.json").string().size());
  }
  return "none";
}

/// A copy of a recorded folder with other tensors.
template <class Change>
lt::LoadReport misfit_with(const Change& change) {
  const TemporaryFolder folder;
  copy_folder(kRecorded / "model", folder.path());
  auto tensors = lt::load_safetensors(kRecorded / "model/model.safetensors").tensors;
  change(tensors);
  lt::save_safetensors(folder / "model.safetensors", tensors);
  try {
    (void)vit::load_hugging_face(folder.path());
  } catch (const lt::ModuleStateError& error) {
    CHECK_THAT(error.what(), Contains(folder.path().string()));
    return error.report;
  }
  return {};
}

}  // namespace

TEST_CASE("Names of weights that wrappers of Python changed are taken, and told") {
  const auto [before, change] =
      GENERATE(table<std::string, std::string>({{"module.", "with \"module."},
                                                {"_orig_mod.", "with \"_orig_mod."},
                                                {"model.", "with \"model."},
                                                {"module._orig_mod.", "with \"module._orig_mod."}}));
  const auto plain = vit::load_hugging_face(kRecorded / "classifier");
  const TemporaryFolder folder;
  copy_folder(kRecorded / "classifier", folder.path());
  lt::TensorMap wrapped;
  for (const auto& [name, tensor] : lt::load_safetensors(kRecorded / "classifier/model.safetensors").tensors)
    wrapped[before + name] = tensor;
  lt::save_safetensors(folder / "model.safetensors", wrapped);
  const auto pretrained = vit::load_hugging_face(folder.path());
  CHECK(pretrained.loaded == plain.loaded);
  CHECK(pretrained.left.size() == plain.left.size());
  for (const auto& name : pretrained.left) CHECK(name.starts_with(before));
  CHECK_THAT(pretrained.text(), Contains("; renamed: ") && Contains(change));
  CHECK(plain.text().find("renamed") == std::string::npos);
  const auto theirs = lt::state_dict(pretrained.model->backbone);
  for (const auto& [name, tensor] : lt::state_dict(plain.model->backbone))
    CHECK(theirs.at(name).equal(tensor));
}

TEST_CASE("ViT-B/16-224 of a Hugging Face folder has transformers' numbers, at its own size and at another") {
  const TemporaryFolder folder;
  write_base_folder(folder.path());
  auto pretrained = vit::load_hugging_face(folder.path());
  CHECK(pretrained.loaded.size() == 198);
  CHECK(pretrained.created == std::vector<std::string>{"head.weight", "head.bias"});
  CHECK(pretrained.left == std::vector<std::string>{"classifier.bias", "classifier.weight"});
  CHECK(pretrained.text() ==
        "198 tensors loaded; new: head.weight, head.bias; left aside: classifier.bias, classifier.weight");

  auto& model = pretrained.model;
  CHECK(model->config() == ViTConfig{});
  model->eval();
  const torch::NoGradGuard no_grad;
  for (const auto& [name, height, width] : {std::tuple{"square", 224, 224}, std::tuple{"wide", 96, 320}}) {
    INFO(name);
    const auto images = recorded_noise({1, 3, height, width}, 1000, 0x1p-6);
    const auto hidden_TD = model->backbone(images)[0];
    const auto expected = recorded_vit(std::string("base.") + name + ".hidden");
    REQUIRE(hidden_TD.size(0) == 1 + height * width / 256);
    CHECK(expected.abs().max().item<double>() > 1);
    CHECK(difference(hidden_TD.slice(0, 0, hidden_TD.size(0), 16), expected) < 1e-4);
    CHECK(difference(model->backbone->attention(images)[0].select(1, 0),
                     recorded_vit(std::string("base.") + name + ".attention")) < 1e-6);
  }
}

TEST_CASE("A ViT saved in transformers' form has its names, and is the model again when it is loaded") {
  const auto names = base_names();
  std::vector<std::string> theirs, ours;
  for (const auto& [name, shape] : names) theirs.push_back(name);
  const vit::ViT model(ViTConfig{});
  for (const auto& item : model->named_parameters()) ours.push_back(vit::name_for_hugging_face(item.key()));
  std::sort(ours.begin(), ours.end());
  CHECK(ours == theirs);
  CHECK(vit::name_from_hugging_face("vit.encoder.layer.10.attention.output.dense.bias") ==
        "blocks.10.out.bias");
  CHECK(vit::name_from_hugging_face("encoder.layer.10.output.dense.bias") == "blocks.10.down.bias");
  CHECK(vit::name_from_hugging_face("pooler.dense.bias") == "pooler.dense.bias");

  const TemporaryFolder folder;
  auto small = tiny_vit();
  torch::nn::init::normal_(small->normalisation->mean);
  vit::save_vit(small, folder.path());
  auto loaded = vit::load_vit(folder.path());
  CHECK_FALSE(loaded->is_training());
  CHECK(loaded->config() == tiny_vit_config());
  const auto spectrograms = at::randn({3, 1, 6, 20});
  const torch::NoGradGuard no_grad;
  CHECK(loaded(spectrograms).equal(small(spectrograms)));
  const auto json = lt::load_json(folder / "config.json");
  CHECK(json.at("image_size") == lt::Json::array({6, 8}));
  CHECK(json.at("architectures") == lt::Json::array({"ViTForImageClassification"}));

  auto tensors = lt::load_safetensors(folder / "model.safetensors").tensors;
  tensors.erase("classifier.bias");
  lt::save_safetensors(folder / "model.safetensors", tensors);
  CHECK_THROWS_WITH(vit::load_vit(folder.path()), Contains("1 missing: head.bias"));
}

TEST_CASE("A ViT whose weights are infinite is refused by file and name") {
  const TemporaryFolder folder;
  const vit::ViT model(vit::ViTBackbone(vit::size_named("small")));
  model->named_parameters()["head.bias"].detach()[0] = std::numeric_limits<float>::infinity();
  vit::save_vit(model, folder.path());
  CHECK_THROWS_WITH(vit::load_vit(folder.path()), (folder / "model.safetensors").string() +
                                                      ": the weights \"head.bias\" hold NaN or infinity");
}

TEST_CASE("Folders that transformers saved load: classifier or model, prefix or none, biases or none") {
  for (const auto* name : {"classifier", "model", "no_bias"}) {
    INFO(name);
    auto pretrained = vit::load_hugging_face(kRecorded / name);
    pretrained.model->eval();
    const torch::NoGradGuard no_grad;
    const auto hidden = pretrained.model->backbone(recorded_noise({2, 3, 16, 16}, 1001, 0x1p-6));
    CHECK(difference(hidden, recorded_vit(std::string(name) + ".hidden")) < 1e-5);
  }
  CHECK(vit::load_hugging_face(kRecorded / "model").left ==
        std::vector<std::string>{"pooler.dense.bias", "pooler.dense.weight"});
  CHECK(vit::load_hugging_face(kRecorded / "classifier").model->parameters().size() ==
        vit::load_hugging_face(kRecorded / "no_bias").model->parameters().size() + 2 * 3);
}

TEST_CASE("A folder of another model, or with a setting that is not built, is refused by key") {
  CHECK(refusal_with("hidden_size", 8) == "none");
  CHECK(refusal_with("model_type", "deit") == ": model_type is \"deit\", not \"vit\"");
  CHECK(refusal_with("hidden_act", "relu") == ": hidden_act is \"relu\", and only \"gelu\" is supported");
  CHECK(refusal_with("num_attention_heads", 3) ==
        ": num_attention_heads is 3, which does not divide hidden_size 8");
  CHECK(refusal_with("patch_size", 5) == ": an image of height 16 cannot be cut into patches of 5");
  CHECK(refusal_with("patch_size", lt::Json::array({4, 3})) ==
        ": an image of width 16 cannot be cut into patches of 3");
  CHECK(refusal_with("image_size", "big") ==
        ": image_size is \"big\"; it must be a size or a list of height and width, 1..65536");
  CHECK(refusal_with("image_size", lt::Json::array({16})) ==
        ": image_size is [16]; it must be a size or a list of height and width, 1..65536");
  CHECK(refusal_with("num_hidden_layers", 0) == ": num_hidden_layers is 0, outside 1..1024");

  const TemporaryFolder empty;
  CHECK_THROWS_AS(vit::load_hugging_face(empty.path()), lt::FileError);
  fs::copy_file(kRecorded / "model/config.json", empty / "config.json");
  CHECK_THROWS_WITH(vit::load_hugging_face(empty.path()), Contains("model.safetensors"));
}

TEST_CASE("Tensors that are missing or of another shape are refused by name, and nothing else is") {
  const auto missing =
      misfit_with([](lt::TensorMap& tensors) { tensors.erase("encoder.layer.1.output.dense.bias"); });
  CHECK(missing.missing == std::vector<std::string>{"blocks.1.down.bias"});
  const auto unfit = misfit_with([](lt::TensorMap& tensors) {
    tensors["embeddings.position_embeddings"] = at::zeros({1, 10, 8});
    tensors["encoder.layer.0.intermediate.dense.weight"] = at::zeros({8, 12});
  });
  REQUIRE(unfit.unfit.size() == 2);
  CHECK(unfit.unfit[0].name == "blocks.0.up.weight");
  CHECK(unfit.unfit[1].name == "positions");
  CHECK(unfit.unfit[1].why == "[1, 10, 8] instead of [1, 17, 8]");
  CHECK(misfit_with([](lt::TensorMap& tensors) { tensors["extra"] = at::zeros({1}); }).unfit.empty());
}

TEST_CASE("Images are spectrograms normalised by mel bin and resized as torch does, alike in each channel") {
  const auto spectrograms = recorded_noise({2, 1, 12, 50}, 1002, 0x1p-6);
  for (const Extent extent : {Extent{24, 16}, Extent{7, 64}}) {
    const auto images = vit::images_of(spectrograms, extent, 3);
    REQUIRE(images.sizes() == at::IntArrayRef({2, 3, extent.height, extent.width}));
    const auto expected =
        recorded_vit("images." + std::to_string(extent.height) + "x" + std::to_string(extent.width));
    for (int channel = 0; channel < 3; ++channel)
      CHECK(difference(images.narrow(1, channel, 1), expected) < 1e-6);
  }
  CHECK_THROWS_WITH(vit::images_of(at::zeros({2, 12, 50}), {4, 4}, 3),
                    "images_of: expected spectrograms [B, 1, M, F], got [2, 12, 50]");

  torch::manual_seed(1);
  const auto clips = at::randn({5, 1, 6, 40}) * at::arange(6).view({6, 1}) + at::arange(6).view({6, 1});
  vit::MelStatistics statistics;
  for (const auto& clip : clips.unbind()) statistics.add(clip);
  vit::Normalisation normalisation(6);
  statistics.write(normalisation);
  CHECK(difference(normalisation->mean, clips.mean({0, 1, 3})) < 1e-5);
  CHECK(difference(normalisation->deviation.slice(0, 1),
                   clips.transpose(0, 2).flatten(1).std(1, false).slice(0, 1)) < 1e-5);
  CHECK(normalisation->deviation[0].item<double>() == 1);
  const auto normalised = normalisation(clips).transpose(0, 2).flatten(1).slice(0, 1);
  CHECK(normalised.mean(1).abs().max().item<double>() < 1e-5);
  CHECK(difference(normalised.std(1, false), at::ones({5})) < 1e-5);
  vit::MelStatistics of_silence;  // far from 0 beside its deviation
  for (int64_t i = 0; i < 1000; ++i) {
    const auto clip = at::randn({1, 3, 130 + i % 7});
    clip.select(1, 1).fill_(-79.3), clip.select(1, 2).mul_(1e-3).sub_(79.3);
    of_silence.add(clip);
  }
  vit::Normalisation of_three(3);
  of_silence.write(of_three);
  CHECK(of_three->mean[1].item<double>() == Approx(-79.3));
  CHECK(of_three->deviation[0].item<double>() == Approx(1).epsilon(0.01));
  CHECK(of_three->deviation[1].item<double>() == 1);
  CHECK(of_three->deviation[2].item<double>() == Approx(1e-3).epsilon(0.01));
  CHECK_THROWS_WITH(normalisation(at::zeros({1, 1, 7, 40})),
                    "Normalisation: expected spectrograms [B, 1, 6, F], got [1, 1, 7, 40]");
  CHECK_THROWS_AS(vit::MelStatistics().write(normalisation), lt::UsageError);
}

TEST_CASE("Positions are resized bicubically as torch does, the class token's stays, and resize keeps them") {
  const auto from = recorded_vit("positions.from").flatten(2).transpose(1, 2);  // [1, 4 x 5, 3]
  const auto positions = at::cat({at::ones({1, 1, 3}), from}, 1);
  const auto to = vit::interpolate_positions(positions, {4, 5}, {7, 3});
  CHECK(to.slice(1, 0, 1).equal(at::ones({1, 1, 3})));
  CHECK(difference(to.slice(1, 1), recorded_vit("positions.to").flatten(2).transpose(1, 2)) < 2e-6);
  CHECK(vit::interpolate_positions(positions, {4, 5}, {4, 5}).is_same(positions));

  auto model = tiny_vit();
  const auto images = at::randn({2, 1, 9, 12});
  const torch::NoGradGuard no_grad;
  const auto before = model->backbone(images);
  CHECK(before.sizes() == at::IntArrayRef({2, 1 + 3 * 6, 8}));
  model->backbone->resize({9, 12});
  CHECK(model->config().image == Extent{9, 12});
  CHECK(model->backbone->named_parameters()["positions"].sizes() == at::IntArrayRef({1, 19, 8}));
  CHECK(model->backbone(images).equal(before));
  CHECK_THROWS_WITH(model->backbone->resize({10, 12}),
                    "ViT: an image of height 10 cannot be cut into patches of 3");
}

TEST_CASE("A ViT predicts two numbers a clip, attends with rows of sum 1, and says which images it takes") {
  auto model = tiny_vit();
  const auto spectrograms = at::randn({3, 1, 6, 20});
  const torch::NoGradGuard no_grad;
  CHECK(model(spectrograms).sizes() == at::IntArrayRef({3, 2}));
  const auto attention = model->attention(spectrograms);
  CHECK(attention.sizes() == at::IntArrayRef({3, 2, 9, 9}));
  CHECK(difference(attention.sum(-1), at::ones({3, 2, 9})) < 1e-6);
  CHECK(difference(model(spectrograms.narrow(0, 1, 1)), model(spectrograms).narrow(0, 1, 1)) < 1e-6);
  CHECK_THROWS_WITH(
      model->backbone(at::zeros({1, 3, 6, 8})),
      "ViT: expected images [B, 1, H, W] whose H is a multiple of 3 and whose W is one of 2, got "
      "[1, 3, 6, 8]");
  CHECK_THROWS_AS(model->backbone(at::zeros({1, 1, 7, 8})), lt::UsageError);
  auto config = tiny_vit_config();
  config.heads = 3;
  CHECK_THROWS_WITH(vit::ViT(config), "ViT: num_attention_heads is 3, which does not divide hidden_size 8");
}

TEST_CASE("Sizes have names, and a model of another size is refused with each difference") {
  CHECK(vit::size_named("base") == ViTConfig{});
  for (const auto& [name, config] : vit::kSizes) CHECK_NOTHROW(vit::check_config(config, name));
  CHECK_THROWS_WITH(vit::size_named("huge"), "there is no ViT size \"huge\", only base, tiny, small");
  CHECK_NOTHROW(vit::require_same_model(tiny_vit_config(), tiny_vit_config(), "there"));
  auto other = tiny_vit_config();
  other.layers = 3, other.image = {12, 8};
  CHECK_THROWS_WITH(vit::require_same_model(tiny_vit_config(), other, "there"),
                    "there: holds another model than the one asked for: num_hidden_layers 2 instead of 3, "
                    "image_size 6x8 instead of 12x8");
}
