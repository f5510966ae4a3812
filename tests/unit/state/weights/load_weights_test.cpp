// SPDX-License-Identifier: MIT
// Tests state/weights: load_report, wrapped_names
#include "support/precompiled.hpp"

#include <looptorch/state/weights/load_weights.hpp>

#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

using Catch::Contains;
using looptorch::load_weights;
using looptorch::LoadReport;
using looptorch::ModuleStateError;
using looptorch::save_safetensors;
using looptorch::state_dict;
using looptorch::TensorMap;
using looptorch::testing::TemporaryFolder;
using Names = std::vector<std::string>;

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc = register_module("fc", torch::nn::Linear(3, 2));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
  }
  torch::nn::Linear fc{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

/// Two names of one tensor, as of a language model's embedding and output.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    in = register_parameter("in", torch::zeros({2}));
    out = register_parameter("out", in);
  }
  at::Tensor in, out;
};
TORCH_MODULE(Tied);

/// Values that no fresh Net has.
TensorMap other_state() {
  TensorMap tensors;
  for (const auto& [name, tensor] : state_dict(Net())) tensors[name] = torch::full_like(tensor, 5).detach();
  return tensors;
}

TensorMap snapshot(const Net& net) {
  TensorMap tensors;
  for (const auto& [name, tensor] : state_dict(net)) tensors[name] = tensor.detach().clone();
  return tensors;
}

bool same(const TensorMap& a, const TensorMap& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](auto& x, auto& y) { return x.first == y.first && torch::equal(x.second, y.second); });
}

/// Checks that loading throws this and changes nothing; gives the report.
LoadReport refuses(const std::filesystem::path& path, const looptorch::LoadWeightsOptions& options,
                   const std::string& message) {
  Net net;
  const auto before = snapshot(net);
  CHECK_THROWS_WITH(load_weights(net, path, options), Contains(path.string() + ": ") && Contains(message));
  CHECK(same(snapshot(net), before));
  try {
    (void)load_weights(net, path, options);
  } catch (const ModuleStateError& error) {
    return error.report;
  }
  FAIL("no ModuleStateError");
  return {};
}

}  // namespace

TEST_CASE("load weights: parameters and buffers, into a holder or a module, with a report") {
  const TemporaryFolder folder;
  save_safetensors(folder / "x", other_state());
  const auto loads = [&](Net net, const LoadReport& report) {
    CHECK(report.loaded.size() == 7);
    CHECK((report.missing.empty() && report.surplus.empty() && report.unfit.empty()));
    CHECK(report.text() == "7 loaded");
    CHECK(same(snapshot(net), other_state()));
    CHECK(net->fc->weight.requires_grad());
    CHECK(net->norm->num_batches_tracked.item<int64_t>() == 5);
  };
  Net holder, module;
  loads(holder, load_weights(holder, folder / "x"));
  loads(module, load_weights(*module, folder / "x"));
}

TEST_CASE("load weights: what is loaded is the module's own, not the file's memory") {
  const TemporaryFolder folder;
  auto halves = other_state();
  for (auto& [name, tensor] : halves) tensor = tensor.is_floating_point() ? tensor.to(at::kBFloat16) : tensor;
  save_safetensors(folder / "x", halves);
  Net net;
  const auto* memory = net->fc->weight.const_data_ptr();
  load_weights(net, folder / "x");
  CHECK(net->fc->weight.const_data_ptr() == memory);
  CHECK(net->fc->weight.scalar_type() == at::kFloat);
  CHECK(same(snapshot(net), other_state()));
}

TEST_CASE("load weights: all faults stand in one error, with near names, and nothing is changed") {
  const TemporaryFolder folder;
  auto tensors = other_state();
  tensors["fc.bais"] = tensors["fc.bias"];
  tensors["model.norm.weight"] = tensors["norm.weight"];
  tensors.erase("fc.bias"), tensors.erase("norm.weight"), tensors.erase("norm.running_var");
  tensors["norm.bias"] = torch::zeros({5});
  tensors["fc.weight"] = torch::zeros({2, 3}, at::kComplexFloat);
  save_safetensors(folder / "x", tensors);
  const auto report = refuses(folder / "x", {},
                              "the weights do not fit the module; 3 missing: fc.bias (near: fc.bais), "
                              "norm.running_var, norm.weight (near: model.norm.weight); 2 surplus: fc.bais, "
                              "model.norm.weight; 2 unfit: fc.weight ComplexFloat instead of "
                              "Float, norm.bias [5] instead of [2]");
  CHECK(report.loaded == Names{"norm.num_batches_tracked", "norm.running_mean"});
  CHECK(report.missing == Names{"fc.bias", "norm.running_var", "norm.weight"});
  CHECK(report.surplus == Names{"fc.bais", "model.norm.weight"});
  REQUIRE(report.unfit.size() == 2);
  CHECK(report.unfit[1].name == "norm.bias");
  CHECK(report.unfit[1].why == "[5] instead of [2]");
}

