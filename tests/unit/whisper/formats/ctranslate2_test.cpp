// SPDX-License-Identifier: MIT
// A small CTranslate2 Whisper is written byte by byte (ctranslate2_files.hpp); the real one is read where
// LOOPTORCH_WHISPER_CT2 is set.
// Tests whisper/formats: ctranslate2_import
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>

#include "../ctranslate2_files.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/formats/ctranslate2.hpp>
#include <whisper/formats/ctranslate2_import.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::TensorMap;
using looptorch::testing::TemporaryFolder;
using whisper::convert_ctranslate2;
using whisper::CTranslate2Error;
using whisper::CTranslate2Model;
using whisper::load_ctranslate2;
using whisper_test::small_ctranslate2_model;
using Writer = whisper_test::CTranslate2Writer;

TEST_CASE("CTranslate2: variables, types and aliases are read") {
  const TemporaryFolder folder;
  Writer writer;
  writer.head(4)
      .variable("a", {2}, 0, std::string("\0\0\x80\x3F\0\0\0\xC0", 8))
      .variable("b", {}, 2, std::string("\x07\0", 2));
  writer.variable("c", {1, 2}, 4, std::string("\0\x3C\0\xC0", 4)).variable("none", {0, 3}, 0, "");
  writer.number(std::uint32_t{1}).text("again").text("a");
  looptorch::write_file_atomically(folder / "model.bin", writer.bytes());
  const auto model = load_ctranslate2(folder / "model.bin");
  CHECK(model.spec == "WhisperSpec");
  CHECK(model.revision == 3);
  REQUIRE(model.variables.size() == 5);
  CHECK(model.variables.at("none").sizes() == at::IntArrayRef{0, 3});
  CHECK(torch::equal(model.variables.at("a"), torch::tensor({1.0F, -2.0F})));
  CHECK(model.variables.at("b").item().toLong() == 7);
  CHECK(torch::equal(model.variables.at("c"), torch::tensor({{1.0, -2.0}}, at::kHalf)));
  CHECK(model.variables.at("again").is_alias_of(model.variables.at("a")));
}

