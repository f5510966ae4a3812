// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"
#include "unit/finetune_exported/support.hpp"

#include <finetune_exported/file_tensor.hpp>

namespace fe = finetune_exported;
namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;

namespace {

/// A tone with a constant added, [400].
at::Tensor tone() { return torch::arange(400, at::kFloat).mul(0.3).sin() * 0.25 + 0.5; }

}  // namespace

TEST_CASE("an array of NumPy keeps its sizes and its bits") {
  const TemporaryFolder folder;
  const auto array = torch::rand({2, 3}, at::kDouble);
  exported_data::save_npy(folder / "a.npy", array);
  CHECK(fe::file_tensor(folder / "a.npy", {}).equal(array));
}

TEST_CASE("a sound has mean 0 and variance 1, as transformers' extractor makes it, or its own samples") {
  const TemporaryFolder folder;
  lt::audio::encode(folder / "a.wav", {tone(), 16000});
  const auto own = fe::file_tensor(folder / "a.wav", {.normalize = false});
  CHECK(torch::allclose(own, tone(), 0, 1e-4));
  const auto normal = fe::file_tensor(folder / "a.wav", {});
  CHECK(normal.mean().item<double>() == Approx(0).margin(1e-5));
  CHECK(normal.var(/*unbiased=*/false).item<double>() == Approx(1).epsilon(1e-4));
  CHECK(torch::allclose(normal, (own - own.mean()) / (own.var(false) + 1e-7).sqrt()));
}

TEST_CASE("silence is normalized to zeros") {
  const TemporaryFolder folder;
  lt::audio::encode(folder / "a.wav", {torch::zeros({100}), 16000});
  CHECK(fe::file_tensor(folder / "a.wav", {}).equal(torch::zeros({100})));
}

TEST_CASE("a sound is resampled to the rate that is asked for") {
  const TemporaryFolder folder;
  lt::audio::encode(folder / "a.wav", {tone(), 16000});
  CHECK(fe::file_tensor(folder / "a.wav", {.sample_rate = 8000}).size(0) == 200);
}

TEST_CASE("a file that is no array, or no sound, is named") {
  const TemporaryFolder folder;
  for (const char* name : {"a.npy", "a.wav"}) {
    exported_data::write_text(folder / name, "no such thing");
    CHECK_THROWS_WITH(fe::file_tensor(folder / name, {}), Contains(name));
  }
}
