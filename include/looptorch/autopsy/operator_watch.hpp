// SPDX-License-Identifier: MIT
// Finds the operator that made a NaN or infinity; in this folder, read this header first. A rerun of the
// window (redo/traced_rerun.hpp) passes each micro-batch, loss and gradient to an OperatorWatch, and takes a
// Finding at the end. LibTorch's RecordFunction fills the OperatorLog, OriginSearch goes back from the bad
// tensor, and ModuleSearch names the module. A traced window takes several times as long, since each tensor
// is examined.
#pragma once

#include <looptorch/autopsy/facts_of.hpp>
#include <looptorch/autopsy/finding.hpp>
#include <looptorch/autopsy/module_search.hpp>
#include <looptorch/autopsy/operator_log.hpp>
#include <looptorch/autopsy/origin.hpp>
#include <looptorch/base/hash/tensor_hash.hpp>
#include <looptorch/base/running_module.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A parameter or a buffer with its path in the model.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Traces the operators that this thread calls while it lives, and those of its backward on other threads. A
/// process runs one trace at a time; further ones wait.
class OperatorWatch {
 public:
  /// `modules` are the model's, as for ModuleSearch.
  OperatorWatch(const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers,
                std::vector<KnownModule> modules)
      : lock_(trace_mutex()), parameters_(parameters), buffers_(buffers), modules_(std::move(modules)) {
    for (const auto& parameter : parameters) shapes_.push_back(parameter.tensor.sizes().vec());
    current() = this;
    traces_modules = true;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&start, &end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~OperatorWatch() {
    at::removeCallback(handle_);
    traces_modules = false;
    current() = nullptr;
  }
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

  /// Begins a micro-batch, or a piece of one from sample `first_row` on. `samples` are its samples' indices
  /// in the dataset, `tensors` the batch's tensors.
  void begin_micro_batch(std::int64_t number, std::int64_t first_row, std::int64_t rows,
                         std::vector<std::int64_t> samples, const std::vector<at::Tensor>& tensors) {
    log_.begin_micro_batch(number);
    for (const auto& [name, tensor] : parameters_) log_.name(tensor, {KnownTensor::Kind::parameter, name});
    for (const auto& [name, tensor] : buffers_) log_.name(tensor, {KnownTensor::Kind::buffer, name});
    micro_batch_ = number, first_row_ = first_row, rows_ = rows;
    samples_ = std::move(samples);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      log_.name(tensors[i], {KnownTensor::Kind::batch, "", static_cast<std::int64_t>(i)});
  }

  /// Takes the micro-batch's loss. If it is not finite, finds the cause and returns true.
  bool note_loss(const at::Tensor& loss) {
    const ReadTensor read = log_.read(loss);
    {
      const UntracedScope untraced;
      losses_.push_back(loss.defined() ? loss.detach().sum().item<double>() : 0.0);
    }
    if (read.facts.is_finite()) return false;
    OriginSearch search(log_);
    describe(search, search.of(read, end_of_log()));
    return true;
  }

  /// Takes the gradients so far. If one is not finite, finds the cause and returns true.
  bool note_gradients() {
    OriginSearch search(log_);
    std::vector<std::string> names;
    std::deque<ReadTensor> reads;
    Origin first;
    for (const auto& [name, parameter] : parameters_) {
      if (!parameter.grad().defined()) continue;
      ReadTensor& read = reads.emplace_back(log_.read(parameter.grad()));
      if (read.facts.is_finite()) continue;
      Origin origin = search.of(read, end_of_log());
      if (names.empty() || origin.call < first.call) first = std::move(origin);
      names.push_back(name);
    }
    if (names.empty()) return false;
    describe(search, first);
    finding_.gradients = std::move(names);
    return true;
  }

  /// Keeps a hash of the gradients, for a later comparison.
  void note_gradient_bits() {
    const UntracedScope untraced;
    std::uint64_t bits = 0;
    for (const auto& item : parameters_)
      if (const at::Tensor& gradient = item.tensor.grad();
          gradient.defined() && gradient.layout() == at::kStrided)
        bits = bits * 31 + stable_hash(gradient);
    finding_.gradient_bits = bits;
  }

  void fail(std::string why) {
    finding_.cause = Finding::Cause::unknown;
    finding_.why_unknown = std::move(why);
  }

  [[nodiscard]] Finding finding() const {
    Finding finding = finding_;
    finding.losses = losses_;
    return finding;
  }

 private:
  struct CallNumber : at::ObserverContext {
    explicit CallNumber(std::int64_t number) : of_call(number) {}
    std::int64_t of_call;
  };

  static std::mutex& trace_mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::atomic<OperatorWatch*>& current() {
    static std::atomic<OperatorWatch*> watch{nullptr};
    return watch;
  }
  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    OperatorWatch* const watch = current();
    return watch ? std::make_unique<CallNumber>(watch->log_.start(function)) : nullptr;
  }
  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    OperatorWatch* const watch = current();
    if (watch && context) watch->log_.end(function, static_cast<CallNumber*>(context)->of_call);
  }

  [[nodiscard]] std::int64_t end_of_log() const { return static_cast<std::int64_t>(log_.calls().size()); }
  [[nodiscard]] bool is_call(std::int64_t id) const { return id >= 0 && id < end_of_log(); }

  void describe(const OriginSearch& search, const Origin& origin) {
    finding_.micro_batch = micro_batch_;
    describe_call(search, origin);
    switch (origin.kind) {
      case Origin::Kind::call:
        finding_.cause = Finding::Cause::operation;
        return describe_rows(origin);
      case Origin::Kind::outside:
        finding_.cause = Finding::Cause::outside;
        finding_.output = origin.read->facts;
        return;
      case Origin::Kind::named:
        return describe_named(*origin.read);
    }
  }

  /// Describes a batch or parameter that was bad before the micro-batch.
  void describe_named(const ReadTensor& read) {
    const KnownTensor& known = *read.known;
    const bool of_batch = known.kind == KnownTensor::Kind::batch;
    finding_.cause = of_batch ? Finding::Cause::batch : Finding::Cause::parameter;
    finding_.parameter = known.name;
    finding_.batch_tensor = known.index;
    finding_.output = of_batch ? known.facts : read.facts;
    if (of_batch) name_rows(known.facts);
  }

  /// Describes the call that made the bad tensor, or the first that read it: operator, inputs and place.
  void describe_call(const OriginSearch& search, const Origin& origin) {
    std::int64_t node = last_node_before(end_of_log());
    if (is_call(origin.call)) {
      const OperatorCall& call = log_.call(origin.call);
      finding_.op = call.name;
      if (const TensorFacts* bad = call.bad_output()) finding_.output = *bad;
      for (const ReadTensor& input : call.inputs) finding_.inputs.push_back(input.facts);
      finding_.within = outermost_caller(call);
      node = call.node;
      if (origin.kind == Origin::Kind::outside && node != kNoCall)
        node = last_node_before(node);  // this call only reads the value; the node before made it, unrecorded
    }
    finding_.backward = node != kNoCall;
    std::int64_t forward_call = origin.call;
    if (finding_.backward) {
      finding_.node = without_namespaces(log_.call(node).name);
      if (const std::int64_t maker = log_.maker_of(log_.call(node)); maker != kNoCall) {
        finding_.forward_op = log_.call(maker).name;
        forward_call = maker;
      }
    }
    if (!is_call(forward_call)) return;
    finding_.parameter = search.parameter_of(forward_call);
    if (finding_.parameter.empty()) describe_place(search, forward_call);
  }

  /// Describes the place of an operator without parameters: its neighbours and its module.
  void describe_place(const OriginSearch& search, std::int64_t forward_call) {
    finding_.after_parameter = search.last_parameter_before(forward_call);
    if (log_.call(forward_call).node != kNoCall) return;  // in backward, of an unknown operator
    finding_.before_parameter = search.first_parameter_after(forward_call);
    finding_.before_loss = finding_.before_parameter.empty();
    const OperatorCall& called = log_.outermost(forward_call);
    ModulePlace place = called.module ? modules_.of_program(*called.module)
                                      : modules_.find(called.stack.forward_types(), finding_.after_parameter,
                                                      finding_.before_parameter);
    finding_.module_type = std::move(place.type);
    finding_.modules = std::move(place.paths);
  }

  /// Returns the last node before this call, except those that take a parameter's gradient.
  [[nodiscard]] std::int64_t last_node_before(std::int64_t id) const {
    while (--id >= 0)
      if (const OperatorCall& call = log_.call(id); call.is_node && !call.name.ends_with("AccumulateGrad"))
        return id;
    return kNoCall;
  }

  /// Returns the name of the outermost operator that called this one; empty if none did.
  [[nodiscard]] std::string outermost_caller(const OperatorCall& call) const {
    std::string name;
    for (std::int64_t parent = call.parent; parent != kNoCall; parent = log_.call(parent).parent)
      if (!log_.call(parent).is_node) name = log_.call(parent).name;
    return name;
  }

  static std::string without_namespaces(std::string name) {
    for (const std::string_view scope : {"torch::autograd::", "(anonymous namespace)::"})
      for (auto at = name.find(scope); at != std::string::npos; at = name.find(scope))
        name.erase(at, scope.size());
    return name;
  }

  /// Names the samples, if a tensor on the way has a row for each and only some rows are bad.
  void describe_rows(const Origin& origin) {
    for (const std::int64_t id : origin.path)
      if (const TensorFacts* bad = log_.call(id).bad_output())
        if (std::find(shapes_.begin(), shapes_.end(), bad->sizes) == shapes_.end() && name_rows(*bad)) return;
  }
  /// Names the samples of the bad rows; false if rows are no samples, or all are bad.
  bool name_rows(const TensorFacts& facts) {
    const bool by_sample = !facts.sizes.empty() && facts.sizes.front() == rows_;
    const bool some =
        !facts.bad_rows.empty() && (rows_ == 1 || static_cast<std::int64_t>(facts.bad_rows.size()) < rows_);
    if (!by_sample || !some) return false;
    for (const std::int64_t row : facts.bad_rows) {
      const std::int64_t at = first_row_ + row;
      finding_.rows.push_back(at);
      if (at < static_cast<std::int64_t>(samples_.size()))
        finding_.samples.push_back(samples_[static_cast<std::size_t>(at)]);
    }
    return true;
  }

  std::unique_lock<std::mutex> lock_;
  std::vector<NamedTensor> parameters_, buffers_;
  ModuleSearch modules_;
  OperatorLog log_;
  at::CallbackHandle handle_ = 0;
  std::vector<std::vector<std::int64_t>> shapes_;  // of parameters
  std::int64_t micro_batch_ = 0, first_row_ = 0, rows_ = 0;
  std::vector<std::int64_t> samples_;
  std::vector<double> losses_;
  Finding finding_;
};

}  // namespace looptorch::detail
