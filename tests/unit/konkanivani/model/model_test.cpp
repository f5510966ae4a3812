// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "../support.hpp"
#include "support/temporary_folder.hpp"

#include <cmath>

using namespace konkanivani_test;
using Catch::Contains;
using konkanivani::ModelConfig;
using konkanivani::Positions;
using looptorch::testing::TemporaryFolder;
namespace lt = looptorch;

namespace {

struct Variant {
  int64_t subsampling;
  Positions positions;
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{{4, Positions::sinusoidal}, {2, Positions::sinusoidal},
                                        {1, Positions::sinusoidal}, {4, Positions::relative},
                                        {2, Positions::relative},   {1, Positions::relative}};
  return all;
}

ModelConfig config_of(const Variant& variant) {
  auto config = tiny_config();
  config.subsampling = variant.subsampling;
  config.positions = variant.positions;
  return config;
}

/// BatchNorm has seen frames, so that its running statistics are not those of a fresh model.
konkanivani::KonkaniVani used_model(const ModelConfig& config) {
  auto model = tiny_model(config);
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) (void)model->encode(at::randn({4, 6, 40}), ids({40, 31, 22, 40}));
  model->eval();
  return model;
}

/// The clips' first `lengths` frames, and rubbish behind them.
at::Tensor padded(const at::Tensor& mel_BMF, const std::vector<int64_t>& lengths, int64_t frames,
                  double rubbish) {
  auto out = at::full({mel_BMF.size(0), mel_BMF.size(1), frames}, rubbish);
  for (size_t i = 0; i < lengths.size(); ++i)
    out[static_cast<int64_t>(i)]
        .narrow(1, 0, lengths[i])
        .copy_(mel_BMF[static_cast<int64_t>(i)].narrow(1, 0, lengths[i]));
  return out;
}

int64_t parameters(const ModelConfig& config) {
  return konkanivani::count_parameters(*konkanivani::KonkaniVani(config));
}

}  // namespace

TEST_CASE("The three sizes have the parameters that the first project's have") {
  for (const int64_t subsampling : {4, 2, 1}) {
    INFO("subsampling " << subsampling);
    auto original = konkanivani::original_size(100), optimized = konkanivani::optimized_size(100),
         minimal = konkanivani::minimal_size(100);
    original.subsampling = optimized.subsampling = minimal.subsampling = subsampling;
    const auto millions = [](const ModelConfig& config) {
      return static_cast<double>(parameters(config)) / 1e6;
    };
    CHECK(std::abs(millions(original) - (subsampling > 1 ? 24.8 : 24.7)) < 0.05);
    CHECK(std::abs(millions(optimized) - (subsampling > 1 ? 9.4 : 9.3)) < 0.05);
    CHECK(std::abs(millions(minimal) - 3.2) < 0.05);
  }
}

TEST_CASE("The largest size's parameters are those that its layers add up to") {
  const int64_t d = 256, inner = 4 * d, v = 100;
  const int64_t linear = d * d + d, norm = 2 * d, feed = 2 * d * inner + inner + d;
  const int64_t convolution = norm + (2 * d * d + 2 * d) + (31 * d + d) + norm + linear;
  const int64_t block = 2 * (norm + feed) + (norm + 4 * linear) + convolution + norm;
  const int64_t layer = 8 * linear + feed + 3 * norm;
  auto config = konkanivani::original_size(v);
  config.subsampling = 1;
  CHECK(parameters(config) == (80 * d + d) + 12 * block + 6 * layer + v * d + 2 * (d * v + v));
  config.positions = Positions::relative;
  CHECK(parameters(config) ==
        (80 * d + d) + 12 * (block + d * d + 2 * d) + 6 * layer + v * d + 2 * (d * v + v));
}

