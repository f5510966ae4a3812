// SPDX-License-Identifier: MIT
// expect: looptorch: a StateDict gives bool, std::int64_t, double, std::string and at::Tensor by get<T>(key),
// and a list of tensors by tensors(key).
#include <looptorch/base/state_dict.hpp>

std::vector<at::Tensor> means_of(const looptorch::StateDict& state) {
#ifdef LOOPTORCH_TWIN
  return state.tensors("means");
#else
  return state.get<std::vector<at::Tensor>>("means");
#endif
}
