// SPDX-License-Identifier: MIT
// Describes once the tensors that an optimizer keeps for each parameter: their initial values, their keys in
// a state dict, and how they are loaded from one.
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

/// One kind of moment: a list in `Moments`, in the order of a group's parameters, with undefined tensors for
/// parameters that have not had a gradient.
template <class Moments, class Options>
struct MomentField {
  const char* key;  ///< PyTorch's name.
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

/// Sets counts of zero for the parameters `those` that have none, all sharing one. `those` are on one device.
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

/// Throws UsageError if a moment has another shape than its parameter has now. The kernels do not check, and
/// would read past its end.
template <class Field>
void check_shape(const Field& field, const std::vector<at::Tensor>& moments, std::size_t index,
                 const at::Tensor& parameter) {
  if (field.counter || !has(moments, index) || moments[index].sizes() == parameter.sizes()) return;
  throw UsageError(message("a parameter of shape ", parameter.sizes(), " had shape ", moments[index].sizes(),
                           " when the optimizer first updated it"));
}

/// True if a kernel may walk both in step: device, dtype and the order of elements in memory agree.
[[nodiscard]] inline bool alike_in_memory(const at::Tensor& moment, const at::Tensor& parameter) {
  return moment.device() == parameter.device() && moment.scalar_type() == parameter.scalar_type() &&
         moment.strides() == parameter.strides();
}

/// Sets zeros for the parameters that have no moment. Other moments are converted if their parameter moved,
/// or has another dtype or memory format (channels_last) than before.
inline void begin_moments(std::vector<at::Tensor>& moments, const std::vector<at::Tensor>& parameters,
                          const std::vector<std::size_t>& those) {
  for (const std::size_t i : those) {
    if (!moments[i].defined())
      moments[i] = at::zeros_like(parameters[i]);
    else if (!alike_in_memory(moments[i], parameters[i]))
      moments[i] = at::empty_like(parameters[i]).copy_(moments[i]);
  }
}

template <class Field>
void begin_field(const Field& field, std::vector<at::Tensor>& list, const std::vector<at::Tensor>& parameters,
                 const std::vector<std::size_t>& those) {
  list.resize(parameters.size());
  field.counter ? begin_counts(list, parameters, those) : begin_moments(list, parameters, those);
}

/// Returns the moments of the parameters in `listed` by group, in their positions in `groups` now. Counts are
/// shared within a group only.
template <class Rule>
[[nodiscard]] std::vector<typename Rule::Moments> followed_moments(
    const ListedParameters& listed, const std::vector<typename Rule::Moments>& moments,
    const ListedParameters::Groups& groups) {
  std::vector<typename Rule::Moments> followed(groups.size());
  const auto positions = listed.positions();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& parameters = groups[i].params();
    std::unordered_map<const void*, at::Tensor> counts;
    for (std::size_t j = 0; j < parameters.size(); ++j) {
      const auto before = positions.find(parameters[j].unsafeGetTensorImpl());
      if (before == positions.end()) continue;
      const auto [group, index] = before->second;
      for (const auto& field : Rule::kFields) {
        if (!has(moments[group].*field.list, index)) continue;
        const at::Tensor& kept = (moments[group].*field.list)[index];
        (followed[i].*field.list).resize(parameters.size());
        at::Tensor& target = (followed[i].*field.list)[j];
        if (!field.counter)
          target = kept;
        else if (at::Tensor& count = counts[kept.unsafeGetTensorImpl()]; count.defined())
          target = count;
        else
          target = count = kept.clone();
      }
    }
  }
  return followed;
}

/// Returns the moments of one parameter, as handles.
template <class Rule>
[[nodiscard]] StateDict fields_state(const typename Rule::Moments& moments, std::size_t index) {
  StateDict state;
  for (const auto& field : Rule::kFields)
    if (const auto& list = moments.*field.list; has(list, index)) state.set(field.key, list[index]);
  return state;
}

template <class Rule>
void check_keys(const StateDict& state) {
  for (const auto& item : state.values()) {
    bool known = false;
    for (const auto& field : Rule::kFields) known = known || item.first == field.key;
    if (!known)
      throw StateError(message(Rule::kName, " keeps nothing named '", item.first, "' for a parameter"));
  }
}

/// True if this field must be loaded: the state has it, or lacks it wrongly.
template <class Options, class Field>
[[nodiscard]] bool is_loaded(const Field& field, const Options& options, const StateDict& state) {
  return state.contains(field.key) || (!state.empty() && field.kept(options));
}

/// Throws StateError for a state whose names or shapes are not this optimizer's.
template <class Rule>
void check_fields(const typename Rule::Options& options, const at::Tensor& parameter,
                  const StateDict& state) {
  check_keys<Rule>(state);
  for (const auto& field : Rule::kFields) {
    if (!is_loaded(field, options, state)) continue;
    const at::Tensor& saved = state.get<at::Tensor>(field.key);
    if (field.counter ? saved.dim() != 0 : saved.sizes() != parameter.sizes())
      throw StateError(message(Rule::kName, " cannot take over '", field.key, "' of shape ", saved.sizes(),
                               " for a parameter of shape ", parameter.sizes()));
  }
}

/// Returns a copy with the parameter's properties, or, for a count, on its device.
template <class Field>
[[nodiscard]] at::Tensor loaded_field(const Field& field, const at::Tensor& parameter,
                                      const StateDict& state) {
  const at::Tensor result = field.counter ? zero_count(parameter.device()) : at::empty_like(parameter);
  return result.copy_(state.get<at::Tensor>(field.key));
}

/// Shares the count with the parameter before if they are equal, as they were when saved. Reads two numbers.
inline at::Tensor shared_with_neighbour(at::Tensor count, const std::vector<at::Tensor>& counts,
                                        std::size_t index) {
  if (index == 0 || !count.defined() || !has(counts, index - 1)) return count;
  const at::Tensor& neighbour = counts[index - 1];
  return neighbour.device() == count.device() && neighbour.equal(count) ? neighbour : count;
}

/// Replaces the moments of one parameter, or throws StateError and changes nothing.
template <class Rule>
void load_fields(const typename Rule::Options& options, const std::vector<at::Tensor>& parameters,
                 std::size_t index, const StateDict& state, typename Rule::Moments& moments) {
  check_fields<Rule>(options, parameters[index], state);
  std::array<at::Tensor, Rule::kFields.size()> loaded;
  for (std::size_t i = 0; i < loaded.size(); ++i)
    if (const auto& field = Rule::kFields[i]; is_loaded(field, options, state))
      loaded[i] = loaded_field(field, parameters[index], state);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const auto& field = Rule::kFields[i];
    auto& list = moments.*field.list;
    if (list.empty() && !loaded[i].defined()) continue;
    list.resize(parameters.size());
    list[index] = field.counter ? shared_with_neighbour(loaded[i], list, index) : loaded[i];
  }
}

}  // namespace looptorch::detail