TEST_CASE("CTranslate2: files that are cut off, damaged or of another kind are refused") {
  const TemporaryFolder folder;
  const auto path = folder / "model.bin";
  const auto refuses = [&](const Writer& writer, const std::string& message) {
    looptorch::write_file_atomically(path, writer.bytes());
    REQUIRE_THROWS_AS(load_ctranslate2(path), CTranslate2Error);
    REQUIRE_THROWS_WITH(load_ctranslate2(path), Contains("model.bin: ") && Contains(message));
  };
  const std::string four(4, '\0');
  refuses(Writer(), "is cut off: 4 bytes needed at byte 0");
  refuses(Writer().number(std::uint32_t{0x46554747}), "not a CTranslate2 model of version 6");
  refuses(Writer().number(std::uint32_t{5}), "not a CTranslate2 model of version 6 (begins with 5)");
  refuses(Writer().head(1), "is cut off");
  refuses(Writer().head(0), "is cut off");
  refuses(Writer().number(std::uint32_t{6}).number(std::uint16_t{3}).raw("abc"), "malformed name at byte 4");
  refuses(Writer().number(std::uint32_t{6}).number(std::uint16_t{0}), "malformed name at byte 4");
  refuses(Writer().number(std::uint32_t{6}).number(std::uint16_t{3}).raw(std::string("\0b\0", 3)),
          "malformed name");
  refuses(Writer().head(1).variable("\xFF", {1}, 0, four), "malformed name");
  refuses(Writer().head(1).variable("a", {1}, 6, four), "\"a\" has the unknown type 6");
  refuses(Writer().head(1).variable("a", {2}, 0, four),
          "\"a\" of shape [2] and type Float cannot take 4 bytes");
  refuses(Writer().head(1).variable("a", {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, four), "\"a\" has 9 dimensions");
  refuses(Writer().head(1).variable("a", {0x80000000, 0x80000000, 4}, 0, ""), "cannot take 0 bytes");
  const std::uint32_t most = 0xFFFFFFFF;
  refuses(Writer().head(1).variable("a", {0, most, most, most, most, most, most, most}, 0, ""),
          "cannot take 0 bytes");
  refuses(Writer().head(1).variable("a", {most, most, 0}, 0, ""), "cannot take 0 bytes");
  refuses(Writer().head(2).variable("a", {1}, 0, four).variable("a", {1}, 0, four), "\"a\" appears twice");
  refuses(Writer()
              .head(1)
              .text("a")
              .number(std::uint8_t{1})
              .number(0x10000000U)
              .number(std::uint8_t{0})
              .number(0x40000000U),
          "is cut off: 1073741824 bytes needed");
  refuses(Writer().head(0).number(std::uint32_t{1}).text("a").text("b"),
          "alias \"a\" of a variable that is not there");
  refuses(Writer().head(0).number(std::uint32_t{0}).raw("x"), "1 bytes after the end");
  CHECK_THROWS_AS(load_ctranslate2(folder / "none.bin"), looptorch::FileError);
}

TEST_CASE("CTranslate2: every cut gives a typed error, every flipped bit a typed error or a model") {
  const TemporaryFolder folder;
  Writer writer;
  writer.head(2)
      .variable("first", {2}, 0, std::string(8, 'x'))
      .variable("second", {3}, 4, std::string(6, 'y'));
  writer.number(std::uint32_t{1}).text("alias").text("first");
  const auto write = [&](const std::string& bytes) {
    std::ofstream(folder / "m", std::ios::binary) << bytes;
  };
  for (std::size_t size = 0; size < writer.bytes().size(); ++size) {
    write(writer.bytes().substr(0, size));
    REQUIRE_THROWS_AS(load_ctranslate2(folder / "m"), CTranslate2Error);
  }
  int refused = 0;
  for (std::size_t bit = 0; bit < writer.bytes().size() * 8; ++bit) {
    auto bytes = writer.bytes();
    bytes[bit / 8] ^= static_cast<char>(1U << bit % 8);
    write(bytes);
    try {
      (void)load_ctranslate2(folder / "m");
    } catch (const CTranslate2Error&) {
      ++refused;
    }
  }
  CHECK(refused > 300);
}

TEST_CASE("CTranslate2: a small Whisper is converted by name, fused projections taken apart") {
  const auto model = small_ctranslate2_model();
  const auto [config, weights] = convert_ctranslate2(model, "model.bin");
  CHECK(config.vocab_size == 30);
  CHECK(config.d_model == 8);
  CHECK(config.encoder_layers == 1);
  CHECK(config.decoder_layers == 1);
  CHECK(config.encoder_attention_heads == 2);
  CHECK(config.decoder_ffn_dim == 32);
  CHECK(config.num_mel_bins == 4);
  CHECK(config.max_source_positions == 20);
  CHECK(config.max_target_positions == 10);
  CHECK(weights.size() == 50);
  const auto equals = [&weights = weights](const std::string& name, const at::Tensor& expected) {
    return torch::equal(weights.at(name), expected.to(at::kFloat));
  };
  const auto& fused = model.variables.at("decoder/layer_0/self_attention/linear_0/weight");
  CHECK(equals("model.decoder.layers.0.self_attn.q_proj.weight", fused.slice(0, 0, 8)));
  CHECK(equals("model.decoder.layers.0.self_attn.k_proj.weight", fused.slice(0, 8, 16)));
  CHECK(equals("model.decoder.layers.0.self_attn.v_proj.weight", fused.slice(0, 16, 24)));
  const auto& cross = model.variables.at("decoder/layer_0/attention/linear_1/bias");
  CHECK(equals("model.decoder.layers.0.encoder_attn.v_proj.bias", cross.slice(0, 8, 16)));
  CHECK_FALSE(weights.contains("model.decoder.layers.0.encoder_attn.k_proj.bias"));
  CHECK(equals("model.encoder.layer_norm.weight", model.variables.at("encoder/layer_norm/gamma")));
  CHECK_FALSE(weights.contains("proj_out.weight"));
}

TEST_CASE("CTranslate2: a model that is not a complete Whisper is refused by variable") {
  const auto refuses = [](const std::function<void(CTranslate2Model&)>& change, const std::string& message) {
    auto model = small_ctranslate2_model();
    change(model);
    REQUIRE_THROWS_AS(convert_ctranslate2(model, "m.bin"), CTranslate2Error);
    REQUIRE_THROWS_WITH(convert_ctranslate2(model, "m.bin"), Contains("m.bin: ") && Contains(message));
  };
  refuses([](auto& m) { m.spec = "TransformerSpec"; }, "is a TransformerSpec, not Whisper");
  refuses([](auto& m) { m.variables.erase("encoder/conv1/bias"); }, "\"encoder/conv1/bias\" is missing");
  refuses([](auto& m) { m.variables.erase("decoder/layer_0/ffn/linear_0/weight"); },
          "linear_0/weight\" is missing");
  refuses([](auto& m) { m.variables["encoder/conv2/bias"] = torch::zeros({9}); },
          "has shape [9] instead of [8]");
  refuses([](auto& m) { m.variables["encoder/conv1/weight"] = torch::zeros({9}); }, "too few dimensions");
  refuses([](auto& m) { m.variables["encoder/num_heads"] = torch::zeros({9}, at::kShort); },
          "num_heads\" is not one whole number");
  refuses(
      [](auto& m) {
        m.variables["encoder/conv1/weight"] = torch::zeros({8, 4, 3}, at::kChar);
      },
      "quantised (Char)");
  refuses([](auto& m) { m.variables["encoder/extra"] = torch::zeros({2}); },
          "\"encoder/extra\" has no place in Whisper");
  refuses([](auto& m) { m.variables["decoder/pre_norm"] = torch::tensor(0, at::kChar); },
          "\"decoder/pre_norm\" is not 1");
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    refuses(
        [&](auto& m) {
          m.variables["decoder/projection/weight"] = torch::zeros({30, 8}, type);
        },
        "not the embedding");
  }
  refuses([](auto& m) { m.variables["encoder/num_heads"] = torch::full({}, 2.0, at::kHalf); },
          "\"encoder/num_heads\" is not one whole number");
  refuses([](auto& m) { m.variables["encoder/layer_0/self_attention/linear_0/bias"].fill_(1); },
          "a bias of the keys");
}

TEST_CASE("CTranslate2: Whisper tiny.en is read and converted") {
  const char* folder = std::getenv("LOOPTORCH_WHISPER_CT2");
  if (!folder) {
    std::cout << "skipped: LOOPTORCH_WHISPER_CT2 does not name a folder with Whisper tiny.en's model.bin"
              << std::endl;
    return;
  }
  const auto [config, weights] =
      convert_ctranslate2(load_ctranslate2(fs::path(folder) / "model.bin"), "model.bin");
  CHECK(weights.size() == 167);
  CHECK(config.vocab_size == 51864);
  CHECK(config.d_model == 384);
  CHECK(config.encoder_attention_heads == 6);
  CHECK(config.max_source_positions == 1500);
}
