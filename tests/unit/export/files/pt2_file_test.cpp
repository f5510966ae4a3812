// SPDX-License-Identifier: MIT
// Tests export/files: pt2_graph, pt2_schema
#include <looptorch/base/files/file.hpp>
#include <looptorch/export/export_model.hpp>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "unit/export/models.hpp"

#include <torch/torch.h>

#include <caffe2/serialize/inline_container.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace lt = looptorch;
namespace pt2 = looptorch::detail::pt2;
using export_tests::Mlp;
using export_tests::Net;

namespace {

const std::vector<lt::DynamicDim> kBatch{{.name = "batch", .places = {{0, 0}}, .max = 100}};

struct Archive {
  explicit Archive(const std::filesystem::path& path) : reader(path.string()) {}
  std::string text(const std::string& name) {
    const auto [data, size] = reader.getRecord(name);
    return {static_cast<const char*>(data.get()), size};
  }
  lt::Json json(const std::string& name) { return lt::Json::parse(text(name)); }
  caffe2::serialize::PyTorchStreamReader reader;
};

}  // namespace

TEST_CASE("a .pt2 has the archive's records, and the weights' bytes once") {
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  net->register_parameter("tied", net->fc->weight);
  lt::export_model(net, torch::randn({3, 4}), folder / "net.pt2", {.input_names = {"x"}, .dynamic = kBatch});
  CHECK(folder.entries() == 1);
  Archive archive(folder / "net.pt2");
  CHECK(archive.text("archive_format") == "pt2");
  CHECK(archive.text("archive_version") == "0");
  CHECK(archive.text("byteorder") == "little");
  const auto config = archive.json("data/weights/model_weights_config.json").at("config");
  CHECK(config.as_object().size() == 2);
  CHECK(config.at("fc.bias").at("is_param").as_bool());
  CHECK(archive.text("data/weights/" + config.at("fc.bias").at("path_name").as_string()) ==
        std::string(static_cast<const char*>(net->fc->bias.const_data_ptr()), 16));
  const auto program = archive.json("models/model.json");
  CHECK(program.at("range_constraints").dump() == R"({"s0":{"min_val":1,"max_val":100}})");
  const auto& graph = program.at("graph_module").at("graph");
  CHECK(graph.at("tensor_values").at("x").at("sizes").at(0).at("as_expr").at("expr_str").as_string() ==
        "Symbol('s0', positive=True, integer=True)");
}

TEST_CASE("sizes are written as nodes, once each") {
  const looptorch::testing::TemporaryFolder folder;
  Mlp net;
  lt::export_model(net, torch::randn({3, 4}), folder / "mlp.pt2", {.dynamic = kBatch});
  const auto program = Archive(folder / "mlp.pt2").json("models/model.json");
  std::vector<std::string> targets;
  for (const auto& node : program.at("graph_module").at("graph").at("nodes").as_array())
    targets.push_back(node.at("target").as_string());
  CHECK(std::count(targets.begin(), targets.end(), "torch.ops.aten.sym_size.int") == 1);
  CHECK(std::count(targets.begin(), targets.end(), "_operator.mul") == 1);
  CHECK(std::count(targets.begin(), targets.end(), "torch.ops.aten.gelu.default") == 1);
}

TEST_CASE("sizes are sympy's expressions") {
  const auto b = lt::Polynomial::of_dim(0), t = lt::Polynomial::of_dim(1);
  CHECK(pt2::sympy(0) == "Integer(0)");
  CHECK(pt2::sympy(b) == "Symbol('s0', positive=True, integer=True)");
  auto sum = b * t * lt::Polynomial(2);
  sum.add({}, -1);
  CHECK(pt2::sympy(sum) ==
        "Add(Integer(-1), Mul(Integer(2), Symbol('s0', positive=True, integer=True), "
        "Symbol('s1', positive=True, integer=True)))");
  CHECK(pt2::size(sum, {3, 5}).at("as_expr").at("hint").at("as_int").as_int() == 29);
  CHECK(pt2::size(7, {}).dump() == R"({"as_int":7})");
}

TEST_CASE("numbers, dtypes and devices have the schema's names") {
  CHECK(pt2::number(-std::numeric_limits<double>::infinity()).as_string() == "-Infinity");
  CHECK(pt2::number(0.5).dump() == "0.5");
  CHECK(pt2::dtype_number(at::kFloat).as_int() == 7);
  CHECK(pt2::dtype_number(at::kBFloat16).as_int() == 13);
  CHECK(pt2::dtype_number(at::kBool).as_int() == 12);
  CHECK_THROWS_AS(pt2::dtype_number(at::kQInt8), lt::ExportError);
  CHECK(pt2::device_of(at::Device("cuda:1")).dump() == R"({"type":"cuda","index":1})");
  CHECK(pt2::device_of(at::kCPU).dump() == R"({"type":"cpu","index":null})");
}

