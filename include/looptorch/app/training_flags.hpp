// SPDX-License-Identifier: MIT
// Adds the flags of TrainingOptions to a program's command line. All programs spell them alike; the spellings
// of PyTorch's and Hugging Face's scripts are accepted too.
//
//   app::TrainingOptions training{.epochs = 5, .learning_rate = 2e-3};
//   app::add_training_flags(line, training, {.without = {app::TrainingFlag::cache}});
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/flag_effects.hpp>
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

/// Selects the flags of a program, and replaces standard help texts.
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
    add_length_and_rate();
    add_precision();
    add_memory();
    add_machine();
    add_resuming();
    add_watching();
    if (has(config)) {
      line_.config_files();
      line_.on_parsed(
          [&options = options_](const CommandLine& line) { options.config = line.config_text(); });
    }
    add_device_defaults();
  }

 private:
  using enum TrainingFlag;

  [[nodiscard]] bool has(TrainingFlag flag) const {
    const auto lists = [flag](const auto& flags) {
      return std::find(flags.begin(), flags.end(), flag) != flags.end();
    };
    return (flags_.only.empty() || lists(flags_.only)) && !lists(flags_.without);
  }
  /// Returns the program's help text of a flag, or the standard one.
  [[nodiscard]] std::string help(TrainingFlag flag, std::string standard) const {
    for (const auto& [changed, text] : flags_.help) {
      if (changed == flag) return text;
    }
    return standard;
  }
  /// Adds `--name VALUE` if the program has the flag.
  template <class T>
  void option(const char* name, TrainingFlag flag, const char* value, T& target, const std::string& text,
              NumberRange range = {}) {
    if (has(flag)) line_.option(name, value, target, help(flag, text), range);
  }
  /// Adds `--name` and `--no-name` if the program has the flag.
  template <class T>
  void toggle(const char* name, TrainingFlag flag, T& target, const std::string& text) {
    if (has(flag)) line_.toggle(name, target, help(flag, text));
  }

  void add_length_and_rate() {
    option("epochs", epochs, "N", options_.epochs, "passes over the training data", {.min = 1});
    option("max-steps", max_steps, "N", options_.max_steps, "ends the run after N steps; 0: after --epochs",
           {.min = 0});
    toggle("quick", quick, options_.quick,
           "tries the whole program on a few batches, in one epoch; its results mean nothing");
    option("batch-size", batch_size, "N", options_.batch_size, "samples in one forward pass",
           {.min = 1, .max = 65536});
    option("gradient-accumulation", gradient_accumulation, "N", options_.gradient_accumulation,
           "batches in one step", {.min = 1, .max = 65536});
    option("learning-rate", learning_rate, "X", options_.learning_rate, "learning rate after the warm-up",
           {.above = 0});
    option("warmup-steps", warmup_steps, "N", options_.warmup_steps, "steps from rate 0 to the full rate",
           {.min = 0});
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
    toggle("tf32", tf32, options_.tf32,
           "fp32 matmuls and convolutions with 10 bits of mantissa, on CUDA from Ampere on");
    toggle("cudnn-benchmark", cudnn_benchmark, options_.cudnn_benchmark,
           "lets cuDNN time its algorithms for each new shape and take the fastest");
    toggle("capture", capture, options_.capture,
           "runs a batch's forward and backward as one CUDA graph for each shape");
  }

  void add_memory() {
    toggle("gradient-checkpointing", gradient_checkpointing, options_.gradient_checkpointing,
           "recomputes layers in backward: less memory, same result, more time");
    option("flush-every", flush_every, "N", options_.flush_every,
           "empties the allocator's cache after N micro-batches; 0: never", {.min = 0});
    toggle("retry-on-oom", retry_on_oom, options_.retry_on_oom,
           "retries a step in smaller batches when memory runs out");
    toggle("memory", memory, options_.memory,
           "watches memory: its peak in the progress line, its parts in summary.json");
    option("memory-snapshot", memory_snapshot, "FILE", options_.memory_snapshot,
           "if memory runs out on CUDA, writes the allocator's record for PyTorch's memory viewer");
    toggle("preflight", preflight, options_.preflight,
           "runs dry steps first; stops a run that would not fit, and names flags with which it would");
    option("memory-cap", memory_cap, "GB", options_.memory_cap,
           "memory that --preflight allows; 0: the device's free memory", {.min = 0});
  }

  void add_machine() {
    option("device", device, "NAME", options_.device,
           "cpu, cuda, cuda:1, or auto: an accelerator if there is one");
    option("workers", workers, "N", options_.workers, "threads that read samples", {.min = 0, .max = 1024});
    option("prefetch", prefetch, "N", options_.prefetch,
           message("batches that the threads make ahead [", LoaderOptions{}.prefetch, "]"),
           {.min = 0, .max = 1024});
    option("seed", seed, "N", options_.seed, "seed of all random choices", {.min = 0});
    option("cache", cache, "DIR", options_.cache, "folder for decoded samples, for later epochs and runs");
  }

  void add_resuming() {
    option("snapshot-every", snapshot_every, "STEPS", options_.snapshot_every,
           "steps between snapshots in OUTPUT/snapshots; one more is written at a stop; 0: none", {.min = 0});
    option("resume", resume, "auto|DIR", options_.resume,
           "resumes from a snapshot, or the newest in a folder; auto: in OUTPUT/snapshots, if there is one");
    if (has(resume))
      line_.toggle(
          "resume-changed", options_.resume_changed,
          "lets --resume change precision, learning rate, schedule or samples a step; lists each change");
    if (has(on_bad_audio))
      line_.choice(
          "on-bad-audio", options_.on_bad_audio, {"skip", "stop"},
          help(on_bad_audio, "samples that cannot be used: lists and skips them, or stops at the first"));
    else
      options_.on_bad_audio = "stop";  // such a program does not list what it skips
  }

  void add_watching() {
    toggle(
        "autopsy", autopsy, options_.autopsy,
        "traces a NaN or infinity to its operator, layer and sample; keeps its window in OUTPUT/bad-windows");
    if (has(autopsy))
      line_.option("replay", "DIR", options_.replay,
                   "trains nothing: reruns a window that --autopsy kept, or the newest in a folder");
    toggle(
        "report", report, options_.report,
        "writes report.html, metrics.jsonl, metrics.csv and TensorBoard's events to OUTPUT during the run");
    if (has(report)) {
      line_.toggle("histograms", options_.histograms,
                   "adds each parameter's distribution at each epoch's end to the report");
      require_effect(
          line_, {"histograms"}, [&options = options_] { return options.report; }, "without --report");
      line_.on_parsed([&options = options_](const CommandLine& line) {
        options.program = line.program();
        options.settings = line.settings();
      });
    }
    option("profile", profile, "FIRST-LAST", options_.profile,
           "traces these steps to OUTPUT/trace.json, for https://ui.perfetto.dev and chrome://tracing");
    if (has(profile))
      line_.on_parsed([&options = options_](const CommandLine&) { (void)options.profiled_steps(); });
  }

  /// Adds a device's defaults to programs that train, which have --epochs; those that measure keep fp32.
  void add_device_defaults() {
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
