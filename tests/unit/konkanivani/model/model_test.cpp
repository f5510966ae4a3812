// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "../support.hpp"
#include "support/temporary_folder.hpp"

#include <cmath>

using namespace konkanivani_test;
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

/// The clips' first `lengths` frames, and rubbish after them.
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