TEST_CASE("tensors that share memory share a record, and views of more are copied") {
  const looptorch::testing::TemporaryFolder folder;
  const auto all = torch::arange(100, torch::kFloat);
  {
    caffe2::serialize::PyTorchStreamWriter writer((folder / "t.zip").string());
    const auto config = pt2::write_tensors(writer,
                                           {{"a", all.slice(0, 10, 12)},
                                            {"b", all.slice(0, 20, 22)},
                                            {"c", torch::ones({5}).slice(0, 1, 3)}},
                                           "data", "t")
                            .at("config");
    CHECK(config.at("a").at("path_name") == config.at("b").at("path_name"));
    CHECK(config.at("b").at("tensor_meta").at("storage_offset").at("as_int").as_int() == 20);
    CHECK(config.at("c").at("tensor_meta").at("storage_offset").at("as_int").as_int() == 0);
    writer.writeEndOfFile();
  }
  Archive archive(folder / "t.zip");
  CHECK(archive.text("data/t0").size() == 400);
  CHECK(archive.text("data/t1").size() == 8);
}

TEST_CASE("tensors that are conjugated or negated when read are written with those values") {
  const looptorch::testing::TemporaryFolder folder;
  const auto numbers = torch::complex(torch::tensor({1.0F, 2.0F}), torch::tensor({3.0F, 4.0F}));
  {
    caffe2::serialize::PyTorchStreamWriter writer((folder / "t.zip").string());
    const auto config = pt2::write_tensors(
        writer, {{"a", numbers}, {"b", numbers.conj()}, {"c", at::imag(numbers.conj())}}, "data", "t");
    CHECK(config.at("config").at("b").at("path_name") != config.at("config").at("a").at("path_name"));
    writer.writeEndOfFile();
  }
  Archive archive(folder / "t.zip");
  const auto floats = [&](const std::string& name) {
    const std::string bytes = archive.text(name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  CHECK((floats("data/t0") == std::vector<float>{1, 3, 2, 4}));
  CHECK((floats("data/t1") == std::vector<float>{1, -3, 2, -4}));
  CHECK((floats("data/t2") == std::vector<float>{-3, -4}));
}

TEST_CASE("a file for another device names it everywhere") {
  lt::ExportedProgram program;
  program.add_value({});
  program.weights = {{"w", torch::ones({2}).requires_grad_(), true, 0}};
  program.nodes.push_back({c10::Dispatcher::singleton().findSchemaOrThrow("aten::arange", ""),
                           {{c10::IValue(3)},
                            {c10::IValue()},
                            {c10::IValue()},
                            {c10::IValue(at::Device(at::kCPU))},
                            {c10::IValue()}},
                           {{{0}, false}}});
  const auto moved = lt::detail::program_on_device(program, at::kMeta);
  CHECK(moved.values[0].device == at::kMeta);
  CHECK(moved.weights[0].tensor.is_meta());
  CHECK(moved.weights[0].tensor.requires_grad());
  CHECK(moved.nodes[0].arguments[3].constant()->toDevice() == at::kMeta);
  CHECK(
      lt::detail::program_on_device(program, at::kCPU).weights[0].tensor.is_same(program.weights[0].tensor));
}

TEST_CASE("a file appears whole or not at all, and an older one stays") {
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  for (const std::string suffix : {".pt2", ".ts"}) {
    const auto path = folder / ("net" + suffix);
    CHECK_THROWS_AS(lt::export_model(net, torch::randn({3, 4}), folder / ("none/net" + suffix)),
                    lt::FileError);
    lt::export_model(net, torch::randn({3, 4}), path);
    const auto before = lt::read_file(path);
    const auto fails = [](Net& model, const at::Tensor& x) { return model(x) * x.sum().item<float>(); };
    CHECK_THROWS_AS(lt::export_model(net, fails, torch::randn({3, 4}), path), lt::ExportError);
    CHECK(lt::read_file(path) == before);
  }
  CHECK(folder.entries() == 2);
}

TEST_CASE("a disk that is full leaves no file, and names the file") {
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const std::string name : {"net.pt2", "net.ts"}) {
    const rlimit small{1000, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    std::string said;
    try {
      lt::export_model(net, torch::randn({3, 4}), folder / name);
    } catch (const lt::FileError& error) {
      said = error.what();
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_THAT(said, Catch::Contains(name + ": cannot write"));
    CHECK(folder.entries() == 0);
  }
  std::signal(SIGXFSZ, handler);
}