TEST_CASE("load report: eight names are listed in full, a ninth is counted") {
  const auto text = [](int missing) {
    LoadReport report;
    for (int i = 0; i < missing; ++i) report.missing.push_back(std::to_string(i));
    return report.text();
  };
  CHECK(text(8) == "0 loaded; 8 missing: 0, 1, 2, 3, 4, 5, 6, 7");
  CHECK(text(9) == "0 loaded; 9 missing: 0, 1, 2, 3, 4, 5, 6, 7, and 1 more");
}

TEST_CASE("load report: names are in order, those that a tied name stands for among them") {
  struct ThreeImpl : torch::nn::Module {
    ThreeImpl() {
      register_parameter("a", torch::zeros({2}));
      register_parameter("c", register_parameter("b", torch::zeros({2})));
      register_parameter("d", torch::zeros({2}));
    }
  };
  const TemporaryFolder folder;
  const torch::nn::ModuleHolder<ThreeImpl> net;
  save_safetensors(folder / "x", {{"a", torch::ones({2})}, {"c", torch::ones({2})}, {"d", torch::ones({2})}});
  CHECK(load_weights(net, folder / "x").loaded == Names{"a", "b", "c", "d"});
}

TEST_CASE("load report: quantised values are not taken for floating-point ones") {
  const Net net;
  auto tensors = other_state();
  tensors["fc.bias"] = at::quantize_per_tensor(torch::ones({2}), 0.1, 0, at::kQInt8);
  CHECK_THROWS_WITH(looptorch::load_state_dict(net, tensors),
                    Contains("1 unfit: fc.bias QInt8 instead of Float"));
}

TEST_CASE("load weights: missing and surplus names pass only where they are allowed to") {
  const TemporaryFolder folder;
  auto tensors = other_state();
  tensors.erase("fc.bias");
  tensors["head"] = torch::zeros({1});
  save_safetensors(folder / "x", tensors);
  refuses(folder / "x", {.allow_surplus = true}, "module; 1 missing: fc.bias");
  refuses(folder / "x", {.allow_missing = true}, "module; 1 surplus: head");
  Net net;
  const auto bias = net->fc->bias.detach().clone();
  const auto report = load_weights(net, folder / "x", {.allow_missing = true, .allow_surplus = true});
  CHECK(report.missing == Names{"fc.bias"});
  CHECK(report.surplus == Names{"head"});
  CHECK(report.text() == "6 loaded; 1 missing: fc.bias; 1 surplus: head");
  CHECK(torch::equal(net->fc->bias, bias));
  CHECK(torch::equal(net->fc->weight, torch::full({2, 3}, 5.F)));
}

TEST_CASE("load weights: another shape is never allowed") {
  const TemporaryFolder folder;
  auto tensors = other_state();
  tensors["fc.weight"] = torch::zeros({3, 2});
  save_safetensors(folder / "x", tensors);
  refuses(folder / "x", {.allow_missing = true, .allow_surplus = true}, "fc.weight [3, 2] instead of [2, 3]");
  tensors["fc.weight"] = torch::zeros({2, 3});
  tensors["norm.num_batches_tracked"] = torch::zeros({});
  save_safetensors(folder / "x", tensors);
  refuses(folder / "x", {}, "norm.num_batches_tracked Float instead of Long");
}

TEST_CASE("load weights: nothing at all is an error even where all may be missing") {
  const TemporaryFolder folder;
  save_safetensors(folder / "x", other_state());
  refuses(folder / "x", {.allow_missing = true, .prefix = "model."},
          "no tensor of the file after \"model.\" has a place in it");
  save_safetensors(folder / "x", {{"other", torch::ones({1})}});
  refuses(folder / "x", {.allow_missing = true, .allow_surplus = true},
          "no tensor of the file has a place in it");
}

