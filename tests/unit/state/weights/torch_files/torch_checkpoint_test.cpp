// SPDX-License-Identifier: MIT
// Files of torch.save, as tests/parity/torch_checkpoints.py writes them: their bits, and what is refused.
// Tests state/weights/torch_files: checkpoint_parts, pickle, pickle_value, torch_host, zip_directory
#include "support/precompiled.hpp"

#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>
#include <looptorch/state/weights/torch_files/torch_checkpoint.hpp>

#include "support/temporary_folder.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;
using Catch::Contains;
using lt::load_torch_checkpoint, lt::TorchCheckpointError;

namespace {

const fs::path kFolder = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/torch_checkpoints";

at::Tensor weight() { return at::arange(6, at::kFloat).reshape({2, 3}) / 8; }
at::Tensor bias() { return at::arange(2, at::kFloat) - 0.5; }

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("fc", fc);
    register_buffer("steps", steps);
    fc->to(at::kFloat);
  }
  torch::nn::Linear fc{3, 2};
  at::Tensor steps = at::zeros({}, at::kLong);
};
TORCH_MODULE(Net);

void check_net(const fs::path& path) {
  CAPTURE(path);
  Net net;
  lt::load_weights(net, path);
  CHECK(net->fc->weight.equal(weight()));
  CHECK(net->fc->bias.equal(bias()));
  CHECK(net->steps.item<int64_t>() == 7);
}

}  // namespace

TEST_CASE("files of torch.save load into a module, whichever protocol and wrapper wrote them") {
  for (const char* name :
       {"protocol_2.pt", "protocol_3.pt", "protocol_4.pt", "protocol_5.pt", "ddp.pth", "compiled.pth"})
    check_net(kFolder / name);
  check_net(kFolder / "sharded/pytorch_model.bin.index.json");
  check_net(kFolder / "sharded");
}

TEST_CASE("tensors of a file of torch.save have its dtypes, shapes, strides and bits") {
  const auto of_bf16 = load_torch_checkpoint(kFolder / "bf16.bin").tensors;
  CHECK(of_bf16.at("fc.weight").equal(weight().to(at::kBFloat16)));
  const auto kinds = load_torch_checkpoint(kFolder / "kinds.pt").tensors;
  CHECK(kinds.at("empty").sizes() == at::IntArrayRef{0, 4});
  CHECK(kinds.at("int8").equal(torch::tensor({-3, 4}, torch::kChar)));
  CHECK(kinds.at("flags").equal(torch::tensor({true, false})));
  CHECK(kinds.at("half").equal(at::full({1}, 0.5, at::kHalf)));
  CHECK(kinds.at("parameter").equal(at::full({1}, 2.0)));
  CHECK(kinds.at("wide").to(at::kInt).equal(torch::tensor({40000}, torch::kInt)));
  CHECK(kinds.at("float8").to(at::kFloat).equal(at::full({1}, 0.5)));
  CHECK(at::view_as_real(kinds.at("complex")).equal(torch::tensor({1.0F, 2.0F}).reshape({1, 2})));
  const auto mx = load_torch_checkpoint(kFolder / "mx.pt").tensors;
  CHECK(mx.at("scales").to(at::kFloat).equal(torch::tensor({0.25F, 8.0F})));
  CHECK(mx.at("float4").scalar_type() == lt::detail::kFloat4);
  CHECK(std::memcmp(mx.at("float4").const_data_ptr(), "\x21\x43", 2) == 0);
  const auto views = load_torch_checkpoint(kFolder / "views.pt").tensors;
  CHECK(views.at("transposed").equal(weight().t()));
  CHECK(views.at("transposed").strides() == weight().t().strides());
  CHECK(views.at("column").equal(weight().select(1, 1)));
  CHECK(views.at("row").equal(weight()[1]));
  CHECK(views.at("expanded").equal(at::ones(3)));
  CHECK(views.at("empty").sizes() == at::IntArrayRef{1, 0});
  const auto tied = load_torch_checkpoint(kFolder / "tied.pt").tensors;
  CHECK(tied.at("embedding.weight").equal(weight()));
  CHECK(tied.at("embedding.weight").data_ptr() == tied.at("head.weight").data_ptr());
  CHECK(load_torch_checkpoint(kFolder / "sound.pt").tensors.at("w").equal(weight()));
}

