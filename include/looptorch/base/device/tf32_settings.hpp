// SPDX-License-Identifier: MIT
// Allows or forbids TF32 for fp32 matrix products, convolutions and recurrent layers on CUDA. LibTorch has an
// older and a newer interface for it and throws where they disagree, so both are set together here.
#pragma once

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>

namespace looptorch::detail {

/// Captures the switches when it is made.
class Tf32Settings {
 public:
  Tf32Settings() {
    for (std::size_t i = 0; i < kOps.size(); ++i) precision_[i] = read(at::Float32Backend::CUDA, kOps[i]);
  }

  static void allow(bool tf32) {
    if (is_medium()) at::globalContext().setFloat32MatmulPrecision(tf32 ? "high" : "highest");
    set_older(tf32, tf32);
    for (const at::Float32Op op : kOps)
      write(at::Float32Backend::CUDA, op, tf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE);
  }

  void put_back() const {
    set_older(precision_[0] == at::Float32Precision::TF32, precision_[1] == at::Float32Precision::TF32);
    if (is_medium_) at::globalContext().setFloat32MatmulPrecision("medium");
    for (std::size_t i = 0; i < kOps.size(); ++i) write(at::Float32Backend::CUDA, kOps[i], precision_[i]);
    write(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL, cpu_precision_);
  }

 private:
  static constexpr std::array kOps{at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN};

  static at::Float32Precision read(at::Float32Backend backend, at::Float32Op op) {
    return at::globalContext().float32Precision(backend, op);
  }
  static void write(at::Float32Backend backend, at::Float32Op op, at::Float32Precision precision) {
    at::globalContext().setFloat32Precision(backend, op, precision);
  }

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

  std::array<at::Float32Precision, kOps.size()> precision_{};
  at::Float32Precision cpu_precision_ = read(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  bool is_medium_ = is_medium();
};

}  // namespace looptorch::detail
