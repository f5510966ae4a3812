#!/usr/bin/env bash
# Builds and runs one benchmark and its peers, and prints their results side by side:
#
#   tests/bench/run.sh NAME [--json FILE] [-- ARGUMENT...]
#
# FILE becomes a list of {name, value, unit, peer, peer_value, ratio} with ratio = value / peer_value; the arguments are the
# benchmark program's; without NAME the benchmarks are listed. Builds in ${LOOPTORCH_BUILD:-build}/bench. Peers in Python
# run in a private virtual environment in the cache folder, on the LibTorch that the benchmark itself uses, whose Python
# package it must be; LOOPTORCH_BENCH_PYTHON names an interpreter that has all the packages already. packaging/setup.sh
# describes what else is installed, and where.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../packaging/build.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../packaging/build.sh"

# A benchmark is a line here and tests/bench/NAME.cpp, which prints its rows as JSON objects, one a line:
#   {"name": ..., "value": ..., "unit": ..., "peer": ..., "peer_value": ...}
# and, for peers in Python, tests/bench/NAME.py, which prints theirs:
#   {"name": ..., "of": <the row that they compare with>, "peer": ..., "peer_value": ...}
# Rows whose peers are all in Python omit peer and peer_value. If both sides must take turns, peers_of sets takes_turns:
# then NAME.py gets the program as its argument, runs it, and prints all rows. peers_of names the Python packages, at the
# versions in docs/performance/, without LibTorch's own, which is installed already.
readonly benchmarks=(
  "step_overhead  one step of a small MLP under each policy, beside loops by hand, PyTorch, Accelerate, Lightning, HF"
  "audio          decoding, resampling, mel spectrograms and Griffin-Lim, beside openai-whisper, librosa, torchaudio, scipy"
  "tokenizer      encoding English, Devanagari and mixed text with Whisper's vocabulary, beside tiktoken and tokenizers"
  "loader         FLAC files to batches of log-mel features by 0 to 4 workers, and from the cache, beside PyTorch's DataLoader"
  "checkpointing  time and memory of a step of 12 Transformer blocks that are recomputed, beside PyTorch's recomputation"
  "checkpointing_whisper  the same of Whisper tiny.en, by layers and modes, beside the step that keeps everything"
  "whisper_step   time and memory of a step of fine-tuning Whisper tiny.en: plain, recomputed, bf16; beside transformers"
  "whisper_memory  the peak of fine-tuning Whisper tiny to large-v3, by what saves memory, beside transformers: -- --real \"tiny: \""
  "whisper_reading  word error rates of a reading of ten minutes, in sequence and by voice activity, beside its sentences alone: -- MODEL"
  "transcribe     real-time factor of Whisper tiny.en, greedily and by a beam, beside transformers and CTranslate2 (faster-whisper)"
  "konkanivani_memory  peak memory of a training step of KonkaniVani's three sizes: recomputed, bf16, accumulated"
  "gan_memory     bytes that a device holds of 1,802 spectrograms batch by batch, beside all of them at once"
  "gan_vit_memory  peak memory and time of a training step of the spectrogram GAN and of ViT-B/16, by batch size"
  "memory_prediction  the peak that preflight predicts beside the measured one, for 60 configurations of five models; on the simulated accelerator: -- sim"
  "memory_advice  micro-batch, accumulation and policies for cards of 4 to 80 GB, for all models of the examples up to large-v3"
  "host_time  the host's time of a step: Whisper, ViT, KonkaniVani and the GAN at their real depth, of width 32, beside the same nets in PyTorch"
  "include_cost   what the compiler takes for a file with <torch/torch.h>, with looptorch behind it, and with narrow headers"
  "autopsy        a step of three nets with Autopsy listed, beside the same without it: -- ROUNDS"
  "optimizers     a step and the bytes of AdamW8bit, AdamWBf16 and Adafactor, beside FusedAdamW: -- PARAMETERS; on an accelerator: -- DEVICE"
  "optimizer_quality  the final loss of a small language model by each optimizer, beside FusedAdamW's, three seeds: -- STEPS SEEDS"
  "optimizer_tasks  the final loss of the quickstart and of KonkaniVani's short run by each optimizer: -- QUICKSTART KONKANIVANI"
  "data_parallel  a step on two processes over Gloo, and the bytes that they sum, beside DistributedDataParallel"
  "snapshot       how long training stands still for a snapshot of 500 MB, and when it is on the disk, beside torch.save"
)

readonly bench=$root/tests/bench
readonly folder=$build/bench

