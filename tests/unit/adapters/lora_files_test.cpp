// SPDX-License-Identifier: MIT
// Against the adapters, outputs and gradients that tests/parity/lora.py recorded with Python's peft.
#include "support/precompiled.hpp"

#include <looptorch/adapters/lora_files.hpp>
#include <looptorch/state/weights/module_state.hpp>

#include "support/temporary_folder.hpp"
#include "unit/adapters/adapted_net.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

namespace fs = std::filesystem;
namespace lt = looptorch;
using adapted::Net;
using adapted::wave;
using Catch::Contains;
using lt::Json;
using lt::testing::TemporaryFolder;

namespace {

const fs::path kPeft = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/lora";

const at::Tensor& recorded(const std::string& name) { return reference::tensors("lora").at(name); }

lt::TensorMap weights_of(const fs::path& folder) {
  return lt::load_safetensors(folder / "adapter_model.safetensors", {.mapped = false}).tensors;
}

/// Writes peft's folder with another configuration or other tensors.
void write_folder(const fs::path& folder, const Json& config, const lt::TensorMap& tensors) {
  fs::create_directories(folder);
  lt::write_file_atomically(folder / "adapter_config.json", config.dump());
  lt::save_safetensors(folder / "adapter_model.safetensors", tensors);
}

Json config_with(const char* key, Json value) {
  Json config = lt::load_json(kPeft / "adapter_config.json");
  config.set(key, std::move(value));
  return config;
}

/// Loads into a new model, which must stay as it is.
void refuses(const fs::path& folder, const std::string& why) {
  INFO(why);
  Net net;
  CHECK_THROWS_AS(lt::load_lora(*net, folder), lt::LoraError);
  CHECK_THROWS_WITH(lt::load_lora(*net, folder), Contains(why) && Contains(folder.string()));
  CHECK(lt::state_dict(net).size() == 5);
  CHECK(net->fc1->weight.requires_grad());
}

}  // namespace

TEST_CASE("peft's adapters compute peft's outputs and gradients", "[lora]") {
  Net net;
  lt::load_lora(*net, kPeft);
  net->eval();
  CHECK(net->fc1->adapter_options().dropout == 0.25);
  CHECK_FALSE(net->inner->fc1->has_adapter());
  const auto output = net(wave({4, 5}, 0.5));
  CHECK(reference::difference(output, recorded("output")) < 1e-6);
  (output * wave(output.sizes(), 2.5)).sum().backward();
  int compared = 0;
  for (const auto& item : net->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    CHECK(reference::difference(item.value().grad(), recorded("grad." + item.key())) < 1e-5);
    ++compared;
  }
  CHECK(compared == 4);
  lt::merge_lora(*net);
  CHECK(reference::difference(net->fc1->weight, recorded("merged")) < 1e-6);
}

TEST_CASE("saved adapters are peft's file, tensor by tensor, and load again", "[lora]") {
  const TemporaryFolder folder;
  Net net;
  lt::load_lora(*net, kPeft);
  lt::save_lora(*net, folder / "mine");
  lt::merge_lora(*net);
  lt::save_lora(*net, folder / "merged");  // merged or not
  const auto theirs = weights_of(kPeft);
  for (const char* name : {"mine", "merged"}) {
    const auto ours = weights_of(folder / name);
    CHECK(ours.size() == theirs.size());
    for (const auto& [key, tensor] : theirs) CHECK(torch::equal(ours.at(key), tensor));
  }
  const Json config = lt::load_json(folder / "mine/adapter_config.json");
  CHECK(config.at("r").as_int() == 2);
  CHECK(config.at("lora_alpha").as_number() == 5);
  CHECK(config.at("target_modules").as_string() == "(fc1|out)");  // a list would also match inner.fc1

  Net other;
  lt::add_lora(*other, {.rank = 2, .alpha = 5, .patterns = {"fc1", "out"}});
  lt::load_lora(*other, folder / "mine");  // into adapters that it has
  CHECK(torch::equal(other->out->b(), net->out->b()));

  Net all;
  lt::add_lora(*all, {.rank = 3, .rank_stabilized = true});
  lt::save_lora(*all, folder / "all");
  CHECK(lt::load_json(folder / "all/adapter_config.json").at("target_modules") ==
        Json::array({"fc1", "inner.fc1", "out"}));
  Net again;
  lt::load_lora(*again, folder / "all");
  CHECK(again->fc1->adapter_options().rank_stabilized);
}

