// SPDX-License-Identifier: MIT
// MomentField, which describes one tensor that an optimizer keeps for each parameter: its key in a state
// dict, its shape and its dtype. Functions here use the description to make such tensors and to load them
// from a state dict.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/optim/state/listed_parameters.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace looptorch::detail {

/// One kind of moment: a list in `Moments`, in the order of a group's parameters, with undefined tensors for
/// parameters that have not had a gradient.
template <class Moments, class Options>
struct MomentField {
  using Sizes = std::vector<std::int64_t>;

  const char* key;  ///< PyTorch's name.
  std::vector<at::Tensor> Moments::*list;
  /// True if parameters like this one have it.
  bool (*kept)(const Options&, const at::Tensor&) = [](const Options&, const at::Tensor&) { return true; };
  bool counter = false;  ///< A 0-dim fp32 step count instead of a tensor like the parameter.
  Sizes (*sizes)(const at::Tensor&) = nullptr;                          ///< Null: the parameter's shape.
  at::ScalarType (*type)(const Options&, const at::Tensor&) = nullptr;  ///< Null: the parameter's dtype.
  /// An element's position in memory matters: the parameter must stay contiguous.
  bool in_order = false;
};

[[nodiscard]] inline bool has(const std::vector<at::Tensor>& list, std::size_t index) {
  return index < list.size() && list[index].defined();
}

[[nodiscard]] inline at::Tensor zero_count(at::Device device) {
  return at::zeros({}, at::TensorOptions(at::kFloat).device(device));
}

/// Gives the parameters in `those` that have no count a shared count of zero on `device`.
inline void begin_counts(std::vector<at::Tensor>& counts, const std::vector<std::size_t>& those,
                         at::Device device) {
  at::Tensor zero;
  for (const std::size_t i : those) {
    if (counts[i].defined() && counts[i].device() == device) continue;
    if (counts[i].defined())
      counts[i] = counts[i].to(device);
    else
      counts[i] = zero.defined() ? zero : (zero = zero_count(device));
  }
}

/// Returns the dtype that a field has for a parameter.
template <class Field, class Options>
[[nodiscard]] at::ScalarType moment_type(const Field& field, const Options& options,
                                         const at::Tensor& parameter) {
  return field.type ? field.type(options, parameter) : parameter.scalar_type();
}

/// Returns a moment without values, in the parameter's memory format if it has its shape.
template <class Field, class Options>
[[nodiscard]] at::Tensor empty_moment(const Field& field, const Options& options,
                                      const at::Tensor& parameter) {
  const auto form = at::TensorOptions(parameter.device()).dtype(moment_type(field, options, parameter));
  return field.sizes ? at::empty(field.sizes(parameter), form) : at::empty_like(parameter, form);
}

/// Returns the bytes that a field takes for a parameter.
template <class Field, class Options>
[[nodiscard]] std::int64_t moment_bytes(const Field& field, const Options& options,
                                        const at::Tensor& parameter) {
  std::int64_t count = parameter.numel();
  if (field.sizes) {
    count = 1;
    for (const std::int64_t size : field.sizes(parameter)) count *= size;
  }
  return count * static_cast<std::int64_t>(c10::elementSize(moment_type(field, options, parameter)));
}

/// True if a moment of these sizes is one for this parameter.
template <class Field>
[[nodiscard]] bool has_shape_for(const Field& field, at::IntArrayRef sizes, const at::Tensor& parameter) {
  return field.sizes ? sizes == at::IntArrayRef(field.sizes(parameter)) : sizes == parameter.sizes();
}

/// Throws UsageError if a moment has another shape than its parameter has now. The kernels do not check, and
/// would read past its end.
template <class Field>
void check_shape(const Field& field, const std::vector<at::Tensor>& moments, std::size_t index,
                 const at::Tensor& parameter) {
  if (field.counter || !has(moments, index)) return;
  if (!has_shape_for(field, moments[index].sizes(), parameter))
    throw UsageError(message("a parameter of shape ", parameter.sizes(), " had shape ",
                             field.sizes ? "another" : message(moments[index].sizes()),
                             " when the optimizer first updated it"));
  if (field.in_order && !parameter.is_contiguous())
    throw UsageError(message("a parameter of shape ", parameter.sizes(),
                             " was contiguous when the optimizer first updated it, and has strides ",
                             parameter.strides()));
}

