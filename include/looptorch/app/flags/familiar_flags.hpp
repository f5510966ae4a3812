// SPDX-License-Identifier: MIT
// Lists flags of transformers' TrainingArguments, Accelerate, Lightning and common training scripts, each
// with its equivalent here or with advice on what to do instead. The command line accepts a flag that has an
// equivalent, and prints the advice for any other. Private to command_words.hpp. tests/docs/familiar_flags.sh
// writes both tables of docs/from_python.md from these lists.
#pragma once

#include <array>
#include <string_view>

namespace looptorch::app::detail {

/// A flag of another program and its equivalent, with hyphens. If `theirs` has a value, the row applies to
/// that value only. The first row whose `ours` is a flag of the program counts. A row without a value in
/// `theirs` is skipped if the program has a flag of that name.
struct FamiliarFlag {
  std::string_view theirs, ours;
};

inline constexpr auto kFamiliarFlags = std::to_array<FamiliarFlag>({
    {"accumulate-grad-batches", "gradient-accumulation"},
    {"auto-find-batch-size", "retry-on-oom"},
    {"checkpointing-steps", "snapshot-every"},
    {"cpu", "device cpu"},
    {"data-dir", "data"},
    {"dataloader-num-workers", "workers"},
    {"dataloader-prefetch-factor", "prefetch"},
    {"early-stopping-patience", "early-stopping"},
    {"early-stopping-patience", "patience"},
    {"eval-steps", "validate-every"},
    {"fp16 false", "fp32"},
    {"gradient-accumulation-steps", "gradient-accumulation"},
    {"load-in-8bit", "int8-base"},
    {"lora-r", "lora"},
    {"lora-rank", "lora"},
    {"lr", "learning-rate"},
    {"lr-scheduler-type", "schedule"},
    {"lr-warmup-steps", "warmup-steps"},
    {"max-epochs", "epochs"},
    {"max-train-steps", "max-steps"},
    {"mixed-precision bf16", "bf16"},
    {"mixed-precision fp16", "fp16"},
    {"mixed-precision no", "fp32"},
    {"model-name-or-path", "model"},
    {"model-name-or-path", "pretrained"},
    {"no-cuda", "device cpu"},
    {"num-epochs", "epochs"},
    {"num-train-epochs", "epochs"},
    {"num-warmup-steps", "warmup-steps"},
    {"num-workers", "workers"},
    {"optim adafactor", "optimizer adafactor"},
    {"optim adamw_8bit", "optimizer adamw8bit"},
    {"optim adamw_bnb_8bit", "optimizer adamw8bit"},
    {"optim adamw_torch", "optimizer adamw"},
    {"optim adamw_torch_8bit", "optimizer adamw8bit"},
    {"optim adamw_torch_fused", "optimizer adamw"},
    {"optim", "optimizer"},
    {"output-dir", "output"},
    {"per-device-train-batch-size", "batch-size"},
    {"prefetch-factor", "prefetch"},
    {"report-to all", "report"},
    {"report-to none", "no-report"},
    {"report-to tensorboard", "report"},
    {"resume-from-checkpoint true", "resume auto"},
    {"resume-from-checkpoint latest", "resume auto"},
    {"resume-from-checkpoint", "resume"},
    {"save-steps", "snapshot-every"},
    {"test-file", "test"},
    {"train-batch-size", "batch-size"},
    {"train-file", "train"},
    {"use-chunking", "chunking"},
    {"use-cpu", "device cpu"},
    {"validation-file", "validation"},
    {"wd", "weight-decay"},
});

/// A flag of another program without an equivalent, and what to do instead in programs that have the flag
/// `where`.
struct FlagWithoutEqual {
  std::string_view theirs, where, instead;
};

inline constexpr std::string_view kByTorchrun =
    "start the program by torchrun --nproc-per-node N (docs/distributed.md)";
inline constexpr std::string_view kPinned = "batches are pinned where an accelerator is used; leave it out";
inline constexpr std::string_view kThreads = "workers are threads that live as long as the run; leave it out";
inline constexpr std::string_view kInSource =
    "it is set in the program's source, with its optimizer and policies";
inline constexpr std::string_view kOneStage = "each program is one stage, and this one trains; leave it out";
inline constexpr std::string_view kWritten =
    "curves and metrics are written to --output while it trains; see --report";
inline constexpr std::string_view kNotUploaded = "nothing is uploaded; --output holds what would be";
inline constexpr std::string_view kNotSharded =
    "weights are not sharded; docs/memory.md says what makes a model fit";
inline constexpr std::string_view kOldSnapshots = "old snapshots are removed by themselves";

inline constexpr auto kFlagsWithoutEqual = std::to_array<FlagWithoutEqual>({
    {"adam-beta1", "batch-size", kInSource},
    {"adam-beta2", "batch-size", kInSource},
    {"adam-epsilon", "batch-size", kInSource},
    {"data-dir", "train", "give its tables to --train, --validation and --test"},
    {"dataloader-persistent-workers", "workers", kThreads},
    {"dataloader-pin-memory", "workers", kPinned},
    {"dataset-name", "train", "give tables of clips to --train, --validation and --test"},
    {"deepspeed", "batch-size", kNotSharded},
    {"do-eval", "epochs", kOneStage},
    {"do-train", "epochs", kOneStage},
    {"eval-strategy", "validate-every", "give --validate-every STEPS"},
    {"evaluation-strategy", "validate-every", "give --validate-every STEPS"},
    {"fsdp", "batch-size", kNotSharded},
    {"hub-model-id", "output", kNotUploaded},
    {"load-best-model-at-end", "best", "--best says which weights are kept"},
    {"load-in-4bit", "int8-base", "frozen weights have 8 bits at least: give --int8-base"},
    {"logging-dir", "report", kWritten},
    {"logging-steps", "report", kWritten},
    {"lr-scheduler-type", "warmup-steps", kInSource},
    {"max-grad-norm", "batch-size", kInSource},
    {"metric-for-best-model", "best", "--best says which weights are kept, and by what"},
    {"multi-gpu", "batch-size", kByTorchrun},
    {"nproc-per-node", "batch-size", kByTorchrun},
    {"num-gpus", "batch-size", kByTorchrun},
    {"num-processes", "batch-size", kByTorchrun},
    {"only-train", "epochs", kOneStage},
    {"persistent-workers", "workers", kThreads},
    {"pin-memory", "workers", kPinned},
    {"push-to-hub", "output", kNotUploaded},
    {"report-to", "report", kWritten},
    {"save-strategy", "snapshot-every", "give --snapshot-every STEPS"},
    {"save-total-limit", "snapshot-every", kOldSnapshots},
    {"warmup-ratio", "warmup-steps", "give --warmup-steps N"},
    {"weight-decay", "batch-size", kInSource},
});

}  // namespace looptorch::app::detail
