// SPDX-License-Identifier: MIT
// Linear layers of one input are computed as one product where that changes nothing else.
//
// Tests base: running_module
#include <looptorch/base/running_module.hpp>
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/exported/module/joint_layers.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "support/catch.hpp"
#include "support/exported_files.hpp"
#include "support/temporary_folder.hpp"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lt = looptorch;
namespace exported = looptorch::detail::exported;

namespace {

lt::ExportedModel load(const std::string& name) {
  const lt::testing::TemporaryFolder folder;
  return lt::ExportedModel(lt::testing::stored_pt2(name, folder.path()));
}

lt::TensorMap batch_of(const std::string& name) {
  const auto file =
      std::filesystem::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/exported/recorded.safetensors";
  lt::TensorMap batch;
  for (const auto& [key, tensor] : lt::load_safetensors(file).tensors)
    if (const auto prefix = name + ".batch.0."; key.starts_with(prefix))
      batch[key.substr(prefix.size())] = tensor;
  return batch;
}

std::int64_t products = 0;
std::unique_ptr<at::ObserverContext> count_product(const at::RecordFunction& function) {
  products += function.name() == std::string_view("aten::addmm");  // of a linear layer with a bias
  return nullptr;
}

struct Step {
  std::int64_t products;
  std::vector<at::Tensor> gradients;
};
/// Makes a forward and, with gradients, a backward.
Step step(lt::ExportedModel& model, const std::string& name) {
  products = 0;
  model->zero_grad();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&count_product));
  const auto loss = model->forward_by_name(batch_of(name))[model->output("loss")];
  if (loss.requires_grad()) loss.backward();
  at::removeCallback(handle);
  Step made{products, {}};
  for (const auto& parameter : model->parameters())
    if (parameter.grad().defined()) made.gradients.push_back(parameter.grad().clone());
  return made;
}

/// Runs layers one by one while it lives.
struct OneByOne {
  OneByOne() { lt::detail::traces_modules = true; }
  ~OneByOne() { lt::detail::traces_modules = false; }
};

exported::GraphNode linear(exported::Slot input, exported::Slot output, std::size_t module) {
  const auto op = c10::Dispatcher::singleton().findSchema({"aten::linear", ""});
  return {.name = "",
          .target = "",
          .module = module,
          .action = *op,
          .arguments = {exported::GraphArgument::of_slot(input)},
          .results = {{{output}}}};
}

}  // namespace

TEST_CASE("Queries, keys and values are one product, with the same gradients") {
  for (const std::string name : {"vit", "bert", "whisper"}) {
    CAPTURE(name);
    auto model = load(name);
    const auto joint = step(model, name);
    const OneByOne guard;
    const auto plain = step(model, name);
    CHECK(joint.products < plain.products);
    REQUIRE(joint.gradients.size() == plain.gradients.size());
    for (std::size_t i = 0; i < plain.gradients.size(); ++i)
      CHECK((joint.gradients[i] - plain.gradients[i]).abs().max().item<double>() <= 1e-6);
  }
}

TEST_CASE("A layer that is not joined is one node of autograd, and a trace has the file's operators") {
  auto model = load("vit");
  const auto nodes = [&](const std::string& name) {
    const auto loss = model->forward_by_name(batch_of("vit"))[model->output("loss")];
    std::set<torch::autograd::Node*> seen;
    std::vector<torch::autograd::Node*> rest{loss.grad_fn().get()};
    while (!rest.empty()) {
      auto* const node = rest.back();
      rest.pop_back();
      if (!node || !seen.insert(node).second) continue;
      for (const auto& edge : node->next_edges()) rest.push_back(edge.function.get());
    }
    return std::count_if(seen.begin(), seen.end(), [&](auto* node) { return node->name() == name; });
  };
  const auto others = nodes("AddmmBackward0");  // of inputs with gaps between rows
  CHECK(nodes("LinearBackward") > 4 * others);
  const OneByOne guard;
  CHECK(nodes("LinearBackward") == 0);
  CHECK(nodes("AddmmBackward0") > 4 * others);
}

TEST_CASE("Layers run one by one without gradients, and where a segment parts them") {
  auto model = load("vit");
  std::int64_t all = 0;
  {
    const OneByOne guard;
    all = step(model, "vit").products;
  }
  const auto joined = step(model, "vit").products;
  {
    const at::NoGradGuard no_gradients;
    CHECK(step(model, "vit").products == all);
  }
  const auto& program = model->program();
  const auto groups = exported::find_joint_layers(program.graph, program.tensors.linears);
  REQUIRE(groups.size() > 1);
  CHECK(groups[0].nodes.size() == 3);
  const auto name_of = [&](std::size_t node) { return program.graph.nodes[groups[0].nodes[node]].name; };
  model->checkpoint_between(name_of(1), name_of(1), {.mode = lt::CheckpointMode::off});
  CHECK(step(model, "vit").products == joined + 2);
  model->checkpoint_nothing();
  model->checkpoint_between(name_of(0), name_of(2), {.mode = lt::CheckpointMode::off});
  CHECK(step(model, "vit").products == joined);
}

TEST_CASE("A group ends where a tensor is written or a mode is switched, and has one input and one module") {
  const auto groups_of = [](std::vector<exported::GraphNode> nodes) {
    exported::Graph graph;
    graph.modules = {{""}, {"a.q"}, {"a.k"}, {"b.q"}};
    graph.nodes = std::move(nodes);
    std::map<std::size_t, exported::LinearPartImpl*> linears;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      if (graph.nodes[i].op() && graph.nodes[i].results.size() == 1) linears[i] = nullptr;
    return exported::find_joint_layers(graph, linears).size();
  };
  exported::GraphNode write = linear(0, 9, 0);
  write.action = *c10::Dispatcher::singleton().findSchema({"aten::relu_", ""});
  write.results.clear();
  exported::GraphNode scope = write;
  scope.action = exported::BeginScope{};
  CHECK(groups_of({linear(0, 1, 1), linear(0, 2, 2)}) == 1);
  CHECK(groups_of({linear(0, 1, 1), write, linear(0, 2, 2)}) == 0);
  CHECK(groups_of({linear(0, 1, 1), scope, linear(0, 2, 2)}) == 0);
  CHECK(groups_of({linear(0, 1, 1), linear(3, 2, 2)}) == 0);
  CHECK(groups_of({linear(0, 1, 1), linear(0, 2, 3)}) == 0);
  CHECK(groups_of({linear(0, 1, 1), linear(0, exported::kNoSlot, 2)}) == 0);
}
