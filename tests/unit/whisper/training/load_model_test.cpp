// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/temporary_folder.hpp"
#include "unit/whisper/reference.hpp"

#include <whisper/training/load_model.hpp>

#include <algorithm>
#include <filesystem>

using whisper::FinetuneOptions;

namespace {

/// The model of tests/parity/tiny_whisper.py with a tokenizer.
struct Folder : looptorch::testing::TemporaryFolder {
  Folder() {
    for (const char* file : {"config.json", "generation_config.json", "model.safetensors"})
      std::filesystem::copy_file(whisper_test::kParity / "tiny_whisper" / file, *this / file);
    std::filesystem::copy_file(whisper_test::kParity / "small_tokenizer.json", *this / "tokenizer.json");
  }
};

bool requires_grad(const at::Tensor& tensor) { return tensor.requires_grad(); }

}  // namespace

TEST_CASE("The model is the folder's, as the run trains it") {
  const Folder folder;
  FinetuneOptions options;
  options.model = folder.path();
  const auto plain = whisper::load_recognizer(folder.path());
  const auto loaded = whisper::load_model(options, at::kCPU);
  const auto wanted = plain.model->named_parameters(), found = loaded.model->named_parameters();
  REQUIRE(wanted.size() == found.size());
  for (const auto& item : wanted) {
    CAPTURE(item.key());
    CHECK(found[item.key()].equal(item.value()));
  }
  CHECK(loaded.decoding.suppress == plain.decoding.suppress);
  CHECK_FALSE(loaded.fallback);
}

TEST_CASE("Options change types, what is trained, and what may be written") {
  const Folder folder;
  FinetuneOptions options;
  options.model = folder.path();
  options.memory.bf16_weights = true;
  options.memory.freeze_encoder = true;
  options.fallback = options.all_signs = true;
  auto loaded = whisper::load_model(options, at::kCPU);
  for (const auto& parameter : loaded.model->parameters()) CHECK(parameter.scalar_type() == at::kBFloat16);
  CHECK(std::ranges::none_of(loaded.model->encoder()->parameters(), requires_grad));
  CHECK(std::ranges::all_of(loaded.model->decoder()->parameters(), requires_grad));
  CHECK(loaded.fallback);
  CHECK(loaded.decoding.suppress.size() <= whisper::load_recognizer(folder.path()).decoding.suppress.size());

  FinetuneOptions adapters;
  adapters.model = folder.path();
  adapters.memory.lora = 2;
  const auto adapted = whisper::load_model(adapters, at::kCPU);
  for (const auto& item : adapted.model->named_parameters()) {
    CAPTURE(item.key());
    CHECK(item.value().requires_grad() == (item.key().find("lora_") != std::string::npos));
  }
}

TEST_CASE("Sizes are the model's, with its tokenizer and settings and without the weights' memory") {
  const Folder folder;
  FinetuneOptions options;
  options.model = folder.path();
  options.all_signs = true;
  const auto sizes = whisper::load_sizes(options);
  const auto loaded = whisper::load_model(options, at::kCPU);
  CHECK(sizes.model->config().d_model == loaded.model->config().d_model);
  CHECK(sizes.decoding.prompt == loaded.decoding.prompt);
  CHECK(sizes.decoding.suppress == loaded.decoding.suppress);
  CHECK(sizes.tokenizer.encode("turn left") == loaded.tokenizer.encode("turn left"));
  const auto parameters = sizes.model->parameters();
  REQUIRE(parameters.size() == loaded.model->parameters().size());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    CHECK(parameters[i].sizes() == loaded.model->parameters()[i].sizes());
}
