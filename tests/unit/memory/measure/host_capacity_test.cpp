// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/host_capacity.hpp>

#include "support/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fs = std::filesystem;
namespace lt = looptorch;
using lt::testing::TemporaryFolder;

namespace {

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text << '\n';
}

constexpr std::int64_t kMb = 1 << 20;

}  // namespace

TEST_CASE("host_capacity: a control group's pages of files are free") {
  std::istringstream stat("anon 4096\nfile 900\nactive_file 200\ninactive_file 700\nslab 5\n"), empty;
  CHECK(lt::detail::reclaimable_of_group(stat, "inactive_file") == 700);
  CHECK(lt::detail::reclaimable_of_group(empty, "inactive_file") == 0);
}

TEST_CASE("host_capacity: a container's limit lies in the folder that is mounted") {
  const TemporaryFolder groups;
  write(groups / "self", "0::/");
  const auto machine = lt::detail::host_capacity(groups.path(), groups / "self");
  REQUIRE(machine);
  write(groups / "memory.max", "67108864");
  write(groups / "memory.current", "50331648");
  write(groups / "memory.stat", "anon 1\ninactive_file 8388608");
  const auto capacity = lt::detail::host_capacity(groups.path(), groups / "self");
  CHECK((capacity->total == 64 * kMb && capacity->available == 24 * kMb));
  write(groups / "memory.max", "max");
  CHECK(lt::detail::host_capacity(groups.path(), groups / "self")->total == machine->total);
}

TEST_CASE("host_capacity: a job's limit lies in its own control group, or in one above it") {
  const TemporaryFolder groups;
  write(groups / "self", "0::/slurm/job_7/step_0/task_0");
  write(groups / "slurm/job_7/memory.max", "67108864");
  write(groups / "slurm/job_7/memory.current", "58720256");
  write(groups / "slurm/job_7/step_0/task_0/memory.max", "max");
  write(groups / "slurm/job_7/step_0/task_0/memory.current", "1048576");
  auto capacity = lt::detail::host_capacity(groups.path(), groups / "self");
  CHECK((capacity->total == 64 * kMb && capacity->available == 8 * kMb));
  write(groups / "slurm/job_7/step_0/task_0/memory.max", "33554432");
  capacity = lt::detail::host_capacity(groups.path(), groups / "self");
  CHECK((capacity->total == 32 * kMb && capacity->available == 8 * kMb));

  const TemporaryFolder version1;
  write(version1 / "self", "5:cpu,memory:/slurm/uid_0/job_7\n3:cpuset:/else\n0::/");
  write(version1 / "memory/memory.limit_in_bytes", "9223372036854771712");
  write(version1 / "memory/memory.usage_in_bytes", "4096");
  write(version1 / "memory/slurm/uid_0/job_7/memory.limit_in_bytes", "67108864");
  write(version1 / "memory/slurm/uid_0/job_7/memory.usage_in_bytes", "50331648");
  write(version1 / "memory/slurm/uid_0/job_7/memory.stat", "inactive_file 1\ntotal_inactive_file 8388608");
  capacity = lt::detail::host_capacity(version1.path(), version1 / "self");
  CHECK((capacity->total == 64 * kMb && capacity->available == 24 * kMb));
}
