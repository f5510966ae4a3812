// SPDX-License-Identifier: MIT
// expect: looptorch: predict calls its callable as (Model&, const Batch&)
#include <looptorch/loop/predict.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
inline at::Tensor forward(Net& net, const at::Tensor& batch) { return net(batch); }
#else
inline at::Tensor forward(Net& net, const std::vector<at::Tensor>& batch) { return net(batch[0]); }
#endif
auto outputs = lt::predict(net, data, forward);
