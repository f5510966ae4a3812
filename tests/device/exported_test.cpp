// SPDX-License-Identifier: MIT
// A model that was exported on the CPU computes on a device. Attention there has other kernels than the
// CPU's, so that the last bits differ.
#include "support/precompiled.hpp"

#include <looptorch/exported/exported_model.hpp>

#include "support/device.hpp"

#include <string>
#include <vector>

namespace lt = looptorch;
using namespace looptorch::testing;

TEST_CASE(
    "an exported model follows its weights to a device, with its constants and what its program makes") {
  if (!has_device()) return;
  const std::string path = LOOPTORCH_SOURCE_DIR "/tests/parity/data/exported_programs/encoder.pt2";
  lt::ExportedModel there(path), here(path);
  there->to(test_device());
  there->eval(), here->eval();
  const auto ids = torch::arange(24).remainder(11).view({3, 8});
  const auto mask = torch::zeros({3, 8}, torch::kBool);
  const auto factor = torch::tensor(0.5f);
  const auto wanted = here->forward(ids, mask, factor);
  const auto found = there->forward(ids.to(test_device()), mask.to(test_device()), factor.to(test_device()));
  wanted[0].sum().backward();
  found[0].sum().backward();
  const auto parameters = here->named_parameters(), on_device = there->named_parameters();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(found[i].device() == test_device());
    CHECK((found[i].cpu() - wanted[i]).abs().max().item<double>() <= 1e-5);
  }
  for (const auto& item : parameters) {
    CAPTURE(item.key());
    const at::Tensor gradient = on_device[item.key()].grad().cpu();
    CHECK((gradient - item.value().grad()).abs().max().item<double>() <= 1e-4);
  }
}
