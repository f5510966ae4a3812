// SPDX-License-Identifier: MIT
// What an exported model may not hold is refused by name, when the file is read.
//
// Tests exported/archive: payload, pt2_archive, schema_values
//
// Tests exported/module: program_file, weight_registry
#include <looptorch/exported/exported_model.hpp>

#include "archives.hpp"
#include "programs.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <fstream>

namespace lt = looptorch;
using archives::Records, archives::with;

namespace {

constexpr auto kProgram = "models/model.json", kWeights = "data/weights/model_weights_config.json";

/// Returns the error without the path before it.
std::string refusal(const Records& records, std::string* operator_name = nullptr) {
  const lt::testing::TemporaryFolder folder;
  const std::string path = (folder / "m.pt2").string();
  archives::write(path, records);
  try {
    const lt::ExportedModel model(path);
  } catch (const lt::ExportedModelError& error) {
    const std::string what = error.what();
    REQUIRE(what.starts_with(path + ": "));
    if (operator_name) *operator_name = error.operator_name;
    return what.substr(path.size() + 2);
  }
  return "none";
}

Records cnn() { return archives::read(exported_programs::path("cnn")); }
std::string program_refusal(const std::string& from, const std::string& to, std::string* op = nullptr) {
  return refusal(with(cnn(), kProgram, from, to), op);
}

}  // namespace

TEST_CASE("An archive that is put together again is read") { CHECK(refusal(cnn()) == "none"); }

TEST_CASE("Operators that are not here are refused by name") {
  std::string op;
  CHECK(
      program_refusal("torch.ops.aten.conv2d.default", "torch.ops.mine.conv2d.default", &op) ==
      "node \"conv2d\", torch.ops.mine.conv2d.default: this LibTorch has no such operator. If a library of yours "
      "registers it, link or load that before the model is read");
  CHECK(op == "torch.ops.mine.conv2d.default");
  CHECK(
      program_refusal("torch.ops.aten.conv2d.default", "torch.ops.higher_order.cond", &op) ==
      "node \"conv2d\", torch.ops.higher_order.cond: operators of higher order are not supported but for those that "
      "switch gradients and autocast");
  CHECK(op == "torch.ops.higher_order.cond");
  CHECK(program_refusal("torch.ops.aten.conv2d.default", "builtins.print") ==
        "node \"conv2d\", builtins.print: is not supported");
  CHECK(program_refusal("torch.ops.aten.conv2d.default", "torch.ops.aten.from_file.default") ==
        "node \"conv2d\", torch.ops.aten.from_file.default: opens a file, and is refused");
  CHECK(program_refusal("torch.ops.aten.conv2d.default", "torch.ops.aten") ==
        "node \"conv2d\", torch.ops.aten: is no name of an operator");
}

TEST_CASE("Arguments that do not fit are refused by name") {
  CHECK(
      program_refusal(R"("name": "stride")", R"("name": "pace")") ==
      "node \"conv2d\", torch.ops.aten.conv2d.default: has an argument \"pace\" (its number 3) that this LibTorch's "
      "operator does not take");
  CHECK(
      program_refusal(R"({"as_tensor": {"name": "image"}}, "kind")",
                      R"({"as_tensor": {"name": "sound"}}, "kind")") ==
      "node \"conv2d\", torch.ops.aten.conv2d.default: argument \"input\" refers to \"sound\", which no node before "
      "it has made");
  CHECK(
      program_refusal(R"({"as_tensor": {"name": "image"}}, "kind")",
                      R"({"as_custom_obj": {"name": "o", "class_fqn": "a.B"}}, "kind")") ==
      "node \"conv2d\", torch.ops.aten.conv2d.default: argument \"input\" takes an object of the class a.B: custom "
      "classes are not supported");
  CHECK(program_refusal(R"({"as_ints": [2, 2]})", R"({"as_int_lists": [[2, 2]]})")
            .find("takes an argument of the kind as_int_lists, which is not supported") != std::string::npos);
  CHECK(program_refusal(R"({"as_ints": [2, 2]})", R"({"as_ints": [2, 2], "as_none": true})")
            .find("a value has 2 kinds instead of one") != std::string::npos);
}

