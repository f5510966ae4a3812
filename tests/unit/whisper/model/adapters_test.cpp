// SPDX-License-Identifier: MIT
// Adapters of Whisper's layers, against those that tests/parity/whisper_lora.py recorded with Python's peft
// on transformers' Whisper; and whisper_finetune's flags that say what is trained.
// Tests whisper/training: memory_options, options
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "../parsed_options.hpp"
#include "../reference.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/model/pretrained.hpp>
#include <whisper/training/load_model.hpp>
#include <whisper/training/options.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace lt = looptorch;
namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using looptorch::testing::TemporaryFolder;
using whisper_test::parsed;

namespace {

const fs::path kAdapted = whisper_test::kParity / "whisper_lora",
               kBase = whisper_test::kParity / "tiny_whisper";

const lt::TensorMap& peft_values() {
  static const auto tensors =
      lt::load_safetensors(whisper_test::kParity / "whisper_lora.safetensors").tensors;
  return tensors;
}

at::Tensor peft_scores(whisper::Whisper& model) {
  return model(peft_values().at("mel"), peft_values().at("tokens"));
}

bool close(const at::Tensor& a, const at::Tensor& b) { return torch::allclose(a, b, 1e-4, 1e-5); }

at::Tensor fixed_wave(at::IntArrayRef sizes, double phase) {
  return torch::sin(0.7 * torch::arange(c10::multiply_integers(sizes), torch::kDouble) + phase)
      .reshape(sizes)
      .to(torch::kFloat);
}

/// A model with random adapters, as training leaves them.
whisper::Whisper trained_adapters() {
  auto model = whisper::load_pretrained(kBase);
  whisper::MemoryOptions{.lora = 3}.apply(model);
  torch::NoGradGuard no_grad;
  for (const auto& item : model->named_parameters())
    if (item.value().requires_grad()) item.value().copy_(0.3 * torch::randn(item.value().sizes()));
  return model;
}

}  // namespace

TEST_CASE("Whisper with peft's adapters has peft's scores and gradients") {
  auto model = whisper::load_pretrained(kBase);
  const auto plain = peft_scores(model).detach();
  lt::load_lora(*model, kAdapted);
  model->eval();  // without dropout
  const auto scores = peft_scores(model);
  CHECK(close(scores, peft_values().at("scores")));
  CHECK_FALSE(torch::allclose(scores, plain, 1e-2, 1e-2));
  (scores * fixed_wave(scores.sizes(), 2.5)).sum().backward();
  int compared = 0;
  for (const auto& item : model->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    INFO(item.key());
    CHECK(close(item.value().grad(), peft_values().at("grad." + item.key())));
    ++compared;
  }
  CHECK(compared ==
        2 * (2 + 4 + 2));  // of the encoder's two and the decoder's four projections, and both fc1
}

TEST_CASE("recomputed layers have the same gradients of adapters, with dropout") {
  std::vector<std::vector<at::Tensor>> gradients;
  for (const auto mode :
       {lt::CheckpointMode::off, lt::CheckpointMode::light, lt::CheckpointMode::recompute}) {
    auto model = whisper::load_pretrained(kBase);
    whisper::MemoryOptions{.lora = 2, .lora_dropout = 0.3}.apply(model);
    for (const auto& module : model->modules()) {
      const lt::CheckpointOptions options{.mode = mode, .random_state = true};
      if (auto* layer = module->as<lt::Checkpointed<whisper::EncoderLayer>>()) layer->checkpoint = options;
      if (auto* layer = module->as<lt::Checkpointed<whisper::DecoderLayer>>()) layer->checkpoint = options;
    }
    torch::manual_seed(3);
    torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters())
      if (parameter.requires_grad()) parameter.copy_(0.1 * torch::randn(parameter.sizes()));
    torch::AutoGradMode with_grad(true);
    peft_scores(model).square().sum().backward();
    auto& of_mode = gradients.emplace_back();
    for (const auto& parameter : model->parameters())
      if (parameter.requires_grad()) of_mode.push_back(parameter.grad());
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    CHECK(gradients[1][i].equal(gradients[0][i]));
    CHECK(gradients[2][i].equal(gradients[0][i]));
  }
}

