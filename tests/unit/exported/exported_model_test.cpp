// SPDX-License-Identifier: MIT
// Models of tests/parity/exported_programs.py: outputs, gradients, buffers and training are Python's.
//
// Tests exported/archive: exported_error
//
// Tests exported/graph: graph, read_arguments, read_graph, run_graph, signature
//
// Tests exported/module: check_inputs, model_runner, module_tree, program_file, training_modes,
// weight_registry
#include <looptorch/exported/exported_model.hpp>

#include "programs.hpp"
#include "support/catch.hpp"
#include "support/reference.hpp"
#include "support/warnings.hpp"

namespace lt = looptorch;
using namespace exported_programs;

static const std::vector<std::string> kNames{"cnn",
                                             "cnn_decomposed",
                                             "cnn_eval",
                                             "recurrent",
                                             "encoder",
                                             "scoped",
                                             "picked",
                                             "norms",
                                             "channels",
                                             "norms_decomposed",
                                             "fixed_bias",
                                             "half_bias",
                                             "channels_decomposed",
                                             "columns",
                                             "columns_decomposed",
                                             "twice"};

TEST_CASE("An exported model computes Python's outputs, gradients and buffers") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    auto model = load(name);
    const auto& wanted = recorded(name);
    torch::manual_seed(7);
    const auto outputs = model->forward(inputs_of(wanted));
    const auto loss = loss_of(outputs);
    loss.backward();
    REQUIRE(wanted.contains("output." + std::to_string(outputs.size() - 1)));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      CHECK(reference::difference(outputs[i], wanted.at("output." + std::to_string(i))) < 1e-6);
    CHECK(reference::difference(loss, wanted.at("loss")) < 1e-6);
    std::size_t gradients = 0;
    for (const auto& parameter : model->named_parameters()) {
      CAPTURE(parameter.key());
      const auto found = wanted.find("gradient." + parameter.key());
      REQUIRE(parameter.value().grad().defined() == (found != wanted.end()));
      if (found == wanted.end()) continue;
      CHECK(reference::difference(parameter.value().grad(), found->second) < 1e-6);
      ++gradients;
    }
    for (const auto& buffer : model->named_buffers()) {
      CAPTURE(buffer.key());
      CHECK(reference::difference(buffer.value(), wanted.at("buffer." + buffer.key())) < 1e-6);
    }
    CHECK(gradients == count(wanted, "gradient."));
    CHECK(model->named_buffers().size() == count(wanted, "buffer."));
  }
}

TEST_CASE("50 steps of AdamW have Python's losses") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    auto model = load(name);
    const auto& wanted = recorded(name);
    const auto inputs = inputs_of(wanted);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(1e-2));
    // Python's loss of the first step is recorded twice, so that buffers are one batch ahead.
    torch::manual_seed(7);
    {
      const at::NoGradGuard no_gradients;
      (void)model->forward(inputs);
    }
    torch::manual_seed(7);
    for (std::int64_t step = 0; step < 50; ++step) {
      optimizer.zero_grad();
      const auto loss = loss_of(model->forward(inputs));
      loss.backward();
      optimizer.step();
      CAPTURE(step);
      REQUIRE(std::abs(loss.item<double>() - wanted.at("losses")[step].item<double>()) < 1e-5);
    }
  }
}

TEST_CASE("Inputs and outputs have names") {
  auto model = load("encoder");
  REQUIRE(model->inputs().size() == 3);
  CHECK(model->inputs()[0].name == "ids");
  CHECK(model->inputs()[0].dtype == at::kLong);
  CHECK_FALSE(model->inputs()[0].dims[0].size);
  CHECK(model->inputs()[0].dims[1].symbol == model->inputs()[1].dims[1].symbol);
  CHECK(model->inputs()[2].name == "factor");
  CHECK(model->output_names() == std::vector<std::string>{"logits", "hidden.0", "hidden.1"});
  CHECK(model->output("hidden.1") == 2);
  const auto inputs = inputs_of(recorded("encoder"));
  model->eval();
  const auto by_name =
      model->forward_by_name({{"mask", inputs[1]}, {"factor", inputs[2]}, {"ids", inputs[0]}});
  const auto by_position = model->forward(inputs[0], inputs[1], inputs[2]);
  CHECK(at::equal(by_name[0], by_position[0]));
  CHECK_THROWS_MATCHES(
      model->forward_by_name({{"ids", inputs[0]}}), lt::UsageError,
      Catch::Matchers::Message("the input \"mask\" is missing: the model takes ids, mask, factor"));
  CHECK_THROWS_MATCHES(
      model->forward_by_name(
          {{"mask", inputs[1]}, {"factor", inputs[2]}, {"ids", inputs[0]}, {"x", inputs[0]}}),
      lt::UsageError, Catch::Matchers::Message("there is no input \"x\": the model takes ids, mask, factor"));
  CHECK_THROWS_AS(model->output("scores"), lt::UsageError);
}

