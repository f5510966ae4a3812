// SPDX-License-Identifier: MIT
// Reads this process's rank and the world size from the environment that torchrun or Slurm sets. Opens no
// connection. Use it to give each rank its shard of the data.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

namespace looptorch {

/// This process among those of its run.
struct RankEnvironment {
  std::int64_t rank = 0;        ///< Index of this process, from 0.
  std::int64_t size = 1;        ///< Number of processes.
  std::int64_t local_rank = 0;  ///< Index among the processes of this machine: its GPU.
  std::int64_t local_size = 1;  ///< Number of processes of this machine; `size` if the launcher does not say.
  std::string address = {};     ///< Host of the store in which the processes meet.
  std::int64_t port = 0;        ///< Port of that address.
  bool store_runs = false;      ///< True if the launcher keeps the store; else rank 0 opens it.
};

namespace detail {

inline std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

/// Returns an environment variable's number; if unset, `otherwise`. Throws UsageError for other values.
inline std::int64_t number_in(const char* name, std::optional<std::int64_t> otherwise = {}) {
  const auto text = variable(name);
  if (!text && otherwise) return *otherwise;
  if (!text) throw UsageError(message("the launcher has not set ", name, ", which several ranks need"));
  try {
    std::size_t used = 0;
    const std::int64_t number = std::stoll(*text, &used);
    if (used == text->size() && number >= 0) return number;
  } catch (const std::exception&) {
  }
  throw UsageError(message(name, " must be a number from 0 on, it is '", *text, "'"));
}

/// Returns the first host of Slurm's list, such as node3 of "node[3-5,9],other".
inline std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const std::size_t end = list.find_first_of(",-]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

/// Returns the first machine's number in Slurm's list, such as 4 of "4(x2),3"; if unset, `otherwise`.
inline std::int64_t first_count(const char* name, std::int64_t otherwise) {
  return std::strtoll(variable(name).value_or(std::to_string(otherwise)).c_str(), nullptr, 10);
}

/// Returns an environment after checking that its numbers are consistent; limits `local_size` to `size`.
inline RankEnvironment checked(RankEnvironment environment) {
  if (environment.size < 1 || environment.rank >= environment.size)
    throw UsageError(message("rank ", environment.rank, " of ", environment.size,
                             " processes: the launcher's environment is not consistent"));
  if (environment.size > 1 && environment.address.empty())
    throw UsageError("the launcher has not set MASTER_ADDR, the host of rank 0, which several ranks need");
  if (environment.size > 1 && (environment.port < 1 || environment.port > 65535))
    throw UsageError(message("MASTER_PORT must be a port from 1 to 65535, it is ", environment.port,
                             ": give torchrun another --master-port, or --standalone, which finds one"));
  environment.local_size = std::clamp<std::int64_t>(environment.local_size, 1, environment.size);
  return environment;
}

}  // namespace detail

/// Returns what torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) or else
/// `srun` (SLURM_PROCID, SLURM_NTASKS, ...) has set; one process if neither is there. Throws UsageError for
/// variables that are not numbers or contradict each other.
[[nodiscard]] inline RankEnvironment rank_environment() {
  using detail::number_in;
  using detail::variable;
  RankEnvironment found;
  if (variable("RANK") && variable("WORLD_SIZE")) {
    found.rank = number_in("RANK");
    found.size = number_in("WORLD_SIZE");
    found.local_rank = number_in("LOCAL_RANK", 0);
    found.local_size = number_in("LOCAL_WORLD_SIZE", found.size);
    found.store_runs = variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  } else if (variable("SLURM_PROCID") &&
             variable("SLURM_STEP_NODELIST")) {  // a step of srun, not a batch script
    found.rank = number_in("SLURM_PROCID");
    found.size = number_in("SLURM_STEP_NUM_TASKS", number_in("SLURM_NTASKS", 1));
    found.local_rank = number_in("SLURM_LOCALID", 0);
    found.local_size = detail::first_count("SLURM_STEP_TASKS_PER_NODE", found.size);
    found.address = detail::first_host(*variable("SLURM_STEP_NODELIST"));
    found.port = 20000 + number_in("SLURM_JOB_ID", 0) % 20000;
  } else {
    return found;
  }
  found.address = variable("MASTER_ADDR").value_or(found.address);
  found.port = number_in("MASTER_PORT", found.port != 0 ? found.port : 29500);
  return detail::checked(found);
}

}  // namespace looptorch