TEST_CASE("a folder of adapters loads as the model that they adapt, merged") {
  auto merged = whisper::load_pretrained(kAdapted);  // peft's: it names ../tiny_whisper
  CHECK(close(peft_scores(merged), peft_values().at("scores")));
  CHECK(merged->named_parameters().size() == whisper::load_pretrained(kBase)->named_parameters().size());
  for (const auto& item : merged->named_parameters())
    CHECK(item.value().requires_grad() == (item.key() != "model.encoder.embed_positions.weight"));

  const TemporaryFolder folder;
  auto model = trained_adapters();
  const auto scores = peft_scores(model);
  whisper::save_pretrained(model, kBase, folder / "out");  // an earlier run's whole model
  whisper::save_adapters(model, kBase, folder / "out");
  CHECK_FALSE(fs::exists(folder / "out/model.safetensors"));
  auto again = whisper::load_pretrained(folder / "out");
  CHECK(close(peft_scores(again), scores));
  whisper::save_pretrained(again, folder / "out", folder / "whole");
  auto whole = whisper::load_pretrained(folder / "whole");
  CHECK(peft_scores(whole).equal(peft_scores(again)));
  whisper::save_pretrained(whole, folder / "whole", folder / "out");  // and the other way round
  CHECK_FALSE(whisper::holds_adapters(folder / "out"));

  if (const char* const kept = std::getenv("LOOPTORCH_WHISPER_LORA_FOLDER")) {  // for whisper_lora.py FOLDER
    auto values = lt::TensorMap{{"mel", peft_values().at("mel")}, {"tokens", peft_values().at("tokens")}};
    values.emplace("scores", scores.detach());
    whisper::save_adapters(trained_adapters(), kBase, kept);
    auto kept_model = whisper::load_pretrained(kept);
    values["scores"] = peft_scores(kept_model).detach();
    lt::save_safetensors(fs::path(kept) / "scores.safetensors", values);
  }
}

TEST_CASE("adapters whose model is missing are refused with what to set") {
  const TemporaryFolder folder;
  fs::copy(kAdapted, folder / "alone");
  CHECK_THROWS_WITH(whisper::load_pretrained(folder / "alone"),
                    Contains("the adapters are for ../tiny_whisper, which is no folder here: set "
                             "\"base_model_name_or_path\" to the folder of that model"));
  const auto config = folder / "alone/adapter_config.json";
  auto json = lt::load_json(config);
  for (const std::string itself : {".", "../alone"}) {
    json.set("base_model_name_or_path", itself);
    lt::write_file_atomically(config, json.dump());
    CHECK_THROWS_WITH(whisper::load_pretrained(folder / "alone"),
                      Contains("the adapters are for " + itself + ", which is this folder itself: set "));
  }
  fs::copy(folder / "alone", folder / "other");
  for (const auto& [one, other] : {std::pair("alone", "../other"), std::pair("other", "../alone")}) {
    json.set("base_model_name_or_path", other);
    lt::write_file_atomically(folder / one / "adapter_config.json", json.dump());
  }
  CHECK_THROWS_WITH(whisper::load_pretrained(folder / "alone"), Contains("these adapters are for others"));
  json.set("base_model_name_or_path", nullptr);
  lt::write_file_atomically(config, json.dump());
  CHECK_THROWS_WITH(whisper::load_pretrained(folder / "alone"), Contains("names no model"));
}

TEST_CASE("a run's output is neither the model's folder nor the one that its adapters are for") {
  const TemporaryFolder folder;
  for (const auto* name : {"base", "adapters", "more"}) fs::create_directories(folder / name);
  const auto adapt = [&](const char* name, const std::string& base) {
    lt::write_file_atomically(folder / name / "adapter_config.json",
                              R"({"base_model_name_or_path": ")" + base + "\"}");
  };
  adapt("adapters", (folder / "base").string());
  adapt("more", "../adapters");
  const fs::path more = folder / "more";
  CHECK(whisper::folders_of(more).size() == 3);
  CHECK_THROWS_WITH(whisper::require_other_folder(more, more), Contains("is the folder of --model, whose"));
  for (const auto* base : {"base", "adapters"})
    CHECK_THROWS_WITH(whisper::require_other_folder(folder / base, more),
                      Contains("is the folder of the model that the adapters of --model are for, whose "));
  CHECK_NOTHROW(whisper::require_other_folder(folder / "new", more));
  adapt("adapters", "../more");
  CHECK_NOTHROW(whisper::require_other_folder(folder / "new", more));  // which cannot be loaded
}

TEST_CASE("adapters of a model of the Hub find what was downloaded under its name") {
  const TemporaryFolder folder;
  fs::copy(kAdapted, folder / "alone");
  const auto config = folder / "alone/adapter_config.json";
  auto json = lt::load_json(config);
  json.set("base_model_name_or_path", "openai/whisper-tiny");
  lt::write_file_atomically(config, json.dump());
  ::setenv("HF_HUB_CACHE", (folder / "hub").c_str(), 1);
  CHECK_THROWS_WITH(
      whisper::load_pretrained(folder / "alone"),
      Contains(config.string() + ": the adapters are for openai/whisper-tiny: is no folder, and no ") &&
          Contains("hf download openai/whisper-tiny"));
  fs::create_directories(folder / "hub/models--openai--whisper-tiny/snapshots");
  fs::copy(kBase, folder / "hub/models--openai--whisper-tiny/snapshots/abc");
  auto found = whisper::load_pretrained(folder / "alone");
  ::unsetenv("HF_HUB_CACHE");
  auto expected = whisper::load_pretrained(kAdapted);
  CHECK(peft_scores(found).equal(peft_scores(expected)));
}

