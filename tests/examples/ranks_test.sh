#!/usr/bin/env bash
# ranks_test.sh [--exact] [--torchrun] PROGRAM ARGUMENT...: tests a training program on two processes, without a
# change of its loop.
#
# {} among the arguments is the output folder. Two steps on two ranks leave what two steps of one process with twice the
# batches a step leave: the same files, and with --exact the same losses and measures in metrics.jsonl and summary.json, to 1e-4. Rank 0
# alone prints and writes. A rank whose data cannot be read ends both, with a sentence that names it. --torchrun starts
# the ranks by torchrun, if there is one; else this script does.
set -euo pipefail

exact='' torchrun=''
while [[ $1 == --* ]]; do
  case $1 in
    --exact) exact=1 ;;
    --torchrun) torchrun=${LOOPTORCH_TORCHRUN:-$(command -v torchrun)} || true ;;
  esac
  shift
done
program=$(realpath "$1")
shift
programs=${program%/*}
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
export OMP_NUM_THREADS=1 MASTER_ADDR=127.0.0.1

free_port() {
  local port
  while port=$((20000 + RANDOM % 20000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}

# on_ranks NAME DEVICE ARGUMENT...: rank 1 computes on DEVICE, rank 0 on the CPU. The ranks' output and exit codes go to
# NAME.RANK.out and NAME.RANK.code
on_ranks() {
  local name=$1 devices=(cpu "$2") rank
  shift 2
  MASTER_PORT=$(free_port)
  export MASTER_PORT
  for rank in 0 1; do
    {
      code=0
      RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 "$program" "$@" --device "${devices[rank]}" >"$name.$rank.out" 2>&1 ||
        code=$?
      echo $code >"$name.$rank.code"
    } &
  done
  wait
}

steps=(--max-steps 2)
runs "${program##*/}" "${@/"{}"/one}" "${steps[@]}" --device cpu --gradient-accumulation 2
if [ -n "$torchrun" ]; then
  "$torchrun" --standalone --nproc-per-node 2 --no-python "$program" "${@/"{}"/two}" "${steps[@]}" --device cpu \
    --gradient-accumulation 1 >two.out 2>&1 || fail "torchrun: $(cat two.out)"
else
  on_ranks two cpu "${@/"{}"/two}" "${steps[@]}" --gradient-accumulation 1
  for rank in 0 1; do [ "$(cat two.$rank.code)" = 0 ] || fail "rank $rank: $(cat two.$rank.out)"; done
  [ ! -s two.1.out ] || fail "rank 1 prints: $(cat two.1.out)"
fi

files() { (cd "$1" && find . -type f | sed -E 's/tfevents\.[^ ]*/tfevents/; s/step-[0-9]+/step/' | sort); }
diff <(files one) <(files two) || fail "two ranks leave other files"
figures() { # NAME VALUE a line, of losses and measures
  local names='([a-z]*[./])?loss|([a-z]*[./])?gradient_norm|validation\.[a-z_.]*'
  sed -E 's/[{}"]//g' "$1/metrics.jsonl" | tr , '\n' | grep -E "^($names):" | tr : ' '
  sed -nE 's/^ *"([a-z_]*(loss|accuracy|wer|ccc)[a-z_]*)": ([-+.e0-9]+),?$/\1 \3/p' "$1/summary.json"
}
[ "$(figures one | wc -l)" -ge 2 ] || fail "metrics.jsonl holds $(figures one)"
if [ -n "$exact" ]; then
  # NAME VALUE of one process, NAME VALUE of two ranks: at most 1e-4 of the value apart.
  paste -d ' ' <(figures one) \
    <(figures two) |
    awk 'NF != 4 || $1 != $3 || ($2 - $4)^2 > 1e-8 * ($2^2 + 1e-4) { print; differ = 1 } END { exit differ }' ||
    fail "two ranks and one process measure different things: $(figures one) $(figures two)"
else
  diff <(figures one | cut -d' ' -f1) <(figures two | cut -d' ' -f1) || fail "two ranks measure other things"
fi

# A rank without the device that it is to compute on.
begin=$SECONDS
on_ranks three nowhere "${@/"{}"/three}" "${steps[@]}"
[ "$(cat three.0.code) $(cat three.1.code)" = "2 2" ] || fail "exit codes $(cat three.0.code) and $(cat three.1.code)"
holds three.0.out "${program##*/}: rank 1 ended outside a fit: --device: \"nowhere\" is not cpu"
holds three.1.out "${program##*/} (rank 1): --device: \"nowhere\" is not cpu"
[ $((SECONDS - begin)) -lt 60 ] || fail "the ranks ended after $((SECONDS - begin)) s"
