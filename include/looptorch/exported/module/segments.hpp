// SPDX-License-Identifier: MIT
// Selects the parts of a program that are recomputed in backward: a range of nodes, or each of the program's
// repeated blocks. Blocks are found by the names of their modules.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/exported/graph/graph.hpp>
#include <looptorch/exported/module/program_file.hpp>
#include <looptorch/memory/recompute/checkpointed_call.hpp>
#include <looptorch/optim/name_pattern.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail::exported {

/// The nodes in [begin, end) as a function. Its arguments are the values from outside that these nodes read;
/// its results are those of the nodes' values that are read outside.
struct Segment {
  std::size_t begin, end;
  CheckpointOptions options;
  std::vector<Slot> reads = {};  ///< its arguments, except weights and constants
  std::vector<Slot> ends = {};   ///< those of `reads` that no later node reads
  std::vector<Slot> makes = {};  ///< results of its nodes that are read outside
};
using Segments = std::vector<std::shared_ptr<const Segment>>;

/// A repeated block: the first and the last of its nodes.
struct NodeRange {
  std::size_t first, last;
};
using Blocks = std::map<std::string, NodeRange>;

/// Returns the list's module in which a path lies: "encoder.layers.3" for "encoder.layers.3.norm"; empty if
/// no part of the path is a number.
[[nodiscard]] inline std::string numbered_part(const std::string& path) {
  for (std::size_t begin = 0; begin < path.size();) {
    const auto end = std::min(path.find('.', begin), path.size());
    if (begin > 0 && std::all_of(path.begin() + static_cast<std::ptrdiff_t>(begin),
                                 path.begin() + static_cast<std::ptrdiff_t>(end),
                                 [](unsigned char c) { return std::isdigit(c) != 0; }))
      return path.substr(0, end);
    begin = end + 1;
  }
  return {};
}

/// Returns the shortest beginning of a path, in whole names, that matches.
[[nodiscard]] inline std::string matching_part(const std::string& path, const std::string& pattern) {
  for (std::size_t end = path.find('.');; end = path.find('.', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!part.empty() && matches_pattern(part, pattern)) return part;
    if (end == std::string::npos) return {};
  }
}

/// Finds the blocks whose path matches `pattern`; if that is empty, those of lists of two or more modules.
[[nodiscard]] inline Blocks find_blocks(const Graph& graph, const std::string& pattern) {
  Blocks blocks;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::string& path = graph.modules[graph.nodes[i].module].path;
    const std::string block = pattern.empty() ? numbered_part(path) : matching_part(path, pattern);
    if (!block.empty()) blocks.try_emplace(block, NodeRange{i, i}).first->second.last = i;
  }
  if (!pattern.empty()) return blocks;
  std::map<std::string, int> lists;
  for (const auto& [path, range] : blocks) ++lists[ModuleTree::split(path).first];
  std::erase_if(blocks, [&](const auto& block) { return lists[ModuleTree::split(block.first).first] < 2; });
  return blocks;
}

class SegmentMaker {
 public:
  explicit SegmentMaker(const ProgramFile& file) : file_(file) {}

  /// Returns the segment of a range. Throws UsageError if the range has only the begin or only the end of a
  /// part that switches gradients or autocast.
  [[nodiscard]] std::shared_ptr<const Segment> make(NodeRange range, CheckpointOptions options) const {
    const auto& nodes = file_.graph.nodes;
    auto made = std::make_shared<Segment>(Segment{range.first, range.last + 1, std::move(options)});
    if (!is_balanced(*made))
      throw UsageError(
          "nodes \"" + nodes[range.first].name + "\" to \"" + nodes[range.last].name +
          "\" cannot be recomputed: they begin or end within a part that switches gradients or autocast");
    std::set<Slot> held, own, read;
    for (const auto& weight : file_.tensors.weights) held.insert(weight.slot);
    for (const auto& constant : file_.tensors.constants) held.insert(constant.slot);
    for (std::size_t i = made->begin; i < made->end; ++i) {
      for_each_slot(nodes[i].arguments, [&](const GraphArgument& argument) {
        if (held.contains(argument.slot) || own.contains(argument.slot)) return;
        if (read.insert(argument.slot).second) made->reads.push_back(argument.slot);
        if (argument.is_last) made->ends.push_back(argument.slot);
      });
      for (const auto& result : nodes[i].results)
        for (const Slot slot : result.slots)
          if (slot != kNoSlot) own.insert(slot);
      add_buffers(nodes[i], made->options.buffers);
    }
    std::set<Slot> later;
    for (std::size_t i = made->end; i < nodes.size(); ++i)
      for_each_slot(nodes[i].arguments, [&](const GraphArgument& argument) { later.insert(argument.slot); });
    for (const Slot slot : file_.signature.outputs) later.insert(slot);
    for (const auto& update : file_.signature.updates) later.insert(update.slot);
    std::set_intersection(own.begin(), own.end(), later.begin(), later.end(),
                          std::back_inserter(made->makes));
    return made;
  }

 private:
  [[nodiscard]] bool is_balanced(const Segment& segment) const {
    int depth = 0;
    for (std::size_t i = segment.begin; i < segment.end; ++i) {
      depth += std::holds_alternative<BeginScope>(file_.graph.nodes[i].action) ? 1 : 0;
      depth -= std::holds_alternative<EndScope>(file_.graph.nodes[i].action) ? 1 : 0;
      if (depth < 0) return false;
    }
    return depth == 0;
  }

  /// Adds the buffers to which a node writes.
  void add_buffers(const GraphNode& node, std::vector<at::Tensor>& buffers) const {
    if (!node.op()) return;
    const auto& declared = node.op()->schema().arguments();
    for (std::size_t i = 0; i < declared.size(); ++i) {
      const bool writes = (declared[i].alias_info() && declared[i].alias_info()->isWrite()) ||
                          declared[i].name().starts_with("running_");
      if (!writes || node.arguments[i].slot == kNoSlot) continue;
      for (const auto& weight : file_.tensors.weights)
        if (weight.slot == node.arguments[i].slot) buffers.push_back(weight.tensor);
    }
  }

  const ProgramFile& file_;
};

/// Adds a segment in order. Throws UsageError if it overlaps another.
inline void add_segment(Segments& segments, std::shared_ptr<const Segment> segment, const Graph& graph) {
  const auto behind = std::find_if(segments.begin(), segments.end(),
                                   [&](const auto& each) { return each->end > segment->begin; });
  if (behind != segments.end() && (*behind)->begin < segment->end)
    throw UsageError("nodes \"" + graph.nodes[segment->begin].name + "\" to \"" +
                     graph.nodes[segment->end - 1].name + "\" overlap another part that is recomputed");
  segments.insert(behind, std::move(segment));
}

}  // namespace looptorch::detail::exported