TEST_CASE("files that do not fit are refused by name", "[lora]") {
  const TemporaryFolder folder;
  const auto theirs = weights_of(kPeft);
  const Json config = lt::load_json(kPeft / "adapter_config.json");
  const std::string stem = "base_model.model.fc1.lora_";
  const auto with = [&](const std::string& name, const at::Tensor& tensor) {
    auto tensors = theirs;
    tensors[name] = tensor;
    return tensors;
  };
  const auto refuses_tensors = [&](const lt::TensorMap& tensors, const std::string& why) {
    write_folder(folder / "bad", config, tensors);
    refuses(folder / "bad", why);
  };
  refuses_tensors(with(stem + "A.weight", torch::zeros({2, 6})),
                  "\"fc1.lora_A.weight\" is [2, 6] instead of [2, 5]");
  refuses_tensors(with(stem + "B.weight", torch::zeros({7, 3})),
                  "\"fc1.lora_B.weight\" is [7, 3] instead of [7, 2]");
  refuses_tensors(with(stem + "A.weight", torch::zeros({2, 5}, torch::kLong)), "is Long");
  refuses_tensors(with("base_model.model.fc3.lora_A.weight", torch::zeros({2, 5})), "no Lora layer \"fc3\"");
  refuses_tensors(with("fc1.weight", torch::zeros({2, 5})), "\"fc1.weight\" is no adapter's");
  refuses_tensors(with("base_model.model.fc1.lora_magnitude_vector", torch::zeros(7)), "is no adapter's");
  refuses_tensors({}, "has no adapters");
  auto half = theirs;
  half.erase(stem + "B.weight");
  refuses_tensors(half, "\"fc1.lora_B.weight\" is missing");

  const auto refuses_config = [&](const char* key, Json value, const std::string& why) {
    write_folder(folder / "bad", config_with(key, std::move(value)), theirs);
    refuses(folder / "bad", why);
  };
  refuses_config("peft_type", "IA3", "peft_type is not \"LORA\"");
  refuses_config("use_dora", true, "use_dora is set");
  refuses_config("bias", "all", "bias is not \"none\"");
  refuses_config("modules_to_save", Json::array({"out"}), "modules_to_save is set");
  refuses_config("rank_pattern", Json::object().set("fc1", 4), "rank_pattern is set");
  refuses_config("init_lora_weights", "pissa", "init_lora_weights is \"pissa\"");
  refuses_config("r", 0, "rank must be at least 1, got 0");
  refuses_config("r", 3, "is [2, 5] instead of [3, 5]");
  refuses_config("r", "two", "expected an integer");
  lt::write_file_atomically(folder / "bad/adapter_config.json", "{\"peft_type\"");
  refuses(folder / "bad", "adapter_config.json");
  Net net;
  CHECK_THROWS_AS(lt::load_lora(*net, folder / "none"), lt::FileError);
  CHECK_THROWS_WITH(lt::save_lora(*net, folder / "none"), Contains("save_lora: the model has no adapters"));
}

TEST_CASE("a model with other adapters than the file's is refused", "[lora]") {
  const auto refuses_with = [](const lt::LoraOptions& options, const std::string& why) {
    Net net;
    lt::add_lora(*net, options);
    const at::Tensor before = net->fc1->a().clone();
    CHECK_THROWS_WITH(lt::load_lora(*net, kPeft), Contains(why));
    CHECK(torch::equal(net->fc1->a(), before));
  };
  refuses_with({.rank = 4, .alpha = 5, .patterns = {"fc1", "out"}}, "the model's adapters have 4 and 5");
  refuses_with({.rank = 2, .alpha = 5, .patterns = {"fc1", "out"}, .rank_stabilized = true},
               "(rank-stabilised)");
  refuses_with({.rank = 2, .alpha = 5, .patterns = {"fc1"}}, "has 2 adapters, the model 1");
  refuses_with({.rank = 2, .alpha = 5}, "no adapter for the model's \"inner.fc1\"");
  Net merged;
  lt::load_lora(*merged, kPeft);
  lt::merge_lora(*merged);
  CHECK_THROWS_WITH(lt::load_lora(*merged, kPeft), Contains("call unmerge_lora"));
}

// Writes adapters for `tests/parity/lora.py FOLDER`, which checks them with peft: [.peft] runs on request.
TEST_CASE("adapters for peft to load", "[.peft]") {
  const char* const folder = std::getenv("LOOPTORCH_LORA_FOLDER");
  if (!folder) return;  // all cases of this file are run
  torch::manual_seed(2);
  Net net;
  lt::add_lora(*net, {.rank = 3, .alpha = 7, .patterns = {"fc1", "out"}, .rank_stabilized = true});
  const torch::NoGradGuard no_grad;
  net->fc1->b().normal_();
  net->out->b().normal_();
  net->eval();
  const auto x = wave({4, 5}, 1.5);
  lt::save_lora(*net, folder);
  lt::save_safetensors(fs::path(folder) / "outputs.safetensors", {{"input", x}, {"output", net(x)}});
}
