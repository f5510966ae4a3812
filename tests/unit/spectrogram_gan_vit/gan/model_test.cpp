// SPDX-License-Identifier: MIT
// Tests spectrogram_gan_vit/gan: channel_attention, config, discriminator, generator, spectral_norm
#include "support/precompiled.hpp"

#include <looptorch/policies/autocast.hpp>

#include "support/reference.hpp"
#include "support/temporary_folder.hpp"
#include "unit/spectrogram_gan_vit/support.hpp"

#include <filesystem>
#include <fstream>

using namespace spectrogram_gan_test;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using reference::difference;
using reference::wave;
using spectrogram_gan::ConfigError;
using spectrogram_gan::GanConfig;
using spectrogram_gan::SpectralNorm;
namespace lt = looptorch;

namespace {

const at::Tensor& recorded(const std::string& name) { return reference::tensors("spectrogram_gan").at(name); }

/// Three passes in training, differentiated together, then one in eval mode, against the recorded ones.
template <class Apply>
void check_spectral_norm(const std::string& name, const at::Tensor& weight, SpectralNorm norm,
                         const Apply& apply) {
  INFO(name);
  const torch::NoGradGuard no_grad;
  norm->u.copy_(recorded(name + ".begin.u"));
  norm->v.copy_(recorded(name + ".begin.v"));
  at::AutoGradMode with_gradients(true);
  at::Tensor total = at::zeros({}, at::kDouble);
  for (int i = 0; i < 3; ++i) {
    const auto y = apply();
    CHECK(difference(y, recorded(name + ".output." + std::to_string(i))) < 1e-12);
    total = total + (y * wave(y.sizes(), i)).sum();
  }
  total.backward();
  CHECK(difference(weight.grad(), recorded(name + ".gradient")) < 1e-12);
  norm->eval();
  CHECK(difference(apply(), recorded(name + ".output.eval")) < 1e-12);
  CHECK(difference(norm->u, recorded(name + ".end.u")) < 1e-12);
  CHECK(difference(norm->v, recorded(name + ".end.v")) < 1e-12);
}

double largest_singular_value(const at::Tensor& matrix) {
  return at::linalg_svdvals(matrix).max().item<double>();
}

std::string refusal(const GanConfig& config) {
  try {
    gan::Gan model(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("Spectral norm has PyTorch's numbers: outputs, gradients and singular vectors, pass after pass") {
  gan::SpectralConv2d convolution(torch::nn::Conv2dOptions(3, 4, 3));
  convolution->to(at::kDouble);
  {
    const torch::NoGradGuard no_grad;
    convolution->weight.copy_(wave({4, 3, 3, 3}, 0.3));
    convolution->bias.copy_(wave({4}, 0.4));
  }
  check_spectral_norm("conv", convolution->weight, convolution->norm, [&] {
    return convolution(wave({2, 3, 5, 6}, 0.7));
  });

  const auto weight = wave({4, 6}, 0.3).requires_grad_();
  SpectralNorm twice(weight, gan::SpectralNormOptions{.power_iterations = 2});
  check_spectral_norm("linear", weight, twice, [&] {
    return at::linear(wave({3, 6}, 0.7), twice(weight), wave({4}, 0.4));
  });

  const auto transposed = wave({3, 4, 3, 3}, 0.3).requires_grad_();
  SpectralNorm second(transposed, gan::SpectralNormOptions{.dim = 1});
  check_spectral_norm("transposed", transposed, second, [&] {
    return at::conv_transpose2d(wave({2, 3, 5, 6}, 0.7), second(transposed), wave({4}, 0.4));
  });
}

TEST_CASE("Spectral norm begins near the largest singular value and then finds it") {
  torch::manual_seed(1);
  const auto weight = at::randn({7, 12}, at::kDouble);
  SpectralNorm norm(weight);
  CHECK(norm->u.norm().item<double>() == Approx(1));
  CHECK(norm->v.norm().item<double>() == Approx(1));
  CHECK(largest_singular_value(norm(weight)) == Approx(1).epsilon(0.1));
  for (int i = 0; i < 500; ++i) (void)norm(weight);
  CHECK(largest_singular_value(norm(weight)) == Approx(1).epsilon(1e-9));
}

TEST_CASE("Only training moves the singular vectors, and they are part of what is saved") {
  auto model = tiny_gan();
  auto& norm = model->discriminator->hidden->norm;
  const auto before = norm->u.clone();
  const auto batch = batches(1, 2).front();
  const auto run = [&] { (void)model->discriminator(batch.spectrograms_B1MF, batch.conditions_B2); };
  model->eval();
  run();
  CHECK(norm->u.equal(before));
  model->train();
  run();
  CHECK_FALSE(norm->u.equal(before));
  const auto buffers = model->named_buffers();
  CHECK(buffers.contains("discriminator.hidden.norm.u"));
  CHECK(buffers.contains("discriminator.convolutions.3.norm.v"));
  CHECK(buffers.size() == 3 + 2 * 6);
}

TEST_CASE("A weight of zeros, one of one dimension, and autocast: spectral norm stays sound") {
  const auto zeros = at::zeros({3, 4}, at::kDouble);
  SpectralNorm of_zeros(zeros);
  CHECK(of_zeros->u.isfinite().all().item<bool>());
  const auto vector = at::tensor({3.0, 4.0}, at::kDouble);
  SpectralNorm of_vector(vector);
  CHECK(of_vector(vector).equal(at::tensor({0.6, 0.8}, at::kDouble)));
  CHECK(of_vector->buffers().empty());

  const auto weight = at::randn({5, 6});
  SpectralNorm norm(weight);
  norm->eval();
  const auto plain = norm(weight);
  const lt::AutocastScope autocast(at::kCPU, at::kBFloat16);
  CHECK(norm(weight).equal(plain));
  CHECK(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("Spectral norm refuses options that cannot be") {
  const auto weight = at::randn({3, 4});
  CHECK_THROWS_WITH(SpectralNorm(weight, gan::SpectralNormOptions{.power_iterations = 0}),
                    "SpectralNorm: 0 power iterations; needed is at least 1");
  CHECK_THROWS_WITH(SpectralNorm(weight, gan::SpectralNormOptions{.dim = 2}),
                    "SpectralNorm: dimension 2 of a weight of shape [3, 4]");
}

TEST_CASE("Channel attention has PyTorch's numbers") {
  gan::ChannelAttention attention(16);
  attention->to(at::kDouble);
  {
    const torch::NoGradGuard no_grad;
    attention->squeeze->weight.copy_(wave({2, 16}, 0.2));
    attention->excite->weight.copy_(wave({16, 2}, 0.3));
  }
  const auto x = wave({2, 16, 3, 5}, 0.1).requires_grad_();
  const auto y = attention(x);
  (y * wave(y.sizes(), 0.9)).sum().backward();
  CHECK(difference(y, recorded("attention.output")) < 1e-12);
  CHECK(difference(x.grad(), recorded("attention.x")) < 1e-12);
  CHECK(difference(attention->squeeze->weight.grad(), recorded("attention.squeeze")) < 1e-12);
  CHECK(difference(attention->excite->weight.grad(), recorded("attention.excite")) < 1e-12);
}

TEST_CASE("The published size: 100 numbers and an emotion become [B, 1, 128, 1292], and a logit") {
  torch::manual_seed(1);
  gan::Gan model(GanConfig{});
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto conditions_B2 = at::tensor({0.5F, -0.5F}).view({1, 2});
  CHECK(model->draw_latents(3).sizes() == at::IntArrayRef({3, 100}));
  CHECK(model->generator->seed->weight.sizes() == at::IntArrayRef({256 * 16 * 20, 100 + 256}));
  CHECK(model->generator->condition->hidden->weight.sizes() == at::IntArrayRef({128, 2}));
  CHECK(model->generator->condition->output->weight.sizes() == at::IntArrayRef({256, 128}));
  const auto spectrogram = model->generate(conditions_B2);
  CHECK(spectrogram.sizes() == at::IntArrayRef({1, 1, 128, 1292}));
  CHECK(model->discriminator(spectrogram, conditions_B2).sizes() == at::IntArrayRef({1}));
  std::vector<int64_t> widths;
  for (const auto& convolution : *model->discriminator->convolutions) {
    widths.push_back(convolution->as<gan::SpectralConv2d>()->weight.size(0));
  }
  CHECK(widths == std::vector<int64_t>{32, 64, 128, 256});
}

TEST_CASE("Each n_mels gives pictures of exactly that height, and all smaller sizes work") {
  for (const int64_t n_mels : {16, 23, 64, 96, 128}) {
    auto config = tiny_config();
    config.n_mels = n_mels;
    auto model = tiny_gan(config);
    const auto conditions_B2 = at::zeros({2, 2}, at::kDouble);
    const auto spectrograms = model->generate(conditions_B2);
    CHECK(spectrograms.sizes() == at::IntArrayRef({2, 1, n_mels, 40}));
    CHECK(model->discriminator(spectrograms, conditions_B2).sizes() == at::IntArrayRef({2}));
  }
  CHECK_NOTHROW(gan::check_config(gan::small_size(), "small"));
}

// The public project's generator ended in a tanh.
TEST_CASE("The generator's range is that of z-scored spectrograms: it learns values far beyond 1") {
  auto model = tiny_gan();
  torch::optim::Adam optimizer(model->generator->parameters(), torch::optim::AdamOptions(0.02));
  const auto z_BZ = model->draw_latents(4), conditions_B2 = at::zeros({4, 2}, at::kDouble);
  const auto rows_M1 = at::linspace(-3, 3, 16, at::kDouble).view({16, 1});
  at::Tensor made;
  for (int step = 0; step < 120; ++step) {
    optimizer.zero_grad();
    made = model->generator(z_BZ, conditions_B2);
    (made - rows_M1).square().mean().backward();
    optimizer.step();
  }
  CHECK(made.min().item<double>() < -2.5);
  CHECK(made.max().item<double>() > 2.5);
}

TEST_CASE("A young generator draws no chequers: an even picture stays nearly even when it grows") {
  torch::manual_seed(5);
  const auto unevenness = [](torch::nn::ConvTranspose2d convolution) {
    const torch::NoGradGuard no_grad;
    const auto inner = convolution(at::ones({1, 64, 8, 8})).slice(2, 2, -2).slice(3, 2, -2).flatten(2);
    return (inner.std(2).mean() / inner.mean(2).abs().mean()).item<double>();
  };
  CHECK(unevenness(spectrogram_gan::UpsamplingBlock(64)->convolution) < 0.25);
  CHECK(unevenness(torch::nn::ConvTranspose2d(
            torch::nn::ConvTranspose2dOptions(64, 32, 4).stride(2).padding(1).bias(false))) > 0.5);
}

TEST_CASE("Noise and emotion both matter to the generator, the emotion to the discriminator, at every clip") {
  auto model = tiny_gan();
  model->eval();
  const auto z_BZ = model->draw_latents(2);
  const auto low = at::full({2, 2}, -1.0, at::kDouble), high = at::full({2, 2}, 1.0, at::kDouble);
  const auto a = model->generator(z_BZ, low), b = model->generator(z_BZ, high);
  CHECK(difference(a[0], a[1]) > 1e-4);
  CHECK(difference(a[0], b[0]) > 1e-4);
  CHECK(difference(model->discriminator(a, low), model->discriminator(a, high)) > 1e-6);
  // Nothing depends on the other clips of a batch.
  CHECK(difference(model->generator(z_BZ.narrow(0, 1, 1), low.narrow(0, 1, 1))[0], a[1]) < 1e-12);
  CHECK(difference(model->discriminator(a.narrow(0, 1, 1), low.narrow(0, 1, 1)),
                   model->discriminator(a, low).narrow(0, 1, 1)) < 1e-12);
}

TEST_CASE("Outputs are in the weights' type under autocast") {
  torch::manual_seed(1);
  gan::Gan model(tiny_config());
  const lt::AutocastScope autocast(at::kCPU, at::kBFloat16);
  const auto conditions_B2 = at::zeros({2, 2});
  const auto spectrograms = model->generate(conditions_B2);
  CHECK(spectrograms.scalar_type() == at::kFloat);
  const auto logits = model->discriminator(spectrograms, conditions_B2);
  CHECK(logits.scalar_type() == at::kFloat);
  CHECK_NOTHROW(logits.sum().backward());
}

TEST_CASE("Shapes that do not fit are refused with what was expected") {
  auto model = tiny_gan();
  const auto zeros = [](at::IntArrayRef sizes) { return at::zeros(sizes, at::kDouble); };
  CHECK_THROWS_WITH(model->generator(zeros({2, 15}), zeros({2, 2})),
                    "Generator: expected noise [B, 16] and conditions [B, 2], got [2, 15] and [2, 2]");
  CHECK_THROWS_WITH(model->generator(zeros({2, 16}), zeros({3, 2})), Contains("got [2, 16] and [3, 2]"));
  CHECK_THROWS_WITH(model->discriminator(zeros({2, 1, 128, 40}), zeros({2, 2})),
                    "Discriminator: expected spectrograms [B, 1, 16, 40] and conditions [B, 2], got [2, 1, "
                    "128, 40] and [2, 2]");
  CHECK_THROWS_WITH(model->discriminator(zeros({2, 1, 16, 40}), zeros({2, 3})), Contains("[2, 3]"));
}

TEST_CASE("A saved model is the model, and one of another size is refused by name") {
  const TemporaryFolder folder;
  auto model = tiny_gan();
  model->to(at::kFloat);
  gan::save_model(model, folder.path());
  auto generator = gan::load_generator(folder.path());
  CHECK_FALSE(generator->is_training());
  CHECK(generator->config() == tiny_config());
  model->eval();
  const auto z_BZ = model->draw_latents(2), conditions_B2 = at::zeros({2, 2});
  CHECK(generator(z_BZ, conditions_B2).equal(model->generator(z_BZ, conditions_B2)));

  gan::Gan same(tiny_config());
  lt::load_weights(same->discriminator, folder / "discriminator.safetensors");
  same->eval();
  const auto spectrograms = at::randn({2, 1, 16, 40});
  CHECK(same->discriminator(spectrograms, conditions_B2)
            .equal(model->discriminator(spectrograms, conditions_B2)));

  auto config = tiny_config();
  config.n_mels = 32;
  config.latent = 8;
  const auto saved = gan::load_config(folder / "config.json");
  CHECK_THROWS_AS(gan::require_same_model(saved, config, "there"), ConfigError);
  CHECK_THROWS_WITH(
      gan::require_same_model(saved, config, "there"),
      "there: holds another model than the one asked for: n_mels 16 instead of 32, latent 16 instead of 8");
}

TEST_CASE("Sizes that make no model, and a config.json that describes none, are refused by field") {
  const auto with = [](auto change) {
    auto config = tiny_config();
    change(config);
    return refusal(config);
  };
  CHECK(with([](auto& c) { c.n_mels = 15; }) == "Gan: n_mels is 15, outside 16..1024");
  CHECK(with([](auto& c) { c.frames = 0; }) == "Gan: frames is 0, outside 16..1048576");
  CHECK(with([](auto& c) { c.channels = 12; }) == "Gan: channels is 12; it must be a multiple of 8");
  CHECK(with([](auto& c) { c.latent = 0; }) == "Gan: latent is 0, outside 1..16384");

  const TemporaryFolder folder;
  const auto file = folder / "config.json";
  gan::save_config(file, tiny_config());
  CHECK(gan::load_config(file) == tiny_config());
  const auto refused = [&](const std::string& text) {
    std::ofstream(file) << text;
    try {
      (void)gan::load_config(file);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  auto json = gan::config_to_json(tiny_config());
  CHECK(refused(json.set("n_mels", 8).dump()) == file.string() + ": n_mels is 8, outside 16..1024");
  CHECK_THAT(refused(json.set("n_mels", "many").dump()), Contains("an integer"));
  CHECK(refused(json.set("model_type", "whisper").dump()) ==
        file.string() + ": model_type is \"whisper\", not \"spectrogram_gan\"");
  CHECK_THAT(refused("{"), Contains(file.string()));
}