TEST_CASE("Subsampling makes a half or a quarter of the frames, rounded up, and lengths go along") {
  for (const int64_t subsampling : {4, 2, 1}) {
    auto config = tiny_config();
    config.subsampling = subsampling;
    auto model = tiny_model(config);
    for (int64_t frames : {1, 2, 3, 4, 5, 8, 9, 41}) {
      const auto encoded = model->encode(at::randn({2, 6, frames}), ids({frames, (frames + 1) / 2}));
      const auto expected = (frames + subsampling - 1) / subsampling;
      CHECK(encoded.states_BTD.sizes() == at::IntArrayRef({2, expected, 16}));
      CHECK(encoded.lengths_B[0].item<int64_t>() == expected);
      CHECK(konkanivani::encoder_frames(frames, subsampling) == expected);
      CHECK(encoded.lengths_B[1].item<int64_t>() ==
            konkanivani::encoder_frames((frames + 1) / 2, subsampling));
    }
  }
}

// The first project's decoder had no padding mask.
TEST_CASE("A clip's states and scores are the same alone and padded in a batch") {
  const torch::NoGradGuard no_grad;
  for (const auto& variant : variants()) {
    INFO("subsampling " << variant.subsampling << ", relative "
                        << (variant.positions == Positions::relative));
    auto model = used_model(config_of(variant));
    const std::vector<int64_t> lengths{37, 40, 5, 22, 1};
    const auto mel_BMF = at::randn({5, 6, 40});
    const auto characters_BL = at::randint(5, 9, {5, 6}, at::kLong);
    const std::vector<int64_t> texts{6, 3, 1, 4, 2};
    const auto all = model->encode(padded(mel_BMF, lengths, 47, 9.0), ids(lengths));
    const auto all_ctc = model->ctc_scores(all),
               all_scores = model->decoder_scores(characters_BL, ids(texts), all);
    for (int64_t i = 0; i < 5; ++i) {
      INFO("clip " << i);
      const auto frames = lengths[static_cast<size_t>(i)], text = texts[static_cast<size_t>(i)];
      const auto one = model->encode(mel_BMF.narrow(0, i, 1).narrow(2, 0, frames), ids({frames}));
      const auto count = one.lengths_B.item<int64_t>();
      CHECK(count == all.lengths_B[i].item<int64_t>());
      CHECK(largest_difference(one.states_BTD[0], all.states_BTD[i].narrow(0, 0, count)) < 1e-5);
      CHECK(largest_difference(model->ctc_scores(one)[0], all_ctc[i].narrow(0, 0, count)) < 1e-5);
      const auto scores =
          model->decoder_scores(characters_BL.narrow(0, i, 1).narrow(1, 0, text), ids({text}), one);
      CHECK(largest_difference(scores[0], all_scores[i].narrow(0, 0, text)) < 1e-5);
    }
  }
}

TEST_CASE("In training too a batch gives the same however far it is padded, batch norm included") {
  for (const auto& variant : variants()) {
    const std::vector<int64_t> lengths{33, 18, 7};
    const auto mel_BMF = at::randn({3, 6, 33});
    auto short_one = tiny_model(config_of(variant)), long_one = tiny_model(config_of(variant));
    const auto a = short_one->encode(padded(mel_BMF, lengths, 33, 0.0), ids(lengths));
    const auto b = long_one->encode(padded(mel_BMF, lengths, 61, -7.0), ids(lengths));
    for (int64_t i = 0; i < 3; ++i) {
      const auto count = a.lengths_B[i].item<int64_t>();
      CHECK(largest_difference(a.states_BTD[i].narrow(0, 0, count), b.states_BTD[i].narrow(0, 0, count)) <
            1e-5);
    }
    const auto buffers = short_one->named_buffers(), others = long_one->named_buffers();
    REQUIRE(buffers.size() == 6);
    for (const auto& item : buffers) {
      INFO(item.key());
      CHECK(largest_difference(item.value(), others[item.key()]) < 1e-6);
    }
  }
}