TEST_CASE("tensors are views of the file, and writing to them leaves it as it is") {
  const auto bytes = lt::read_file(kFolder / "protocol_2.pt");
  load_torch_checkpoint(kFolder / "protocol_2.pt").tensors.at("fc.weight").fill_(3);
  CHECK(lt::read_file(kFolder / "protocol_2.pt") == bytes);
  const auto tied = load_torch_checkpoint(kFolder / "tied.pt", "", /*mapped=*/false).tensors;
  CHECK(tied.at("embedding.weight").equal(weight()));
  CHECK(tied.at("embedding.weight").data_ptr() == tied.at("head.weight").data_ptr());
}

TEST_CASE("a key is refused for files that have none") {
  const lt::testing::TemporaryFolder folder;
  Net net;
  lt::save_weights(net, folder / "model.safetensors");
  CHECK_THROWS_WITH(
      lt::load_weights(net, folder / "model.safetensors", {.inside = "generator"}),
      Contains("the key \"generator\" was asked for, and only a whole file of torch.save has keys"));
  CHECK_THROWS_AS(lt::load_weights(net, folder.path(), {.inside = "generator"}), lt::UsageError);
  CHECK_THROWS_AS(lt::load_weights(net, kFolder / "sharded", {.inside = "generator"}), lt::UsageError);
}

TEST_CASE("weights are found within a checkpoint, and the key is said") {
  const auto found = load_torch_checkpoint(kFolder / "checkpoint.pt");
  CHECK(found.inside == "model_state_dict");
  CHECK(found.tensors.size() == 2);
  CHECK(found.tensors.at("weight").equal(weight()));
  CHECK(found.beside.front() == "epoch");
  CHECK(found.beside.back() == "optimizer_state_dict");
  CHECK(load_torch_checkpoint(kFolder / "protocol_2.pt").beside.empty());
  torch::nn::Linear linear(3, 2);
  CHECK_THAT(lt::load_weights(linear, kFolder / "checkpoint.pt").text(),
             Contains("from \"model_state_dict\""));
  CHECK(linear->bias.equal(bias()));
  CHECK(load_torch_checkpoint(kFolder / "protocol_2.pt").inside.empty());
  CHECK_THROWS_WITH(load_torch_checkpoint(kFolder / "two_keys.pt"),
                    Contains("has tensors under several keys, \"first\", \"second\""));
  CHECK(load_torch_checkpoint(kFolder / "two_keys.pt", "second").tensors.size() == 3);
  Net net;
  CHECK_THROWS_AS(lt::load_weights(net, kFolder / "two_keys.pt"), TorchCheckpointError);
  CHECK(lt::load_weights(net, kFolder / "two_keys.pt", {.inside = "second"}).inside == "second");
  CHECK_THROWS_WITH(load_torch_checkpoint(kFolder / "two_keys.pt", "third"),
                    Contains("has no tensors under \"third\"; it has some under \"first\", \"second\""));
}

TEST_CASE("weights at the top level are preferred to an average beside them, but scalars are no weights") {
  const auto chosen = [](const lt::TensorMap& own, const std::string& key, const lt::TensorMap& nested,
                         const std::string& inside = {}) {
    return lt::detail::choose_part({.own = own, .within = {{key, nested}}}, inside);
  };
  const lt::TensorMap linear{{"weight", weight()}, {"bias", bias()}};
  const at::Tensor number = torch::scalar_tensor(0.9);
  CHECK(chosen(linear, "ema", linear).empty());
  CHECK(chosen(linear, "ema", linear, "ema") == "ema");
  CHECK(chosen(linear, "ema", {{"weight", weight()}, {"bias", bias()}, {"decay", number}}).empty());
  CHECK(chosen(linear, "params", {{"rates", bias()}}).empty());
  CHECK(chosen({{"loss", number}, {"step", number}, {"rate", number}}, "model", linear) == "model");
  CHECK(chosen({{"mean", bias()}, {"std", bias()}}, "model", linear) == "model");
  CHECK(chosen({}, "model", {{"scale", number}}) == "model");
}

TEST_CASE("bytes, complex numbers and the Counter of a schedule beside tensors are left aside") {
  const auto found = load_torch_checkpoint(kFolder / "plain_values.pt");
  CHECK(found.tensors.size() == 1);
  CHECK(found.beside.back() == "scheduler");
  CHECK(found.tensors.at("fc.weight").equal(weight()));
}

TEST_CASE("all dictionaries of tensors in a checkpoint are there by their keys") {
  const auto parts = lt::load_checkpoint_parts(kFolder / "two_keys.pt");
  CHECK(parts.own.empty());
  CHECK(parts.keys == std::vector<std::string>{"first", "second"});
  CHECK(parts.within.at("second").at("fc.weight").equal(weight()));
  CHECK(parts.beside({"second"}) == std::vector<std::string>{"first"});
  CHECK(lt::load_checkpoint_parts(kFolder / "protocol_2.pt").own.size() == 3);
  CHECK_THROWS_AS(lt::load_checkpoint_parts(kFolder / "legacy.pt"), TorchCheckpointError);
}

