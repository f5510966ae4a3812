// SPDX-License-Identifier: MIT
// The tensors that an optimizer keeps for each parameter, described once: how they begin, which key they have
// in a state dict, and how they come back from one.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/optim/listed_parameters.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// One kind of tensor: a list in `Moments`, in the order of a group's parameters, with undefined ones for
/// parameters that have not had a gradient.
template <class Moments, class Options>
struct MomentSlot {
  const char* key;  ///< PyTorch's name of it.
  std::vector<at::Tensor> Moments::*list;
  bool (*kept)(const Options&) = [](const Options&) { return true; };
  bool counter = false;  ///< A 0-dim fp32 step count instead of a tensor like the parameter.
};

[[nodiscard]] inline bool has(const std::vector<at::Tensor>& list, std::size_t index) {
  return index < list.size() && list[index].defined();
}

[[nodiscard]] inline at::Tensor zero_count(at::Device device) {
  return at::zeros({}, at::TensorOptions(at::kFloat).device(device));
}

/// Zeros for those parameters that have none yet; one count for all of them. `those` are of one device.
inline void begin_counts(std::vector<at::Tensor>& counts, const std::vector<at::Tensor>& parameters,
                         const std::vector<std::size_t>& those) {
  const at::Device device = parameters[those.front()].device();
  at::Tensor zero;
  for (const std::size_t i : those) {
    if (counts[i].defined() && counts[i].device() == device) continue;
    if (counts[i].defined())
      counts[i] = counts[i].to(device);
    else
      counts[i] = zero.defined() ? zero : (zero = zero_count(device));
  }
}

/// Throws UsageError where a moment has another shape than its parameter has now: the kernels do not look,
/// and would read past its end.
template <class Slot>
void check_shape(const Slot& slot, const std::vector<at::Tensor>& moments, std::size_t index,
                 const at::Tensor& parameter) {
  if (slot.counter || !has(moments, index) || moments[index].sizes() == parameter.sizes()) return;
  throw UsageError(message("a parameter of shape ", parameter.sizes(), " had shape ", moments[index].sizes(),
                           " when the optimizer first updated it"));
}

/// True where a kernel may walk both in step: device, dtype and the order of elements in memory agree.
[[nodiscard]] inline bool alike_in_memory(const at::Tensor& moment, const at::Tensor& parameter) {
  return moment.device() == parameter.device() && moment.scalar_type() == parameter.scalar_type() &&
         moment.strides() == parameter.strides();
}

/// Zeros for those parameters that have none yet. The others follow a parameter that moved, or that has
/// another dtype or memory format (channels_last) than before.
inline void begin_moments(std::vector<at::Tensor>& moments, const std::vector<at::Tensor>& parameters,
                          const std::vector<std::size_t>& those) {
  for (const std::size_t i : those) {
    if (!moments[i].defined())
      moments[i] = at::zeros_like(parameters[i]);
    else if (!alike_in_memory(moments[i], parameters[i]))
      moments[i] = at::empty_like(parameters[i]).copy_(moments[i]);
  }
}

template <class Slot>
void begin_slot(const Slot& slot, std::vector<at::Tensor>& list, const std::vector<at::Tensor>& parameters,
                const std::vector<std::size_t>& those) {
  list.resize(parameters.size());
  slot.counter ? begin_counts(list, parameters, those) : begin_moments(list, parameters, those);
}

/// By group: what is kept for the parameters in `listed`, in the places that they have in `groups` now.
/// Counts are shared within a group only.
template <class Rule>
[[nodiscard]] std::vector<typename Rule::Moments> followed_moments(
    const ListedParameters& listed, const std::vector<typename Rule::Moments>& moments,
    const ListedParameters::Groups& groups) {
  std::vector<typename Rule::Moments> followed(groups.size());
  const auto places = listed.places();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& parameters = groups[i].params();
    std::unordered_map<const void*, at::Tensor> counts;
    for (std::size_t j = 0; j < parameters.size(); ++j) {
      const auto before = places.find(parameters[j].unsafeGetTensorImpl());
      if (before == places.end()) continue;
      const auto [group, index] = before->second;
      for (const auto& slot : Rule::kSlots) {
        if (!has(moments[group].*slot.list, index)) continue;
        const at::Tensor& kept = (moments[group].*slot.list)[index];
        (followed[i].*slot.list).resize(parameters.size());
        at::Tensor& place = (followed[i].*slot.list)[j];
        if (!slot.counter)
          place = kept;
        else if (at::Tensor& count = counts[kept.unsafeGetTensorImpl()]; count.defined())
          place = count;
        else
          place = count = kept.clone();
      }
    }
  }
  return followed;
}

