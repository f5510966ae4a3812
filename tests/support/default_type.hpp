// SPDX-License-Identifier: MIT
// Sets the default dtype of tensors until the end of a scope.
#pragma once

#include "support/precompiled.hpp"

/// Sets the default type of tensors while it lives.
class DefaultType {
 public:
  explicit DefaultType(at::ScalarType type) { torch::set_default_dtype(c10::scalarTypeToTypeMeta(type)); }
  ~DefaultType() { torch::set_default_dtype(before_); }
  DefaultType(const DefaultType&) = delete;
  DefaultType& operator=(const DefaultType&) = delete;

 private:
  caffe2::TypeMeta before_ = torch::get_default_dtype();
};
