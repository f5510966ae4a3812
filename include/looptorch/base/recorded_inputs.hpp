// SPDX-License-Identifier: MIT
// Reads the inputs of a recorded operator without `RecordFunction::inputs()`. In a debug build of a program
// that function fails an assertion if LibTorch is a release build.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/ArrayRef.h>

namespace looptorch::detail {

/// Returns the inputs of an operator whose start or end callback is running.
c10::ArrayRef<const c10::IValue> recorded_inputs(const at::RecordFunction& function);

/// Defines `recorded_inputs`. An explicit instantiation may name a private member.
template <auto Inputs>
struct RecordedInputs {
  friend c10::ArrayRef<const c10::IValue> recorded_inputs(const at::RecordFunction& function) {
    return function.*Inputs;
  }
};
template struct RecordedInputs<&at::RecordFunction::inputs_>;

}  // namespace looptorch::detail