TEST_CASE("Padding receives no gradient") {
  auto model = tiny_model();
  auto mel_BMF = at::randn({2, 6, 24}).requires_grad_();
  const auto encoded = model->encode(mel_BMF, ids({24, 10}));
  const auto scores = model->decoder_scores(ids({2, 5, 6, 2, 7, 8}).view({2, 3}), ids({3, 2}), encoded);
  (model->ctc_scores(encoded)[1].narrow(0, 0, 3).sum() + scores[1].narrow(0, 0, 2).square().sum()).backward();
  CHECK(mel_BMF.grad()[1].narrow(1, 0, 10).abs().sum().item<double>() > 0);
  CHECK(mel_BMF.grad()[1].narrow(1, 10, 14).abs().sum().item<double>() == 0);
}

TEST_CASE("Without padding the batch norm is LibTorch's, in values, gradients and running statistics") {
  konkanivani::MaskedBatchNorm ours(5);
  torch::nn::BatchNorm1d theirs(5);
  for (auto* norm : {&ours->named_parameters()["weight"], &theirs->weight})
    norm->data().copy_(at::tensor({0.5, 1.5, -1.0, 2.0, 0.1}));
  const auto valid_B1T = at::ones({3, 1, 7}, at::kBool);
  for (int step = 0; step < 3; ++step) {
    auto x = (at::randn({3, 5, 7}) * 3 + 2).requires_grad_(), y = x.detach().clone().requires_grad_();
    const auto a = ours(x, valid_B1T), b = theirs(y);
    CHECK(largest_difference(a, b) < 1e-5);
    a.square().sum().backward();
    b.square().sum().backward();
    CHECK(largest_difference(x.grad(), y.grad()) < 1e-4);
    CHECK(largest_difference(ours->named_buffers()["running_mean"], theirs->running_mean) < 1e-6);
    CHECK(largest_difference(ours->named_buffers()["running_var"], theirs->running_var) < 1e-5);
  }
  CHECK(ours->named_buffers()["num_batches_tracked"].item<int64_t>() == 3);
  ours->eval();
  theirs->eval();
  const auto x = at::randn({2, 5, 3});
  CHECK(largest_difference(ours(x, at::ones({2, 1, 3}, at::kBool)), theirs(x)) < 1e-5);
}

TEST_CASE("With padding the batch norm's gradients are those of its formula, once only") {
  konkanivani::MaskedBatchNorm norm(4);
  norm->to(at::kDouble);
  for (auto& parameter : norm->parameters()) torch::nn::init::normal_(parameter);
  const auto parameters = norm->parameters();
  const auto valid_B1T = konkanivani::valid_places(ids({5, 3}), 6).unsqueeze(1);
  const auto x = at::randn({2, 4, 6}, at::kDouble).requires_grad_();
  const auto share = valid_B1T.to(at::kDouble);
  const auto mean = [&](const at::Tensor& of) {
    return (of * share).sum(at::IntArrayRef{0, 2}, /*keepdim=*/true) / share.sum();
  };
  const auto centred = x - mean(x);
  const auto expected = centred * at::rsqrt(mean(centred.square()) + 1e-5) * parameters[0].unsqueeze(1) +
                        parameters[1].unsqueeze(1);
  const auto found = norm(x, valid_B1T);
  CHECK(largest_difference(found, expected) < 1e-12);
  const auto towards = at::randn({2, 4, 6}, at::kDouble);  // padded frames have gradients too
  const auto gradients = [&](const at::Tensor& y, bool again) {
    return torch::autograd::grad({(y * towards).sum()}, {x, parameters[0], parameters[1]}, {},
                                 /*retain_graph=*/true, again);
  };
  const auto ours = gradients(found, false), formula = gradients(expected, false);
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(largest_difference(ours[i], formula[i]) < 1e-12);
  CHECK_THROWS_AS(gradients(found, true), looptorch::UsageError);
}

