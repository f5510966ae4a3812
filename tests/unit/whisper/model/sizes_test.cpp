// SPDX-License-Identifier: MIT
// Each published size against transformers: what tests/parity/whisper_sizes.py recorded with weights that
// both sides make by the same integer arithmetic. They pass through a folder on disk in fp16.
// Tests whisper/model: decoder, encoder
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>

#include "../reference.hpp"
#include "support/reference.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/formats/weight_names.hpp>

#include <cstdlib>
#include <map>

using looptorch::testing::TemporaryFolder;

namespace {

/// The integers of noise() in the script.
at::Tensor size_noise(at::IntArrayRef shape, int64_t number, double scale) {
  auto x = at::arange(c10::multiply_integers(shape), at::kLong).add_(1'000'003'000 * (number + 1));
  x.mul_(6364136223846793005);
  x.bitwise_xor_(x.bitwise_right_shift(33)).mul_(-49064778989728563);
  x.bitwise_xor_(x.bitwise_right_shift(29)).bitwise_and_(255);
  return x.to(at::kFloat).sub_(127.5).mul_(scale).reshape(shape);
}

/// The script's weight().
at::Tensor size_weight(const std::string& name, at::IntArrayRef shape, int64_t number) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("layer_norm") && name.ends_with("weight")) return size_noise(shape, number, 0x1p-9).add_(1);
  if (has("embed")) return size_noise(shape, number, 0x1p-9);
  return size_noise(shape, number, name.ends_with("bias") ? 0x1p-10 : 0x1p-11);
}

/// Writes config.json and weights in fp16, with the encoder's positions in fp32.
void write_folder(const whisper::WhisperConfig& config, const std::filesystem::path& folder) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& name : whisper::weight_names(config))
    if (!name.huggingface.empty()) shapes[name.huggingface] = name.shape;
  looptorch::TensorMap weights;
  int64_t number = 0;
  for (const auto& [name, shape] : shapes) {
    weights[name] = name == "model.encoder.embed_positions.weight"
                        ? whisper::sinusoids(shape[0], shape[1])
                        : size_weight(name, shape, number).to(at::kHalf);
    ++number;
  }
  looptorch::save_safetensors(folder / "model.safetensors", weights);
  whisper::save_config(folder / "config.json", config);
}

double error_of(const at::Tensor& ours, const at::Tensor& theirs) {
  return whisper_test::largest_difference(ours, theirs) / theirs.abs().max().item<double>();
}

void check_size(const std::string& name, const whisper::WhisperConfig& config) {
  CAPTURE(name);
  const auto expected = [&](const char* what) {
    return reference::tensors("whisper_sizes").at(name + "." + what);
  };
  const TemporaryFolder folder;
  write_folder(config, folder.path());
  auto model = whisper::load_pretrained(folder.path());
  torch::NoGradGuard no_grad;
  const auto sample = [](const at::Tensor& x, int64_t row, int64_t column) {
    return x.slice(0, 0, x.size(0), row).slice(1, 0, x.size(1), column);
  };
  const auto mel = size_noise({1, config.num_mel_bins, 2 * config.max_source_positions}, 1000, 0x1p-6);
  const auto tokens = (at::arange(8, at::kLong) * 7919 + 13).remainder(config.vocab_size).unsqueeze(0);
  const auto states = model->encoder()(mel);
  const auto logits = model->decoder()->logits(model->decoder()(tokens, states));
  const auto positions = model->named_parameters()["model.encoder.embed_positions.weight"];
  CHECK(whisper_test::largest_difference(sample(positions, 97, 61), expected("positions")) < 1e-6);
  CHECK(error_of(sample(states[0], 97, 61), expected("states")) < 1e-4);
  CHECK(error_of(sample(logits[0], 3, 503), expected("logits")) < 1e-4);
}

/// The sizes that the script recorded, those of 2 s of audio or the published ones.
std::map<std::string, whisper::WhisperConfig> recorded_sizes(bool published) {
  std::map<std::string, whisper::WhisperConfig> sizes;
  const auto json = looptorch::load_json(whisper_test::kParity / "whisper_sizes.json");
  for (const auto& [name, config] : json.as_object())
    if (name.ends_with("2 s") != published) sizes.emplace(name, whisper::config_from_json(config, name));
  return sizes;
}

}  // namespace

TEST_CASE("80 and 128 mel bins: states and logits are those of transformers") {
  const auto sizes = recorded_sizes(/*published=*/false);
  REQUIRE(sizes.size() == 2);
  for (const auto& [name, config] : sizes) check_size(name, config);
}

TEST_CASE("each published size: states and logits are those of transformers") {
  if (!std::getenv("LOOPTORCH_ALL_SIZES")) return;  // 12 GB of memory and minutes: ctest -C long
  const auto sizes = recorded_sizes(/*published=*/true);
  REQUIRE(sizes.size() == 11);
  for (const auto& [name, config] : sizes) check_size(name, config);
}