TEST_CASE("Inputs that are no tensors are refused") {
  const std::string input = R"({"user_input": {"arg": {"as_tensor": {"name": "image"}}}})";
  CHECK(
      program_refusal(input, R"({"user_input": {"arg": {"as_sym_int": {"as_name": "s7"}}}})") ==
      "takes the input \"s7\", which is no tensor: only tensors can be inputs. Export the model with the number as a "
      "constant, or as a tensor");
  CHECK(
      program_refusal(
          input, R"({"custom_obj": {"arg": {"name": "o", "class_fqn": "a.B"}, "custom_obj_name": "obj"}})") ==
      "holds the object \"obj\" of the class a.B: custom classes are not supported");
  CHECK(program_refusal(input, R"({"token": {"arg": {"name": "t"}}})") ==
        "has an input of the kind token, which is not supported");
}

TEST_CASE("Operators whose results are of another kind in the file are refused") {
  const auto with_list = [](const std::string& of_conv2d) {
    return program_refusal(R"("outputs": [{"as_tensor": {"name": "conv2d"}}])",
                           R"("outputs": [{"as_tensors": [)" + of_conv2d + "]}]");
  };
  const std::string refused =
      "node \"conv2d\", torch.ops.aten.conv2d.default: returns one value here, and a list in the file";
  CHECK(with_list("") == refused);
  CHECK(with_list(R"({"name": "conv2d"})") == refused);
}

TEST_CASE("Programs that write to what they are given are refused") {
  const std::string output = R"({"user_output": )";
  CHECK(
      program_refusal(
          output,
          R"({"user_input_mutation": {"user_input_name": "image", "arg": {"name": "linear"}}}, {"user_output": )") ==
      "the program writes to its input \"image\": export a model that writes to a copy");
  CHECK(
      program_refusal(
          output,
          R"({"gradient_to_parameter": {"parameter_name": "fc.weight", "arg": {"name": "linear"}}}, {"user_output": )") ==
      "the program has an output of the kind gradient_to_parameter, which is not supported");
  std::string op;
  CHECK(
      program_refusal(
          R"({"name": "self", "arg": {"as_tensor": {"name": "b_blocks_0_bn_num_batches_tracked"}})",
          R"({"name": "self", "arg": {"as_tensor": {"name": "image"}})", &op) ==
      "node \"add_\", torch.ops.aten.add_.Tensor: the program writes to its input \"image\": export a model that "
      "writes to a copy");
  CHECK(op == "torch.ops.aten.add_.Tensor");
  CHECK(
      refusal(archives::read(exported_programs::path("writes_view")), &op) ==
      "node \"mul_\", torch.ops.aten.mul_.Tensor: the program writes to its input \"x\": export a model that "
      "writes to a copy");
}

TEST_CASE("Tensors that do not lie in their files are refused") {
  const auto weights = [&](const std::string& from, const std::string& to) {
    return refusal(with(cnn(), kWeights, from, to));
  };
  CHECK(
      weights(R"("sizes": [{"as_int": 5}, {"as_int": 4}])", R"("sizes": [{"as_int": 5}, {"as_int": 5}])") ==
      "\"fc.weight\" of sizes [5, 5] and strides [4, 1] from 0 on reaches beyond weight_8, which has 20 elements");
  CHECK(
      weights(R"("sizes": [{"as_int": 5}, {"as_int": 4}])", R"("sizes": [{"as_int": -5}, {"as_int": 4}])") ==
      "has a tensor of a negative size or stride");
  CHECK(weights(R"("strides": [{"as_int": 4}, {"as_int": 1}])",
                R"("strides": [{"as_int": 0}, {"as_int": 1}])") == "none");
  CHECK(
      weights(
          R"("sizes": [{"as_int": 5}, {"as_int": 4}], "requires_grad": true, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 4}, {"as_int": 1}])",
          R"("sizes": [{"as_int": 50}, {"as_int": 4}], "requires_grad": true, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 0}, {"as_int": 1}])") ==
      "the parameter \"fc.weight\" lies upon itself");
  CHECK(weights(R"("path_name": "weight_8")", R"("path_name": "../weight_8")") ==
        "the archive has no \"data/weights/../weight_8\"");
  CHECK(
      weights(R"("use_pickle": false)", R"("use_pickle": true)") ==
      "\"stem.weight\" is pickled, as tensors of classes of their own and custom objects are. No pickle is read: make "
      "it a plain tensor before exporting");
  CHECK(weights(R"("dtype": 5)", R"("dtype": 77)") == "has a dtype of the number 77");
  CHECK(weights(R"("layout": 7)", R"("layout": 1)") ==
        "has a tensor that is not strided: sparse layouts are not supported");
  CHECK(weights(R"("type": "cpu")", R"("type": "abacus")") == "has a device of the type \"abacus\"");
  CHECK(weights(R"("fc.weight")", R"("fc.heaviness")") == "the archive lacks the tensor \"fc.weight\"");
}

