// SPDX-License-Identifier: MIT
// Computes how many kernels CUDA would launch for an operator, by the rules in cuda_launches.hpp: chunks of
// lists, norms, concatenations.
#include "support/accelerator/dispatch/cuda_launches.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace looptorch_test::accelerator {

namespace {

using Lists = std::vector<std::vector<at::Tensor>>;

constexpr std::int64_t ceil_of(std::int64_t count, std::int64_t part) { return (count + part - 1) / part; }

Lists lists_of(const torch::jit::Stack& arguments) {
  Lists lists;
  for (const c10::IValue& value : arguments)
    if (value.isTensorList() && value.toTensorList().size() > 0) lists.push_back(value.toTensorVector());
  return lists;
}

/// Launches of a kernel that goes through the chunks of `depth` lists.
std::int64_t launches_in_chunks(const std::vector<at::Tensor>& first, std::size_t depth) {
  constexpr std::array<std::int64_t, 5> kTensors{110, 64, 48, 36, 30};
  constexpr std::int64_t kChunk = 65536, kBlocks = 320;
  const std::int64_t most = kTensors.at(std::min<std::size_t>(depth, 5) - 1);
  std::int64_t launches = 0, tensors = 0, blocks = 0;
  for (const at::Tensor& tensor : first) {
    const std::int64_t chunks = ceil_of(tensor.numel(), kChunk);
    tensors += chunks > 0;
    for (std::int64_t chunk = 1; chunk <= chunks; ++chunk) {
      ++blocks;
      const bool ends = chunk == chunks;
      if (blocks < kBlocks && !(ends && tensors == most)) continue;
      ++launches;
      blocks = 0;
      tensors = ends ? 0 : 1;
    }
  }
  return launches + (blocks > 0);
}

/// True if the tensors are of one type, without gaps, and those of one place laid out alike.
bool are_alike(const Lists& lists) {
  for (const auto& list : lists)
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].scalar_type() != lists[0][0].scalar_type() || !list[i].is_non_overlapping_and_dense() ||
          list[i].sizes() != lists[0][i].sizes() || list[i].strides() != lists[0][i].strides())
        return false;
  return true;
}

std::int64_t launches_of_norms(const Lists& lists) {
  constexpr std::int64_t kJoined = 512;
  return 1 + launches_in_chunks(lists[0], 1) + ceil_of(static_cast<std::int64_t>(lists[0].size()), kJoined);
}

}  // namespace

std::int64_t launches_on_cuda(const std::string& name, const torch::jit::Stack& arguments) {
  constexpr std::int64_t kConcatenated = 128;
  const auto is = [&](const char* begin) { return name.starts_with(begin); };
  const bool is_fused = is("aten::_fused_adam") || is("aten::_fused_sgd");
  const bool is_foreach = is("aten::_foreach_") || is("aten::_amp_foreach_");
  if (!is_fused && !is_foreach && !is("aten::cat")) return 1;
  Lists lists = lists_of(arguments);
  if (lists.empty()) return 1;
  const auto count = static_cast<std::int64_t>(lists[0].size());
  if (is("aten::cat")) return std::max<std::int64_t>(1, ceil_of(count, kConcatenated));
  if (is("aten::_fused_adam")) lists.pop_back();  // the step counts travel with the parameters
  if (is_foreach && !are_alike(lists)) return count;
  if (is("aten::_foreach_norm")) return launches_of_norms(lists);
  const bool is_in_place = is_fused || is("aten::_amp_") || name.substr(0, name.find('.')).ends_with('_');
  return launches_in_chunks(lists[0], lists.size() + !is_in_place);
}

}  // namespace looptorch_test::accelerator
