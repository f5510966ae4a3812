// SPDX-License-Identifier: MIT
// --weights FILE: what of a file reaches the model, what is said of it, and what is refused before anything
// is copied.
#include "support/precompiled.hpp"

#include <looptorch/app/weights/first_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace lt = looptorch;
using Catch::Contains;
using lt::testing::TemporaryFolder;

namespace {

const fs::path kTorch = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/torch_checkpoints";
const fs::path kFirst = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/first_weights";

struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc = register_module("fc", torch::nn::Linear(3, 2));
    head = register_module("head", torch::nn::Linear(2, 2));
  }
  torch::nn::Linear fc{nullptr}, head{nullptr};
};
TORCH_MODULE(Net);

/// Two players, as of a GAN.
struct PairImpl : torch::nn::Module {
  PairImpl() {
    generator = register_module("generator", torch::nn::Linear(3, 2));
    discriminator = register_module("discriminator", torch::nn::Linear(3, 2));
  }
  torch::nn::Linear generator{nullptr}, discriminator{nullptr};
};
TORCH_MODULE(Pair);

const app::FirstWeightsOptions kPlayers{
    .parts = {"generator", "discriminator"}, .translate = {}, .advise = {}};

at::Tensor weight() { return at::arange(6, at::kFloat).reshape({2, 3}) / 8; }

lt::TensorMap copy(const torch::nn::Module& net) {
  lt::TensorMap tensors;
  for (const auto& [name, tensor] : lt::state_dict(net)) tensors[name] = tensor.detach().clone();
  return tensors;
}

/// Checks that loading throws this and leaves each tensor as it was.
template <class Error = lt::ModuleStateError>
void refuses(const torch::nn::Module& net, const app::FirstWeights& weights, const std::string& why,
             const app::FirstWeightsOptions& options = {}) {
  const auto before = copy(net);
  CHECK_THROWS_WITH(app::load_first_weights(net, weights, options), Contains(why));
  CHECK_THROWS_AS(app::load_first_weights(net, weights, options), Error);
  for (const auto& [name, tensor] : lt::state_dict(net)) CHECK(tensor.equal(before.at(name)));
}

}  // namespace

TEST_CASE("app: weights that a file has reach the model, the others stay, and each is said") {
  for (const char* const name : {"protocol_2.pt", "ddp.pth", "compiled.pth"}) {
    Net net;
    const auto before = copy(*net);
    const auto report = app::load_first_weights(*net, {.file = kTorch / name});
    CHECK(net->fc->weight.equal(weight()));
    CHECK(net->head->weight.equal(before.at("head.weight")));
    CHECK(report.has("fc.weight"));
    CHECK_FALSE(report.has("head.weight"));
    CHECK_THAT(report.names.text(), Contains("2 loaded"));
    CHECK_THAT(report.names.text(), Contains("2 missing: head.bias"));
    CHECK_THAT(report.names.text(), Contains("1 surplus: steps"));
    CHECK(report.notes.empty());
    if (std::string(name) == "ddp.pth")
      CHECK_THAT(report.names.text(), Contains("with \"module.\" in front"));
  }
}

TEST_CASE("app: weights are renamed, wrapped or not, and skipped") {
  for (const std::string name : {"protocol_2.pt", "ddp.pth"}) {
    Net net;
    const auto before = copy(*net);
    (void)app::load_first_weights(
        *net, {.file = kTorch / name, .renames = {"fc.weight=", "fc.bias=head.bias", "steps="}});
    CHECK(net->fc->weight.equal(before.at("fc.weight")));
    CHECK(net->head->bias.equal(at::arange(2, at::kFloat) - 0.5));
  }
  Net net;
  (void)app::load_first_weights(*net, {.file = kTorch / "ddp.pth", .renames = {"module.fc.bias=head.bias"}});
  CHECK(net->head->bias.equal(at::arange(2, at::kFloat) - 0.5));
  CHECK(net->fc->weight.equal(weight()));
  refuses<lt::UsageError>(*Net(), {.file = kTorch / "ddp.pth", .renames = {"fc.bas=head.bias"}},
                          "matches no name in " + (kTorch / "ddp.pth").string() + "; near: fc.bias");
  refuses<lt::UsageError>(*Net(), {.file = kTorch / "ddp.pth", .renames = {"*.bias=x", "*.weight=x"}},
                          "both \"module.fc.bias\" and \"module.fc.weight\" would be loaded as \"x\"");
}

TEST_CASE("app: weights of another shape, and those of another model, change nothing") {
  const TemporaryFolder folder;
  lt::save_safetensors(folder / "other.safetensors",
                       {{"fc.weight", at::ones({2, 4})}, {"fc.bias", at::ones({2})}});
  refuses(
      *Net(), {.file = folder / "other.safetensors"},
      "does not fit the model, and nothing was loaded; 1 of another shape: fc.weight [2, 4] instead of [2, 3]. "
      "--rename fc.weight= leaves one out");
  refuses(*Net(), {.file = folder / "other.safetensors"}, "[2, 3]. Take the other size",
          {.parts = {}, .translate = {}, .advise = [](const lt::TensorMap& tensors) {
             return "Take the other size: " + std::to_string(tensors.size());
           }});
  lt::save_safetensors(folder / "names.safetensors",
                       {{"fcc.weight", at::ones({2, 3})}, {"zzzzzz", at::ones({2})}});
  refuses(
      *Net(), {.file = folder / "names.safetensors"},
      "none of its names is one of the model's; 2 in the file: fcc.weight (near: fc.weight), zzzzzz; the model has ");
  refuses(*Pair(), {.file = kTorch / "checkpoint.pt"}, "bias (near: generator.bias, discriminator.bias)");
  refuses<lt::FileError>(*Net(), {.file = folder / "none.pt"}, "none.pt");
  refuses<lt::FileError>(*Net(), {.file = folder.path()}, folder.path().string());
  std::ofstream(folder / "text.pt") << "these are no weights";
  refuses<lt::Error>(*Net(), {.file = folder / "text.pt"}, "text.pt");
  refuses<lt::Error>(*Net(), {.file = kTorch / "legacy.pt"}, "torch.save(torch.load(");
}