TEST_CASE("Names that make no tree of modules are refused") {
  const auto renamed = [&](const std::string& to) {
    auto records = with(cnn(), kWeights, R"("fc.bias")", '"' + to + '"');
    return refusal(with(std::move(records), kProgram, R"("parameter_name": "fc.bias")",
                        R"("parameter_name": ")" + to + '"'));
  };
  CHECK(renamed("fc..bias") == "\"fc.\" is no name of a weight or a module");
  CHECK(renamed("stem") == "two weights or modules are called \"stem\"");
  CHECK(renamed("a" + [] {
          std::string deep;
          for (int i = 0; i < 70; ++i) deep += ".a";
          return deep;
        }()) == "has modules more than 64 deep");
}

TEST_CASE("Archives of something else are refused") {
  auto records = cnn();
  const auto changed = [&](const std::string& name, const std::string& bytes) {
    auto other = records;
    other[name] = bytes;
    return refusal(other);
  };
  CHECK(changed("archive_version", "1") == "its archive_version is \"1\", not 0");
  CHECK(changed("archive_format", "zip") == "its archive_format is \"zip\", not pt2");
  CHECK(changed("byteorder", "big") == "its byteorder is \"big\", not little");
  CHECK(changed("models/other.json", "{}") == "the archive holds more than one program");
  CHECK(changed("data/weights/model.pt", "") ==
        "its weights are a pickle, as PyTorch before 2.9 wrote them. Write it again with a newer one: "
        "torch.export.save(torch.export.load('IN'), 'OUT')");
  CHECK(changed(kProgram, "{") == "models/model.json: line 1, column 2 (byte 1): expected a key");
  CHECK(changed(kProgram, "{}") ==
        "its program is not as torch.export writes it: key \"schema_version\" is missing");
  CHECK(program_refusal(R"("major": 8)", R"("major": 7)") ==
        "its schema is version 7, not 8: write it with PyTorch 2.9 or newer");
  records.erase(kProgram);
  CHECK(refusal(records) == "the archive has no models/*.json: torch.export.save has not written it");
  CHECK(changed("constants.pkl", "") == "is a TorchScript program: export the model by torch.export.save");
  CHECK(changed("data.pkl", "") == "is a file of torch.save: export the model by torch.export.save");
  const lt::testing::TemporaryFolder folder;
  std::ofstream(folder / "text.pt2") << "no archive";
  CHECK_THROWS_MATCHES(
      lt::ExportedModel((folder / "text.pt2").string()), lt::ExportedModelError,
      Catch::Matchers::Message((folder / "text.pt2").string() + ": is no archive of torch.export.save"));
  CHECK_THROWS_AS(lt::ExportedModel((folder / "none.pt2").string()), lt::FileError);
}

TEST_CASE("Compressed archives are refused by name") {
  const std::string path = LOOPTORCH_SOURCE_DIR "/tests/parity/data/exported_programs/compressed.pt2";
  CHECK_THROWS_MATCHES(lt::ExportedModel(path), lt::ExportedModelError,
                       Catch::Matchers::Message(
                           path + ": its \"compressed/models/model.json\" is compressed, and only archives "
                                  "without compression are read, as torch.export.save writes them"));
}
