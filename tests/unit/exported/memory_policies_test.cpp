// SPDX-License-Identifier: MIT
// What looks into memory, and averages of weights, on an exported model.
//
// Tests exported: exported_model
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include "programs.hpp"
#include "support/catch.hpp"
#include "support/exported_files.hpp"
#include "support/temporary_folder.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lt = looptorch;
using namespace exported_programs;

namespace {

struct Batch {
  at::Tensor input;
};

at::Tensor mean_of(lt::ExportedModel& model, const Batch& batch) {
  return loss_of(model->forward(batch.input));
}

Batch first(const Batch& batch, std::int64_t samples) { return {batch.input.slice(0, 0, samples)}; }

/// Parameters and buffers.
std::vector<at::Tensor> everything(const lt::ExportedModel& model) {
  std::vector<at::Tensor> all = model->parameters();
  for (const auto& buffer : model->buffers()) all.push_back(buffer);
  return all;
}

/// transformers' ViT in fp64, whose samples do not mix, and whose loss is a mean over them.
struct Images {
  at::Tensor pixels, labels;
};
lt::Loss vit_loss(lt::ExportedModel& model, const Images& batch) {
  return {.value = model->forward(batch.pixels, batch.labels)[model->output("loss")],
          .weight = batch.labels.size(0)};
}
class Vit {
 public:
  [[nodiscard]] lt::ExportedModel load() const {
    lt::ExportedModel model(path_);
    model->to(at::kDouble);
    return model;
  }

 private:
  lt::testing::TemporaryFolder folder_;
  std::filesystem::path path_ = lt::testing::stored_pt2("vit", folder_.path());
};
std::vector<Images> images(int count) {
  std::vector<Images> all;
  for (int i = 0; i < count; ++i)
    all.push_back({reference::wave({8, 3, 16, 16}, i), at::arange(8, at::kLong).add(i).remainder(3)});
  return all;
}

}  // namespace

TEST_CASE("preflight predicts the peak of an exported model's fit, and leaves no trace") {
  const bool recomputes = GENERATE(false, true);
  const Batch hard{reference::wave({1024, 3, 6, 6}, 0.5, at::kFloat)};
  std::vector<Batch> data(6,
                          first(hard, 256));  // parts of one tensor, so that the data takes as much in both
  data[3] = hard;
  const auto train = [&](bool checked) {
    auto model = load("cnn");
    if (recomputes) model->checkpoint_blocks();
    lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(model, optimizer, mean_of, lt::WatchMemory{.out = nullptr});
    torch::manual_seed(3);
    std::optional<lt::PreflightReport> report;
    if (checked) report = lt::preflight(trainer, std::vector{hard}, {.cap = 1'000'000'000});
    trainer.fit(data);
    if (report) {
      const auto& watched = trainer.policy<lt::WatchMemory>();
      CHECK(report->fits);
      CHECK(report->needed == watched.peak().bytes);
      for (const auto phase : {lt::MemoryPhase::forward, lt::MemoryPhase::backward, lt::MemoryPhase::update})
        CHECK(report->phases.peak_in(phase) == watched.peak_in(phase));
    }
    return everything(model);
  };
  const auto checked = train(true), plain = train(false);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(at::equal(checked[i], plain[i]));
}

TEST_CASE("preflight sees what an exported model's recomputed blocks save") {
  const std::vector<Batch> hard{{reference::wave({1024, 3, 6, 6}, 0.5, at::kFloat)}};
  const auto needed = [&](bool recomputes) {
    auto model = load("cnn");
    if (recomputes) model->checkpoint_blocks();
    lt::FusedAdamW optimizer(model->parameters(), {});
    lt::Trainer trainer(model, optimizer, mean_of);
    return lt::preflight(trainer, hard, {.cap = 1'000'000'000}).needed;
  };
  CHECK(needed(true) < needed(false));
}

TEST_CASE("RetryOnOom splits an exported model's batches, and trains as a run with enough memory") {
  const Vit vit;
  std::int64_t most = 8;
  const auto train = [&](lt::ExportedModel& model, auto... policies) {
    lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-2});
    const auto objective = [&](lt::ExportedModel& net, const Images& batch) {
      const auto loss = vit_loss(net, batch);
      TORCH_CHECK_WITH(OutOfMemoryError, batch.labels.size(0) <= most, "no room");
      return loss;
    };
    lt::Trainer trainer(model, optimizer, objective, lt::ClipGradNorm{0.5}, policies...);
    return trainer.fit(images(5), {.epochs = 2}).loss;
  };
  auto plain = vit.load(), split = vit.load();
  const double loss = train(plain);
  most = 2;
  std::vector<std::string> told;
  CHECK(train(split, lt::RetryOnOom{.report = [&](const std::string& text) { told.push_back(text); }}) ==
        Approx(loss).epsilon(1e-12));
  REQUIRE(told.size() == 2);
  CHECK(told[1] == "memory ran out in step 0; retrying in pieces of 2 of 8 samples");
  for (std::size_t i = 0; i < plain->parameters().size(); ++i)
    CHECK((plain->parameters()[i] - split->parameters()[i]).abs().max().item<double>() < 1e-12);
}

TEST_CASE("AverageWeights averages an exported model's weights by their Python names") {
  const Vit vit;
  auto model = vit.load();
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-2});
  lt::TensorMap expected;
  std::int64_t count = 0;
  const lt::On add{lt::kObserve, [&](lt::UpdateContext&) {
                     ++count;
                     for (const auto& item : model->named_parameters()) {
                       const auto weight = item.value().detach().clone();
                       auto& mean = expected[item.key()];
                       mean = mean.defined() ? mean + (weight - mean) / count : weight;
                     }
                   }};
  lt::Trainer trainer(model, optimizer, vit_loss, add, lt::AverageWeights{.rule = lt::Swa{}});
  trainer.fit(images(4), {.epochs = 2});
  const auto& averages = trainer.policy<lt::AverageWeights>();
  CHECK(averages.count() == 8);
  REQUIRE(averages.named().size() == expected.size());
  CHECK(expected.contains("vit.layernorm.weight"));
  for (const auto& [name, average] : averages.named())
    CHECK(reference::difference(average, expected.at(name)) < 1e-12);
  auto averaged = vit.load();
  averages.copy_to(*averaged);
  const auto held_out = images(2);
  const double loss = trainer.evaluate(held_out).loss;  // by the averages
  const at::NoGradGuard no_gradients;
  averaged->eval();
  const double wanted =
      (vit_loss(averaged, held_out[0]).value + vit_loss(averaged, held_out[1]).value).item<double>() / 2;
  CHECK(loss == Approx(wanted).epsilon(1e-12));
}