# What torch needs beside itself, and transformers with what it needs; networkx and numpy in versions for this Python.
readonly of_torch=(
  fsspec==2026.9.0 filelock==4.2.11 typing-extensions==4.16.0 jinja2==3.1.6 markupsafe==3.0.4 sympy==1.14.0 mpmath==1.3.0
  setuptools==81.0.0 networkx numpy
)
readonly transformers=(
  transformers==5.23.0 huggingface-hub==2.4.0 tokenizers==0.23.3 safetensors==0.8.0 hf-xet==1.8.0 httpx2==2.16.2
  httpcore2==2.16.2 h11==0.16.0 anyio==4.16.0 idna==3.20 certifi==2026.10.18 truststore==0.10.5 click==8.5.1 typer==0.29.2
  shellingham==1.5.4 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7
  regex==2026.11.15 tqdm==4.70.1 pyyaml==6.0.3 packaging==26.3 "${of_torch[@]}"
)

# Sets packages and imports: the peers of NAME and their requirements.
peers_of() { # peers_of NAME
  case $1 in
    step_overhead)
      packages=(
        accelerate==1.15.0 lightning==2.6.6 pytorch-lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0
        psutil==7.2.2 "${transformers[@]}")
      imports='accelerate, lightning, transformers'
      ;;
    audio)
      packages=(
        openai-whisper==20250625 librosa==0.11.0 torchaudio==2.11.0 scipy==1.17.1 soundfile==0.14.0
        numba==0.68.1 llvmlite==0.50.0 tiktoken==0.14.0 regex==2026.11.15 more-itertools==11.2.1 tqdm==4.70.1
        scikit-learn==1.9.1 joblib==1.6.0 threadpoolctl==3.8.0 cloudpickle==3.1.2 narwhals==2.29.0 audioread==3.1.0
        decorator==5.3.1 lazy-loader==0.6 msgpack==1.2.4 pooch==1.9.0 platformdirs==4.14.7 soxr==1.1.0 cffi==2.1.1
        pycparser==3.12 packaging==26.3 requests==2.34.2 urllib3==2.8.0 certifi==2026.10.18 charset-normalizer==3.5.2
        idna==3.20 "${of_torch[@]}")
      imports='librosa, scipy.signal, soundfile, torchaudio, whisper'
      ;;
    tokenizer)
      packages=(tiktoken==0.14.0 tokenizers==0.23.3 regex==2026.11.15 "${of_torch[@]}")
      imports='tiktoken, tokenizers'
      ;;
    loader)
      packages=(
        openai-whisper==20250625 soundfile==0.14.0
        numba==0.68.1 llvmlite==0.50.0 tiktoken==0.14.0 more-itertools==11.2.1 cffi==2.1.1 pycparser==3.12
        requests==2.34.2 urllib3==2.8.0 charset-normalizer==3.5.2 "${transformers[@]}")
      imports='soundfile, transformers, whisper'
      takes_turns=1
      ;;
    transcribe)
      packages=(ctranslate2==4.8.5 "${transformers[@]}")
      imports='ctranslate2, transformers'
      takes_turns=1
      ;;
    whisper_step)
      packages=("${transformers[@]}")
      imports=transformers
      takes_turns=1
      ;;
    whisper_memory)
      packages=("${transformers[@]}")
      imports=transformers
      ;;
    host_time)
      packages=("${of_torch[@]}")
      imports=torch.utils.checkpoint
      takes_turns=1
      ;;
    data_parallel)
      packages=("${of_torch[@]}")
      imports=torch.distributed
      takes_turns=1
      ;;
    checkpointing)
      packages=("${of_torch[@]}")
      imports=torch.utils.checkpoint
      takes_turns=1
      ;;
    snapshot)
      packages=("${of_torch[@]}")
      imports=torch
      takes_turns=1
      ;;
    *) fail "peers_of does not name the Python packages of the peers of $1" ;;
  esac
}

list_benchmarks() {
  printf 'usage: tests/bench/run.sh NAME [--json FILE] [-- ARGUMENT...], where NAME is one of\n' >&2
  printf '  %s\n' "${benchmarks[@]}" >&2
  exit 2
}

is_benchmark() {
  local line
  for line in "${benchmarks[@]}"; do
    [ "${line%% *}" != "$1" ] || return 0
  done
  return 1
}

