// SPDX-License-Identifier: MIT
// Five models of transformers, as tests/parity/exported_models.py exported them and recorded what PyTorch
// makes of them: outputs, gradients, and the losses of 50 steps.
//
// Tests exported: exported_model
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/policies/schedule_lr.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/exported_files.hpp"
#include "support/temporary_folder.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

namespace lt = looptorch;

namespace {

const char* const kNames[] = {"vit", "bert", "gpt2", "whisper", "wav2vec2"};
constexpr std::int64_t kSteps = 50, kWarmup = 5;

/// What was recorded of one model, without its name.
class Recorded {
 public:
  explicit Recorded(const std::string& name) {
    const auto file =
        std::filesystem::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/exported/recorded.safetensors";
    for (const auto& [key, tensor] : lt::load_safetensors(file).tensors)
      if (key.starts_with(name + ".")) tensors_[key.substr(name.size() + 1)] = tensor;
  }

  [[nodiscard]] at::Tensor operator[](const std::string& key) const { return tensors_.at(key); }
  [[nodiscard]] lt::TensorMap below(const std::string& prefix) const {
    lt::TensorMap found;
    for (const auto& [key, tensor] : tensors_)
      if (key.starts_with(prefix)) found[key.substr(prefix.size())] = tensor;
    return found;
  }

 private:
  lt::TensorMap tensors_;
};

/// The model's own loss; of wav2vec2, whose scores alone were exported, that of CTC.
at::Tensor loss_of(lt::ExportedModelImpl& model, lt::TensorMap batch) {
  const auto& names = model.output_names();
  if (std::ranges::find(names, "loss") != names.end())
    return model.forward_by_name(batch)[model.output("loss")];
  const at::Tensor labels = batch.at("labels");
  batch.erase("labels");
  const auto scores = model.forward_by_name(batch)[model.output("logits")].log_softmax(-1).transpose(0, 1);
  const at::Tensor frames = torch::full({labels.size(0)}, scores.size(0), torch::kLong);
  return torch::ctc_loss(scores, labels, frames, torch::full_like(frames, labels.size(1)));
}

void check_close(const at::Tensor& made, const at::Tensor& wanted, double bound) {
  REQUIRE(made.sizes() == wanted.sizes());
  CHECK((made - wanted).abs().max().item<double>() <= bound);
}

/// The losses of the first steps of such a run, as the recording's Python computes them.
std::vector<double> trained(lt::ExportedModel& model, const Recorded& recorded, std::int64_t steps = kSteps) {
  std::vector<lt::TensorMap> batches;
  for (const char* number : {"0", "1", "2"})
    batches.push_back(recorded.below(std::string("batch.") + number + "."));
  std::vector<std::int64_t> numbers;
  for (std::int64_t step = 0; step < steps; ++step) numbers.push_back(step % 3);
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 5e-3, .weight_decay = 0.01});
  std::vector<double> losses;
  const auto objective = [&](lt::ExportedModel& net, std::int64_t number) {
    const auto loss = loss_of(*net, batches[static_cast<std::size_t>(number)]);
    losses.push_back(loss.item<double>());
    return loss;
  };
  lt::Trainer trainer(model, optimizer, objective, lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::CosineDecay{}, .warmup_steps = kWarmup});
  trainer.fit(numbers, {.epochs = 1});
  return losses;
}

}  // namespace

TEST_CASE("exported models of transformers have PyTorch's outputs and gradients") {
  const lt::testing::TemporaryFolder folder;
  for (const std::string name : kNames) {
    INFO(name);
    const Recorded recorded(name);
    lt::ExportedModel model(lt::testing::stored_pt2(name, folder.path()));
    const auto loss = loss_of(*model, recorded.below("batch.0."));
    check_close(loss.detach(), recorded["output.loss"], 1e-6);
    auto batch = recorded.below("batch.0.");
    if (name == "wav2vec2") batch.erase("labels");
    check_close(model->forward_by_name(batch)[model->output("logits")].detach(), recorded["output.logits"],
                1e-6);
    loss.backward();
    std::size_t compared = 0;
    for (const auto& [key, gradient] : recorded.below("gradient.")) {
      INFO(key);
      const auto* parameter = model->named_parameters().find(key);
      REQUIRE(parameter);
      check_close(parameter->grad(), gradient, 1e-6);
      ++compared;
    }
    std::size_t with_gradients = 0;
    for (const auto& parameter : model->parameters()) with_gradients += parameter.grad().defined();
    CHECK(compared == with_gradients);
    CHECK(compared > 20);
  }
}

TEST_CASE("exported models of transformers train to PyTorch's losses: AdamW, clipping, a schedule") {
  const lt::testing::TemporaryFolder folder;
  for (const std::string name : kNames) {
    INFO(name);
    const Recorded recorded(name);
    lt::ExportedModel model(lt::testing::stored_pt2(name, folder.path()));
    const auto losses = torch::tensor(trained(model, recorded), torch::kDouble);
    check_close(losses, recorded["losses"], 1e-5);
    CHECK(losses[kSteps - 1].item<double>() < losses[0].item<double>());
  }
}

TEST_CASE("exported models of transformers train to the same bits with their blocks recomputed") {
  constexpr std::int64_t kFew = 6;
  const lt::testing::TemporaryFolder folder;
  for (const auto& [name, pattern, blocks] : {std::tuple{"vit", "vit.layers.*", 2U},
                                              {"bert", "bert.encoder.layer.*", 2U},
                                              {"gpt2", "", 2U},
                                              {"whisper", "model.encoder.layers.*", 2U},
                                              {"wav2vec2", "wav2vec2.encoder.layers.*", 2U}}) {
    INFO(name);
    const Recorded recorded(name);
    const auto path = lt::testing::stored_pt2(name, folder.path());
    lt::ExportedModel kept(path), recomputed(path);
    CHECK(recomputed->checkpoint_blocks(pattern) == blocks);
    CHECK(trained(recomputed, recorded, kFew) == trained(kept, recorded, kFew));
    for (const auto& item : kept->named_parameters()) {
      INFO(item.key());
      CHECK(torch::equal(item.value(), *recomputed->named_parameters().find(item.key())));
    }
  }
}

TEST_CASE("for other tests: the exported models in a folder", "[.write_exported]") {
  const char* folder = std::getenv("LOOPTORCH_EXPORTED");
  if (!folder) return;  // by a filter on files
  for (const std::string name : kNames) (void)lt::testing::stored_pt2(name, folder);
}