/// True if a kernel may read a moment and its parameter in parallel: device, dtype and the order of elements
/// in memory are as a new moment's.
template <class Field, class Options>
[[nodiscard]] bool alike_in_memory(const Field& field, const Options& options, const at::Tensor& moment,
                                   const at::Tensor& parameter) {
  return moment.device() == parameter.device() &&
         moment.scalar_type() == moment_type(field, options, parameter) &&
         (field.sizes || moment.strides() == parameter.strides());
}

/// Sets zeros for the parameters that have no moment. Other moments are converted if their parameter moved,
/// or has another dtype or memory format (channels_last) than before. The list stays empty while no parameter
/// keeps the field.
template <class Field, class Options>
void begin_field(const Field& field, const Options& options, std::vector<at::Tensor>& list,
                 const std::vector<at::Tensor>& parameters, const std::vector<std::size_t>& those) {
  if (field.counter) {
    list.resize(parameters.size());
    return begin_counts(list, those, parameters[those.front()].device());
  }
  for (const std::size_t i : those) {
    if (!field.kept(options, parameters[i])) continue;
    list.resize(parameters.size());
    if (!list[i].defined())
      list[i] = empty_moment(field, options, parameters[i]).zero_();
    else if (!alike_in_memory(field, options, list[i], parameters[i]))
      list[i] = empty_moment(field, options, parameters[i]).copy_(list[i]);
  }
}

/// Returns the moments of the parameters in `listed` by group, in their positions in `groups` now. Counts are
/// shared within a group only.
template <class Rule>
[[nodiscard]] std::vector<typename Rule::Moments> followed_moments(
    const ListedParameters& listed, const std::vector<typename Rule::Moments>& moments,
    const ListedParameters::Groups& groups) {
  std::vector<typename Rule::Moments> followed(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& parameters = groups[i].params();
    std::unordered_map<const void*, at::Tensor> counts;
    for (std::size_t j = 0; j < parameters.size(); ++j) {
      const auto before = listed.find(parameters[j]);
      if (!before) continue;
      const auto [group, index] = *before;
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

/// True if this field must be loaded: the state has it, or should have it.
template <class Options, class Field>
[[nodiscard]] bool is_loaded(const Field& field, const Options& options, const at::Tensor& parameter,
                             const StateDict& state) {
  return state.contains(field.key) || (!state.empty() && field.kept(options, parameter));
}

/// Throws StateError for a state with other names or shapes than this optimizer's.
template <class Rule>
void check_fields(const typename Rule::Options& options, const at::Tensor& parameter,
                  const StateDict& state) {
  check_keys<Rule>(state);
  for (const auto& field : Rule::kFields) {
    if (!is_loaded(field, options, parameter, state)) continue;
    const at::Tensor& saved = state.get<at::Tensor>(field.key);
    if (field.counter ? saved.dim() != 0 : !has_shape_for(field, saved.sizes(), parameter))
      throw StateError(message(Rule::kName, " cannot take over '", field.key, "' of shape ", saved.sizes(),
                               " for a parameter of shape ", parameter.sizes()));
  }
}

/// Returns a copy of the saved moment, as the field is kept for this parameter.
template <class Field, class Options>
[[nodiscard]] at::Tensor loaded_field(const Field& field, const Options& options, const at::Tensor& parameter,
                                      const StateDict& state) {
  const at::Tensor result =
      field.counter ? zero_count(parameter.device()) : empty_moment(field, options, parameter);
  return result.copy_(state.get<at::Tensor>(field.key));
}

/// Returns the preceding parameter's count if it equals `count`, so that both share it. Reads two numbers.
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
    if (const auto& field = Rule::kFields[i]; is_loaded(field, options, parameters[index], state))
      loaded[i] = loaded_field(field, options, parameters[index], state);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const auto& field = Rule::kFields[i];
    auto& list = moments.*field.list;
    if (list.empty() && !loaded[i].defined()) continue;
    list.resize(parameters.size());
    list[index] = field.counter ? shared_with_neighbour(loaded[i], list, index) : loaded[i];
  }
}

}  // namespace looptorch::detail