/// What is kept for one parameter, by handle.
template <class Rule>
[[nodiscard]] StateDict slots_state(const typename Rule::Moments& moments, std::size_t index) {
  StateDict state;
  for (const auto& slot : Rule::kSlots)
    if (const auto& list = moments.*slot.list; has(list, index)) state.set(slot.key, list[index]);
  return state;
}

template <class Rule>
void check_keys(const StateDict& state) {
  for (const auto& item : state.values()) {
    bool known = false;
    for (const auto& slot : Rule::kSlots) known = known || item.first == slot.key;
    if (!known)
      throw StateError(message(Rule::kName, " keeps nothing named '", item.first, "' for a parameter"));
  }
}

/// Whether a state has this slot, or lacks it wrongly.
template <class Options, class Slot>
[[nodiscard]] bool is_loaded(const Slot& slot, const Options& options, const StateDict& state) {
  return state.contains(slot.key) || (!state.empty() && slot.kept(options));
}

/// Throws StateError for a state whose names or shapes are not this optimizer's.
template <class Rule>
void check_slots(const typename Rule::Options& options, const at::Tensor& parameter, const StateDict& state) {
  check_keys<Rule>(state);
  for (const auto& slot : Rule::kSlots) {
    if (!is_loaded(slot, options, state)) continue;
    const at::Tensor& saved = state.get<at::Tensor>(slot.key);
    if (slot.counter ? saved.dim() != 0 : saved.sizes() != parameter.sizes())
      throw StateError(message(Rule::kName, " cannot take over '", slot.key, "' of shape ", saved.sizes(),
                               " for a parameter of shape ", parameter.sizes()));
  }
}

/// A copy like the parameter or, of a count, on its device.
template <class Slot>
[[nodiscard]] at::Tensor loaded_slot(const Slot& slot, const at::Tensor& parameter, const StateDict& state) {
  const at::Tensor result = slot.counter ? zero_count(parameter.device()) : at::empty_like(parameter);
  return result.copy_(state.get<at::Tensor>(slot.key));
}

/// Counts that were shared when they were saved are again: reads two numbers.
inline at::Tensor shared_with_neighbour(at::Tensor count, const std::vector<at::Tensor>& counts,
                                        std::size_t index) {
  if (index == 0 || !count.defined() || !has(counts, index - 1)) return count;
  const at::Tensor& neighbour = counts[index - 1];
  return neighbour.device() == count.device() && neighbour.equal(count) ? neighbour : count;
}

/// Replaces what is kept for one parameter, or throws StateError and changes nothing.
template <class Rule>
void load_slots(const typename Rule::Options& options, const std::vector<at::Tensor>& parameters,
                std::size_t index, const StateDict& state, typename Rule::Moments& moments) {
  check_slots<Rule>(options, parameters[index], state);
  std::array<at::Tensor, Rule::kSlots.size()> loaded;
  for (std::size_t i = 0; i < loaded.size(); ++i)
    if (const auto& slot = Rule::kSlots[i]; is_loaded(slot, options, state))
      loaded[i] = loaded_slot(slot, parameters[index], state);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const auto& slot = Rule::kSlots[i];
    auto& list = moments.*slot.list;
    if (list.empty() && !loaded[i].defined()) continue;
    list.resize(parameters.size());
    list[index] = slot.counter ? shared_with_neighbour(loaded[i], list, index) : loaded[i];
  }
}

}  // namespace looptorch::detail
