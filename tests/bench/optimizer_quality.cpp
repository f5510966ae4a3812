// SPDX-License-Identifier: MIT
// Trains a small byte-level language model on this repository's own pages with each optimizer that keeps less
// than AdamW, and prints the final loss on held-out text beside FusedAdamW's from the same start: three
// seeds, their mean, and the difference in percent. Arguments: steps (400), seeds (3), and a text that the
// rows' names contain.
#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/trainer.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace lt = looptorch;

constexpr std::int64_t kWidth = 96, kHeads = 4, kContext = 64, kBatch = 16, kBytes = 256;

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("first_norm", first_norm), register_module("second_norm", second_norm);
    register_module("mix", mix), register_module("out", out);
    register_module("up", up), register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x_BTC) {
    const auto parts = mix(first_norm(x_BTC)).chunk(3, -1);
    const auto heads = [&](const at::Tensor& part) {
      return part.view({part.size(0), part.size(1), kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const at::Tensor seen =
        at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), {},
                                         /*dropout_p=*/0, /*is_causal=*/true);
    const at::Tensor x = x_BTC + out(seen.transpose(1, 2).reshape(x_BTC.sizes()));
    return x + down(torch::gelu(up(second_norm(x))));
  }
  torch::nn::LayerNorm first_norm{torch::nn::LayerNormOptions({kWidth})},
      second_norm{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear mix{kWidth, 3 * kWidth}, out{kWidth, kWidth}, up{kWidth, 4 * kWidth},
      down{4 * kWidth, kWidth};
};
TORCH_MODULE(Block);

struct LanguageModelImpl : torch::nn::Module {
  LanguageModelImpl() {
    register_module("bytes", bytes), register_module("places", places), register_module("blocks", blocks);
    register_module("norm", norm), register_module("head", head);
    for (int i = 0; i < 2; ++i) blocks->push_back(Block());
  }
  at::Tensor forward(const at::Tensor& text_BT) {
    const at::Tensor x = bytes(text_BT) + places(torch::arange(text_BT.size(1)));
    return head(norm(blocks->forward(x)));
  }
  torch::nn::Embedding bytes{kBytes, kWidth}, places{kContext, kWidth};
  torch::nn::Sequential blocks;
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear head{kWidth, kBytes};
};
TORCH_MODULE(LanguageModel);

/// Returns the mean of the surprise at each next byte, of [B, T + 1].
at::Tensor objective(LanguageModel& model, const at::Tensor& text) {
  const at::Tensor scores = model(text.narrow(1, 0, kContext)).to(torch::kFloat);
  return torch::nn::functional::cross_entropy(scores.flatten(0, 1), text.narrow(1, 1, kContext).flatten());
}

/// Returns the bytes of all pages under docs, in the order of their names.
at::Tensor read_pages(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string text;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(in), {});
  }
  return torch::from_blob(text.data(), {static_cast<std::int64_t>(text.size())}, torch::kUInt8)
      .to(torch::kLong);
}

/// Returns batches of excerpts that begin at random within [begin, end).
std::vector<at::Tensor> excerpts(const at::Tensor& text, std::int64_t begin, std::int64_t end,
                                 std::int64_t count) {
  std::vector<at::Tensor> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor starts = torch::randint(begin, end - kContext - 1, {kBatch, 1});
    batches.push_back(text.index({starts + torch::arange(kContext + 1)}));
  }
  return batches;
}

struct Task {
  at::Tensor text;
  std::int64_t steps;
};

/// Returns the final loss on held-out text.
template <class Optimizer, class... Policies>
double final_loss(const Task& task, std::uint64_t seed, at::ScalarType type,
                  typename Optimizer::Options options, Policies... policies) {
  torch::manual_seed(seed);
  LanguageModel model;
  const std::int64_t split = task.text.numel() * 9 / 10;
  const auto training = excerpts(task.text, 0, split, task.steps);
  torch::manual_seed(1000);
  const auto held_out = excerpts(task.text, split, task.text.numel(), 60);
  model->to(type);
  Optimizer optimizer(model->parameters(), options);
  lt::Trainer trainer(
      model, lt::Update{optimizer, &objective, {.lossy_weights = true}},
      lt::ScheduleLr{.decay = lt::CosineDecay{.final_ratio = 0.05}, .warmup_steps = task.steps / 20},
      policies...);
  trainer.fit(training);
  return trainer.evaluate(held_out).loss;
}

