// SPDX-License-Identifier: MIT
// Writes an exported program to a .pt2, torch.export's archive. torch.export.load reads the file, for Python,
// AOTInductor and the ONNX exporter.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/export/files/archive_file.hpp>
#include <looptorch/export/files/pt2_graph.hpp>
#include <looptorch/export/files/pt2_schema.hpp>
#include <looptorch/export/program/exported_program.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/version.h>

#include <caffe2/serialize/inline_container.h>

#include <bit>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {
namespace pt2 {

struct SavedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = false;
};

/// Returns the metadata of a tensor.
[[nodiscard]] inline TensorMeta meta_of(const at::Tensor& tensor) {
  TensorMeta meta{tensor.scalar_type(), tensor.device(), tensor.requires_grad()};
  for (const auto size : tensor.sizes()) meta.sizes.emplace_back(size);
  for (const auto stride : tensor.strides()) meta.strides.emplace_back(stride);
  return meta;
}

/// Writes records `FOLDER/STEM0`, `FOLDER/STEM1`, ... and returns the list. Tensors that share memory share a
/// record. Tensors are copied if their memory is larger than they need, as in a mapped file, or if they are
/// lazily conjugated or negated.
[[nodiscard]] inline Json write_tensors(caffe2::serialize::PyTorchStreamWriter& writer,
                                        const std::vector<SavedTensor>& tensors, const std::string& folder,
                                        const std::string& stem) {
  std::vector<at::Tensor> plain;
  std::map<const void*, int> users;
  for (const auto& each : tensors) {
    plain.push_back(each.tensor.detach().resolve_conj().resolve_neg());
    ++users[plain.back().storage().unsafeGetStorageImpl()];
  }
  std::map<const void*, std::string> records;
  Json config = Json::object();
  int count = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SavedTensor& each = tensors[i];
    at::Tensor tensor = plain[i].cpu();
    const void* const storage = plain[i].storage().unsafeGetStorageImpl();
    const bool is_alone = users[storage] == 1;
    if (is_alone && tensor.storage().nbytes() != tensor.nbytes())
      tensor = tensor.clone(at::MemoryFormat::Contiguous);
    std::string& record = records[storage];
    if (record.empty()) {
      record = stem + std::to_string(count++);
      writer.writeRecord(folder + "/" + record, tensor.storage().data(), tensor.storage().nbytes());
    }
    auto meta = meta_of(tensor);
    meta.device = each.tensor.device();
    meta.requires_grad = each.tensor.requires_grad();
    config.set(each.name, object({{"path_name", record},
                                  {"is_param", each.is_parameter},
                                  {"use_pickle", false},
                                  {"tensor_meta", tensor_meta(meta, {}, tensor.storage_offset())}}));
  }
  return one("config", std::move(config));
}

[[nodiscard]] inline const char* byte_order() {
  return std::endian::native == std::endian::little ? "little" : "big";
}

inline void put(caffe2::serialize::PyTorchStreamWriter& writer, const std::string& name,
                const std::string& text) {
  writer.writeRecord(name, text.data(), text.size());
}

/// Returns how Python packs and unpacks arguments and results.
[[nodiscard]] inline Json call_signature(const ExportedProgram& program) {
  const std::string leaf = R"({"type": null, "context": null, "children_spec": []})";
  const auto spec = [&](const char* type, const std::string& context, std::size_t count) {
    std::string leaves;
    for (std::size_t i = 0; i < count; ++i) leaves += (i == 0 ? "" : ", ") + leaf;
    return message(R"({"type": "builtins.)", type, R"(", "context": )", Json(context).dump(),
                   R"(, "children_spec": [)", leaves, "]}");
  };
  const std::string arguments = R"([1, {"type": "builtins.tuple", "context": "null", "children_spec": [)" +
                                spec("tuple", "null", program.inputs.size()) +
                                R"(, {"type": "builtins.dict", "context": "[]", "children_spec": []}]}])";
  Json names = Json::array();
  for (const auto& input : program.inputs) names.push_back(input.name);
  Json keys = Json::array();
  for (const std::string& name : program.output_names) keys.push_back(name);
  const std::size_t outputs = program.outputs.size();
  const std::string results = !program.output_names.empty() ? spec("dict", keys.dump(), outputs)
                              : outputs == 1                ? leaf
                                                            : spec("tuple", "null", outputs);
  return object({{"inputs", Json::array()},
                 {"outputs", Json::array()},
                 {"in_spec", arguments},
                 {"out_spec", "[1, " + results + "]"},
                 {"forward_arg_names", std::move(names)}});
}

