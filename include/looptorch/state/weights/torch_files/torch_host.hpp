// SPDX-License-Identifier: MIT
// Makes the tensors that a pickle of torch.save asks for, as views of the archive's data. Refuses every other
// import and call, so that nothing in a file is run. Include torch_checkpoint.hpp instead.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/mapped_file.hpp>
#include <looptorch/base/libtorch_version.hpp>
#include <looptorch/state/weights/torch_files/pickle.hpp>
#include <looptorch/state/weights/torch_files/strided_bounds.hpp>
#include <looptorch/state/weights/torch_files/zip_directory.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A dtype by the names of its storage and of itself.
struct TorchType {
  std::string_view storage, name;
  at::ScalarType type;
};
inline constexpr std::array<TorchType, 21> kTorchTypes{{
    {"torch.FloatStorage", "torch.float32", at::kFloat},
    {"torch.DoubleStorage", "torch.float64", at::kDouble},
    {"torch.HalfStorage", "torch.float16", at::kHalf},
    {"torch.BFloat16Storage", "torch.bfloat16", at::kBFloat16},
    {"torch.LongStorage", "torch.int64", at::kLong},
    {"torch.IntStorage", "torch.int32", at::kInt},
    {"torch.ShortStorage", "torch.int16", at::kShort},
    {"torch.CharStorage", "torch.int8", at::kChar},
    {"torch.ByteStorage", "torch.uint8", at::kByte},
    {"torch.BoolStorage", "torch.bool", at::kBool},
    {"torch.ComplexFloatStorage", "torch.complex64", at::kComplexFloat},
    {"torch.ComplexDoubleStorage", "torch.complex128", at::kComplexDouble},
    {"", "torch.uint16", at::kUInt16},  // these have no storage of their own
    {"", "torch.uint32", at::kUInt32},
    {"", "torch.uint64", at::kUInt64},
    {"", "torch.float8_e5m2", at::kFloat8_e5m2},
    {"", "torch.float8_e4m3fn", at::kFloat8_e4m3fn},
    {"", "torch.float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
    {"", "torch.float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
    {"", "torch.float8_e8m0fnu", at::kFloat8_e8m0fnu},
    {"", "torch.float4_e2m1fn_x2", kFloat4},
}};

[[nodiscard]] inline std::optional<at::ScalarType> torch_type(std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (const TorchType& known : kTorchTypes)
    if (name == known.storage || name == known.name) return known.type;
  return std::nullopt;
}

/// Makes tensors of an archive's data. Everything else that a pickle asks for is refused.
class TorchHost final : public PickleHost {
 public:
  using Kind = PickleValue::Kind;

  /// `folder` is the archive's first, with a slash.
  TorchHost(std::shared_ptr<MappedFile> file, const ZipDirectory& archive, std::string folder, bool mapped)
      : file_(std::move(file)), archive_(archive), folder_(std::move(folder)), mapped_(mapped) {}

  void set_unpickler(Unpickler& unpickler) { unpickler_ = &unpickler; }

  void check_global(const std::string& name) override {
    static const std::set<std::string, std::less<>> kAllowed = {"collections.OrderedDict",
                                                                "collections.Counter",
                                                                "torch._utils._rebuild_tensor_v2",
                                                                "torch._utils._rebuild_tensor_v3",
                                                                "torch._utils._rebuild_parameter",
                                                                "torch._utils._rebuild_parameter_with_state",
                                                                "torch.storage.UntypedStorage",
                                                                "torch.Size",
                                                                "torch.device",
                                                                "_codecs.encode",
                                                                "builtins.bytes",
                                                                "builtins.bytearray",
                                                                "builtins.complex",
                                                                "__builtin__.bytes",
                                                                "__builtin__.bytearray",
                                                                "__builtin__.complex",
                                                                "builtins.set",
                                                                "builtins.frozenset",
                                                                "__builtin__.set",
                                                                "__builtin__.frozenset"};
    if (kAllowed.contains(name) || torch_type(name)) return;
    throw PickleError(message("asks for ", name, ", and is refused: only tensors and plain values are read. ",
                              "If you trust the file, write its weights alone: python -c \"import torch; "
                              "torch.save(torch.load('IN', weights_only=False)['KEY'], 'OUT')\""));
  }

  PickleValue call(const std::string& global, const std::vector<PickleValue>& arguments) override {
    if (global == "torch._utils._rebuild_tensor_v2" && arguments.size() >= 4)
      return tensor(arguments, std::nullopt, /*metadata=*/6);
    if (global == "torch._utils._rebuild_tensor_v3" && arguments.size() >= 7 && arguments[6].is(Kind::global))
      return tensor(arguments, torch_type(arguments[6].object->text), /*metadata=*/7);
    if (global.starts_with("torch._utils._rebuild_parameter") && !arguments.empty() &&
        arguments[0].is(Kind::tensor))
      return arguments[0];
    if (global == "collections.OrderedDict") return dictionary(arguments);
    if (is_unread(global)) return unpickler_->make(Kind::other);
    if (global.ends_with("set") && arguments.size() <= 1) return unpickler_->make(Kind::set);
    throw PickleError(message("calls ", global, " with arguments that it does not take"));
  }

  /// Takes the tuple ("storage", its class, its file, a device, its number of elements).
  PickleValue load_persistent(PickleValue id) override {
    if (!id.is(Kind::tuple) || id.object->items.size() < 5) throw PickleError("names a storage wrongly");
    const std::vector<PickleValue>& parts = id.object->items;
    if (!parts[0].is(Kind::text) || parts[0].object->text != "storage" || !parts[1].is(Kind::global) ||
        !parts[2].is(Kind::text) || !parts[4].is(Kind::integer))
      throw PickleError("names a storage wrongly");
    const std::string& type = parts[1].object->text;
    const bool is_untyped = type == "torch.storage.UntypedStorage";
    if (!is_untyped && !torch_type(type)) throw PickleError(message("takes ", type, " for a storage"));
    PickleObject storage{.text = parts[2].object->text, .items = {parts[1]}};
    storage.tensor = bytes_of(storage.text);
    const auto size = static_cast<std::uint64_t>(is_untyped ? 1 : c10::elementSize(*torch_type(type)));
    const auto count = static_cast<std::uint64_t>(parts[4].integer);
    if (parts[4].integer < 0 || count > static_cast<std::uint64_t>(storage.tensor.numel()) / size)
      throw PickleError(message("says that the storage ", storage.text, " has ", parts[4].integer,
                                " elements, and its data have ", storage.tensor.numel(), " bytes"));
    return unpickler_->make(Kind::other, std::move(storage));
  }

 private:
  /// True for makers of values that no tensor needs. Protocol 2 makes bytes of a text: _codecs.encode. The
  /// state of a MultiStepLR holds a Counter.
  [[nodiscard]] static bool is_unread(std::string_view global) {
    return global == "torch.Size" || global == "torch.device" || global == "_codecs.encode" ||
           global == "collections.Counter" || global.ends_with(".bytes") || global.ends_with(".bytearray") ||
           global.ends_with(".complex");
  }

  PickleValue dictionary(const std::vector<PickleValue>& arguments) {
    PickleObject made;
    if (!arguments.empty() && arguments[0].is(Kind::list))
      for (const PickleValue& pair : arguments[0].object->items) {
        if (!(pair.is(Kind::tuple) || pair.is(Kind::list)) || pair.object->items.size() != 2)
          throw PickleError("makes an OrderedDict of what are no pairs");
        made.items.insert(made.items.end(), pair.object->items.begin(), pair.object->items.end());
      }
    return unpickler_->make(Kind::dict, std::move(made));
  }

  /// Returns a storage's bytes, the same tensor each time.
  at::Tensor bytes_of(const std::string& key) {
    at::Tensor& bytes = storages_[key];
    if (bytes.defined()) return bytes;
    const auto entry = archive_.files().find(folder_ + "data/" + key);
    if (entry == archive_.files().end())
      throw PickleError(message("lacks the data of storage ", key, ", or has them compressed"));
    const auto size = static_cast<std::int64_t>(entry->second.size());
    if (size == 0) return bytes = at::empty({0}, at::kByte);
    auto* const data = const_cast<char*>(entry->second.data());
    bytes = at::from_blob(
        data, {size}, [file = file_](void*) {}, at::TensorOptions(at::kByte));
    constexpr std::uintptr_t kAlignment = 16;  // torch.save aligns to 64; other writers may not
    if (mapped_ && reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0) return bytes;
    copied_ += entry->second.size();
    if (copied_ > file_->size()) throw PickleError("names storages that lie one upon another");
    return bytes = bytes.clone();
  }

  [[nodiscard]] static std::vector<std::int64_t> numbers(const PickleValue& value, const char* what) {
    constexpr std::size_t kMost = 64;
    if (!value.is(Kind::tuple) || value.object->items.size() > kMost)
      throw PickleError(message("has a tensor whose ", what, " are no tuple of up to 64"));
    std::vector<std::int64_t> numbers;
    for (const PickleValue& number : value.object->items) {
      if (!number.is(Kind::integer) || number.integer < 0)
        throw PickleError(message("has a tensor whose ", what, " are no numbers from 0 on"));
      numbers.push_back(number.integer);
    }
    return numbers;
  }

  /// Makes a tensor of (storage, offset, sizes, strides, ...). `metadata` is the index of the argument that
  /// marks tensors to be conjugated or negated, which are refused.
  PickleValue tensor(const std::vector<PickleValue>& arguments, std::optional<at::ScalarType> given,
                     std::size_t metadata) {
    if (metadata < arguments.size() && arguments[metadata].is(Kind::dict) &&
        !arguments[metadata].object->items.empty())
      throw PickleError("has a conjugated or negated view: save tensor.resolve_conj().resolve_neg() instead");
    const PickleValue& storage = arguments[0];
    if (!storage.is(Kind::other) || storage.object->items.empty() || !arguments[1].is(Kind::integer))
      throw PickleError("has a tensor without a storage");
    const auto type = given ? given : torch_type(storage.object->items[0].object->text);
    if (!type) throw PickleError("has a tensor of a dtype that is not known");
    const auto sizes = numbers(arguments[2], "sizes"), strides = numbers(arguments[3], "strides");
    const bool is_empty = std::ranges::find(sizes, 0) != sizes.end();  // as x[1:] of one, beyond its storage
    const std::int64_t offset = is_empty ? 0 : arguments[1].integer;
    const at::Tensor& bytes = storage.object->tensor;
    const auto available = bytes.numel() / static_cast<std::int64_t>(c10::elementSize(*type));
    if (!lies_within(offset, sizes, strides, available))
      throw PickleError(message("has a tensor of sizes ", at::IntArrayRef(sizes), " and strides ",
                                at::IntArrayRef(strides), " from ", offset,
                                " on, which reaches beyond its storage of ", available, " elements"));
    const at::Tensor made =
        at::empty({0}, at::TensorOptions(*type)).set_(bytes.storage(), offset, sizes, strides);
    return unpickler_->make(Kind::tensor, {.tensor = made});
  }

  std::shared_ptr<MappedFile> file_;
  const ZipDirectory& archive_;
  std::string folder_;
  Unpickler* unpickler_ = nullptr;
  std::map<std::string, at::Tensor> storages_;
  bool mapped_;
  std::uint64_t copied_ = 0;
};

}  // namespace looptorch::detail