TEST_CASE("A decoder layer is PyTorch's TransformerDecoderLayer with the norm behind") {
  const auto config = tiny_config();
  konkanivani::DecoderLayer ours(config);
  torch::nn::TransformerDecoderLayer theirs(
      torch::nn::TransformerDecoderLayerOptions(16, 2).dim_feedforward(32).dropout(0));
  const torch::NoGradGuard no_grad;
  auto from = ours->named_parameters();
  const auto copy_attention = [&](torch::nn::MultiheadAttention& to, const std::string& name) {
    const auto part = [&](const char* what) {
      return at::cat(
          {from[name + ".q_proj." + what], from[name + ".k_proj." + what], from[name + ".v_proj." + what]});
    };
    to->in_proj_weight.copy_(part("weight"));
    to->in_proj_bias.copy_(part("bias"));
    to->out_proj->weight.copy_(from[name + ".out_proj.weight"]);
    to->out_proj->bias.copy_(from[name + ".out_proj.bias"]);
  };
  const auto copy = [&](auto& to, const std::string& name) {
    to->weight.copy_(from[name + ".weight"]);
    to->bias.copy_(from[name + ".bias"]);
  };
  for (const auto* name : {"self_norm", "cross_norm", "norm"})
    from[std::string(name) + ".weight"].uniform_(0.5, 2);
  copy_attention(theirs->self_attn, "self_attention");
  copy_attention(theirs->multihead_attn, "cross_attention");
  copy(theirs->linear1, "up");
  copy(theirs->linear2, "down");
  copy(theirs->norm1, "self_norm");
  copy(theirs->norm2, "cross_norm");
  copy(theirs->norm3, "norm");

  const auto x_BLD = at::randn({2, 4, 16}), states_BTD = at::randn({2, 7, 16});
  const auto visible_BT = konkanivani::valid_places(ids({7, 5}), 7);
  const auto earlier = at::ones({4, 4}, at::kBool).tril();
  const auto expected = theirs->forward(x_BLD.transpose(0, 1), states_BTD.transpose(0, 1),
                                        at::zeros({4, 4}).masked_fill(earlier.logical_not(), -1e30), {}, {},
                                        visible_BT.logical_not());
  const auto got = ours(x_BLD, states_BTD, earlier, visible_BT.unsqueeze(1).unsqueeze(1));
  CHECK(largest_difference(got, expected.transpose(0, 1)) < 1e-5);
}

TEST_CASE("Relative attention scores a key by its content and its distance") {
  torch::manual_seed(3);
  konkanivani::RelativeAttention attention(8, 2);
  const torch::NoGradGuard no_grad;
  auto p = attention->named_parameters();
  for (auto& item : p) item.value().normal_();
  const int64_t T = 5, visible = 4, d = 4;
  const auto x_TD = at::randn({T, 8});
  const auto table_PD = konkanivani::distance_table(T, 8, at::TensorOptions(at::kFloat));
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::linear(x, p[name + ".weight"], p[name + ".bias"]);
  };
  const auto q = linear(x_TD, "q_proj"), k = linear(x_TD, "k_proj"), v = linear(x_TD, "v_proj");
  std::vector<at::Tensor> heads;
  for (int64_t h = 0; h < 2; ++h) {
    auto scores = at::empty({T, visible});
    for (int64_t i = 0; i < T; ++i) {
      for (int64_t j = 0; j < visible; ++j) {
        const auto part = [&](const at::Tensor& t) { return t.narrow(0, h * d, d); };
        const auto distance =
            at::matmul(p["pos_proj.weight"], konkanivani::sinusoids(at::tensor({i - j}), 8)[0]);
        scores[i][j] = (at::dot(part(q[i]) + p["content_bias"][h][0], part(k[j])) +
                        at::dot(part(q[i]) + p["distance_bias"][h][0], part(distance))) /
                       std::sqrt(static_cast<double>(d));
      }
    }
    heads.push_back(at::matmul(scores.softmax(1), v.narrow(0, 0, visible).narrow(1, h * d, d)));
  }
  const auto expected = linear(at::cat(heads, 1), "out_proj");
  const auto visible_B11T = konkanivani::valid_places(ids({visible}), T).unsqueeze(1).unsqueeze(1);
  CHECK(largest_difference(attention(x_TD.unsqueeze(0), visible_B11T, table_PD)[0], expected) < 1e-4);
}