/// Returns models/model.json.
[[nodiscard]] inline Json program_json(const ExportedProgram& program) {
  GraphWriter graph(program);
  Json inputs = Json::array(), input_specs = Json::array(), outputs = Json::array(),
       output_specs = Json::array();
  const auto add_input = [&](ValueId value, const char* kind, Json argument, std::vector<JsonMember> more) {
    inputs.push_back(as_tensor(graph.name(value)));
    Json spec = one("arg", std::move(argument));
    for (auto& [key, held] : more) spec.set(key, std::move(held));
    input_specs.push_back(one(kind, std::move(spec)));
  };
  for (const auto& weight : program.weights) {
    Json argument = named(graph.name(weight.value));
    if (weight.is_parameter)
      add_input(weight.value, "parameter", std::move(argument), {{"parameter_name", weight.name}});
    else
      add_input(weight.value, "buffer", std::move(argument),
                {{"buffer_name", weight.name}, {"persistent", true}});
  }
  for (std::size_t i = 0; i < program.constants.size(); ++i) {
    const ValueId value = program.constants[i].value;
    add_input(value, "tensor_constant", named(graph.name(value)),
              {{"tensor_constant_name", constant_name(i)}});
  }
  for (const auto& input : program.inputs)
    add_input(input.value, "user_input", as_tensor(graph.name(input.value)), {});
  for (const ValueId output : program.outputs) {
    outputs.push_back(as_tensor(graph.name(output)));
    output_specs.push_back(one("user_output", one("arg", as_tensor(graph.name(output)))));
  }
  Json ranges = Json::object();
  for (std::size_t i = 0; i < program.dims.size(); ++i) {
    const auto& dim = program.dims[i];
    ranges.set(symbol(i),
               object({{"min_val", dim.min}, {"max_val", dim.max ? Json(*dim.max) : Json(nullptr)}}));
  }
  Json module = object(
      {{"graph", std::move(graph).graph(std::move(inputs), std::move(outputs))},
       {"signature",
        object({{"input_specs", std::move(input_specs)}, {"output_specs", std::move(output_specs)}})},
       {"module_call_graph", Json::array({object({{"fqn", ""}, {"signature", call_signature(program)}})})},
       {"metadata", Json::object()},
       {"treespec_namedtuple_fields", Json::object()}});
  return object({{"graph_module", std::move(module)},
                 {"opset_version", one("aten", 10)},
                 {"range_constraints", std::move(ranges)},
                 {"schema_version", object({{"major", 8}, {"minor", 17}})},
                 {"verifiers", Json::array({"TRAINING"})},
                 {"torch_version", TORCH_VERSION},
                 {"guards_code", Json::array()}});
}

/// Returns what torch.save((inputs, {})) writes. LibTorch's pickle_save would tag the dictionary with a type,
/// which torch.load's safe mode refuses: so the empty one is appended by its opcodes.
[[nodiscard]] inline std::string sample_inputs(const ExportedProgram& program) {
  std::vector<c10::IValue> inputs;
  for (const auto& input : program.inputs) inputs.emplace_back(input.example.detach().clone());
  std::string pickle, archive;
  torch::jit::Pickler pickler([&](const char* bytes, std::size_t size) { pickle.append(bytes, size); });
  pickler.protocol();
  pickler.pushIValue(c10::ivalue::Tuple::create(inputs));
  pickler.stop();
  pickle.back() = '}';  // replaces the end by an empty dictionary; the pair and the end follow
  pickle += "\x86.";
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, std::size_t size) {
    archive.append(static_cast<const char*>(bytes), size);
    return size;
  });
  put(writer, "data.pkl", pickle);
  for (std::size_t i = 0; i < pickler.tensorData().size(); ++i) {
    const auto data = torch::jit::getWriteableTensorData(pickler.tensorData()[i]);
    writer.writeRecord("data/" + std::to_string(i), data.data(), data.sizeInBytes());
  }
  put(writer, "byteorder", byte_order());
  writer.writeEndOfFile();
  return archive;
}

}  // namespace pt2

/// Writes the archive, whole or not at all. Throws ExportError for what the format cannot hold, and
/// FileError.
inline void write_pt2(const ExportedProgram& program, const std::filesystem::path& path) {
  const std::string json = pt2::program_json(program).dump();
  std::vector<pt2::SavedTensor> weights, constants;
  for (const auto& weight : program.weights)
    weights.push_back({weight.name, weight.tensor, weight.is_parameter});
  for (const auto& constant : program.constants)
    constants.push_back({pt2::constant_name(constants.size()), constant.tensor});
  ArchiveFile file(path);
  {
    caffe2::serialize::PyTorchStreamWriter writer(file.writer());
    writer.setMinVersion(6);
    pt2::put(writer, "data/weights/model_weights_config.json",
             pt2::write_tensors(writer, weights, "data/weights", "weight_").dump());
    pt2::put(writer, "data/constants/model_constants_config.json",
             pt2::write_tensors(writer, constants, "data/constants", "tensor_").dump());
    pt2::put(writer, "models/model.json", json);
    pt2::put(writer, "data/sample_inputs/model.pt", pt2::sample_inputs(program));
    pt2::put(writer, "archive_format", "pt2");
    pt2::put(writer, "archive_version", "0");
    pt2::put(writer, "byteorder", pt2::byte_order());
    writer.writeEndOfFile();
  }
  file.commit();
}

}  // namespace looptorch::detail