/// Prints a row: ours and AdamW's mean over the seeds, and each seed's difference on stderr.
template <class Ours>
void print_row(const char* name, const std::vector<double>& peer, Ours&& ours) {
  double mean = 0, peer_mean = 0;
  std::fprintf(stderr, "%-34s", name);
  for (std::size_t seed = 0; seed < peer.size(); ++seed) {
    const double loss = ours(seed);
    std::fprintf(stderr, "  %.4f (%+.2f %%)", loss, 100 * (loss / peer[seed] - 1));
    mean += loss / static_cast<double>(peer.size()),
        peer_mean += peer[seed] / static_cast<double>(peer.size());
  }
  std::fprintf(stderr, "  mean %+.2f %%\n", 100 * (mean / peer_mean - 1));
  std::printf(
      R"({"name": "%s", "value": %.4f, "unit": "nats a byte, held out", "peer": "FusedAdamW", "peer_value": %.4f})"
      "\n",
      name, mean, peer_mean);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  const Task task{read_pages(std::filesystem::path(LOOPTORCH_SOURCE_DIR) / "docs"),
                  count > 1 ? std::atoll(arguments[1]) : 400};
  const std::size_t seeds = count > 2 ? static_cast<std::size_t>(std::atoll(arguments[2])) : 3;
  constexpr double kRate = 3e-3;
  const lt::FusedAdamWOptions adamw{.lr = kRate};
  const auto peers = [&](auto... policies) {
    std::vector<double> losses;
    for (std::size_t seed = 0; seed < seeds; ++seed)
      losses.push_back(final_loss<lt::FusedAdamW>(task, seed, torch::kFloat, adamw, policies...));
    return losses;
  };
  const std::string_view wanted = count > 3 ? arguments[3] : "";
  std::vector<double> alone, windows;
  const auto row = [&](const char* name, std::vector<double>& peer, const auto& ours, auto... policies) {
    if (std::string_view(name).find(wanted) == std::string_view::npos) return;
    if (peer.empty()) peer = peers(policies...);
    print_row(name, peer, ours);
  };
  row("AdamW8bit", alone,
      [&](auto seed) { return final_loss<lt::AdamW8bit>(task, seed, torch::kFloat, {.lr = kRate}); });
  row("AdamW8bit, bf16 weights", alone,
      [&](auto seed) { return final_loss<lt::AdamW8bit>(task, seed, torch::kBFloat16, {.lr = kRate}); });
  row("AdamWBf16", alone,
      [&](auto seed) { return final_loss<lt::AdamWBf16>(task, seed, torch::kBFloat16, {.lr = kRate}); });
  row("AdamWBf16, exact", alone, [&](auto seed) {
    return final_loss<lt::AdamWBf16>(task, seed, torch::kBFloat16, {.lr = kRate, .exact = true});
  });
  row("Adafactor", alone, [&](auto seed) {
    return final_loss<lt::Adafactor>(task, seed, torch::kFloat, {.lr = 3e-2, .beta1 = 0.9});
  });
  row("FusedAdamW, bf16 weights to the nearest", alone,
      [&](auto seed) { return final_loss<lt::FusedAdamW>(task, seed, torch::kBFloat16, adamw); });
  row(
      "4 micro-batches, sums in bf16", windows,
      [&](auto seed) {
        return final_loss<lt::FusedAdamW>(task, seed, torch::kFloat, adamw, lt::Accumulate<4>{},
                                          lt::UpdateInBackward<lt::SumsInBf16>{.sums = {.min_size = 1}});
      },
      lt::Accumulate<4>{});
  row(
      "4 micro-batches, sums in moments", windows,
      [&](auto seed) {
        return final_loss<lt::FusedAdamW>(task, seed, torch::kFloat, adamw, lt::Accumulate<4>{},
                                          lt::UpdateInBackward<lt::SumsInMoments>{});
      },
      lt::Accumulate<4>{});
}
