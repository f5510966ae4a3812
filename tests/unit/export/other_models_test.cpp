// SPDX-License-Identifier: MIT
// Models of many kinds, each of a few layers: exported with dynamic sizes, which compares each with its
// program. tests/export/python.sh reads the files.
//
// Tests export: export_model
#include <looptorch/export/export_model.hpp>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "unit/export/models.hpp"

#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
namespace nn = torch::nn;
using Tensors = std::vector<at::Tensor>;

namespace {

struct Parts : nn::Module {
  using nn::Module::Module;
};

/// A model put together by hand: its forward holds its modules.
struct Kind {
  std::string name;
  std::function<Tensors(const Tensors&)> forward;
  Tensors example, other;  ///< of the sizes that the file is checked at
  std::vector<lt::DynamicDim> dims;
  bool trust_value_reads = false;
  std::shared_ptr<Parts> parts = std::make_shared<Parts>();

  template <class Holder>
  Holder add(const std::string& part, Holder holder) {
    return parts->register_module(part, std::move(holder));
  }
};

std::vector<lt::DynamicDim> batch(std::size_t inputs = 1) {
  lt::DynamicDim dim{.name = "batch"};
  for (std::size_t i = 0; i < inputs; ++i) dim.places.push_back({i, 0});
  return {dim};
}
std::vector<lt::DynamicDim> batch_and(const std::string& name, std::int64_t dim, std::int64_t multiple = 1) {
  auto dims = batch();
  dims.push_back({.name = name, .places = {{0, dim, multiple}}});
  return dims;
}

Kind residual_cnn() {
  Kind kind{.name = "residual_cnn"};
  auto stem = kind.add("stem", nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)));
  auto norm = kind.add("norm", nn::BatchNorm2d(4));
  auto deeper = kind.add("deeper", nn::Conv2d(nn::Conv2dOptions(4, 4, 3).padding(1).bias(false)));
  auto head = kind.add("head", nn::Linear(4, 3));
  norm->running_mean.normal_();
  kind.forward = [=](const Tensors& in) mutable {
    auto x = torch::max_pool2d(torch::relu(norm(stem(in[0]))), 2);
    x = torch::relu(x + deeper(x));
    return Tensors{head(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1))};
  };
  kind.example = {torch::randn({3, 2, 8, 8})};
  kind.other = {torch::randn({5, 2, 12, 8})};
  kind.dims = batch_and("height", 2, 2);
  return kind;
}

