// SPDX-License-Identifier: MIT
// Holds everything that was read from a .pt2: the program, and its weights, which are registered as
// parameters and buffers of modules. ExportedModel reads a ProgramFile, ModelRunner runs it, and
// save_exported.hpp writes it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/exported/archive/payload.hpp>
#include <looptorch/exported/archive/pt2_archive.hpp>
#include <looptorch/exported/graph/graph.hpp>
#include <looptorch/exported/graph/read_graph.hpp>
#include <looptorch/exported/graph/signature.hpp>
#include <looptorch/exported/module/training_modes.hpp>
#include <looptorch/exported/module/weight_registry.hpp>
#include <looptorch/state/weights/torch_files/zip_directory.hpp>

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace looptorch::detail::exported {

class ProgramFile {
 public:
  /// Reads a file, and registers its weights below `root`. Throws FileError and ExportedModelError.
  ProgramFile(std::filesystem::path of, torch::nn::Module& root) : path(std::move(of)) {
    try {
      archive = std::make_shared<Pt2Archive>(path);
      read(root);
    } catch (const ExportedModelError& error) {
      throw ExportedModelError(path.string() + ": " + error.what(), error.operator_name);
    } catch (const JsonError& error) {
      throw ExportedModelError(path.string() +
                               ": its program is not as torch.export writes it: " + error.what());
    } catch (const c10::Error& error) {
      throw ExportedModelError(path.string() +
                               ": LibTorch refuses what it holds: " + error.what_without_backtrace());
    } catch (const ZipError& error) {
      throw ExportedModelError(path.string() + ": " + error.what());
    }
  }

  std::filesystem::path path;
  std::shared_ptr<const Pt2Archive> archive;
  Graph graph;
  Signature signature;
  TrainingModes modes;
  at::Device device = at::kCPU;  ///< the one that the program names where it makes tensors
  ProgramTensors tensors;

 private:
  void read(torch::nn::Module& root) {
    const Json program = archive->json(archive->program_file());
    constexpr std::int64_t kSchema = 8;
    if (const std::int64_t version = program.at("schema_version").at("major").as_int(); version != kSchema)
      throw ExportedModelError(
          message("its schema is version ", version, ", not ", kSchema,
                  version < kSchema ? ": write it with PyTorch 2.9 or newer"
                                    : ": a newer PyTorch wrote it; write it with PyTorch 2.9 to 2.15"));
    const Json& module = program.at("graph_module");
    signature = SignatureReader(program).read(module.at("signature").at("input_specs"));
    GraphReader reader(signature.names, signature.slots);
    reader.read(module.at("graph"));
    read_outputs(
        module, [&](const Json& argument) { return reader.argument(argument); }, signature);
    for (const Slot slot : signature.outputs) reader.keep(slot);
    for (const auto& update : signature.updates) reader.keep(update.slot);
    graph = std::move(reader).take();
    refuse_writes();
    modes = ModeFinder(graph, signature).find();
    read_tensors(root);
  }

  /// Throws ExportedModelError where an operator writes to a parameter or an input, or to a view of one.
  void refuse_writes() const {
    std::map<Slot, std::string> fixed;
    for (const auto& tensor : signature.tensors)
      if (tensor.kind == TensorKind::parameter) fixed[tensor.slot] = "the parameter \"" + tensor.name + '"';
    for (std::size_t i = 0; i < signature.inputs.size(); ++i)
      fixed[signature.input_slots[i]] = "its input \"" + signature.inputs[i].name + '"';
    for (const auto& node : graph.nodes) {
      if (!node.op()) continue;
      const auto& declared = node.op()->schema().arguments();
      for (std::size_t i = 0; i < declared.size(); ++i)
        if (declared[i].alias_info() && declared[i].alias_info()->isWrite())
          if (const auto found = fixed.find(node.arguments[i].slot); found != fixed.end())
            throw ExportedModelError("node \"" + node.name + "\", " + node.target +
                                         ": the program writes to " + found->second +
                                         ": export a model that writes to a copy",
                                     node.target);
      for (std::size_t i = 0; i < declared.size(); ++i)
        if (const auto found = fixed.find(node.arguments[i].slot); found != fixed.end())
          for (const Slot view : views_of(node, declared[i])) fixed.emplace(view, found->second);
    }
  }

  /// Returns the results that are views of an argument by the operator's declaration. `to` and `contiguous`
  /// may copy, and do not count.
  [[nodiscard]] static std::vector<Slot> views_of(const GraphNode& node, const c10::Argument& argument) {
    std::vector<Slot> views;
    const std::string& op = node.op()->schema().name();
    if (!argument.alias_info() || op == "aten::to" || op == "aten::contiguous") return views;
    const auto& returns = node.op()->schema().returns();
    for (std::size_t r = 0; r < returns.size() && r < node.results.size(); ++r)
      if (returns[r].alias_info() &&
          returns[r].alias_info()->beforeSets() == argument.alias_info()->beforeSets())
        views.insert(views.end(), node.results[r].slots.begin(), node.results[r].slots.end());
    return views;
  }

  void read_tensors(torch::nn::Module& root) {
    auto stored = PayloadReader(*archive, "data/weights/").read(archive->json(archive->weights_file()));
    device = signature.device.value_or(at::kCPU);
    for (const auto& each : stored)
      if (each.is_parameter) device = each.device;
    auto constants =
        PayloadReader(*archive, "data/constants/").read(archive->json(archive->constants_file()));
    for (auto& each : constants) stored.push_back(std::move(each));
    tensors = WeightRegistry(graph, signature, root).add(stored);
  }
};

}  // namespace looptorch::detail::exported
