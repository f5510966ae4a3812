// SPDX-License-Identifier: MIT
// Refuses a program that would read uninitialised memory. The cause is a forward that fills a tensor by a
// pointer or an accessor, as at::tensor does: the tracer records the empty tensor, but not what is written.
#pragma once

#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace looptorch::detail {

/// Throws ExportError for a tensor of `empty` and its like that an operator reads before one has written to
/// it.
inline void refuse_unwritten_memory(const ExportedProgram& program) {
  std::map<ValueId, ValueId> memory_of;  // tensors that share memory which no operator has written to
  std::set<ValueId> unwritten;
  const auto is_unwritten = [&](ValueId value) {
    const auto memory = memory_of.find(value);
    return memory != memory_of.end() && unwritten.contains(memory->second);
  };
  for (const ProgramNode& node : program.nodes) {
    const std::string name = node.op.schema().name();
    const auto& declared = node.op.schema().arguments();
    const bool reads_shape_only = name.ends_with("_like") || name.starts_with("aten::new_");
    for (std::size_t a = 0; a < declared.size(); ++a) {
      const auto* alias = declared[a].alias_info();
      for_each_value(node.arguments[a], [&](ValueId value) {
        if (!is_unwritten(value)) return;
        if (alias && alias->isWrite()) {
          unwritten.erase(memory_of[value]);
        } else if (alias) {
          for (const auto& result : node.results)
            for (const ValueId view : result.values) memory_of[view] = memory_of[value];
        } else if (!reads_shape_only) {
          throw ExportError(
              node.name(), declared[a].name(),
              "is memory that the forward filled by a pointer or an accessor, as at::tensor does, "
              "which a file would not repeat. Make it by torch::tensor or by operators");
        }
      });
    }
    if (name.starts_with("aten::empty") || name.starts_with("aten::new_empty"))
      for (const ValueId value : node.results.at(0).values) {
        memory_of[value] = value;
        unwritten.insert(value);
      }
  }
  for (const ValueId output : program.outputs)
    if (is_unwritten(output))
      throw ExportError(
          "an output is memory that the forward filled by a pointer or an accessor. Make it by "
          "operators");
}

}  // namespace looptorch::detail
