#!/usr/bin/env bash
# pack.sh [--part-size MB] [FOLDER]: builds what tests/gpu/run.sh runs on a machine with a GPU, and packs it.
#
# A GPU at hand is often a bare machine for some minutes, with a LibTorch in its Python and no package registry. So all is
# built here against the same LibTorch, stripped, and packed with the shared libraries that LibTorch does not bring: the
# device tests, the benchmarks of this folder with their peers, the examples' programs, Whisper tiny.en and two small corpora.
# FOLDER (default: .gpu in the checkout) then holds parts of at most MB (default: 44) megabytes, which travel one by one.
#
# Builds in ${LOOPTORCH_BUILD:-build}, whose tests and programs it shares with tests/run.sh, and its folder gpu.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../packaging/build.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../packaging/build.sh"

part_size=44 folder=
while [ $# -gt 0 ]; do
  case $1 in
    --help) show_help "${BASH_SOURCE[0]}" ;;
    --part-size)
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || fail "--part-size needs a number of megabytes"
      part_size=$2
      shift
      ;;
    -*) fail "there is no option $1; usage: pack.sh [--part-size MB] [FOLDER]" ;;
    *)
      [ -z "$folder" ] || fail "one folder at most"
      folder=$1
      ;;
  esac
  shift
done
folder=${folder:-$root/.gpu}

# Name and folder of each program that is packed; the tests' come from the tests' build.
readonly benchmarks=(small_step whisper_step vit_step optimizers memory_prediction)
readonly examples=(
  whisper/whisper_finetune whisper/whisper_transcribe whisper/whisper_import konkanivani/konkanivani_train
  konkanivani/konkanivani_evaluate spectrogram_gan_vit/gan_train spectrogram_gan_vit/emotion_corpus
  finetune_exported/finetune_exported
)

build_tests() {
  for_tests=1 looptorch_build device_tests whisper_corpus konkanivani_corpus
}

build_benchmarks() {
  say "Building the benchmarks and programs in $build/gpu"
  mkdir -p "$build/gpu"
  cmake -S "$root/tests/gpu" -B "$build/gpu" -G Ninja -DCMAKE_BUILD_TYPE=Release '-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG' \
    >"$build/gpu/configure.log" 2>&1 || fail "CMake could not configure (all it says: $build/gpu/configure.log)"
  ninja -C "$build/gpu" -j "$LOOPTORCH_JOBS" "${benchmarks[@]}" "${examples[@]##*/}" >&2 ||
    fail "the build failed; see the compiler's words above"
}

# The tests that a GPU can run, by file.
list_tests() {
  local file
  {
    for file in "$root"/tests/device/*_test.cpp; do
      head -4 "$file" | grep -q '^// Simulated device only' || basename "$file" .cpp
    done
    grep -rlx '// Runs on every device\.' "$root/tests/unit" | xargs -n1 basename -s .cpp
  } | sort
}

make_corpora() { # make_corpora FOLDER
  local programs=$build/examples
  say "Making the corpora"
  "$programs/whisper/whisper_corpus" --output "$1/corpus" --jobs "$LOOPTORCH_JOBS" --seed 1 >/dev/null
  "$programs/konkanivani/konkanivani_corpus" --output "$1/konkani" --jobs "$LOOPTORCH_JOBS" --seed 1 --train 600 \
    --validation 20 --test 100 --min-words 2 --max-words 3 --clean >/dev/null
}

# Copies the shared libraries that programs need beside LibTorch's, CUDA's and the C library's: none where libsndfile is static.
add_libraries() { # add_libraries BIN LIB
  ldd "$1"/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    { grep -vE '/(libc|libm|libpthread|libdl|librt|libutil|libstdc\+\+|libgcc_s|libgomp[^/]*|ld-linux[^/]*)\.so|/torch/lib/|/nvidia/|cuda' || [ $? = 1 ]; } |
    xargs -I{} cp -L {} "$2"
}

pack() {
  local work=$1 name
  mkdir -p "$work"/{bin,lib,source/tests,source/docs}
  cp "$build/tests/device_tests" "$work/bin"
  for name in "${benchmarks[@]}"; do cp "$build/gpu/$name" "$work/bin"; done
  for name in "${examples[@]}"; do cp "$build/gpu/examples/$name" "$work/bin"; done
  strip "$work"/bin/*
  add_libraries "$work/bin" "$work/lib"
  cp -r "$root/tests/parity" "$work/source/tests" # read by tests, at the path that they were compiled with
  cp -r "$root/docs/performance.md" "$root/docs/performance" "$work/source/docs"
  cp "$root"/tests/gpu/{*.sh,*.py} "$work"
  list_tests >"$work/tests.txt"
  printf '%s\n' "$root" >"$work/source_path.txt"
  git -C "$root" describe --always --dirty >"$work/commit.txt" 2>/dev/null || echo unknown >"$work/commit.txt"
  [ -z "${LOOPTORCH_WHISPER_CT2-}" ] || cp -rL "$LOOPTORCH_WHISPER_CT2" "$work/whisper-tiny.en-ct2"
  make_corpora "$work"
}

write_shards() { # write_shards WORK
  local archive=$1.tar.xz name count i
  say "Packing"
  tar -C "$1" -c . | xz -T0 -3 >"$archive"
  name=looptorch-gpu-$(sha256sum "$archive" | cut -c1-8)
  mkdir -p "$folder"
  rm -f "$folder"/looptorch-gpu-*
  split --bytes="${part_size}M" --numeric-suffixes=1 --suffix-length=2 "$archive" "$folder/part-"
  count=$(find "$folder" -name 'part-*' | wc -l)
  for ((i = 1; i <= count; ++i)); do
    mv "$folder/part-$(printf %02d "$i")" "$folder/$name.part-$i-of-$count"
  done
}

build_tests
build_benchmarks
work=$(mktemp -d)
trap 'rm -rf "$work" "$work.tar.xz"' EXIT
pack "$work"
write_shards "$work"
say "Packed; there, run tests/gpu/run.sh with the folder of each part, or of all:"
ls -l "$folder"/looptorch-gpu-* >&2