TEST_CASE("app: of a checkpoint only weights carry over, which is said with the keys") {
  torch::nn::Linear net(3, 2);
  const auto report = app::load_first_weights(*net, {.file = kTorch / "checkpoint.pt"});
  CHECK_THAT(report.names.text(), Contains("2 loaded from \"model_state_dict\""));
  REQUIRE(report.notes.size() == 1);
  CHECK_THAT(report.notes[0], Contains("only weights carry over, not \"epoch\", \"best\""));
  CHECK_THAT(report.notes[0], Contains("\"optimizer_state_dict\": epochs, optimizer"));
}

TEST_CASE("app: weights of two players come from names, from two dictionaries, and from two files") {
  const TemporaryFolder folder;
  lt::save_safetensors(folder / "generator.safetensors", {{"weight", weight()}, {"bias", at::ones({2})}});
  lt::save_safetensors(folder / "discriminator.safetensors",
                       {{"weight", -weight()}, {"bias", at::zeros({2})}});
  lt::save_safetensors(folder / "both.safetensors",
                       {{"generator.weight", weight()}, {"discriminator.weight", -weight()}});
  for (const fs::path& file :
       {folder.path(), folder / "both.safetensors", kFirst / "gan.pt", kFirst / "gan_state_dicts.pt"}) {
    INFO(file);
    Pair net;
    const auto report = app::load_first_weights(*net, {.file = file}, kPlayers);
    CHECK(net->generator->weight.equal(weight()));
    CHECK(net->discriminator->weight.equal(-weight()));
    if (file.filename() == "gan.pt") {
      CHECK_THAT(report.names.text(), Contains("from \"discriminator\", \"generator\"") ||
                                          Contains("from \"generator\", \"discriminator\""));
      CHECK_THAT(report.notes.at(0), Contains("\"epoch\", \"optimizer_g\""));
    }
  }
  Pair net;  // a generator alone, by a rule
  const auto before = copy(*net);
  (void)app::load_first_weights(*net, {.file = folder / "generator.safetensors", .renames = {"=generator."}},
                                kPlayers);
  CHECK(net->generator->weight.equal(weight()));
  CHECK(net->discriminator->weight.equal(before.at("discriminator.weight")));
}

TEST_CASE("app: a program's translation comes after the rules and without wrappers") {
  const app::FirstWeightsOptions options{.parts = {},
                                         .translate = [](lt::TensorMap& tensors) -> std::string {
                                           if (!tensors.contains("theirs.weight")) return {};
                                           auto node = tensors.extract("theirs.weight");
                                           node.key() = "fc.weight";
                                           tensors.insert(std::move(node));
                                           return "their names";
                                         },
                                         .advise = {}};
  Net net;
  const auto report =
      app::load_first_weights(*net, {.file = kTorch / "ddp.pth", .renames = {"fc.=theirs."}}, options);
  CHECK(net->fc->weight.equal(weight()));
  CHECK(report.notes == std::vector<std::string>{"their names"});
}

TEST_CASE("app: a resumed run does not read --weights, and says so") {
  Net net;
  const auto before = copy(*net);
  std::string said;
  {
    lt::testing::CapturedStderr captured;
    (void)app::begin_from_weights(*net, {.file = "nowhere.pt"}, /*resumes=*/true);
    said = captured.text();
  }
  CHECK_THAT(said, Contains("--weights is not read: the run resumes from a snapshot, with its weights"));
  for (const auto& [name, tensor] : lt::state_dict(net)) CHECK(tensor.equal(before.at(name)));
  CHECK(app::begin_from_weights(*net, {}, /*resumes=*/false).names.loaded.empty());
}

TEST_CASE("app: the flags of weights are a file and rules that may be many") {
  app::FirstWeights weights;
  app::CommandLine line("train", "Trains.");
  app::add_weights_flags(line, weights, "More.");
  CHECK_THAT(line.help(),
             Contains("--weights FILE") && Contains("--rename OLD=NEW") && Contains("is listed. More."));
  std::vector<std::string> words{"train", "--weights", "a.pt", "--rename", "a.=b.", "--rename=c.*="};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  CHECK(line.parse(static_cast<int>(argv.size()), argv.data()));
  CHECK(weights.file == "a.pt");
  CHECK(weights.renames == std::vector<std::string>{"a.=b.", "c.*="});
  CHECK_NOTHROW(app::check_weights_flags(weights));
  CHECK_THROWS_WITH(app::check_weights_flags({.file = {}, .renames = {"a=b"}}), Contains("--weights FILE"));
  CHECK_THROWS_AS(app::check_weights_flags({.file = "a", .renames = {"ab"}}), app::CommandLineError);
  CHECK_THAT(line.config_text(),
             Contains("\nrename=a.=b.\nrename=c.*=\n"));  // what a file for --config repeats
  CHECK(app::rename_rules({"a.=b., c.*="}).size() == 2);
  bool listed = false;
  for (const auto& [name, value] : line.settings())
    listed = listed || (name == "rename" && value == "a.=b., c.*=");
  CHECK(listed);
}
