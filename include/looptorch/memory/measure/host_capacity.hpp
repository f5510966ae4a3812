// SPDX-License-Identifier: MIT
// Reads how much memory the host has, or how much the process's control groups allow: the limit of a
// container, a Slurm job or a systemd unit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch {

/// The memory of a device, in bytes.
struct MemoryCapacity {
  std::int64_t total = 0;
  std::int64_t available = 0;  ///< Not taken by any process.
};

namespace detail {

/// Returns the number that follows `name` in /proc/meminfo, in bytes.
[[nodiscard]] inline std::optional<std::int64_t> memory_of_system(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (std::int64_t kib = 0; word == name + ":" && file >> kib) return kib * 1024;
  return std::nullopt;
}

/// Returns the bytes of a control group's page cache that count as used, and are freed when memory runs
/// short. `stat` is the group's memory.stat; `name` is the row with these bytes.
[[nodiscard]] inline std::int64_t reclaimable_of_group(std::istream& stat, std::string_view name) {
  std::string word;
  for (std::int64_t bytes = 0; stat >> word >> bytes;)
    if (word == name) return bytes;
  return 0;
}

/// Returns the bytes that a file states; nothing for "max", or if there is no file.
[[nodiscard]] inline std::optional<std::int64_t> bytes_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (std::int64_t bytes = 0; file >> bytes) return bytes;
  return std::nullopt;
}

/// Returns the folders of the process's control groups in which a limit of memory may lie: its own and those
/// above it. `membership` is the text of /proc/self/cgroup, with lines such as "0::/job" (version 2) and
/// "4:memory:/job" (version 1).
[[nodiscard]] inline std::vector<std::filesystem::path> memory_groups(const std::filesystem::path& mounted,
                                                                      std::istream& membership) {
  std::vector<std::filesystem::path> folders{mounted, mounted / "memory"};
  for (std::string line; std::getline(membership, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first, second - first) + ',';
    const bool is_version1 = controllers.find("memory,") != controllers.npos;
    if (!is_version1 && controllers != ":,") continue;
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (; !group.empty(); group = group.parent_path())
      folders.push_back((is_version1 ? mounted / "memory" : mounted) / group);
  }
  return folders;
}

/// Lowers `capacity` to what one control group allows.
inline void limit_by_group(MemoryCapacity& capacity, const std::filesystem::path& group) {
  const auto used2 = bytes_in(group / "memory.current");
  const auto limit = bytes_in(group / (used2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto used = used2 ? used2 : bytes_in(group / "memory.usage_in_bytes");
  if (!limit || !used) return;
  std::ifstream stat(group / "memory.stat");
  const std::int64_t reclaimable =
      reclaimable_of_group(stat, used2 ? "inactive_file" : "total_inactive_file");
  const std::int64_t free = std::clamp<std::int64_t>(*limit - *used + reclaimable, 0, *limit);
  capacity = {std::min(capacity.total, *limit), std::min(capacity.available, free)};
}

/// Returns what this machine has, or what the control groups of the process allow.
[[nodiscard]] inline std::optional<MemoryCapacity> host_capacity(
    const std::filesystem::path& groups = "/sys/fs/cgroup",
    const std::filesystem::path& membership = "/proc/self/cgroup") {
  const auto total = memory_of_system("MemTotal"), available = memory_of_system("MemAvailable");
  if (!total || !available) return std::nullopt;
  MemoryCapacity capacity{*total, *available};
  std::ifstream lines(membership);
  for (const auto& group : memory_groups(groups, lines)) limit_by_group(capacity, group);
  return capacity;
}

}  // namespace detail
}  // namespace looptorch