TEST_CASE("load weights: a prefix picks a part of the file") {
  const TemporaryFolder folder;
  TensorMap tensors{{"decoder.fc.weight", torch::zeros({9})}};
  for (const auto& [name, tensor] : other_state()) tensors["encoder." + name] = tensor;
  save_safetensors(folder / "x", tensors);
  Net net;
  const auto report = load_weights(net, folder / "x", {.prefix = "encoder."});
  CHECK(report.loaded.size() == 7);
  CHECK(report.surplus.empty());
  CHECK(same(snapshot(net), other_state()));
}

TEST_CASE("load weights: names are renamed, skipped, and never two to one") {
  const TemporaryFolder folder;
  TensorMap tensors{{"net.old", torch::zeros({1})}};
  for (const auto& [name, tensor] : other_state()) tensors["net." + name] = tensor;
  tensors["net.linear.weight"] = tensors["net.fc.weight"];
  tensors.erase("net.fc.weight");
  save_safetensors(folder / "x", tensors);
  const auto rename = [](const std::string& name) -> std::string {
    if (name == "old") return {};
    return name == "linear.weight" ? "fc.weight" : name;
  };
  Net net;
  CHECK(load_weights(net, folder / "x", {.rename = rename, .prefix = "net."}).loaded.size() == 7);
  CHECK(same(snapshot(net), other_state()));
  const auto collapse = [](const std::string&) { return std::string("one"); };
  CHECK_THROWS_AS(load_weights(net, folder / "x", {.rename = collapse}), looptorch::UsageError);
  CHECK_THROWS_WITH(load_weights(net, folder / "x", {.rename = collapse}),
                    Contains("both \"net.fc.bias\" and \"net.linear.weight\" would be loaded as \"one\""));
}

TEST_CASE("load weights: one name of tied weights is enough") {
  const TemporaryFolder folder;
  save_safetensors(folder / "x", {{"out", torch::ones({2})}});
  Tied tied;
  const auto report = load_weights(tied, folder / "x");
  CHECK(report.loaded == Names{"in", "out"});
  CHECK(torch::equal(tied->in, torch::ones({2})));
  looptorch::load_state_dict(tied, {{"in", torch::zeros({2})}});
  CHECK(torch::equal(tied->out, torch::zeros({2})));
  save_safetensors(folder / "x", {});
  CHECK_THROWS_WITH(load_weights(tied, folder / "x"), Contains("2 missing: in, out"));
}

TEST_CASE("load weights: two names of tied weights must agree, to the bit") {
  const TemporaryFolder folder;
  Tied tied;
  const auto load = [&](const at::Tensor& in, const at::Tensor& out) {
    save_safetensors(folder / "x", {{"in", in}, {"out", out}});
    return load_weights(tied, folder / "x").loaded;
  };
  CHECK_THROWS_WITH(load(torch::ones({2}), torch::full({2}, 2.0)),
                    Contains("; 1 unfit: out other values than in, to which it is tied"));
  CHECK(torch::equal(tied->in, torch::zeros({2})));
  CHECK(load(torch::ones({2}), torch::ones({2}, at::kHalf)) == Names{"in", "out"});
  CHECK(torch::equal(tied->out, torch::ones({2})));
  CHECK(load(torch::full({2}, NAN), torch::full({2}, NAN)) == Names{"in", "out"});
  CHECK_THROWS_AS(load(torch::zeros({2}), torch::full({2}, 1e-9)), ModuleStateError);
}

TEST_CASE("load weights: shards are loaded by their index or folder, and errors of files pass") {
  const TemporaryFolder folder;
  auto tensors = other_state();
  const auto bias = tensors.extract("fc.bias");
  save_safetensors(folder / "1.safetensors", {{"fc.bias", bias.mapped()}});
  save_safetensors(folder / "2.safetensors", tensors);
  auto map = looptorch::Json::object();
  for (const auto& [name, tensor] : other_state()) {
    map.set(name, name == "fc.bias" ? "1.safetensors" : "2.safetensors");
  }
  const auto index = folder / "model.safetensors.index.json";
  looptorch::write_file_atomically(index, looptorch::Json::object().set("weight_map", map).dump());
  for (const auto& path : {index, folder.path()}) {
    Net net;
    CHECK(load_weights(net, path).loaded.size() == 7);
    CHECK(same(snapshot(net), other_state()));
  }
  Net net;
  CHECK_THROWS_AS(load_weights(net, folder / "none"), looptorch::FileError);
}

