// SPDX-License-Identifier: MIT
// expect: looptorch: an objective takes the module in place of its holder. Take the model as the Trainer
// holds it
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

inline at::Tensor by_module(const Net::ContainedType& module, const at::Tensor& batch) {
  return (batch.matmul(module.weight.t())).mean();
}
inline at::Tensor by_holder(const Net& net, const at::Tensor& batch) { return by_module(*net, batch); }

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, by_holder);
#else
lt::Trainer trainer(net, sgd, by_module);
#endif
auto result = trainer.fit(data);
