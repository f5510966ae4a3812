// SPDX-License-Identifier: MIT
// An exported model goes out again with trained weights, by its own program and by export_model's trace.
#include <looptorch/adapters/lora.hpp>
#include <looptorch/export/export_model.hpp>
#include <looptorch/exported/save_exported.hpp>

#include "archives.hpp"
#include "programs.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

namespace lt = looptorch;
using namespace exported_programs;

namespace {

void train(lt::ExportedModel& model, const std::string& name) {
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    loss_of(model->forward(inputs_of(recorded(name)))).backward();
    optimizer.step();
  }
}

void check_equal(lt::ExportedModel& a, lt::ExportedModel& b, const std::string& name) {
  const at::NoGradGuard no_gradients;
  const auto inputs = inputs_of(recorded(name));
  torch::manual_seed(5);
  const auto of_a = a->forward(inputs);
  torch::manual_seed(5);
  const auto of_b = b->forward(inputs);
  for (std::size_t i = 0; i < of_a.size(); ++i) CHECK(reference::difference(of_a[i], of_b[i]) < 1e-6);
}

}  // namespace

TEST_CASE("An exported model that is written again has the trained weights and the same program") {
  const lt::testing::TemporaryFolder folder;
  for (const std::string name : {"cnn", "recurrent", "encoder", "twice"}) {
    CAPTURE(name);
    auto model = load(name);
    train(model, name);
    const auto path = folder / (name + ".pt2");
    lt::save_exported(model, path);
    lt::ExportedModel again(path);
    for (const auto& item : model->named_parameters())
      CHECK(at::equal(item.value(), again->named_parameters()[item.key()]));
    for (const auto& item : model->named_buffers())
      CHECK(at::equal(item.value(), again->named_buffers()[item.key()]));
    check_equal(model, again, name);
    CHECK(archives::read(path).at("models/model.json") ==
          archives::read(exported_programs::path(name)).at("models/model.json"));
    lt::save_exported(again, path);  // over the file that is mapped
    lt::ExportedModel third(path);
    check_equal(again, third, name);
  }
}

TEST_CASE("Adapters are folded before a model is written again") {
  const lt::testing::TemporaryFolder folder;
  auto model = load("encoder");
  lt::add_lora(*model, {.rank = 2, .patterns = {"encoder.layers.?.linear1"}});
  CHECK_THROWS_MATCHES(
      lt::save_exported(model, folder / "m.pt2"), lt::UsageError,
      Catch::Matchers::Message("the model has adapters, or weights in 8 bits, which its program knows "
                               "nothing of: call fold_lora before it is exported"));
  train(model, "encoder");
  lt::fold_lora(*model);
  lt::save_exported(model, folder / "m.pt2");
  lt::ExportedModel again((folder / "m.pt2").string());
  check_equal(model, again, "encoder");
}

TEST_CASE("export_model traces an exported model, as any module") {
  const lt::testing::TemporaryFolder folder;
  auto model = load("cnn");
  train(model, "cnn");
  const auto image = inputs_of(recorded("cnn"))[0];
  lt::export_model(model, image, folder / "traced.pt2",
                   {.input_names = {"image"}, .dynamic = {{.name = "batch", .places = {{0, 0}}}}});
  lt::ExportedModel traced((folder / "traced.pt2").string());
  CHECK(traced->inputs()[0].name == "image");
  CHECK_FALSE(traced->lacks().empty());
  model->eval();
  traced->eval();
  for (const std::int64_t batch : {1, 3, 7}) {
    const auto images = torch::randn({batch, 3, 6, 6});
    CHECK(reference::difference(model->forward(images)[0], traced->forward(images)[0]) < 1e-6);
  }
}
