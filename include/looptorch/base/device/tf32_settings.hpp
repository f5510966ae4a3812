// SPDX-License-Identifier: MIT
// Allows or forbids TF32 for fp32 matrix products, convolutions and recurrent layers on CUDA. Since 2.9
// LibTorch has two interfaces for that and throws if they disagree, so both are set together here.
#pragma once

#include <looptorch/base/device/older_libtorch.hpp>

#include <ATen/Context.h>
#include <c10/util/Exception.h>

namespace looptorch::detail {

/// Captures the switches when it is made.
class Tf32Settings {
 public:
  static void allow(bool tf32) {
    if (is_medium()) at::globalContext().setFloat32MatmulPrecision(tf32 ? "high" : "highest");
    set_older(tf32, tf32);
    Float32Switches::allow(tf32);
  }

  void restore() const {
    set_older(switches_.products(), switches_.convolutions());
    if (is_medium_) at::globalContext().setFloat32MatmulPrecision("medium");
    switches_.restore();
  }

 private:
  static void set_older(bool products, bool convolutions) {
    at::globalContext().setAllowTF32CuBLAS(products);
    at::globalContext().setAllowTF32CuDNN(convolutions);
  }

  /// True if the older interface is set to "medium", which covers the CPU's bf16 products too.
  static bool is_medium() {
    try {
      return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM;
    } catch (const c10::Error&) {  // the interfaces disagree already: the newer one counts
      return false;
    }
  }

  Float32Switches switches_;
  bool is_medium_ = is_medium();
};

}  // namespace looptorch::detail
