// SPDX-License-Identifier: MIT
// Advises the user of a program that ran out of memory: names flags of the program that would help, chosen by
// its settings and by LibTorch's error.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/device/cuda_device.hpp>
#include <looptorch/app/device/cuda_query.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch::app {

namespace detail {

/// Returns "a", "a or b", "a, b or c".
[[nodiscard]] inline std::string alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
  return text;
}

/// Returns the flag that limits a micro-batch and can be lowered; empty for none. Prefers --batch-size, which
/// a resumed run can divide; `least` is its smallest value. A --batch-size of 0 without --batch-frames means
/// the program's own limit, which a given value lowers.
[[nodiscard]] inline std::string batch_to_lower(const CommandLine& line,
                                                const std::map<std::string, std::string>& values,
                                                std::int64_t least) {
  const auto number = [&](const std::string& name) {
    std::int64_t value = 0;  // also for a word, such as "auto"
    if (const auto found = values.find(name); found != values.end())
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    return value;
  };
  const bool by_frames = number("batch-frames") != 0;
  const std::int64_t samples = number("batch-size");
  if (samples != 0) return samples > least ? "batch-size" : "";
  if (line.has("batch-size") && !by_frames) return "batch-size";
  return by_frames ? "batch-frames" : "";
}

/// Returns the GPU that "GPU 1 has a total capacity of ..." names in LibTorch's error; empty for another
/// error.
[[nodiscard]] inline std::optional<std::size_t> gpu_of(const std::string& error) {
  std::smatch found;
  if (!std::regex_search(error, found, std::regex("CUDA out of memory.*GPU ([0-9]+) has")))
    return std::nullopt;
  return static_cast<std::size_t>(std::stoul(found[1]));
}

/// Returns the bytes before `words` in an error, as "512.00 MiB is allocated by PyTorch" has them; 0 if there
/// are none.
[[nodiscard]] inline double bytes_before(const std::string& error, const std::string& words) {
  std::smatch found;
  if (!std::regex_search(error, found, std::regex("([0-9.]+) (bytes|KiB|MiB|GiB) " + words))) return 0;
  const std::string number = found[1];
  double bytes = 0;
  std::from_chars(number.data(), number.data() + number.size(), bytes);
  for (const char* const unit : {"bytes", "KiB", "MiB", "GiB"}) {
    if (found[2] == unit) break;
    bytes *= 1024;
  }
  return bytes;
}

/// True if LibTorch's allocator holds at least a tenth of its memory in blocks that no tensor fits into.
[[nodiscard]] inline bool is_fragmented(const std::string& error) {
  constexpr double kShare = 0.1;
  const double unused = bytes_before(error, "is reserved by PyTorch but unallocated");
  return unused > 0 && unused >= kShare * (unused + bytes_before(error, "is allocated by PyTorch"));
}

/// Returns the flag of a 16-bit type that the program has and the GPU computes; empty for none.
[[nodiscard]] inline std::string flag_of_16_bits(const CommandLine& line, const std::string& error,
                                                 const CudaQuery& query) {
  const auto gpu = gpu_of(error);
  const auto machine = gpu ? query().machine : std::nullopt;
  const bool has_bf16 = !machine || why_no_bf16(*machine, *gpu).empty();
  const std::string flag = has_bf16 ? "bf16" : "fp16";
  return line.has(flag) ? "--" + flag : "";
}

}  // namespace detail

/// Returns sentences on the flags of `line`: those not given yet that save memory, those that measure it, and
/// the one that resumes a run. They end with a link to the page on them. `least_batch` is the smallest
/// --batch-size that the program takes. `error` is LibTorch's sentence: for an NVIDIA GPU before Ampere
/// --fp16 is named, and for fragmented memory the variable that prevents it.
[[nodiscard]] inline std::string out_of_memory_help(const CommandLine& line, std::int64_t least_batch = 1,
                                                    const std::string& error = {},
                                                    const CudaQuery& query = query_cuda) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : line.settings()) values[name] = value;
  const auto is_one_of = [&](const std::string& name, std::initializer_list<std::string_view> settings) {
    for (const std::string_view setting : settings)
      if (values[name] == setting) return true;
    return false;
  };
  std::vector<std::string> ways;
  const bool are_single = error.find("with single samples") != error.npos;  // as RetryOnOom says
  const std::string batch = are_single ? "" : detail::batch_to_lower(line, values, least_batch);
  if (!batch.empty())
    ways.push_back("a smaller --" + batch +
                   (line.has("gradient-accumulation") ? " with a larger --gradient-accumulation" : ""));
  const bool on_device = error.find("out of memory") != error.npos;  // a CPU's allocator has other words
  if (line.has("retry-on-oom") && on_device && !batch.empty() && is_one_of("retry-on-oom", {"no"}))
    ways.push_back("--retry-on-oom");
  if (line.has("gradient-checkpointing") && is_one_of("gradient-checkpointing", {"no", "none"}))
    ways.push_back("--gradient-checkpointing");
  if (const auto flag = detail::flag_of_16_bits(line, error, query);
      !flag.empty() && is_one_of("precision", {"fp32"}))
    ways.push_back(line.is_given("fp32") ? flag + " instead of --fp32" : flag);
  if (line.has("fit") && is_one_of("fit", {""})) ways.push_back("--fit SIZE, which chooses flags that fit");
  std::string text = "Memory ran out";
  if (!ways.empty()) text += ": give " + detail::alternatives(ways);
  if (detail::is_fragmented(error))
    text +=
        "; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment lets what is reserved and unused be used";
  if (line.has("preflight") && !is_one_of("preflight", {"yes"}))
    text += "; --preflight tries before a run what fits";
  if (line.has("resume")) text += "; --resume auto resumes from the last snapshot";
  if (line.has("resume") && batch == "batch-frames") text += " if --batch-frames stays as it is";
  return text + ". See docs/errors.md#out-of-memory";
}

}  // namespace looptorch::app
