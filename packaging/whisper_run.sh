# shellcheck shell=bash
# Sourced by examples/quickstart.sh and examples/whisper/run_morse.sh: their arguments and their programs.
#
#   read_arguments DEFAULT "$@"   takes [--quick] [--device NAME] [--ranks N] [--programs DIR] [OUTPUT] into `quick`, `device`,
#                                 `launch`, which stands before a training program and starts N processes of it, `programs` and
#                                 `output`, which is DEFAULT if none is named, and makes that folder
#   provide_programs NAME...      builds them unless --programs named their folder, which is then in `programs`
#   import_tiny_en                puts the published model into OUTPUT/whisper-tiny.en

# shellcheck source-path=SCRIPTDIR source=build.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/build.sh"

refuse() { fail "$1; usage: ${0##*/} [--quick] [--device NAME] [--ranks N] [--programs DIR] [OUTPUT]"; }

# shellcheck disable=SC2034 # `quick`, `device` and `launch` are the sourcing script's
read_arguments() {
  local default=$1
  quick='' device=auto programs='' output='' ranks=1 launch=()
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --help) show_help "$0" ;;
      --quick) quick=1 ;;
      --device | --programs | --ranks)
        [ -n "${2-}" ] || refuse "$1 needs a value"
        case $1 in
          --device) device=$2 ;;
          --programs) programs=$2 ;;
          --ranks) ranks=$2 ;;
        esac
        shift
        ;;
      -*) refuse "there is no option $1" ;;
      *)
        [ -z "$output" ] || refuse "one output folder at most"
        output=$1
        ;;
    esac
    shift
  done
  [[ $ranks =~ ^[1-9][0-9]*$ ]] || refuse "--ranks needs a number of processes, not \"$ranks\""
  output=${output:-$default}
  { mkdir -p "$output" && [ -w "$output" ]; } 2>/dev/null || fail "cannot write to $output; name another folder"
  if [ -n "$programs" ]; then
    [ -x "$programs/whisper_finetune" ] || refuse "$programs holds no whisper_finetune"
    [ -n "${LOOPTORCH_WHISPER_CT2-}" ] || refuse "--programs needs LOOPTORCH_WHISPER_CT2, which is not set"
  fi
  rm -f "$output/summary.json" # what lies there in the end is this run's
}

provide_programs() {
  if [ -z "$programs" ]; then
    [ "$ranks" = 1 ] || distributed=1
    looptorch_build "$@"
    programs=$build/examples/whisper
  fi
  [ "$ranks" != 1 ] || return 0
  launch=("${LOOPTORCH_TORCHRUN:-$(command -v torchrun)}") || fail "there is no torchrun; packaging/setup.sh --distributed gets one"
  launch+=(--standalone --nproc-per-node "$ranks" --no-python)
}

import_tiny_en() {
  say "Importing Whisper tiny.en"
  "$programs/whisper_import" --ctranslate2 "$LOOPTORCH_WHISPER_CT2" --output "$output/whisper-tiny.en"
}