TEST_CASE("load weights: every dtype of the format that a float can be made of is copied") {
  const TemporaryFolder folder;
  for (const auto& type : looptorch::detail::kSafetensorsTypes) {
    if (type.bits < 8 || !c10::canCast(type.scalar_type, at::kFloat)) continue;
    CAPTURE(type.name);
    save_safetensors(folder / "x", {{"in", torch::ones({2}).to(type.scalar_type)}});
    Tied tied;
    load_weights(tied, folder / "x");
    CHECK(torch::equal(tied->in, torch::ones({2})));
  }
}

TEST_CASE("load weights: a module without memory is refused, not passed over") {
  const TemporaryFolder folder;
  save_safetensors(folder / "x", {{"p", torch::zeros({2})}});
  torch::nn::Module net;
  net.register_parameter("p", torch::empty({2}, at::kMeta));
  CHECK_THROWS_WITH(load_weights(net, folder / "x"),
                    Contains("p into a tensor without memory (meta device)"));
}

TEST_CASE("load weights: what LibTorch cannot copy is refused before anything is changed") {
  const TemporaryFolder folder;
  const auto refuses = [&](const at::Tensor& own, const at::Tensor& given, const std::string& why) {
    torch::nn::Module net;
    const auto first = net.register_buffer("a", torch::zeros({1}));
    net.register_buffer("z", own);
    save_safetensors(folder / "x", {{"a", torch::ones({1})}, {"z", given}});
    CHECK_THROWS_AS(load_weights(net, folder / "x"), ModuleStateError);
    CHECK_THROWS_WITH(load_weights(net, folder / "x"), Contains("; 1 unfit: z " + why));
    CHECK(first.item<float>() == 0);
  };
  const auto packed = torch::zeros({4}, at::kByte).view(looptorch::detail::kFloat4);
  const std::string type = c10::toString(looptorch::detail::kFloat4);
  refuses(torch::zeros({4}), packed, type + " instead of Float");
  refuses(packed, torch::zeros({4}), "Float instead of " + type);
  refuses(torch::zeros({4}).expand({3, 4}), torch::zeros({3, 4}), "into a tensor that overlaps itself");
  refuses(torch::eye(2).to_sparse(), torch::eye(2), "Strided into Sparse");
  c10::InferenceMode guard;
  const auto frozen = torch::zeros({2});
  const c10::InferenceMode end(false);
  refuses(frozen, torch::zeros({2}), "into a tensor of inference mode");
}

TEST_CASE("load weights: every pair of dtypes is copied or refused, F4 to F4 copied") {
  const TemporaryFolder folder;
  for (const auto& from : looptorch::detail::kSafetensorsTypes) {
    for (const auto& to : looptorch::detail::kSafetensorsTypes) {
      CAPTURE(from.name, to.name);
      const auto bytes = [](const auto& type) {
        return torch::zeros({8 * std::int64_t(c10::elementSize(type.scalar_type))}, at::kByte);
      };
      save_safetensors(folder / "x", {{"p", bytes(from).view(from.scalar_type)}});
      torch::nn::Module net;
      net.register_buffer("p", bytes(to).view(to.scalar_type));
      bool is_loaded = true;
      try {
        load_weights(net, folder / "x");
      } catch (const ModuleStateError&) {
        is_loaded = false;
      }
      CHECK((is_loaded || from.scalar_type != to.scalar_type));
    }
  }
}

TEST_CASE("load weights: a long list of names is cut") {
  const TemporaryFolder folder;
  save_safetensors(folder / "x", {});
  torch::nn::Sequential many;
  for (int i = 0; i < 10; ++i) many->push_back(torch::nn::Linear(1, 1));
  CHECK_THROWS_WITH(load_weights(many, folder / "x"),
                    Contains("20 missing: 0.bias") && Contains("and 12 more"));
}

TEST_CASE("load weights: names that wrappers of Python changed are taken, with a line in the report") {
  const TemporaryFolder folder;
  const auto [before, line] = GENERATE(table<std::string, std::string>({
      {"module.", "7 with \"module.\" in front"},
      {"_orig_mod.", "7 with \"_orig_mod.\" in front"},
      {"model.", "7 with \"model.\" in front"},
      {"module.model.", "7 with \"module.model.\" in front"},
      {"model.model.", "7 with \"model.model.\" in front"},
      {"_orig_mod.model.", "7 with \"_orig_mod.model.\" in front"},
      {"module._orig_mod.model.", "7 with \"module._orig_mod.model.\" in front"},
      {"model._fsdp_wrapped_module.", "7 with \"model._fsdp_wrapped_module.\" in front"},
  }));
  TensorMap tensors;
  for (const auto& [name, tensor] : other_state()) tensors[before + name] = tensor;
  save_safetensors(folder / "x", tensors);
  Net net;
  const auto report = load_weights(net, folder / "x");
  CHECK(report.text() == "7 loaded; renamed: " + line);
  REQUIRE(report.renamed.size() == 7);
  CHECK(report.renamed[0].from == before + "fc.bias");
  CHECK(report.renamed[0].to == "fc.bias");
  CHECK(same(snapshot(net), other_state()));
}