TEST_CASE("files of old kinds are refused with the line of Python that converts them") {
  for (const bool by_module : {false, true}) {
    const auto read = [&](const char* name) {
      Net net;
      by_module ? void(lt::load_weights(net, kFolder / name)) : void(load_torch_checkpoint(kFolder / name));
    };
    CHECK_THROWS_WITH(read("legacy.pt"), Contains("torch.save(torch.load('IN', weights_only=True), 'OUT')"));
    CHECK_THROWS_WITH(read("script.pt"), Contains("torch.save(torch.jit.load('IN').state_dict(), 'OUT')"));
  }
}

TEST_CASE("a pickle that does more than name tensors is refused, by the name of what it asks for") {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"system", "asks for posix.system, and is refused"},
      {"eval", "asks for builtins.eval, and is refused"},
      {"getattr", "asks for builtins.getattr, and is refused"},
      {"popen", "asks for subprocess.Popen, and is refused"},
      {"inst", "has the operation 105"},
      {"extension", "has the operation 130"},
      {"build", "sets attributes of what is no dictionary"},
      {"reach", "reaches beyond its storage of 6 elements"},
      {"negative", "from -4 on, which reaches beyond its storage"},
      {"overflow", "reaches beyond its storage"},
      {"storage", "says that the storage 0 has 1099511627776 elements, and its data have 24 bytes"},
      {"deep", "holds no dictionary of tensors"},
      {"text", "ends within a value"},
      {"copies", "makes more lists of its values than it has bytes"},
      {"overlap", "names storages that lie one upon another"},
  };
  for (const auto& [name, why] : refused) {
    CAPTURE(name);
    CHECK_THROWS_WITH(load_torch_checkpoint(kFolder / ("evil_" + name + ".pt")), Contains(why));
  }
  CHECK_THROWS_WITH(load_torch_checkpoint(kFolder / "evil_system.pt"),
                    Contains("evil_system.pt: its pickle asks"));
}

TEST_CASE("views that are to be conjugated or negated are refused") {
  for (const auto* name : {"conjugated.pt", "negated.pt"})
    CHECK_THROWS_WITH(load_torch_checkpoint(kFolder / name), Contains("resolve_conj"));
}

TEST_CASE("archives that are cut off, compressed, or no checkpoints are refused") {
  const lt::testing::TemporaryFolder folder;
  const auto write = [&](const std::string& bytes) {
    std::ofstream(folder / "file.pt", std::ios::binary) << bytes;
    return fs::path(folder / "file.pt");
  };
  const auto whole = lt::read_file(kFolder / "protocol_2.pt");
  CHECK_THROWS_WITH(load_torch_checkpoint(write(whole.substr(0, whole.size() / 2))), Contains("cut off"));
  CHECK_THROWS_AS(load_torch_checkpoint(write("")), TorchCheckpointError);
  CHECK_THROWS_WITH(load_torch_checkpoint(write("weights")), Contains("is no archive"));
  CHECK_THROWS_AS(load_torch_checkpoint(folder / "none.pt"), lt::FileError);
  // A safetensors file whose header is 640 bytes long begins as an old pickle does.
  CHECK_FALSE(
      lt::detail::is_torch_checkpoint(lt::InputFile(write(std::string("\x80\x02\0\0\0\0\0\0", 8) + "{}"))));
  auto compressed = whole;
  const auto entry = compressed.rfind("PK\x01\x02", compressed.rfind("data/0"));
  compressed[entry + 10] = 8;
  CHECK_THROWS_WITH(load_torch_checkpoint(write(compressed)),
                    Contains("lacks the data of storage 0, or has them compressed"));
  auto all_compressed = whole;
  for (std::size_t at = 0; (at = all_compressed.find("PK\x01\x02", at)) != std::string::npos; ++at)
    all_compressed[at + 10] = 8;
  CHECK_THROWS_WITH(load_torch_checkpoint(write(all_compressed)),
                    Contains("has its data.pkl compressed, and only archives without compression are read"));
  auto renamed = whole;
  for (std::size_t at = 0; (at = renamed.find("data.pkl", at)) != std::string::npos;)
    renamed.replace(at, 8, "data.xyz");
  CHECK_THROWS_WITH(load_torch_checkpoint(write(renamed)), Contains("has no data.pkl"));
}
