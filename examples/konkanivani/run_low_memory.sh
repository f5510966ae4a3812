#!/usr/bin/env bash
# run_low_memory.sh [--small] [--memory-cap GB] [--programs DIR] DATA OUTPUT [-- FLAG...]:
# trains KonkaniVani on a card with little memory.
#
# DATA is a corpus as konkanivani_train takes it. The recipe is that of the project that this example follows:
# width 192, 8 encoder and 4 decoder layers, mixed precision, 8 clips a step, the allocator's cache emptied
# every 50 micro-batches. Tries three settings in order, and checks each by dry steps before it trains: 2
# clips a micro-batch, 1 clip, and 1 clip with activation checkpointing. All have the same clips in each step,
# so if memory runs out, the run continues with the next setting from its newest snapshot. OUTPUT then holds
#
#   model.safetensors, config.json, vocabulary.json   the model of the epoch with the lowest character error rate
#   summary.json   its error rates, and the peak of memory with its parts
#   snapshots/     the run: the same command continues it
#
# --small: width 128, 6 and 3 layers; needs an OUTPUT of its own. --memory-cap: limits the memory, on any
# device. FLAG...: further flags of konkanivani_train. --programs: the folder of the example's programs;
# without it they are set up and built first, in ${LOOPTORCH_BUILD:-build}.
set -euo pipefail

folder=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
usage="usage: run_low_memory.sh [--small] [--memory-cap GB] [--programs DIR] DATA OUTPUT [-- FLAG...]"
size=(--d-model 192 --encoder-layers 8 --decoder-layers 4) hint="--small trains a smaller model, into another folder"
allowed=() programs='' words=()
refuse() {
  printf 'error: %s; %s\n' "$1" "$usage" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;;
    --small)
      size=(--d-model 128 --encoder-layers 6 --decoder-layers 3)
      hint="--max-seconds after -- leaves out long clips"
      ;;
    --memory-cap)
      [[ ${2-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || refuse "--memory-cap needs a number of GB"
      allowed=(--memory-cap "$2")
      shift
      ;;
    --programs)
      [ -n "${2-}" ] || refuse "--programs needs a folder"
      programs=$2
      shift
      ;;
    --) shift && break ;;
    -*) refuse "there is no option $1" ;;
    *) words+=("$1") ;;
  esac
  shift
done
[ ${#words[@]} = 2 ] || refuse "${#words[@]} folders were given instead of a corpus and an output folder"
data=${words[0]} output=${words[1]}
[ -d "$data" ] || refuse "there is no folder $data"
{ mkdir -p "$output" && [ -w "$output" ]; } 2>/dev/null || refuse "cannot write to $output"

if [ -z "$programs" ]; then
  [ -e "$folder/../../packaging/build.sh" ] || refuse "this folder was copied out: build it, and name its programs"
  # shellcheck source-path=SCRIPTDIR source=../../packaging/build.sh
  source "$folder/../../packaging/build.sh"
  looptorch_build konkanivani_train
  programs=${build:?}/examples/konkanivani
fi
[ -x "$programs/konkanivani_train" ] || refuse "$programs holds no konkanivani_train"

settings=(
  "--batch-size 2 --gradient-accumulation 4"
  "--batch-size 1 --gradient-accumulation 8"
  "--batch-size 1 --gradient-accumulation 8 --gradient-checkpointing"
)
train=("$programs/konkanivani_train" --data "$data" --output "$output" --preset original "${size[@]}" --mixed-precision
  --flush-every 50 --preflight --memory "${allowed[@]}" --snapshot-every 200 --resume auto)
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF-expandable_segments:True} # blocks that grow instead of fragments
said=$(mktemp)
trap 'rm -f "$said"' EXIT

for setting in "${settings[@]}"; do
  echo "==> Training with $setting"
  code=0
  # shellcheck disable=SC2086 # the words of a setting
  { "${train[@]}" $setting "$@" 2>&1 >&3 | tee "$said" >&2; } 3>&1 || code=$?
  [ $code != 0 ] || exit 0
  grep -qE 'the run does not fit into|out of memory|OutOfMemory|Memory ran out' "$said" || exit $code
done
echo "error: none of the settings fits; $hint" >&2
exit 2