TEST_CASE("Positions are interleaved sines and cosines; distances run from the last key to the first") {
  const auto table = konkanivani::position_table(4, 6, at::TensorOptions(at::kFloat));
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(t) / std::pow(1e4, 2.0 * static_cast<double>(i) / 6);
      CHECK(table[t][2 * i].item<double>() == Approx(std::sin(angle)).margin(1e-6));
      CHECK(table[t][2 * i + 1].item<double>() == Approx(std::cos(angle)).margin(1e-6));
    }
  }
  const auto distances = konkanivani::distance_table(4, 6, at::TensorOptions(at::kFloat));
  CHECK(distances.size(0) == 7);
  CHECK(at::equal(distances.narrow(0, 0, 4).flip(0), table));
  CHECK(distances[6][0].item<double>() == Approx(std::sin(-3.0)));
}

TEST_CASE("A later character does not change the scores of earlier ones") {
  auto model = used_model(tiny_config());
  const auto encoded = model->encode(at::randn({2, 6, 24}), ids({24, 16}));
  const auto characters = at::randint(5, 9, {2, 7}, at::kLong);
  auto changed = characters.clone();
  changed.slice(1, 5) = 13 - characters.slice(1, 5);
  const auto before = model->decoder_scores(characters, ids({7, 7}), encoded),
             after = model->decoder_scores(changed, ids({7, 7}), encoded);
  CHECK(largest_difference(before.slice(1, 0, 5), after.slice(1, 0, 5)) < 1e-6);
  CHECK(largest_difference(before.slice(1, 5), after.slice(1, 5)) > 1e-3);
}

TEST_CASE("Decoding with the cache gives the scores of decoding without, and rows can be taken") {
  const torch::NoGradGuard no_grad;
  auto model = used_model(tiny_config());
  const auto encoded = model->encode(at::randn({3, 6, 24}), ids({24, 16, 9}));
  const auto characters = at::randint(5, 9, {3, 6}, at::kLong);
  const auto expected = model->decoder_scores(characters, ids({6, 6, 6}), encoded);
  konkanivani::DecoderCache cache;
  for (int64_t i = 0; i < 4; ++i)
    CHECK(largest_difference(model->extend(characters.select(1, i), encoded, cache), expected.select(1, i)) <
          1e-5);
  const auto rows = ids({2, 0});
  cache.select(rows, /*same_clips=*/false);
  const auto rest = encoded.select(rows);
  const auto scores = model->extend(characters.select(1, 4).index_select(0, rows), rest, cache);
  CHECK(largest_difference(scores, expected.select(1, 4).index_select(0, rows)) < 1e-5);
  cache.select(ids({0, 1}), /*same_clips=*/true);
  CHECK(cache.length == 5);
}

// The first project's flag for gradient checkpointing did nothing.
TEST_CASE(
    "Checkpointed blocks run twice a step and train to the same bits, dropout and batch norm included") {
  struct Clips {
    at::Tensor mel_BMF, lengths_B;
  };
  int silu_calls = 0;
  const auto train = [&](bool checkpointing, Positions positions) {
    auto config = tiny_config();
    config.dropout = 0.2;
    config.positions = positions;
    auto model = tiny_model(config);
    lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(
        model, optimizer,
        [](konkanivani::KonkaniVani& net, const Clips& clips) {
          const auto encoded = net->encode(clips.mel_BMF, clips.lengths_B);
          return net->ctc_scores(encoded).square().mean() +
                 net->decoder_scores(ids({2, 5, 2, 6}).view({2, 2}), ids({2, 2}), encoded).square().mean();
        },
        lt::When{checkpointing, lt::Checkpointed<konkanivani::ConformerBlock>{}});
    torch::manual_seed(11);
    const std::vector<Clips> clips{{at::randn({2, 6, 20}), ids({20, 9})},
                                   {at::randn({2, 6, 16}), ids({11, 16})}};
    static thread_local int calls;
    calls = 0;
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
          calls += function.name() == std::string_view("aten::silu");
          return nullptr;
        }));
    trainer.fit(clips);
    at::removeCallback(handle);
    silu_calls = calls;
    return lt::state_dict(model);
  };
  for (const auto positions : {Positions::sinusoidal, Positions::relative}) {
    const auto plain = train(false, positions);
    const int once = silu_calls;
    const auto recomputed = train(true, positions);
    const int blocks = 2, silus = 3, steps = 2, front_end = 2;
    CHECK(once == steps * (front_end + blocks * silus));
    CHECK(silu_calls == steps * (front_end + 2 * blocks * silus));
    for (const auto& [name, tensor] : plain) {
      INFO(name);
      CHECK(tensor.equal(recomputed.at(name)));
    }
  }
}

