// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/temporary_folder.hpp"
#include "unit/finetune_exported/support.hpp"

#include <finetune_exported/input_table.hpp>

#include <sstream>
#include <string>

namespace fe = finetune_exported;
namespace lt = looptorch;
using looptorch::testing::TemporaryFolder;

TEST_CASE("the table has a line for each input with its type and sizes, and one for the outputs") {
  const TemporaryFolder folder;
  const auto model = exported_data::loss_model(folder / "model.pt2");
  std::ostringstream out;
  fe::print_table(out, *model);
  std::istringstream lines(out.str());
  std::string head, x, labels, outputs, more;
  std::getline(lines, head), std::getline(lines, x), std::getline(lines, labels),
      std::getline(lines, outputs);
  CHECK(head == "input                   type    sizes");
  CHECK_THAT(x, Catch::StartsWith("x                       Float   [") && Catch::EndsWith(", 3]"));
  CHECK_THAT(labels, Catch::StartsWith("labels                  Long    ["));
  CHECK(outputs == "outputs: loss logits");
  CHECK_FALSE(std::getline(lines, more));
}

TEST_CASE("a name longer than the table's column stays apart from its type") {
  const TemporaryFolder folder;
  exported_data::Scaled net;
  const std::string name(30, 'x');
  lt::export_model(net, [](exported_data::Scaled& scaled, const at::Tensor& x) { return x * scaled->scale; },
                   torch::rand({2, 3}), folder / "model.pt2", {.input_names = {name}});
  std::ostringstream out;
  fe::print_table(out, *lt::ExportedModel(folder / "model.pt2"));
  CHECK_THAT(out.str(), Catch::StartsWith("input" + std::string(26, ' ') + "type    sizes\n" + name +
                                          " Float   [2, 3]\n"));
}