Kind u_net() {
  Kind kind{.name = "u_net"};
  auto down = kind.add("down", nn::Conv2d(nn::Conv2dOptions(1, 4, 3).stride(2).padding(1)));
  auto up = kind.add("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 2, 2).stride(2)));
  auto out = kind.add("out", nn::Conv2d(nn::Conv2dOptions(3, 1, 1)));
  kind.forward = [=](const Tensors& in) mutable {
    return Tensors{out(torch::cat({up(torch::silu(down(in[0]))), in[0]}, 1))};
  };
  kind.example = {torch::randn({2, 1, 8, 8})};
  kind.other = {torch::randn({1, 1, 14, 8})};
  kind.dims = batch_and("height", 2, 2);
  return kind;
}

Kind separable_cnn() {
  Kind kind{.name = "separable_cnn"};
  auto depth = kind.add("depth", nn::Conv2d(nn::Conv2dOptions(4, 4, 3).padding(1).groups(4)));
  auto point = kind.add("point", nn::Conv2d(nn::Conv2dOptions(4, 8, 1)));
  auto norm = kind.add("norm", nn::GroupNorm(2, 8));
  auto squeeze = kind.add("squeeze", nn::Linear(8, 8));
  kind.forward = [=](const Tensors& in) mutable {
    auto x = torch::hardswish(norm(point(depth(in[0]))));
    const auto weight = torch::sigmoid(squeeze(x.mean({2, 3}))).unsqueeze(-1).unsqueeze(-1);
    return Tensors{torch::pixel_shuffle(x * weight, 2)};
  };
  kind.example = {torch::randn({2, 4, 6, 6})};
  kind.other = {torch::randn({3, 4, 6, 9})};
  kind.dims = batch_and("width", 3);
  return kind;
}

Kind upsampler() {
  Kind kind{.name = "upsampler"};
  auto norm = kind.add("norm", nn::InstanceNorm2d(nn::InstanceNorm2dOptions(2).affine(true)));
  kind.forward = [=](const Tensors& in) mutable {
    namespace F = nn::functional;
    const auto options = F::InterpolateFuncOptions()
                             .scale_factor(std::vector<double>{2, 2})
                             .mode(torch::kBilinear)
                             .align_corners(false);
    return Tensors{F::interpolate(norm(in[0]), options)};
  };
  kind.example = {torch::randn({2, 2, 5, 6})};
  kind.other = {torch::randn({4, 2, 5, 6})};
  kind.dims = batch();
  return kind;
}

Kind causal_convolutions() {
  Kind kind{.name = "causal_convolutions"};
  auto first = kind.add("first", nn::Conv1d(nn::Conv1dOptions(2, 4, 2)));
  auto second = kind.add("second", nn::Conv1d(nn::Conv1dOptions(4, 4, 2).dilation(2)));
  kind.forward = [=](const Tensors& in) mutable {
    auto x = torch::tanh(first(torch::constant_pad_nd(in[0], {1, 0})));
    x = x + torch::glu(torch::cat({second(torch::constant_pad_nd(x, {2, 0})), x}, 1), 1);
    return Tensors{x};
  };
  kind.example = {torch::randn({2, 2, 7})};
  kind.other = {torch::randn({3, 2, 20})};
  kind.dims = batch_and("time", 2);
  return kind;
}

Kind gru() {
  Kind kind{.name = "gru"};
  auto cells =
      kind.add("cells", nn::GRU(nn::GRUOptions(4, 5).num_layers(2).bidirectional(true).batch_first(true)));
  kind.forward = [=](const Tensors& in) mutable {
    auto [all, last] = cells(in[0]);
    return Tensors{all, last};
  };
  kind.example = {torch::randn({3, 6, 4})};
  kind.other = {torch::randn({2, 9, 4})};
  kind.dims = batch_and("time", 1);
  return kind;
}

Kind lstm() {
  Kind kind{.name = "lstm"};
  auto cells = kind.add("cells", nn::LSTM(nn::LSTMOptions(4, 5).batch_first(true)));
  kind.forward = [=](const Tensors& in) mutable {
    auto [all, state] = cells(in[0]);
    return Tensors{all, std::get<0>(state)};
  };
  kind.example = {torch::randn({3, 6, 4})};
  kind.other = {torch::randn({2, 9, 4})};
  kind.dims = batch_and("time", 1);
  return kind;
}

Kind masked_transformer() {
  Kind kind{.name = "masked_transformer"};
  auto embed = kind.add("embed", nn::Embedding(11, 8));
  auto places = kind.add("places", nn::Embedding(32, 8));
  auto qkv = kind.add("qkv", nn::Linear(8, 24));
  auto norm = kind.add("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
  kind.forward = [=](const Tensors& in) mutable {
    const auto batch = in[0].size(0), time = in[0].size(1);
    const auto x = embed(in[0]) + places(torch::arange(time));
    const auto parts = qkv(norm(x)).view({batch, time, 3, 2, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto mask =
        torch::ones({time, time}, torch::kBool).tril().logical_and(in[0].ne(0).view({batch, 1, 1, time}));
    auto scores = torch::matmul(parts[0], parts[1].transpose(2, 3)) / std::sqrt(4.0);
    scores = scores.masked_fill(mask.logical_not(), -1e9);
    const auto y = torch::matmul(scores.softmax(-1), parts[2]).transpose(1, 2).reshape({batch, time, 8});
    return Tensors{torch::matmul(x + y, embed->weight.t())};
  };
  kind.example = {torch::randint(11, {3, 6})};
  kind.other = {torch::randint(11, {2, 9})};
  kind.dims = batch_and("time", 1);
  return kind;
}

Kind rotary_attention() {
  Kind kind{.name = "rotary_attention"};
  auto qkv = kind.add("qkv", nn::Linear(8, 24));
  kind.forward = [=](const Tensors& in) mutable {
    const auto time = in[0].size(1);
    const auto parts = qkv(in[0]).chunk(3, -1);
    const auto angles =
        torch::outer(torch::arange(time, torch::kFloat), torch::tensor({1.F, 0.1F, 0.01F, 0.001F}));
    const auto turned = [&](const at::Tensor& x) {
      const auto halves = x.chunk(2, -1);
      return torch::cat({halves[0] * angles.cos() - halves[1] * angles.sin(),
                         halves[1] * angles.cos() + halves[0] * angles.sin()},
                        -1);
    };
    return Tensors{
        at::scaled_dot_product_attention(turned(parts[0]), turned(parts[1]), parts[2], {}, 0.0, true)};
  };
  kind.example = {torch::randn({3, 6, 8})};
  kind.other = {torch::randn({2, 13, 8})};
  kind.dims = batch_and("time", 1);
  return kind;
}

Kind encoder_layer() {
  Kind kind{.name = "encoder_layer"};
  auto layer = kind.add(
      "layer", nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16)));
  kind.forward = [=](const Tensors& in) mutable { return Tensors{layer(in[0])}; };
  kind.example = {torch::randn({6, 3, 8})};
  kind.other = {torch::randn({6, 5, 8})};
  kind.dims = {{.name = "batch", .places = {{0, 1}}}};
  kind.trust_value_reads = true;  // LibTorch's attention asks whether query, key and value are equal
  return kind;
}

Kind embedding_bag() {
  Kind kind{.name = "embedding_bag"};
  auto bag = kind.add("bag", nn::EmbeddingBag(nn::EmbeddingBagOptions(13, 4).mode(torch::kMean)));
  auto head = kind.add("head", nn::Linear(4, 2));
  kind.forward = [=](const Tensors& in) mutable { return Tensors{head(bag(in[0])).log_softmax(1)}; };
  kind.example = {torch::randint(13, {3, 4})};
  kind.other = {torch::randint(13, {6, 4})};
  kind.dims = batch();
  return kind;
}

Kind mixer() {
  Kind kind{.name = "mixer"};
  auto tokens = kind.add("tokens", nn::Linear(6, 6));
  auto channels =
      kind.add("channels", nn::Sequential(nn::Linear(4, 8), nn::GELU(), nn::Dropout(0.5), nn::Linear(8, 4)));
  kind.forward = [=](const Tensors& in) mutable {
    const auto x = in[0] + tokens(in[0].transpose(1, 2)).transpose(1, 2);
    return Tensors{x + channels->forward(x)};
  };
  kind.example = {torch::randn({3, 6, 4})};
  kind.other = {torch::randn({7, 6, 4})};
  kind.dims = batch();
  return kind;
}

Kind two_towers() {
  Kind kind{.name = "two_towers"};
  auto left = kind.add("left", nn::Linear(4, 3));
  auto right = kind.add("right", nn::Bilinear(4, 5, 3));
  auto norm = kind.add("norm", nn::BatchNorm1d(3));
  kind.forward = [=](const Tensors& in) mutable {
    const auto a = norm(left(in[0])), b = right(in[0], in[1]);
    return Tensors{torch::einsum("bi,bj->bij", {a, b}), torch::cosine_similarity(a, b, 1, 1e-8), a.argmax(1)};
  };
  kind.example = {torch::randn({3, 4}), torch::randn({3, 5})};
  kind.other = {torch::randn({6, 4}), torch::randn({6, 5})};
  kind.dims = batch(2);
  return kind;
}

Kind mixture_of_experts() {
  Kind kind{.name = "mixture_of_experts"};
  auto gate = kind.add("gate", nn::Linear(4, 3));
  auto experts = kind.parts->register_parameter("experts", torch::randn({3, 4, 4}));
  kind.forward = [=](const Tensors& in) mutable {
    auto [weights, which] = gate(in[0]).softmax(1).topk(2, 1);
    const auto all = torch::einsum("bi,eio->beo", {in[0], experts});
    const auto chosen = all.gather(1, which.unsqueeze(2).expand({-1, -1, 4}));
    return Tensors{(chosen * weights.unsqueeze(2)).sum(1), which};
  };
  kind.example = {torch::randn({3, 4})};
  kind.other = {torch::randn({8, 4})};
  kind.dims = batch();
  return kind;
}

Kind in_place() {
  Kind kind{.name = "in_place"};
  auto fc = kind.add("fc", nn::Linear(4, 4));
  kind.forward = [=](const Tensors& in) mutable {
    auto y = fc(in[0]).clone();
    y.slice(1, 0, 2).mul_(2);
    y.select(1, 3).zero_();
    y.index_put_({torch::tensor({0, 0}), torch::tensor({1, 2})}, torch::tensor({7.F, 8.F}));
    y.relu_();
    return Tensors{y};
  };
  kind.example = {torch::randn({3, 4})};
  kind.other = {torch::randn({5, 4})};
  kind.dims = batch();
  return kind;
}

Kind state_space() {
  Kind kind{.name = "state_space"};
  auto decay = kind.parts->register_parameter("decay", torch::rand({4}));
  kind.forward = [=](const Tensors& in) mutable {
    const auto time = in[0].size(1);
    const auto powers = torch::arange(time, torch::kFloat).unsqueeze(1) * torch::log(decay);
    const auto x = in[0] * torch::exp(-powers);
    return Tensors{x.cumsum(1) * torch::exp(powers), std::get<0>(in[0].max(1)), in[0].flip(1)};
  };
  kind.example = {torch::randn({3, 6, 4})};
  kind.other = {torch::randn({2, 8, 4})};
  kind.dims = batch_and("time", 1);
  return kind;
}

Kind spectrogram() {
  Kind kind{.name = "spectrogram"};
  auto fc = kind.add("fc", nn::Linear(9, 3));
  kind.parts->register_buffer("window", torch::hann_window(16));
  auto window = kind.parts->named_buffers()["window"];
  kind.forward = [=](const Tensors& in) mutable {
    const auto frames = in[0].unfold(1, 16, 8) * window;
    return Tensors{fc(torch::view_as_real(torch::fft_rfft(frames)).square().sum(-1).clamp_min(1e-5).log())};
  };
  kind.example = {torch::randn({2, 80})};
  kind.other = {torch::randn({3, 80})};
  kind.dims = batch();
  return kind;
}

Kind double_weights() {
  Kind kind{.name = "double_weights"};
  auto fc = kind.add("fc", nn::Linear(4, 4));
  fc->to(torch::kDouble);
  kind.forward = [=](const Tensors& in) mutable {
    return Tensors{fc(in[0].to(torch::kDouble)).to(torch::kFloat)};
  };
  kind.example = {torch::randn({3, 4})};
  kind.other = {torch::randn({5, 4})};
  kind.dims = batch();
  return kind;
}

Kind bf16_weights() {
  Kind kind{.name = "bf16_weights"};
  auto fc = kind.add("fc", nn::Linear(4, 4));
  auto norm = kind.add("norm", nn::LayerNorm(nn::LayerNormOptions({4})));
  kind.parts->to(torch::kBFloat16);
  kind.forward = [=](const Tensors& in) mutable {
    return Tensors{torch::gelu(norm(fc(in[0].to(torch::kBFloat16)))).softmax(-1)};
  };
  kind.example = {torch::randn({3, 4})};
  kind.other = {torch::randn({5, 4})};
  kind.dims = batch();
  return kind;
}

std::vector<Kind> kinds() {
  torch::manual_seed(0);
  return {residual_cnn(),  u_net(),       separable_cnn(),      upsampler(),          causal_convolutions(),
          gru(),           lstm(),        masked_transformer(), rotary_attention(),   encoder_layer(),
          embedding_bag(), mixer(),       two_towers(),         mixture_of_experts(), in_place(),
          state_space(),   spectrogram(), double_weights(),     bf16_weights()};
}

void write(const Kind& kind, const std::filesystem::path& folder) {
  for (const char* suffix : {".pt2", ".ts"})
    lt::detail::export_module(*kind.parts, kind.forward, kind.example, folder / (kind.name + suffix),
                              {.dynamic = kind.dims, .trust_value_reads = kind.trust_value_reads});
  const lt::detail::ExportScope scope(*kind.parts, at::kCPU);
  Tensors cases;
  for (const auto* inputs : {&kind.example, &kind.other}) {
    const auto outputs = kind.forward(*inputs);
    if (cases.empty())
      cases.push_back(torch::tensor(
          {static_cast<std::int64_t>(inputs->size()), static_cast<std::int64_t>(outputs.size())}));
    cases.insert(cases.end(), inputs->begin(), inputs->end());
    cases.insert(cases.end(), outputs.begin(), outputs.end());
  }
  torch::save(cases, (folder / (kind.name + ".cases")).string());
}

}  // namespace

TEST_CASE("models of many kinds are exported with dynamic sizes") {
  const looptorch::testing::TemporaryFolder folder;
  for (const auto& kind : kinds()) {
    INFO(kind.name);
    CHECK_NOTHROW(write(kind, folder.path()));
    CHECK(std::filesystem::exists(folder / (kind.name + ".pt2")));
  }
}

TEST_CASE("for tests/export/python.sh: models of many kinds", "[.write_exports]") {
  const char* folder = std::getenv("LOOPTORCH_EXPORTS");
  if (!folder) return;  // by a filter on files
  for (const auto& kind : kinds()) write(kind, folder);
}