TEST_CASE("--lora trains adapters alone, and of a frozen encoder only the decoder's") {
  const auto trained = [](const std::vector<std::string>& words) {
    auto model = whisper::load_pretrained(kBase);
    parsed(words).memory.apply(model);
    std::vector<std::string> names;
    for (const auto& item : model->named_parameters())
      if (item.value().requires_grad()) names.push_back(item.key());
    return names;
  };
  const std::string encoder = "model.encoder.layers.0.self_attn.", decoder = "model.decoder.layers.0.";
  CHECK(trained({"--lora", "4", "--lora-patterns", "*self_attn.q_proj"}) ==
        std::vector<std::string>{encoder + "q_proj.lora_A.weight", encoder + "q_proj.lora_B.weight",
                                 decoder + "self_attn.q_proj.lora_A.weight",
                                 decoder + "self_attn.q_proj.lora_B.weight"});
  CHECK(trained({"--lora", "4", "--freeze-encoder"}).size() == 8);
  CHECK(trained({"--lora", "4"}).size() == 12);
  CHECK_THROWS_WITH(trained({"--lora", "4", "--lora-patterns", "*proj,nothing"}),
                    Contains("matches 'nothing'"));
}

TEST_CASE("each --optimizer is made for what is trained, and bf16 weights for those that can update them") {
  const auto optimizer_of = [](const std::vector<std::string>& words, std::size_t& trained) {
    const auto options = parsed(words);
    options.check();
    auto model = whisper::load_pretrained(kBase, options.memory.dtype());
    options.memory.apply(model);
    const auto optimizer = options.memory.make_optimizer(model, 1e-3);
    trained = optimizer->param_groups().at(0).params().size();
    return optimizer->class_name() +
           (model->encoder()->parameters().front().scalar_type() == at::kBFloat16 ? ", bf16" : "");
  };
  std::size_t trained = 0;
  CHECK(optimizer_of({}, trained) == "looptorch::FusedAdamW");
  const auto all = trained;
  CHECK(optimizer_of({"--optimizer", "adamw8bit"}, trained) == "looptorch::AdamW8bit");
  CHECK(trained == all);
  CHECK(optimizer_of({"--optimizer", "adamw8bit", "--bf16-weights"}, trained) ==
        "looptorch::AdamW8bit, bf16");
  CHECK(optimizer_of({"--optimizer", "adamwbf16"}, trained) == "looptorch::AdamWBf16, bf16");
  CHECK(optimizer_of({"--optimizer", "adafactor", "--bf16-weights"}, trained) ==
        "looptorch::Adafactor, bf16");
  CHECK(optimizer_of({"--freeze-encoder"}, trained) == "looptorch::FusedAdamW");
  CHECK(trained < all);
  CHECK(optimizer_of({"--lora", "2", "--bf16-weights"}, trained) == "looptorch::FusedAdamW, bf16");
  CHECK(trained == 12);
}

TEST_CASE("with --int8-base all linear layers take a byte a weight, and the model says nearly the same") {
  const auto loaded = [](const std::vector<std::string>& words) {
    const auto options = parsed(words);
    options.check();
    torch::manual_seed(1);  // of the adapters
    auto model = whisper::load_pretrained(kBase, options.memory.dtype());
    options.memory.apply(model);
    model->eval();
    return model;
  };
  auto wide = loaded({"--lora", "2"}), narrow = loaded({"--lora", "2", "--int8-base"});
  std::int64_t in_8_bits = 0;
  for (const auto& item : wide->named_parameters()) {
    const auto type = narrow->named_parameters()[item.key()].scalar_type();
    const bool is_linear = item.value().dim() == 2 && !item.key().ends_with("embed_tokens.weight") &&
                           !item.key().ends_with("embed_positions.weight") &&
                           item.key().find("lora_") == std::string::npos;
    CHECK(type == (is_linear ? at::kChar : at::kFloat));
    in_8_bits += type == at::kChar;
  }
  CHECK(in_8_bits > 0);
  const torch::NoGradGuard no_gradients;
  const auto& config = wide->config();
  const auto mel = torch::randn({2, config.num_mel_bins, 2 * config.max_source_positions});
  const auto a = wide->encoder()->forward(mel), b = narrow->encoder()->forward(mel);
  CHECK((a - b).norm().item<double>() < 0.02 * a.norm().item<double>());
  CHECK(!a.equal(b));
}