TEST_CASE("Inputs that do not fit are refused by name") {
  auto model = load("encoder");
  const auto inputs = inputs_of(recorded("encoder"));
  const auto refusal = [&](const at::Tensor& ids, const at::Tensor& mask) {
    try {
      (void)model->forward(ids, mask, inputs[2]);
    } catch (const lt::UsageError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK(refusal(inputs[0].to(at::kFloat), inputs[1]) ==
        "the input \"ids\" is Float, and was exported as Long");
  CHECK(refusal(inputs[0][0], inputs[1]) ==
        "the input \"ids\" has sizes [8], and was exported with 2 dimensions");
  CHECK(refusal(inputs[0], inputs[1].slice(1, 0, 6)) ==
        "the input \"mask\" has sizes [3, 6]: dimension 1 must be 8, as another one");
  CHECK(refusal(at::Tensor(), inputs[1]) == "the input \"ids\" is undefined");
  CHECK_THROWS_MATCHES(model->forward(inputs[0]), lt::UsageError,
                       Catch::Matchers::Message("the model takes ids, mask, factor: 3 tensors, not 1"));
  auto cnn = load("cnn");
  CHECK_THROWS_MATCHES(
      cnn->forward(torch::zeros({2, 4, 6, 6})), lt::UsageError,
      Catch::Matchers::Message("the input \"image\" has sizes [2, 4, 6, 6]: dimension 1 is fixed at 3. "
                               "Export the model with it dynamic for others"));
}

TEST_CASE("Weights have Python's names, and tied ones are there once") {
  auto model = load("encoder");
  const auto parameters = model->named_parameters();
  CHECK(parameters.contains("encoder.layers.1.self_attn.in_proj_weight"));
  CHECK(parameters.contains("embed.weight"));
  CHECK_FALSE(parameters.contains("head.weight"));
  CHECK(model->named_buffers().contains("scale"));
  std::set<std::string> modules;
  for (const auto& module : model->named_modules()) modules.insert(module.key());
  CHECK(modules.contains("encoder.layers.0.dropout1"));
}

TEST_CASE("Eval mode of a model that was exported in training mode") {
  auto model = load("cnn"), other = load("cnn_eval");
  const at::NoGradGuard no_gradients;
  const auto input = inputs_of(recorded("cnn"))[0];
  model->eval();
  CHECK(reference::difference(model->forward(input)[0], other->forward(input)[0]) < 1e-6);
  CHECK(model->named_buffers()["blocks.0.bn.num_batches_tracked"].item<int>() == 0);
  auto decomposed = load("cnn_decomposed");
  decomposed->eval();
  CHECK(reference::difference(decomposed->forward(input)[0], other->forward(input)[0]) < 1e-6);
  CHECK(decomposed->named_buffers()["blocks.0.bn.num_batches_tracked"].item<int>() == 0);
  SECTION("of one part") {
    model->train();
    model->named_modules()["blocks"]->eval();
    const auto before = model->named_buffers()["blocks.1.bn.running_mean"].clone();
    (void)model->forward(input);
    CHECK(at::equal(before, model->named_buffers()["blocks.1.bn.running_mean"]));
  }
}

TEST_CASE("Eval mode of norms, with and without statistics, and of dropout of channels is Python's") {
  for (const std::string name : {"norms", "norms_decomposed", "channels", "twice"}) {
    CAPTURE(name);
    auto model = load(name);
    model->eval();
    const auto& wanted = recorded(name);
    const at::Tensor output = model->forward(inputs_of(wanted))[0];
    CHECK(reference::difference(output, wanted.at("eval.0")) < 1e-6);
    for (const auto& buffer : model->named_buffers())
      CHECK(at::equal(buffer.value(), load(name)->named_buffers()[buffer.key()]));
  }
}

// PyTorch's functional.batch_norm has this check, which is not part of a program. Without it the running
// variance becomes NaN.
TEST_CASE("Batch norm of one value in each channel is refused in training mode, as by PyTorch") {
  for (const std::string name : {"columns", "columns_decomposed"}) {
    CAPTURE(name);
    auto model = load(name);
    CHECK_THROWS_WITH(
        model->forward(torch::ones({1, 3})),
        "batch norm of bn needs more than one value in each channel to train, and its input has sizes "
        "[1, 3]: choose a batch size that does not leave one sample for an epoch's last batch");
    CHECK(at::equal(model->named_buffers()["bn.running_var"], torch::ones({3})));
    model->eval();
    CHECK(model->forward(torch::ones({1, 3}))[0].isfinite().all().item<bool>());
    model->train();
    (void)model->forward(torch::ones({2, 3}));
    CHECK(model->named_buffers()["bn.running_var"].isfinite().all().item<bool>());
  }
  auto cnn = load("cnn");
  CHECK(cnn->forward(torch::ones({1, 3, 6, 6}))[0].isfinite().all().item<bool>());  // 36 values
}

TEST_CASE("A program that draws random numbers in eval mode, too, says so") {
  auto model = load("channels_decomposed");
  CHECK(model->random_in_eval() == std::vector<std::string>{"bernoulli of drop", "bernoulli of alpha"});
  CHECK(model->lacks().empty());
  CHECK(load("channels")->random_in_eval().empty());
  CHECK(load("cnn_decomposed")->random_in_eval().empty());
  lt::testing::Warnings warnings;
  const auto input = inputs_of(recorded("channels"));
  (void)model->forward(input);
  CHECK(warnings.texts.empty());
  model->eval();
  (void)model->forward(input);
  (void)model->forward(input);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.texts[0].find("channels_decomposed.pt2 draws random numbers in eval mode, too: bernoulli "
                               "of drop, bernoulli of alpha") != std::string::npos);
}

TEST_CASE("A model that was exported in eval mode says what it lacks") {
  auto model = load("cnn_eval");
  CHECK(model->lacks() == std::vector<std::string>{"batch_norm of blocks.0.bn", "batch_norm of blocks.1.bn",
                                                   "dropout of drop"});
  lt::testing::Warnings warnings;
  const auto input = inputs_of(recorded("cnn_eval"));
  model->eval();
  (void)model->forward(input);
  model->train();
  {
    const at::NoGradGuard none;
    (void)model->forward(input);
  }
  CHECK(warnings.texts.empty());
  (void)model->forward(input);
  (void)model->forward(input);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.texts[0].find(
            "cnn_eval.pt2 was exported in eval mode: batch_norm of blocks.0.bn, batch_norm of "
            "blocks.1.bn, dropout of drop stay as they are while it trains") != std::string::npos);
  CHECK(load("cnn")->lacks().empty());
}
