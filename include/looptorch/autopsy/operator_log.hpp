// SPDX-License-Identifier: MIT
// Records the operators of one micro-batch in order: what each read and returned, and which of them wrote to
// each tensor. OperatorWatch fills the log, OriginSearch reads it. Tensors are identified by storage; when
// storage is freed and reused, its next writer starts a new history.
#pragma once

#include <looptorch/autopsy/facts_of.hpp>
#include <looptorch/autopsy/operator_call.hpp>
#include <looptorch/base/recorded_inputs.hpp>
#include <looptorch/base/running_module.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The calls of one micro-batch, numbered from 0. Threads of backward may record at once.
class OperatorLog {
 public:
  /// Names a tensor, and all tensors that share its storage.
  void name(const at::Tensor& tensor, KnownTensor as) {
    if (!tensor.defined()) return;
    as.facts = facts_of(tensor);
    const std::lock_guard lock(mutex_);
    names_.push_back(std::move(as));
    known_[key_of(tensor)] = &names_.back();
  }

  /// Begins a micro-batch: drops all recorded operators and names.
  void begin_micro_batch(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    micro_batch_ = number;
    calls_.clear();
    writers_.clear();
    made_by_.clear();
    known_.clear();
    names_.clear();
  }

  /// Records the beginning of an operator or a node; returns its number.
  std::int64_t start(const at::RecordFunction& function) {
    const std::lock_guard lock(mutex_);
    auto& open = open_[std::this_thread::get_id()];
    const auto id = static_cast<std::int64_t>(calls_.size());
    OperatorCall call{.name = function.name(), .micro_batch = micro_batch_};
    call.is_node = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
    call.sequence = function.seqNr();
    if (!open.empty())
      call.parent = open.back(), call.node = calls_[static_cast<std::size_t>(open.back())].node;
    if (call.is_node) call.node = id;
    const bool is_outermost = open.empty() || calls_[static_cast<std::size_t>(open.back())].is_node;
    if (is_outermost && !call.is_node) {
      call.stack = CallStack::now();
      if (running_module) call.module = *running_module;
    }
    call.is_uninitialised = is_uninitialised(call.name);
    if (!call.is_node && call.sequence >= 0 && call.node == kNoCall) made_by_[call.sequence] = id;
    for (const c10::IValue& input : recorded_inputs(function)) {
      call.has_infinite_argument |= input.isDouble() && std::isinf(input.toDouble());
      each_tensor(input, [&](const at::Tensor& tensor) { call.inputs.push_back(read(tensor)); });
    }
    calls_.push_back(std::move(call));
    keys_.emplace(id, keys_of(recorded_inputs(function)));
    open.push_back(id);
    return id;
  }

  /// Records the end of an operator, and its results.
  void end(const at::RecordFunction& function, std::int64_t id) {
    const std::lock_guard lock(mutex_);
    auto& open = open_[std::this_thread::get_id()];
    if (!open.empty()) open.pop_back();
    if (id >= static_cast<std::int64_t>(calls_.size())) return;
    OperatorCall& call = calls_[static_cast<std::size_t>(id)];
    const auto read = std::exchange(keys_[id], {});
    keys_.erase(id);
    const bool mutates = call.name.ends_with("_") ||
                         std::string_view(function.overload_name()).find("out") != std::string_view::npos;
    for (const c10::IValue& output : function.outputs())
      each_tensor(output, [&](const at::Tensor& tensor) {
        call.outputs.push_back(call.is_uninitialised ? TensorFacts{.sizes = tensor.sizes().vec()}
                                                     : facts_of(tensor));
        for (std::size_t i = 0; mutates && i < std::min(read.size(), call.inputs.size()); ++i)
          call.inputs[i].is_target |= read[i] == key_of(tensor);
        note_writer(id, tensor, read, mutates);
      });
  }

  /// Returns the tensor as an operator would read it now.
  [[nodiscard]] ReadTensor read(const at::Tensor& tensor) const {
    ReadTensor read{.facts = facts_of(tensor)};
    if (!tensor.defined()) return read;
    const void* key = key_of(tensor);
    if (const auto found = known_.find(key); found != known_.end()) read.known = found->second;
    if (const auto found = writers_.find(key); found != writers_.end()) read.writers = found->second;
    return read;
  }

  [[nodiscard]] const std::deque<OperatorCall>& calls() const { return calls_; }
  [[nodiscard]] const OperatorCall& call(std::int64_t id) const {
    return calls_[static_cast<std::size_t>(id)];
  }

  /// Returns the outermost operator: this one, or the one that led to it.
  [[nodiscard]] const OperatorCall& outermost(std::int64_t id) const {
    for (std::int64_t outer = call(id).parent; outer != kNoCall && !call(outer).is_node;
         outer = call(outer).parent)
      id = outer;
    return call(id);
  }

  /// Returns the number of the forward call that made this node of the graph; kNoCall if it is unknown.
  [[nodiscard]] std::int64_t maker_of(const OperatorCall& node) const {
    const auto found = made_by_.find(node.sequence);
    return found == made_by_.end() ? kNoCall : found->second;
  }

 private:
  using Keys = std::vector<const void*>;
  static constexpr std::size_t kMaxWriters = 16;

  static const void* key_of(const at::Tensor& tensor) {
    return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl())
                                : tensor.unsafeGetTensorImpl();
  }
  static bool is_uninitialised(std::string_view name) {
    return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") ||
           name.starts_with("aten::resize");
  }

  template <class Visit>
  static void each_tensor(const c10::IValue& value, const Visit& visit) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector())
        if (tensor.defined()) visit(tensor);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) each_tensor(element, visit);
    }
  }
  static Keys keys_of(c10::ArrayRef<const c10::IValue> values) {
    Keys keys;
    for (const c10::IValue& value : values)
      each_tensor(value, [&](const at::Tensor& tensor) { keys.push_back(key_of(tensor)); });
    return keys;
  }

  static bool explains(const OperatorCall& writer, const TensorFacts& holds) {
    return holds.is_finite() || (holds.nans > 0 ? writer.gave_nan() : writer.bad_output() != nullptr);
  }

  /// Records call `id` as a tensor's writer, unless the tensor is a view of an input, or a call nested in
  /// this one (of a greater number) explains the contents. Otherwise this call's kernel overwrote them.
  void note_writer(std::int64_t id, const at::Tensor& tensor, const Keys& read, bool mutates) {
    const void* key = key_of(tensor);
    const bool is_old = std::find(read.begin(), read.end(), key) != read.end();
    if (is_old && !mutates) return;
    std::vector<std::int64_t>& writers = writers_[key];
    if (!writers.empty() && writers.back() > id && explains(call(writers.back()), call(id).outputs.back()))
      return;
    if (!is_old) writers.clear();
    if (writers.size() == kMaxWriters) writers.erase(writers.begin());
    writers.push_back(id);
  }

  std::mutex mutex_;  // nodes run on the threads of their devices
  std::int64_t micro_batch_ = 0;
  std::deque<KnownTensor> names_;
  std::unordered_map<const void*, const KnownTensor*> known_;  // in names_, by storage
  std::deque<OperatorCall> calls_;
  std::unordered_map<const void*, std::vector<std::int64_t>> writers_;  // by storage
  std::unordered_map<std::int64_t, std::int64_t> made_by_;  // forward calls by the nodes they make
  std::unordered_map<std::int64_t, Keys> keys_;             // storages that open calls read
  std::unordered_map<std::thread::id, std::vector<std::int64_t>> open_;  // calls under way, by thread
};

}  // namespace looptorch::detail