TEST_CASE("Under autocast scores and gradients are near those of fp32, batch norm counts in fp32") {
  for (const auto& variant : variants()) {
    auto model = tiny_model(config_of(variant));
    const auto mel_BMF = at::randn({2, 6, 40});
    const auto scores = [&](bool autocast) {
      at::autocast::set_autocast_enabled(at::kCPU, autocast);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      const auto encoded = model->encode(mel_BMF, ids({40, 23}));
      const auto both = at::cat({model->ctc_scores(encoded).flatten().to(at::kFloat),
                                 model->decoder_scores(ids({2, 5, 2, 6}).view({2, 2}), ids({2, 2}), encoded)
                                     .flatten()
                                     .to(at::kFloat)});
      at::autocast::set_autocast_enabled(at::kCPU, false);
      return both;
    };
    const auto wide = scores(false), narrow = scores(true);
    CHECK_FALSE(narrow.equal(wide));
    CHECK(largest_difference(narrow, wide) < 0.1);
    narrow.square().sum().backward();
    for (const auto& item : model->named_parameters()) {
      INFO(item.key());
      CHECK(at::isfinite(item.value().grad()).all().item<bool>());
    }
    for (const auto& item : model->named_buffers())
      if (item.value().is_floating_point()) CHECK(item.value().scalar_type() == at::kFloat);
  }
}

// The first project validated without autocast.
TEST_CASE("Validation runs under the autocast of the run, in eval mode") {
  struct Clips {
    at::Tensor mel_BMF, lengths_B;
  };
  struct Seen {
    at::ScalarType type;
    bool training;
  };
  std::vector<Seen> seen;
  auto model = tiny_model();
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-3});
  const std::vector<Clips> clips{{at::randn({2, 6, 20}), ids({20, 9})}};
  lt::Trainer trainer(
      model, optimizer,
      [&](konkanivani::KonkaniVani& net, const Clips& clips) {
        const auto scores = net->ctc_scores(net->encode(clips.mel_BMF, clips.lengths_B));
        seen.push_back({scores.scalar_type(), net->is_training()});
        return scores.to(at::kFloat).square().mean();
      },
      lt::Autocast<lt::bf16>{}, lt::Validate{clips});
  trainer.fit(clips);
  REQUIRE(seen.size() == 2);
  for (const auto& forward : seen) CHECK(forward.type == at::kBFloat16);
  CHECK(seen[0].training);
  CHECK_FALSE(seen[1].training);
}

TEST_CASE("A model is saved and loaded as a folder") {
  const TemporaryFolder folder;
  auto config = tiny_config();
  config.positions = Positions::relative;
  config.subsampling = 1;
  auto model = used_model(config);
  konkanivani::save_model(model, folder.path());
  auto loaded = konkanivani::load_model(folder.path());
  CHECK(loaded->config() == config);
  const auto saved = lt::state_dict(model), got = lt::state_dict(loaded);
  REQUIRE(saved.size() == got.size());
  for (const auto& [name, tensor] : saved) CHECK(tensor.equal(got.at(name)));
}

