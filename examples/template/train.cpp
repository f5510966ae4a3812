// SPDX-License-Identifier: MIT
// Learns on which of two interleaved spirals a point of the plane lies. Replace Spirals by your dataset and
// Net by your model: the rest is a whole program, with flags, snapshots, resume, a report, validation and a
// summary.
#include <looptorch/app/training_program.hpp>
#include <looptorch/trainer.hpp>

#include <torch/torch.h>

#include <cmath>
#include <cstdint>

namespace app = looptorch::app;
namespace lt = looptorch;

struct Batch {
  torch::Tensor points, labels;  // [B, 2], [B]; of one sample [2], []
};

struct Spirals {
  std::int64_t first, count;  // which points of the plane
  std::int64_t size() const { return count; }
  Batch get(std::int64_t index) const {  // called by several threads
    const std::int64_t n = first + index;
    const double turn = 0.1 * static_cast<double>(n % 97), sign = n % 2 == 0 ? 1 : -1;
    return {torch::tensor({sign * turn * std::cos(turn), sign * turn * std::sin(turn)}) / 3, torch::tensor(n % 2)};
  }
};

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 64));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 64));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(64, 2));
  torch::Tensor forward(const torch::Tensor& points) { return last(torch::relu(hidden(torch::relu(first(points))))); }
};
TORCH_MODULE(Net);

lt::Loss loss_of(Net& net, const Batch& batch) {
  const auto logits = net(batch.points);
  return {.value = torch::cross_entropy_loss(logits, batch.labels),
          .weight = batch.labels.size(0),  // so that each point counts the same, whatever the batch
          .metrics = {{"accuracy", (logits.argmax(1) == batch.labels).to(torch::kFloat).mean()}}};
}

void train(app::Session& session) {
  Net net;
  net->to(session.device());
  lt::FusedAdamW optimizer(net->parameters(), {.lr = session.options().learning_rate});
  auto held_out = session.loader(Spirals{1000, 200});
  lt::Trainer trainer(net, optimizer, loss_of, lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::CosineDecay{}, .warmup_steps = session.options().warmup_steps},
                      lt::Validate{held_out},
                      session.policies(*net));  // what the flags ask for: docs/app.md#a-session
  session.fit(trainer, session.shuffled(Spirals{0, 1000}));
  const auto score = trainer.evaluate(session.whole(Spirals{1000, 200}));
  session.finish(*net, {{"accuracy", score.metrics.at("accuracy")}});
}

int main(int argc, char** argv) {
  return app::TrainingProgram("template_train", "Learns which of two spirals a point lies on.",
                              {.epochs = 20, .batch_size = 32, .learning_rate = 3e-3}).run(argc, argv, train);
}
