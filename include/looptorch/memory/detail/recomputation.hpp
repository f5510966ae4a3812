// SPDX-License-Identifier: MIT
// One run of a checkpointed block. Instead of the tensors that autograd saved, their places are kept; the
// first that backward asks for runs the block again and records them all, up to the last that is still
// needed. The graph of the first run is the one that is differentiated, so that whatever the block returns
// needs no wrapping.
#pragma once

#include <looptorch/memory/detail/ambient_state.hpp>
#include <looptorch/memory/detail/saved_tensors.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <any>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch::detail {

/// A tensor and the version that was saved of it, without its history: what is saved must not hold the graph
/// that it is saved in.
class SavedAs {
 public:
  SavedAs() = default;
  explicit SavedAs(const at::Tensor& tensor)
      : tensor_(tensor.detach()), version_(static_cast<std::uint32_t>(tensor._version())) {}

  /// Throws CheckpointError if it was changed in place since.
  [[nodiscard]] const at::Tensor& unchanged(const std::string& block) const {
    if (tensor_._version() != version_)
      throw CheckpointError(message("a tensor of shape ", tensor_.sizes(), " that backward through ", block,
                                    " needs has been modified by an inplace operation: it is at version ",
                                    tensor_._version(), ", and was saved at version ", version_));
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  std::uint32_t version_ = 0;
};

/// What must be the same of a saved tensor when the block runs again.
struct TensorKind {
  explicit TensorKind(const at::Tensor& tensor)
      : sizes(tensor.sizes()), type(tensor.scalar_type()), device(tensor.device()) {}
  bool operator==(const TensorKind& other) const {
    return sizes == other.sizes && type == other.type && device == other.device;
  }
  [[nodiscard]] std::string text() const {
    return message(type, " ", at::IntArrayRef(sizes), " on ", device);
  }

  c10::SmallVector<std::int64_t, 5> sizes;
  at::ScalarType type;
  at::Device device;
};

/// Where in its storage a tensor lies.
struct Geometry {
  Geometry() = default;
  explicit Geometry(const at::Tensor& tensor)
      : sizes(tensor.sizes()),
        strides(tensor.strides()),
        offset(tensor.storage_offset()),
        type(tensor.scalar_type()) {}
  bool operator==(const Geometry&) const = default;

  c10::SmallVector<std::int64_t, 5> sizes, strides;
  std::int64_t offset = 0;
  at::ScalarType type = at::kFloat;
};

/// A pass of backward, as the engine numbers them; below 0 outside of one.
using Pass = int;

/// The place of a saved tensor, held by the node that saved it: with the node goes what was recorded.
class SavedSlot {
 public:
  explicit SavedSlot(const at::Tensor& tensor) : kind(tensor) {}

  [[nodiscard]] const SavedAs* find(Pass pass) const {
    for (const auto& [of, saved] : recorded_)
      if (of == pass) return &saved;
    return nullptr;
  }
  void record(Pass pass, SavedAs saved) {
    forget(pass);
    recorded_.emplace_back(pass, std::move(saved));
  }
  void forget(Pass pass) {
    std::erase_if(recorded_, [&](const auto& entry) { return entry.first == pass; });
  }

  TensorKind kind;

 private:
  std::vector<std::pair<Pass, SavedAs>> recorded_;
};

/// Thrown through the block when all that is needed has been recorded. Not a std::exception, which a block
/// might catch.
struct RecordedAll {};

class Recorder;

class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  using Tensors = std::vector<at::Tensor>;

  Recomputation(std::string name, bool early_stop, AmbientState ambient)
      : name_(std::move(name)), early_stop_(early_stop), ambient_(std::move(ambient)) {}
  virtual ~Recomputation() = default;
  Recomputation(const Recomputation&) = delete;
  Recomputation& operator=(const Recomputation&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] AmbientState& ambient() { return ambient_; }

  /// The tensors that the block is given. They are saved as any other: within another block its keeper may
  /// drop and recompute them.
  void save_inputs(const Tensors& inputs) {
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  }
  [[nodiscard]] at::Tensor input(std::size_t index) { return inputs_[index].unpack(); }

  /// The next place of the first run.
  void add_place(std::weak_ptr<SavedSlot> slot) { places_.push_back(std::move(slot)); }