read_arguments() { # sets name, json and arguments
  name='' json='' arguments=()
  while [ $# -gt 0 ]; do
    case $1 in
      --help) show_help "${BASH_SOURCE[0]}" ;;
      --json)
        [ $# -ge 2 ] || list_benchmarks
        json=$2
        shift
        ;;
      --)
        shift
        arguments=("$@")
        break
        ;;
      *)
        if [ -n "$name" ] || ! is_benchmark "$1"; then list_benchmarks; fi
        name=$1
        ;;
    esac
    shift
  done
  [ -n "$name" ] || list_benchmarks
  # On a device the rows are those of tests/gpu.
  if [ "$name" = optimizers ] && [[ ${arguments[0]-} =~ ^[a-z] ]]; then name=optimizers_on_device; fi
  if [ "$name ${arguments[0]-}" = "memory_prediction sim" ]; then name=memory_prediction_on_sim arguments=(); fi
  [ -z "$json" ] || { : >>"$json"; } 2>/dev/null || fail "cannot write to $json; name another file"
}

build_benchmark() {
  local environment
  local -a more=()
  [ "$name" != data_parallel ] || more=(--distributed)
  environment=$("$root/packaging/setup.sh" "${more[@]}") || exit
  eval "$environment"

  say "Configuring in $folder"
  mkdir -p "$folder"
  cmake -S "$bench" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$folder/configure.log" 2>&1 || {
    grep -A5 'CMake Error' "$folder/configure.log" >&2
    fail "CMake could not configure (all it says: $folder/configure.log); if $folder is from another set-up, remove it"
  }
  say "Building $name"
  ninja -C "$folder" -j "$LOOPTORCH_JOBS" "$name" >&2 || fail "the build failed; see the compiler's words above"
}

# Sets python to an interpreter that has the peers, and the LibTorch of the build as torch.
peers_environment() {
  local packages imports torch_config site venv wanted
  peers_of "$name"
  python=${LOOPTORCH_BENCH_PYTHON-}
  [ -z "$python" ] || return 0

  torch_config=$(sed -n 's/^Torch_DIR:[A-Z]*=//p' "$folder/CMakeCache.txt")
  site=${torch_config%/torch/share/cmake/Torch}
  [ -e "$site/torch/__init__.py" ] ||
    fail "the peers need LibTorch from its Python package, which $torch_config is not part of; leave CMAKE_PREFIX_PATH" \
         "unset, or name in LOOPTORCH_BENCH_PYTHON a Python that can import torch, $imports"

  venv=${LOOPTORCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/looptorch}/bench-$name
  python=$venv/bin/python
  wanted=$(printf '%s\n' "$site" "${packages[@]}")
  [ "$wanted" != "$(cat "$venv/installed" 2>/dev/null)" ] || return 0
  make_peers_environment "$venv" "$site"
  printf '%s\n' "$wanted" >"$venv/installed"
}

make_peers_environment() { # make_peers_environment FOLDER SITE
  local base=$2/../../../bin/python3
  [ -x "$base" ] || base=python3
  say "Getting the peers' ${#packages[@]} Python packages into $1"
  rm -rf "$1"
  "$base" -m venv "$1" >&2 || fail "python3 -m venv failed; install python3-venv"
  printf '%s\n' "$2" >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/libtorch.pth"
  "$python" -m pip --disable-pip-version-check --no-input --no-cache-dir install --no-deps --progress-bar off \
    "${packages[@]}" 2>"$1/pip.log" | sed -un 's/^Collecting /    /p' >&2 ||
    fail "could not get the peers' packages: $(tail -n1 "$1/pip.log") (all output: $1/pip.log)"
  "$python" -c "import torch, $imports" 2>"$1/import.log" ||
    fail "the peers do not import: $(tail -n1 "$1/import.log") (all output: $1/import.log)"
}

run_benchmark() {
  local rows=$folder/$name.jsonl
  if [ -n "${takes_turns-}" ]; then run_by_turns; else run_one_after_the_other; fi
  python3 "$bench/report.py" "$rows" ${json:+"$json"}
}

run_by_turns() {
  [ ${#arguments[@]} = 0 ] || fail "$name takes no arguments"
  say "Running $name and its peer by turns, which takes minutes"
  # Keeps freed memory in both processes, since it varies how much glibc returns, and so how many page faults follow.
  MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=$((1 << 40)) "$python" "$bench/$name.py" "$folder/$name" >"$rows" ||
    fail "the benchmark failed; see its words above"
}

run_one_after_the_other() {
  say "Running $name, which takes minutes"
  "$folder/$name" "${arguments[@]}" >"$rows" || fail "the benchmark failed; see its words above"
  if [ -n "${python-}" ]; then
    say "Running its peers in Python"
    "$python" "$bench/$name.py" "$folder/$name" >>"$rows" 2>"$folder/$name.log" ||
      fail "the peers failed: $(tail -n1 "$folder/$name.log") (all output: $folder/$name.log)"
  fi
}

read_arguments "$@"
build_benchmark
[ ! -e "$bench/$name.py" ] || peers_environment
run_benchmark
