// SPDX-License-Identifier: MIT
// GradientScale, the factor by which all gradients of an update still have to be multiplied: for averaging,
// unscaling and clipping. It is applied in one pass, or by the optimizer's kernel. Also has functions that
// check, collect and drop gradients.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/scalar_tensor.h>

#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Returns `number`, 0-dim, on the device of `tensor`. Waits only for a copy from an accelerator to the CPU.
inline at::Tensor on_device_of(const at::Tensor& tensor, const at::Tensor& number) {
  return number.to(tensor.device(), /*non_blocking=*/!tensor.is_cpu());
}

/// Returns a one-element tensor times a number, 0-dim fp64; the kernel promotes an fp32 tensor to fp64.
[[nodiscard]] inline at::Tensor fp64_product(const at::Tensor& tensor, const at::Tensor& number) {
  return at::mul(tensor.dim() == 0 ? tensor : tensor.reshape({}), number);
}

/// Calls `visit(list)` once for each device and dtype, with its gradients: most kernels take one device, and
/// launch once per tensor for a list of several dtypes.
template <class Visit>
void for_each_alike(const std::vector<at::Tensor>& gradients, Visit&& visit) {
  const auto kind_of = [&](std::size_t i) {
    return std::pair{gradients[i].device(), gradients[i].scalar_type()};
  };
  std::size_t alike = 1;
  while (alike < gradients.size() && kind_of(alike) == kind_of(0)) ++alike;
  if (alike >= gradients.size()) return visit(at::TensorList(gradients));
  std::vector<bool> visited(gradients.size());
  for (std::size_t first = 0; first < gradients.size(); ++first) {
    if (visited[first]) continue;
    std::vector<at::Tensor> of_one;
    for (std::size_t i = first; i < gradients.size(); ++i)
      if (!visited[i] && kind_of(i) == kind_of(first)) {
        of_one.push_back(gradients[i]);
        visited[i] = true;
      }
    visit(at::TensorList(of_one));
  }
}

}  // namespace detail

/// A factor by which all gradients still have to be multiplied. It is kept as a number and a 0-dim device
/// tensor, so that averaging, unscaling and clipping cost one pass over the gradients, or none in a fused
/// optimizer.
class GradientScale {
 public:
  /// Returns a factor that a graph reads at each replay, 0-dim fp64 on the gradients' device. Gives the bits
  /// of the same number on the host.
  [[nodiscard]] static GradientScale read_from(at::Tensor number) {
    GradientScale scale;
    scale.read_ = std::move(number);
    return scale;
  }

  void multiply(double factor) { number_ *= factor; }
  /// Multiplies the factor by a tensor. The first tensor's device becomes the factor's.
  void multiply(const at::Tensor& factor) {
    tensor_ = tensor_.defined() ? tensor_ * detail::on_device_of(tensor_, factor) : factor;
  }

  void multiply(const GradientScale& factor) {
    multiply(factor.number_);
    if (factor.tensor_.defined()) multiply(factor.tensor_);
    if (factor.read_.defined()) read_ = read_.defined() ? read_ * factor.read_ : factor.read_;
  }

  [[nodiscard]] bool is_one() const { return has_no_number() && !tensor_.defined(); }
  [[nodiscard]] double number() const { return number_; }
  /// Returns the factor's tensor, 0-dim; undefined while only numbers have been multiplied in.
  [[nodiscard]] const at::Tensor& tensor() const { return tensor_; }

  /// Returns a value that is linear in the gradients, such as their norm, times the factor.
  [[nodiscard]] at::Tensor apply(at::Tensor value) const {
    if (read_.defined())
      value = value * fp64_number().to(value.scalar_type());
    else if (number_ != 1.0)
      value = value * number_;
    return tensor_.defined() ? value * detail::on_device_of(value, tensor_) : value;
  }

  /// Multiplies the gradients in place, on whatever devices they are. Afterwards the factor is one.
  void flush(std::vector<at::Tensor>& gradients) {
    if (!gradients.empty() && tensor_.defined())
      detail::for_each_alike(
          gradients, [&, factor = apply(at::scalar_tensor(1.0, tensor_.options()))](at::TensorList on_one) {
            at::_foreach_mul_(on_one, detail::on_device_of(on_one.front(), factor));
          });
    else if (!gradients.empty() && !has_no_number())
      detail::for_each_alike(gradients, [&](at::TensorList of_one) { multiply_by_number(of_one); });
    *this = GradientScale{};
  }

  /// Returns one over the factor as a 0-dim fp32 tensor on `device`, by which LibTorch's fused optimizers
  /// divide gradients.
  [[nodiscard]] at::Tensor reciprocal(at::Device device) const {
    auto options = at::TensorOptions(at::kFloat).device(device);
    if (!tensor_.defined() && !read_.defined()) return at::scalar_tensor(1.0 / number_, options);
    if (has_no_number() && tensor_.scalar_type() == at::kFloat && tensor_.device() == device)
      return tensor_.reciprocal();
    const at::Tensor factor =
        tensor_.defined() ? detail::fp64_product(tensor_, fp64_number()) : fp64_number();
    at::Tensor result = at::empty({}, options.device(factor.device()));
    return at::reciprocal_out(result, factor).to(device);
  }

 private:
  [[nodiscard]] bool has_no_number() const { return number_ == 1.0 && !read_.defined(); }
  /// Returns the number, 0-dim fp64, on the host or where it is read.
  [[nodiscard]] at::Tensor fp64_number() const {
    if (!read_.defined()) return at::scalar_tensor(number_, at::kDouble);
    return number_ == 1.0 ? read_ : read_ * number_;
  }
  /// Multiplies gradients of one device and dtype. Multiplies 16-bit gradients in fp32, as an accelerator's
  /// kernel does with a number on the host. A CPU's kernel would round that number to 16 bits; every kernel
  /// rounds a number on a device.
  void multiply_by_number(at::TensorList gradients) const {
    const at::Tensor& first = gradients.front();
    const bool narrow = first.element_size() < 4;
    if (!read_.defined() && !(narrow && first.is_cpu())) return at::_foreach_mul_(gradients, number_);
    const at::Tensor number = fp64_number();
    if (!narrow) return at::_foreach_mul_(gradients, number.to(first.scalar_type()));
    for (const at::Tensor& gradient : gradients) gradient.copy_(gradient.to(at::kFloat).mul_(number));
  }

  double number_ = 1.0;
  at::Tensor read_;  // the number's factor on a device; undefined: 1
  at::Tensor tensor_;
};

namespace detail {

/// Throws UsageError for a sparse gradient, in the name of `who`, which cannot read it.
inline void require_dense(const at::Tensor& gradient, const char* who) {
  if (gradient.layout() != at::kStrided)
    throw UsageError(message(who, " takes dense gradients only; that of a parameter of shape ",
                             gradient.sizes(), " is ", gradient.layout(),
                             ": leave its layer's option `sparse` off"));
}
inline void require_dense(const std::vector<at::Tensor>& gradients, const char* who) {
  for (const at::Tensor& gradient : gradients) require_dense(gradient, who);
}

/// Collects the gradients that exist, as handles that share their storage.
inline void collect_gradients(const std::vector<at::Tensor>& parameters, std::vector<at::Tensor>& gradients) {
  gradients.clear();
  for (const at::Tensor& parameter : parameters)
    if (const at::Tensor& gradient = parameter.grad(); gradient.defined()) gradients.push_back(gradient);
}

inline void drop_gradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
}

}  // namespace detail
}  // namespace looptorch
