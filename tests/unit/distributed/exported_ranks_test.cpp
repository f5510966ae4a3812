// SPDX-License-Identifier: MIT
// An exported model on several ranks trains as in one process that takes the batches of all, to 1e-12. The
// processes that this file starts run its hidden case.
//
// Tests distributed: data_parallel
#include "support/precompiled.hpp"

#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/exported_files.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lt = looptorch;

namespace exported_ranks_test {

struct Batch {
  at::Tensor pixels, labels;
};

/// transformers' ViT in fp64, whose samples do not mix, and whose loss is a mean over them.
lt::ExportedModel loaded(const std::filesystem::path& folder) {
  lt::ExportedModel model(lt::testing::stored_pt2("vit", folder));
  model->to(at::kDouble);
  return model;
}
lt::Loss objective(lt::ExportedModel& model, const Batch& batch) {
  return {.value = model->forward(batch.pixels, batch.labels)[model->output("loss")],
          .weight = batch.labels.size(0)};
}

/// Batches of two to four images.
std::vector<Batch> images(std::int64_t count) {
  torch::manual_seed(1);
  std::vector<Batch> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(
        {torch::randn({2 + i % 3, 3, 16, 16}, torch::kDouble), torch::randint(3, {2 + i % 3}, torch::kLong)});
  return all;
}

TEST_CASE("exported: equal to one process", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  const bool recomputes = GENERATE(false, true);
  const auto all = images(4 * ranks::size() + 1);
  std::vector<Batch> mine;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (static_cast<int>(i) % ranks::size() == ranks::rank()) mine.push_back(all[i]);
  const auto train = [](lt::ExportedModel& model, const std::vector<Batch>& batches, auto... policies) {
    lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(model, optimizer, objective, lt::ClipGradNorm{0.5}, policies...);
    return trainer.fit(batches, {.epochs = 3}).loss;
  };
  const lt::testing::TemporaryFolder folder;
  auto alone = loaded(folder.path()), shared = loaded(folder.path());
  const double expected = train(alone, all, lt::Accumulate<>{ranks::size()});
  if (recomputes) shared->checkpoint_blocks();
  if (ranks::rank() > 0) {
    const at::NoGradGuard no_gradients;
    for (auto& parameter : shared->parameters()) parameter.zero_();  // rank 0's model is everybody's
  }
  CHECK(train(shared, mine, lt::DataParallel{.bucket_bytes = 5000}) == Approx(expected).epsilon(1e-12));
  for (const auto& item : alone->named_parameters()) {
    CAPTURE(item.key());
    const auto difference = item.value() - shared->named_parameters()[item.key()];
    CHECK(difference.abs().max().item<double>() < 1e-12);
  }
}

TEST_CASE("An exported model trains on two ranks as in one process") {
  const lt::testing::TemporaryFolder folder;
  for (const auto& outcome : ranks::run_ranks(2, "exported: *", folder.path())) {
    INFO(outcome.output);
    CHECK(outcome.passed());
    CHECK(outcome.output.find("All tests passed") != std::string::npos);
  }
}

}  // namespace exported_ranks_test
