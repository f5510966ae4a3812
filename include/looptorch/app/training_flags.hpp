// SPDX-License-Identifier: MIT
// Adds the flags of TrainingOptions to a program's command line. All programs spell them alike; the spellings
// of PyTorch's and Hugging Face's scripts are accepted too.
//
//   app::TrainingOptions training{.epochs = 5, .learning_rate = 2e-3};
//   app::add_training_flags(line, training, {.without = {app::TrainingFlag::cache}});
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/training_options.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::app {

/// The flags of TrainingOptions: `batch_size` is `--batch-size`.
enum class TrainingFlag {
  epochs,
  max_steps,
  quick,
  batch_size,
  gradient_accumulation,
  learning_rate,
  warmup_steps,
  precision,  ///< --fp32, --bf16, --fp16, --mixed-precision
  tf32,
  cudnn_benchmark,
  capture,
  gradient_checkpointing,
  flush_every,
  retry_on_oom,
  memory,
  memory_snapshot,
  preflight,
  memory_cap,
  device,
  workers,
  prefetch,
  seed,
  cache,
  snapshot_every,
  resume,  ///< --resume and --resume-changed
  on_bad_audio,
  report,   ///< --report and --histograms
  autopsy,  ///< --autopsy and --replay
  profile,
  config,  ///< --config
};

/// Which flags a program has, and what its --help says of them where the standard text would not do.
struct TrainingFlags {
  std::vector<TrainingFlag> only = {};  ///< empty: all
  std::vector<TrainingFlag> without = {};
  std::vector<std::pair<TrainingFlag, std::string>> help = {};
  bool fixed_shapes = false;  ///< all batches have one shape, so that cuDNN may search for algorithms
  /// Called when the flags have been read; empty: the program's own flags exclude nothing.
  std::function<NotByDefault()> not_by_default = {};
};

/// Returns the flags that are on by default on a device (device_defaults), that the command line has, and
/// that were not given.
[[nodiscard]] inline std::vector<DeviceDefault> open_defaults(const CommandLine& line,
                                                              const TrainingOptions& options,
                                                              const DeviceFacts& device, bool fixed_shapes,
                                                              NotByDefault excluded = {}) {
  const auto is_open = [&line](const std::string& name) { return line.has(name) && !line.is_given(name); };
  const bool is_plain = options.precision == Precision::fp32 && is_open("fp32");
  return device_defaults(
      device,
      {.precision = is_plain && !excluded.precision,
       .tf32 = is_open("tf32") && !options.tf32,
       .cudnn_benchmark = is_open("cudnn-benchmark") && !options.cudnn_benchmark && !options.capture,
       .workers = is_open("workers"),
       .retry_on_oom = is_open("retry-on-oom") && !line.is_given("no-retry-on-oom") && !excluded.retry_on_oom,
       .fp16 = !excluded.fp16,
       .fixed_shapes = fixed_shapes,
       .usual_workers = options.workers});
}

namespace detail {

/// Adds single flags of TrainingOptions to a command line.
class TrainingFlagWriter {
 public:
  TrainingFlagWriter(CommandLine& line, TrainingOptions& options, const TrainingFlags& flags)
      : line_(line), options_(options), flags_(flags) {}

  void add_all() {
    add_length();
    add_batches();
    add_rate();
    add_precision();
    add_memory();
    add_machine();
    add_resuming();
    add_autopsy();
    add_report();
    add_profile();
    add_config();
    add_defaults();
  }

 private:
  using enum TrainingFlag;

  [[nodiscard]] bool has(TrainingFlag flag) const {
    const auto lists = [flag](const auto& flags) {
      return std::find(flags.begin(), flags.end(), flag) != flags.end();
    };
    return (flags_.only.empty() || lists(flags_.only)) && !lists(flags_.without);
  }
  [[nodiscard]] std::string help(TrainingFlag flag, std::string standard) const {
    for (const auto& [changed, text] : flags_.help) {
      if (changed == flag) return text;
    }
    return standard;
  }

  void add_length() {
    if (has(epochs))
      line_.option("epochs", "N", options_.epochs, help(epochs, "passes over the training data"), {.min = 1});
    if (has(max_steps))
      line_.option("max-steps", "N", options_.max_steps,
                   help(max_steps, "ends earlier, after so many steps; 0: does not"), {.min = 0});
    if (has(quick))
      line_.toggle(
          "quick", options_.quick,
          help(quick, "a rehearsal: a few batches of each part, in one epoch; its figures mean nothing"));
  }

  void add_batches() {
    if (has(batch_size))
      line_.option("batch-size", "N", options_.batch_size, help(batch_size, "samples in one forward pass"),
                   {.min = 1, .max = 65536});
    if (has(gradient_accumulation))
      line_.option("gradient-accumulation", "N", options_.gradient_accumulation,
                   help(gradient_accumulation, "batches in one step"), {.min = 1, .max = 65536});
  }

  void add_rate() {
    if (has(learning_rate))
      line_.option("learning-rate", "X", options_.learning_rate,
                   help(learning_rate, "of the optimizer, after the warm-up"), {.above = 0});
    if (has(warmup_steps))
      line_.option("warmup-steps", "N", options_.warmup_steps,
                   help(warmup_steps, "steps from rate 0 to the full rate"), {.min = 0});
  }

  void add_precision() {
    if (has(precision)) {
      const auto add = [this](const char* name, Precision value, const char* text) {
        line_.flag(name, options_.precision, value, help(precision, text)).one_of("precision");
      };
      add("fp32", Precision::fp32,
          "single precision; on a CUDA card the default is bf16, or fp16 before Ampere");
      add("bf16", Precision::bf16, "mixed precision in bfloat16: GPUs from Ampere on, CPUs with AMX");
      add("fp16", Precision::fp16, "mixed precision in fp16 with loss scaling; not on a CPU");
      add("mixed-precision", Precision::mixed, "fp16 on a GPU, bf16 on a CPU");
      line_.on_parsed(
          [&options = options_](const CommandLine& line) { options.fp32_given = line.is_given("fp32"); });
    }
    if (has(tf32))
      line_.toggle(
          "tf32", options_.tf32,
          help(tf32, "fp32 products and convolutions with 10 bits of mantissa, on CUDA from Ampere on"));
    if (has(cudnn_benchmark))
      line_.toggle(
          "cudnn-benchmark", options_.cudnn_benchmark,
          help(cudnn_benchmark, "cuDNN times its algorithms for each new shape and takes the fastest"));
    if (has(capture))
      line_.toggle(
          "capture", options_.capture,
          help(capture, "on a GPU, a batch's forward and backward is one CUDA graph for each shape"));
  }

  void add_memory() {
    if (has(gradient_checkpointing))
      line_.toggle("gradient-checkpointing", options_.gradient_checkpointing,
                   help(gradient_checkpointing,
                        "layers run a second time in backward: less memory, same result, more time"));
    if (has(flush_every))
      line_.option("flush-every", "N", options_.flush_every,
                   help(flush_every, "empties the allocator's cache after so many micro-batches; 0: never"),
                   {.min = 0});
    if (has(retry_on_oom))
      line_.toggle("retry-on-oom", options_.retry_on_oom,
                   help(retry_on_oom, "does a step again in smaller batches when memory runs out"));
    if (has(memory))
      line_.toggle(
          "memory", options_.memory,
          help(memory, "watches memory: the peak in the line of progress, its parts in summary.json"));
    if (has(memory_snapshot))
      line_.option(
          "memory-snapshot", "FILE", options_.memory_snapshot,
          help(memory_snapshot,
               "on CUDA, the allocator's record for PyTorch's memory viewer, of when memory ran out"));
    if (has(preflight))
      line_.toggle("preflight", options_.preflight,
                   help(preflight, "dry steps first; a run that would not fit ends, and says what would"));
    if (has(memory_cap))
      line_.option("memory-cap", "GB", options_.memory_cap,
                   help(memory_cap, "what --preflight allows; 0: what the device has free"), {.min = 0});
  }

  void add_machine() {
    if (has(device))
      line_.option("device", "NAME", options_.device,
                   help(device, "cpu, cuda, cuda:1, or auto: an accelerator if there is one"));
    if (has(workers))
      line_.option("workers", "N", options_.workers, help(workers, "threads that read samples"),
                   {.min = 0, .max = 1024});
    if (has(prefetch))
      line_.option(
          "prefetch", "N", options_.prefetch,
          help(prefetch, message("batches that the threads make ahead [", LoaderOptions{}.prefetch, "]")),
          {.min = 0, .max = 1024});
    if (has(seed)) line_.option("seed", "N", options_.seed, help(seed, "of all that is drawn"), {.min = 0});
    if (has(cache))
      line_.option("cache", "DIR", options_.cache,
                   help(cache, "keeps decoded samples there for later epochs and runs"));
  }

  void add_resuming() {
    if (has(snapshot_every))
      line_.option(
          "snapshot-every", "STEPS", options_.snapshot_every,
          help(snapshot_every,
               "writes the whole run to OUTPUT/snapshots so often, and when it is stopped; 0: never"),
          {.min = 0});
    if (has(resume)) {
      line_.option(
          "resume", "auto|DIR", options_.resume,
          help(
              resume,
              "goes on from a snapshot or the newest in a folder; auto: in OUTPUT/snapshots, if there is one"));
      line_.toggle(
          "resume-changed", options_.resume_changed,
          "--resume goes on with another precision, learning rate, schedule or number of samples a step, "
          "and lists each");
    }
    if (has(on_bad_audio))
      line_.choice(
          "on-bad-audio", options_.on_bad_audio, {"skip", "stop"},
          help(on_bad_audio, "samples that cannot be used: listed and left out, or the first one stops"));
  }

  void add_autopsy() {
    if (!has(autopsy)) return;
    line_.toggle(
        "autopsy", options_.autopsy,
        help(autopsy,
             "a loss or gradient that is NaN or infinite is traced to its operator, layer and sample; "
             "the window is kept in OUTPUT/bad-windows"));
    line_.option(
        "replay", "DIR", options_.replay,
        help(autopsy, "trains nothing: does a window again that --autopsy kept, or the newest in a folder"));
  }

  void add_report() {
    if (!has(report)) return;
    line_.toggle("report", options_.report,
                 help(report,
                      "writes report.html with curves, metrics.jsonl, metrics.csv and TensorBoard's "
                      "events to OUTPUT while it trains"));
    line_.toggle("histograms", options_.histograms,
                 "the report also has the distribution of each parameter's values, at each epoch's end");
    line_.on_parsed([&options = options_](const CommandLine& line) {
      options.program = line.program();
      options.settings = line.settings();
    });
  }

  void add_config() {
    if (!has(config)) return;
    line_.config_files();
    line_.on_parsed([&options = options_](const CommandLine& line) { options.config = line.config_text(); });
  }

  /// Programs that train have --epochs; those that measure keep fp32.
  void add_defaults() {
    if (!has(epochs) || !has(device)) return;
    line_.complete_by([&options = options_, is_fixed = flags_.fixed_shapes,
                       exclude = flags_.not_by_default](const CommandLine& line) {
      const DeviceFacts facts = options.device_facts();
      const auto flags = open_defaults(line, options, facts, is_fixed, exclude ? exclude() : NotByDefault());
      options.on_by_default = describe_defaults(facts, flags);
      CommandLine::FlagValues given;
      for (const auto& flag : flags) given.emplace_back(flag.flag, flag.value);
      return given;
    });
  }

  void add_profile() {
    if (!has(profile)) return;
    line_.option("profile", "FIRST-LAST", options_.profile,
                 help(profile,
                      "writes a trace of these steps to OUTPUT/trace.json, for https://ui.perfetto.dev and "
                      "chrome://tracing"));
    line_.on_parsed([&options = options_](const CommandLine&) { (void)options.profiled_steps(); });
  }

  CommandLine& line_;
  TrainingOptions& options_;
  const TrainingFlags& flags_;
};

}  // namespace detail

/// Adds the flags of `options`. Its values are the defaults; it must outlive the parse.
inline void add_training_flags(CommandLine& line, TrainingOptions& options, const TrainingFlags& flags = {}) {
  detail::TrainingFlagWriter(line, options, flags).add_all();
}

}  // namespace looptorch::app
