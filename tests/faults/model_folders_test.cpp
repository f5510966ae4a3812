// SPDX-License-Identifier: MIT
// A folder of several files that replaces another one, by a process that is killed at any system call:
// loading it gives the old model or the new one, or throws. Never some files of each.
#include "support/precompiled.hpp"

#include <looptorch/adapters/lora_files.hpp>

#include "disk_shim.hpp"
#include "support/temporary_folder.hpp"
#include "unit/adapters/adapted_net.hpp"

#include <konkanivani/decoding/recognizer.hpp>
#include <spectrogram_gan_vit/gan/model.hpp>
#include <spectrogram_gan_vit/vit/hugging_face.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>

namespace fs = std::filesystem;
using looptorch::testing::DiskFault;
using looptorch::testing::FaultyDisk;
using looptorch::testing::TemporaryFolder;

namespace {

/// What `number`, 0 or 1, writes to a folder, and what loading the folder gives.
struct Kind {
  const char* name;
  std::function<void(const fs::path&, int number)> write;
  std::function<std::string(const fs::path&)> load;
};

/// A text that differs for other weights.
std::string text_of(const torch::nn::Module& module) {
  double sum = 0;
  for (const auto& parameter : module.parameters()) sum += parameter.sum().item<double>();
  return std::to_string(sum);
}

void fill(const torch::nn::Module& module, int number) {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : module.parameters()) parameter.fill_(0.25 * (1 + number));
}

Kind adapters() {
  return {"adapters",
          [](const fs::path& folder, int number) {
            adapted::Net net;
            looptorch::add_lora(*net, {.rank = 2, .alpha = 8.0 + number});
            for (auto* layer : {&net->fc1, &net->out}) (*layer)->b().data().fill_(1 + number);
            looptorch::save_lora(*net, folder);
          },
          [](const fs::path& folder) {
            adapted::Net net;
            looptorch::load_lora(*net, folder);
            return looptorch::message(net->out->b().mean().item<double>(), " by ",
                                      net->out->adapter_options().alpha);
          }};
}

Kind recognizer() {
  return {"recognizer",
          [](const fs::path& folder, int number) {
            const auto vocabulary =
                konkanivani::Vocabulary::of(std::vector<std::string>{number == 0 ? "ab" : "cd"}, {});
            konkanivani::KonkaniVani model(konkanivani::ModelConfig{.vocabulary = vocabulary.size(),
                                                                    .d_model = 8,
                                                                    .encoder_layers = 1,
                                                                    .decoder_layers = 1,
                                                                    .heads = 2 + 2 * number});
            fill(*model, number);
            konkanivani::save_recognizer({model, vocabulary}, folder);
          },
          [](const fs::path& folder) {
            const auto loaded = konkanivani::load_recognizer(folder, at::kCPU);
            return looptorch::message(text_of(*loaded.model), ' ', loaded.model->config().heads, ' ',
                                      loaded.vocabulary.to_json().dump());
          }};
}

Kind vit() {
  return {"ViT",
          [](const fs::path& folder, int number) {
            spectrogram_vit::ViT model(spectrogram_vit::ViTConfig{.hidden_size = 8,
                                                                  .layers = 1,
                                                                  .heads = 2 + 2 * number,
                                                                  .intermediate_size = 8,
                                                                  .image = {32, 32}});
            fill(*model, number);
            spectrogram_vit::save_vit(model, folder);
          },
          [](const fs::path& folder) {
            const auto model = spectrogram_vit::load_vit(folder);
            return looptorch::message(text_of(*model), ' ', model->config().heads);
          }};
}

Kind gan() {
  return {"GAN",
          [](const fs::path& folder, int number) {
            spectrogram_gan::Gan model(spectrogram_gan::GanConfig{
                .n_mels = 16 + 16 * number, .frames = 32, .latent = 4, .channels = 8});
            fill(*model, number);
            spectrogram_gan::save_model(model, folder);
          },
          [](const fs::path& folder) {
            const auto model = spectrogram_gan::load_generator(folder);
            return looptorch::message(text_of(*model), ' ',
                                      spectrogram_gan::load_config(folder / "config.json").n_mels);
          }};
}

int calls_of(const Kind& kind) {
  const TemporaryFolder folder;
  kind.write(folder.path(), 0);
  const FaultyDisk disk;
  kind.write(folder.path(), 1);
  return static_cast<int>(disk.calls().size());
}

/// Writes the new model over the old one in a process that is killed in place of call `at`.
void write_until(const Kind& kind, const fs::path& folder, int at) {
  const pid_t child = ::fork();
  if (child == 0) {
    const FaultyDisk disk({.kind = DiskFault::kill, .at = at});
    kind.write(folder, 1);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

}  // namespace

TEST_CASE("faulty disk: a model's folder that is replaced is never loaded with files of both models") {
  for (const Kind& kind : {adapters(), recognizer(), vit(), gan()}) {
    const TemporaryFolder before, after;
    kind.write(before.path(), 0), kind.write(after.path(), 1);
    const std::string old = kind.load(before.path()), next = kind.load(after.path());
    REQUIRE(old != next);
    const int calls = calls_of(kind);
    CHECK(calls >= 20);
    for (int at = 0; at < calls; ++at) {
      const TemporaryFolder folder;
      kind.write(folder.path(), 0);
      write_until(kind, folder.path(), at);
      std::string loaded = "refused";
      try {
        loaded = kind.load(folder.path());
      } catch (const looptorch::Error&) {
      }
      INFO(kind.name << " killed at call " << at << " of " << calls << ": " << loaded);
      CHECK((loaded == "refused" || loaded == old || loaded == next));
    }
  }
}