  /// The tensor of a place, recorded by running the block again if it is the first of this pass. Throws
  /// CheckpointError, and what the block throws.
  [[nodiscard]] at::Tensor recorded(SavedSlot& slot) {
    const Pass pass = torch::autograd::get_current_graph_task_id();
    const std::lock_guard lock(mutex_);
    if (!slot.find(pass)) run_again(pass);
    at::Tensor tensor = slot.find(pass)->unchanged(name_);
    if (torch::autograd::get_current_graph_task_keep_graph()) slot.forget(pass);  // its node stays
    return tensor;
  }

  /// What `keep` holds on to of one call.
  struct KeptResult {
    struct Tensor {
      SavedAs saved;
      bool requires_grad;
    };
    std::any value;                              ///< The result, without its tensors.
    std::vector<std::optional<Tensor>> tensors;  ///< In its order; none for undefined ones.
    RandomState random;                          ///< Of the generators that the call used, after it.
  };
  std::vector<KeptResult> kept;

 protected:
  /// Calls the block on `inputs` and drops what it returns.
  virtual void call_again(Tensors inputs) = 0;

 private:
  friend class Recorder;

  void run_again(Pass pass);

  void forget(Pass pass) {
    const std::lock_guard lock(mutex_);
    for (const auto& place : places_)
      if (const auto slot = place.lock()) slot->forget(pass);
  }

  /// Places that no node of the pass asked for, as when only a part of the graph is differentiated.
  void forget_at_end_of(Pass pass) {
    if (pass < 0) return;
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), pass] {
      if (const auto self = weak.lock()) self->forget(pass);
    });
  }

  std::string name_;
  bool early_stop_;
  AmbientState ambient_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<std::weak_ptr<SavedSlot>> places_;  // in the order of saving; empty where nothing is recomputed
  std::recursive_mutex mutex_;
};

/// A keeper that `keep` can ask for.
class BlockKeeper : public SavedTensorKeeper {
 public:
  [[nodiscard]] virtual Recomputation& block() = 0;
  /// The recorder of a block that runs again; null in its first run.
  [[nodiscard]] virtual Recorder* recorder() { return nullptr; }

  /// The keeper of the innermost block that runs on this thread; null outside of all.
  [[nodiscard]] static BlockKeeper* current() { return dynamic_cast<BlockKeeper*>(current_keeper); }

 protected:
  ~BlockKeeper() = default;
};

// ---- The block runs again ----

class Recorder final : public BlockKeeper {
 public:
  Recorder(Recomputation& block, Pass pass) : block_(block), pass_(pass) {
    for (last_ = block.places_.size(); last_ > 0; --last_)
      if (!block.places_[last_ - 1].expired()) break;
  }

  std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(*this); }
  Recomputation& block() override { return block_; }
  Recorder* recorder() override { return this; }

  /// Takes the next place's tensor. Throws RecordedAll after the last that is needed.
  void record(const at::Tensor& tensor) {
    const std::size_t place = next_++;
    if (place >= block_.places_.size()) return;  // `check_count` tells
    if (const auto slot = block_.places_[place].lock()) {
      check_kind(place, slot->kind, TensorKind(tensor));
      slot->record(pass_, SavedAs(tensor));
    }
    if (next_ == last_ && block_.early_stop_) throw RecordedAll{};
  }

  /// What the next call of `keep` returned; null if there was none.
  const Recomputation::KeptResult* next_kept() {
    return kept_ < block_.kept.size() ? &block_.kept[kept_++] : nullptr;
  }

  /// Throws CheckpointError if the block saved another number of tensors than when it first ran.
  void check_count() const {
    const std::size_t then = block_.places_.size();
    if (block_.early_stop_ ? next_ >= last_ : next_ == then) return;
    throw CheckpointError(message(block_.name_, " saved ", then, " tensors when it ran and ", next_,
                                  " when it ran again: a block must do the same both times"));
  }

 private:
  /// Of the graph of the second run, which nobody differentiates unless the block itself does.
  class Hooks final : public SavedVariableHooks {
   public:
    explicit Hooks(Recorder& recorder) : recorder_(&recorder) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      saved_ = tensor.detach();
      std::exchange(recorder_, nullptr)->record(tensor);
    }
    at::Tensor call_unpack_hook() override { return saved_; }

   private:
    Recorder* recorder_;
    at::Tensor saved_;
  };

  void check_kind(std::size_t place, const TensorKind& then, const TensorKind& now) const {
    if (then == now) return;
    throw CheckpointError(message("tensor ", place + 1, " that ", block_.name_, " saves was ", then.text(),
                                  " when it ran and is ", now.text(),
                                  " when it runs again: a block must do the same both times"));
  }

  Recomputation& block_;
  Pass pass_;
  std::size_t last_ = 0;  // the number of places up to the last that is needed
  std::size_t next_ = 0;
  std::size_t kept_ = 0;
};