// The first project's script for small memory resumed 256-wide weights into a 192-wide model.
TEST_CASE("A model of another size is refused with each difference") {
  const TemporaryFolder folder;
  konkanivani::save_model(tiny_model(), folder.path());
  auto config = tiny_config();
  config.d_model = 12;
  config.encoder_layers = 1;
  config.positions = Positions::relative;
  const auto saved = konkanivani::load_config(folder / "config.json");
  CHECK_THROWS_AS(konkanivani::require_same_model(saved, config, "there"), konkanivani::ConfigError);
  CHECK_THROWS_WITH(
      konkanivani::require_same_model(saved, config, "there"),
      "there: holds another model than the one asked for: d_model 16 instead of 12, encoder_layers 2 "
      "instead of 1, positions sinusoidal instead of relative");
  config = tiny_config();
  config.dropout = 0.5;
  CHECK_NOTHROW(konkanivani::require_same_model(saved, config, "there"));
}

TEST_CASE("Sizes that make no model are refused by name") {
  const auto refused = [](auto change) {
    auto config = tiny_config();
    change(config);
    try {
      konkanivani::KonkaniVani model(config);
    } catch (const konkanivani::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK(refused([](ModelConfig& c) { c.d_model = 18, c.heads = 4; }) ==
        "KonkaniVani: d_model is 18; it must be even and a multiple of the 4 heads");
  CHECK(refused([](ModelConfig& c) { c.d_model = 15, c.heads = 3; }) ==
        "KonkaniVani: d_model is 15; it must be even and a multiple of the 3 heads");
  CHECK(refused([](ModelConfig& c) { c.vocabulary = 5; }) ==
        "KonkaniVani: vocabulary is 5, outside 6..1048576");
  CHECK(refused([](ModelConfig& c) { c.kernel = 30; }) == "KonkaniVani: kernel is 30; it must be odd");
  CHECK(refused([](ModelConfig& c) { c.dropout = 1; }) == "KonkaniVani: dropout is 1, outside [0, 1)");
  CHECK(refused([](ModelConfig& c) { c.encoder_layers = 0; }) ==
        "KonkaniVani: encoder_layers is 0, outside 1..1024");
}

TEST_CASE("A config.json that describes no model is refused by file and field") {
  const auto json = konkanivani::config_to_json(tiny_config());
  CHECK(konkanivani::config_from_json(json, "x") == tiny_config());
  const auto refused = [&](const char* field, lt::Json value) {
    auto changed = json;
    changed.set(field, std::move(value));
    try {
      (void)konkanivani::config_from_json(changed, "x");
    } catch (const konkanivani::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK(refused("model_type", "whisper") == "x: model_type is \"whisper\", not \"konkanivani\"");
  CHECK(refused("positions", "rotary") ==
        "x: positions is \"rotary\", neither \"sinusoidal\" nor \"relative\"");
  CHECK(refused("heads", "two") == "x: heads must be an integer, is \"two\"");
  CHECK(refused("kernel", 4) == "x: kernel is 4; it must be odd");
  const TemporaryFolder folder;
  lt::write_file_atomically(folder.path() / "config.json", "{");
  CHECK_THROWS_WITH(konkanivani::load_config(folder.path() / "config.json"),
                    Contains((folder.path() / "config.json").string()));
}

TEST_CASE("Frames and lengths that do not fit are refused") {
  auto model = tiny_model();
  CHECK_THROWS_WITH(model->encode(at::randn({1, 5, 9}), ids({9})),
                    Contains("expected mel frames [B, 6, F], got [1, 5, 9]"));
  CHECK_THROWS_WITH(model->encode(at::randn({2, 6, 9}), ids({9})),
                    Contains("lengths of shape [1] for a batch of 2"));
  CHECK_THROWS_WITH(model->encode(at::randn({1, 6, 9}), ids({10})), Contains("within 1 and the 9 frames"));
  CHECK_THROWS_WITH(model->encode(at::randn({2, 6, 9}), ids({9, 0})), Contains("within 1 and the 9 frames"));
}
