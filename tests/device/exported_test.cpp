// SPDX-License-Identifier: MIT
// A model that was exported on the CPU computes on a device, and is captured there. Attention there has other
// kernels than the CPU's, so that the last bits differ.
#include "support/precompiled.hpp"

#include <looptorch/exported/exported_model.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/exported_files.hpp"
#include "support/temporary_folder.hpp"

#include <finetune_exported/objective.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lt = looptorch;
using namespace looptorch::testing;

TEST_CASE(
    "an exported model follows its weights to a device, with its constants and what its program makes") {
  if (!has_device()) return;
  const std::string path = LOOPTORCH_SOURCE_DIR "/tests/parity/data/exported_programs/encoder.pt2";
  lt::ExportedModel there(path), here(path);
  there->to(test_device());
  there->eval(), here->eval();
  const auto ids = torch::arange(24).remainder(11).view({3, 8});
  const auto mask = torch::zeros({3, 8}, torch::kBool);
  const auto factor = torch::tensor(0.5f);
  const auto wanted = here->forward(ids, mask, factor);
  const auto found = there->forward(ids.to(test_device()), mask.to(test_device()), factor.to(test_device()));
  wanted[0].sum().backward();
  found[0].sum().backward();
  const auto parameters = here->named_parameters(), on_device = there->named_parameters();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(found[i].device() == test_device());
    CHECK((found[i].cpu() - wanted[i]).abs().max().item<double>() <= 1e-5);
  }
  for (const auto& item : parameters) {
    CAPTURE(item.key());
    const at::Tensor gradient = on_device[item.key()].grad().cpu();
    CHECK((gradient - item.value().grad()).abs().max().item<double>() <= 1e-4);
  }
}

namespace {

struct Batch {
  std::vector<at::Tensor> inputs;
};

/// Weights after some steps on the device, by graphs or eagerly, and what is said of the graphs.
struct Trained {
  std::vector<at::Tensor> weights;
  std::string said;
};
Trained trained(const std::filesystem::path& path, const Batch& batch, bool captures) {
  lt::ExportedModel model(path);
  model->to(test_device());
  Batch there;
  for (const auto& input : batch.inputs) there.inputs.push_back(input.to(test_device()));
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-2});
  const auto objective = [](lt::ExportedModel& net, const Batch& given) {
    const auto outputs = net->forward(given.inputs);
    return outputs[0].dim() == 0 ? outputs[0] : outputs[0].square().mean();  // of transformers the loss
  };
  Trained made;
  lt::Trainer trainer(
      model, optimizer, objective,
      lt::When{captures, lt::CaptureGraphs{.report = [&](const std::string& text) { made.said = text; }}});
  torch::manual_seed(3);
  trainer.fit(std::vector<Batch>(3, there), {.epochs = 2});
  for (const auto& parameter : model->parameters()) made.weights.push_back(parameter.detach().cpu());
  for (const auto& buffer : model->buffers()) made.weights.push_back(buffer.cpu());
  return made;
}

/// Returns what is said of the graphs. The bits must be those of the eager run, where no kernel sums in an
/// order of its own, as a GPU's of convolutions may.
std::string said_of_graphs(const std::filesystem::path& path, const Batch& batch) {
  const auto eager = trained(path, batch, false), captured = trained(path, batch, true);
  for (std::size_t i = 0; is_simulated() && i < eager.weights.size(); ++i)
    CHECK(torch::equal(eager.weights[i], captured.weights[i]));
  return captured.said;
}
std::filesystem::path program(const std::string& name) {
  return LOOPTORCH_SOURCE_DIR "/tests/parity/data/exported_programs/" + name + ".pt2";
}

}  // namespace

TEST_CASE("an exported model is captured, with dropout and BatchNorm, and has the eager run's bits") {
  if (!has_device()) return;
  torch::manual_seed(5);
  CHECK_THAT(said_of_graphs(program("cnn"), {{torch::randn({4, 3, 6, 6})}}),
             Catch::StartsWith("4 of 6 micro-batches ran as graphs, of which there are 1"));
  CHECK_THAT(said_of_graphs(program("scoped"), {{torch::randn({4, 4})}}),
             Catch::StartsWith("4 of 6 micro-batches ran as graphs, of which there are 1"));
}

TEST_CASE("exported models of transformers are captured") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  const auto recorded =
      lt::load_safetensors(LOOPTORCH_SOURCE_DIR "/tests/parity/data/exported/recorded.safetensors").tensors;
  for (const std::string name : {"vit", "bert", "gpt2", "whisper"}) {
    CAPTURE(name);
    const auto path = stored_pt2(name, folder.path());
    Batch batch;
    const lt::ExportedModel model(path);
    for (const auto& input : model->inputs())
      batch.inputs.push_back(recorded.at(name + ".batch.0." + input.name));
    CHECK_THAT(said_of_graphs(path, batch),
               Catch::StartsWith("4 of 6 micro-batches ran as graphs, of which there are 1"));
  }
}

TEST_CASE("an exported program whose sizes depend on values runs eagerly, and CaptureGraphs says why") {
  if (!has_device()) return;
  torch::manual_seed(5);
  const auto said = said_of_graphs(program("picked"), {{torch::randn({4, 4})}});
  CHECK_THAT(said, Catch::StartsWith("0 of 6 micro-batches ran as graphs") &&
                       Catch::Contains("4 ran eagerly: it cannot be captured: "));
}

TEST_CASE("finetune_exported's CTC is LibTorch's, and waits for the device only to check the labels") {
  if (!has_device()) return;
  namespace tune = finetune_exported;
  lt::ExportedModel there(program("encoder")), here(program("encoder"));
  there->to(test_device());
  there->eval(), here->eval();
  std::vector<tune::Column> columns{{.name = "ids"}, {.name = "mask"}, {.name = "factor"}};
  const tune::Objective objective({.kind = "ctc"}, *here, columns);
  const std::vector<at::Tensor> inputs{torch::arange(24).remainder(11).view({3, 8}),
                                       torch::zeros({3, 8}, torch::kBool), torch::tensor(0.5f)};
  tune::Row row{inputs}, row_there;
  row.tensors.push_back(torch::tensor({1, 2, 3, -100, 4, 4}, torch::kLong).view({3, 2}));
  for (const auto& tensor : row.tensors) row_there.tensors.push_back(tensor.to(test_device()));
  const auto scores = here->forward(inputs)[0].log_softmax(-1).transpose(0, 1);
  const auto wanted = torch::ctc_loss(scores, row.tensors.back().clamp_min(0), std::vector<int64_t>(3, 4),
                                      std::vector<int64_t>{2, 1, 2});
  CHECK(torch::equal(objective(here, row).value, wanted));
  wanted.backward();
  const auto waits = [] { return is_simulated() ? looptorch_test::accelerator::counts().host_waits : 0; };
  const auto before = waits();
  const auto found = objective(there, row_there).value;
  found.backward();
  CHECK(waits() - before == (is_simulated() ? 1 : 0));
  CHECK(std::abs((found.cpu() - wanted).item<double>()) <= 1e-5);
  const auto on_device = there->named_parameters();
  for (const auto& item : here->named_parameters()) {
    CAPTURE(item.key());
    CHECK((on_device[item.key()].grad().cpu() - item.value().grad()).abs().max().item<double>() <= 1e-4);
  }
}