TEST_CASE("load weights: wrappers within names, and a module whose own names have them") {
  const TemporaryFolder folder;
  TensorMap tensors;
  for (const auto& [name, tensor] : other_state()) tensors[name] = tensor;
  tensors["fc._orig_mod.weight"] = tensors["fc.weight"], tensors.erase("fc.weight");
  tensors["norm._checkpoint_wrapped_module.bias"] = tensors["norm.bias"], tensors.erase("norm.bias");
  save_safetensors(folder / "x", tensors);
  Net net;
  CHECK(load_weights(net, folder / "x").text() ==
        "7 loaded; renamed: 1 with \"fc._orig_mod.\" for \"fc.\", 1 with "
        "\"norm._checkpoint_wrapped_module.\" for \"norm.\"");
  CHECK(same(snapshot(net), other_state()));

  save_safetensors(folder / "y", other_state());
  torch::nn::Module outer;
  outer.register_module("model", net.ptr());
  CHECK(load_weights(outer, folder / "y").text() == "7 loaded; renamed: 7 without \"model.\" in front");
  tensors.clear();
  for (const auto& [name, tensor] : other_state()) tensors["module." + name] = tensor;
  save_safetensors(folder / "y", tensors);
  CHECK(load_weights(outer, folder / "y").text() == "7 loaded; renamed: 7 with \"module.\" for \"model.\"");
}

TEST_CASE("load weights: a head beside \"model.\", as transformers has it, is taken under its own name") {
  const TemporaryFolder folder;
  TensorMap tensors;
  for (const auto& [name, tensor] : other_state())
    tensors[(name.starts_with("fc.") ? "" : "model.") + name] = tensor;
  save_safetensors(folder / "x", tensors);
  Net net;
  CHECK(load_weights(net, folder / "x").text() == "7 loaded; renamed: 5 with \"model.\" in front");
  CHECK(same(snapshot(net), other_state()));
}

TEST_CASE("load weights: own names come first, and two wrapped names of one tensor are refused") {
  const TemporaryFolder folder;
  auto tensors = other_state();
  tensors["module.fc.weight"] = torch::zeros({2, 3});
  save_safetensors(folder / "x", tensors);
  CHECK(refuses(folder / "x", {}, "1 surplus: module.fc.weight").renamed.empty());
  Net net;
  CHECK(load_weights(net, folder / "x", {.allow_surplus = true}).loaded.size() == 7);
  CHECK(same(snapshot(net), other_state()));
  tensors["_orig_mod.fc.weight"] = tensors["fc.weight"];
  tensors.erase("fc.weight");
  save_safetensors(folder / "x", tensors);
  refuses(folder / "x", {},
          "1 missing: fc.weight (near: module.fc.weight, _orig_mod.fc.weight); 2 surplus: "
          "_orig_mod.fc.weight, module.fc.weight");
}

TEST_CASE("load weights: wrappers hide neither a prefix nor names that are renamed") {
  const TemporaryFolder folder;
  const auto before = GENERATE(as<std::string>(), "module.model.encoder.", "_orig_mod.model.encoder.",
                               "encoder.", "model.model.encoder.", "model.encoder._orig_mod.");
  TensorMap tensors{{"module.model.decoder.fc.weight", torch::zeros({9})}};
  for (const auto& [name, tensor] : other_state()) tensors[before + name] = tensor;
  save_safetensors(folder / "x", tensors);
  Net net;
  CHECK(load_weights(net, folder / "x", {.prefix = "model.encoder."}).loaded.size() == 7);
  CHECK(same(snapshot(net), other_state()));
  const auto rename = [](const std::string& name) {
    return name.starts_with("encoder.") ? name.substr(8) : std::string();
  };
  Net other;
  const auto report = load_weights(other, folder / "x", {.rename = rename});
  CHECK(report.loaded.size() == 7);
  CHECK(report.surplus.empty());
  CHECK(same(snapshot(other), other_state()));
}