TEST_CASE("flags that save memory are refused where they contradict each other") {
  const auto refused = [](const std::vector<std::string>& words, const std::string& why) {
    CHECK_THROWS_WITH(parsed(words).check(), Contains(why));
  };
  refused({"--bf16-weights"}, "would lose most updates");
  refused({"--optimizer", "adamwbf16", "--bf16"}, "--optimizer adamwbf16 computes in bf16 by itself");
  refused({"--bf16-weights", "--optimizer", "adamw8bit", "--mixed-precision"},
          "--bf16-weights computes in bf16");
  refused({"--cache-encoder", "--cache", "c"}, "give --freeze-encoder, too");
  refused({"--cache-encoder", "--freeze-encoder"}, "--cache-encoder fills a cache: name it by --cache");
  refused({"--cache-encoder", "--freeze-encoder", "--cache", "c", "--spec-augment"},
          "leave out one of the two");
  refused({"--lora-dropout", "0.1"}, "--lora-dropout is of adapters: give their rank, as --lora 8");
  refused({"--lora-alpha", "3"}, "--lora-alpha is of adapters");
  refused({"--lora-patterns", "*fc1"}, "--lora-patterns is of adapters");
  refused({"--int8-base"}, "--int8-base keeps weights in 8 bits, which cannot be trained");
  refused({"--lora", "2", "--lora-patterns", " ,"}, "--lora-patterns names no layers");
  refused({"--lora", "2", "--lora-patterns", "*fc1, model.encoder.*", "--freeze-encoder"},
          "--lora-patterns model.encoder.* is of the encoder, which --freeze-encoder leaves as it is");
  refused({"--update-in-backward", "--mixed-precision"}, "give --bf16 instead");
  refused({"--update-in-backward", "moments", "--optimizer", "adamw8bit"}, "give --update-in-backward sums");
  CHECK_NOTHROW(parsed({"--update-in-backward", "--bf16"}).check());
  CHECK_NOTHROW(
      parsed({"--lora", "8", "--lora-dropout", "0.1", "--cache-encoder", "--freeze-encoder", "--cache", "c"})
          .check());
  CHECK_NOTHROW(parsed({"--fit", "4GB", "--lora-alpha", "3"}).check());  // which may choose adapters
}

TEST_CASE("flags that would do nothing are refused") {
  const auto refused = [](std::vector<std::string> words, const std::string& why) {
    INFO(words.front());
    CHECK_THROWS_WITH(parsed(std::move(words)).check(), Contains(why));
  };
  refused({"--lora", "4", "--save-dtype", "fp16"}, "--save-dtype fp16 has no effect with --lora");
  for (const std::string mask : {"time-masks", "mask-frames", "mel-masks", "mask-bins"})
    refused({"--" + mask, "3"}, "--" + mask + " has no effect without --spec-augment");
  refused({"--report-sound", "--no-report"}, "--report-sound has no effect without --report");
  refused({"--histograms", "--no-report"}, "--histograms has no effect without --report");
  CHECK_NOTHROW(
      parsed({"--mask-bins", "3", "--spec-augment", "--histograms", "--report-sound", "--save-dtype", "fp16"})
          .check());
  CHECK_NOTHROW(parsed({"--no-report", "--no-report-sound", "--no-histograms"}).check());
}

TEST_CASE("patterns of adapters are full names, or of the decoder where the encoder is frozen") {
  using Names = std::vector<std::string>;
  const auto patterns = [](const std::vector<std::string>& words) { return parsed(words).memory.patterns(); };
  CHECK(patterns({"--lora-patterns", "*q_proj, model.encoder.*fc1"}) ==
        Names{"*q_proj", "model.encoder.*fc1"});
  CHECK(patterns({"--lora-patterns", "*q_proj,model.decoder.*fc1", "--freeze-encoder"}) ==
        Names{"model.decoder.*q_proj", "model.decoder.*fc1"});
}

TEST_CASE("the identity of a model's weights is that of the weights, whatever adapters it has") {
  auto model = whisper::load_pretrained(kBase);
  const auto identity = whisper::weights_identity(model);
  CHECK(whisper::weights_identity(whisper::load_pretrained(kBase)) == identity);
  lt::load_lora(*model, kAdapted);
  CHECK(whisper::weights_identity(model) == identity);
  const torch::NoGradGuard no_grad;
  model->encoder()->parameters().back().add_(1e-3);
  CHECK(whisper::weights_identity(model) != identity);
}