inline void Recomputation::run_again(Pass pass) {
  try {
    Recorder recorder(*this, pass);
    Tensors inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) inputs.push_back(input(i));
    const AmbientState::Scope as_then(ambient_, name_);
    const KeeperScope keeper(&recorder);
    try {
      call_again(std::move(inputs));
    } catch (const RecordedAll&) {
    }
    recorder.check_count();
  } catch (...) {
    forget(pass);
    throw;
  }
  forget_at_end_of(pass);
}

// ---- The block runs first ----

/// Where backward gets a saved tensor from.
struct Held {  // it was kept
  SavedAs saved;
};
struct OfInput {  // it is what the block was given
  std::size_t index;
};
struct OfSlot {  // it is recorded when the block runs again
  std::shared_ptr<SavedSlot> slot;
};
struct ViewOfSlot {  // it is a view of what is recorded, `offset` elements into it
  std::shared_ptr<SavedSlot> slot;
  Geometry view;
  std::int64_t offset;
};
using Source = std::variant<Held, OfInput, OfSlot, ViewOfSlot>;

[[nodiscard]] inline bool is_trained_leaf(const at::Tensor& tensor) {
  return tensor.is_leaf() && tensor.requires_grad();
}

/// What a node of the first graph holds of one saved tensor.
template <class Keeper>
class SourceHooks final : public SavedVariableHooks {
 public:
  SourceHooks(Keeper& keeper, std::shared_ptr<Recomputation> block)
      : keeper_(&keeper), block_(std::move(block)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    source_ = std::exchange(keeper_, nullptr)->source_of(tensor);
  }
  at::Tensor call_unpack_hook() override {
    return std::visit([this](const auto& source) { return get(source); }, source_);
  }

 private:
  at::Tensor get(const Held& held) const { return held.saved.unchanged(block_->name()); }
  at::Tensor get(const OfInput& input) const { return block_->input(input.index); }
  at::Tensor get(const OfSlot& of) const { return block_->recorded(*of.slot); }
  at::Tensor get(const ViewOfSlot& view) const {
    const at::Tensor base = block_->recorded(*view.slot);
    return base.as_strided(view.view.sizes, view.view.strides, base.storage_offset() + view.offset);
  }

  Keeper* keeper_;
  std::shared_ptr<Recomputation> block_;
  Source source_;
};

class FirstRun final : public BlockKeeper {
 public:
  /// Holds on to `inputs` while the block runs, so that each is known by its address.
  FirstRun(Recomputation& block, const std::vector<at::Tensor>& inputs) : block_(block) {
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input, input._version());
  }

  std::unique_ptr<SavedVariableHooks> hooks() override {
    return std::make_unique<SourceHooks<FirstRun>>(*this, block_.shared_from_this());
  }
  Recomputation& block() override { return block_; }

  Source source_of(const at::Tensor& tensor) {
    if (const auto input = index_of(tensor); input || is_trained_leaf(tensor)) {
      block_.add_place({});
      return input ? Source(OfInput{*input}) : Source(Held{SavedAs(tensor)});
    }
    auto slot = std::make_shared<SavedSlot>(tensor);
    block_.add_place(slot);
    return OfSlot{std::move(slot)};
  }

  /// Throws CheckpointError if the block has written to what it was given.
  void check_inputs() const {
    for (const auto& [input, version] : inputs_)
      if (input._version() != version)
        throw CheckpointError(message(block_.name(), " writes in place to an argument of shape ",
                                      input.sizes(),
                                      ", so that it cannot be recomputed from it: clone the argument first"));
  }

 private:
  [[nodiscard]] std::optional<std::size_t> index_of(const at::Tensor& tensor) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].first.is_same(tensor)) return i;
    return std::nullopt;
  }

  Recomputation& block_;
  std::vector<std::pair<at::Tensor, std::int64_t>> inputs_;
};

}  // namespace looptorch::detail
