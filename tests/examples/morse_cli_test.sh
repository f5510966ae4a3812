#!/usr/bin/env bash
# morse_cli_test.sh PROGRAMS: tests what a user sees of morse_corpus, with good and bad input. PROGRAMS is the folder
# of the programs.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
load_once

has_help morse_corpus output seed clips slowest fastest shortest longest characters noise-share conditions format jobs
refused "--output" morse_corpus
refused "--clips" morse_corpus --output none --clips 3
refused "--conditions" morse_corpus --output none --conditions awful
refused "30 to 20 words a minute: --slowest must be at most --fastest" morse_corpus --output none --slowest 30 --fastest 20
refused "clips of 10 to 5 s: --shortest must be " morse_corpus --output none --shortest 10 --longest 5
refused "may take 23.04 s" morse_corpus --output none --slowest 5 --longest 8
touch taken
refused "--output: cannot create the folder taken/audio: Not a directory" morse_corpus --output taken
[ ! -e none ] || fail "a refused run left a folder"

runs morse_corpus --output first --clips 40 --longest 8
runs morse_corpus --output second --clips 40 --longest 8 --jobs 1
diff -r first second || fail "the same flags gave another corpus"
[ "$(wc -l <first/train.csv) $(wc -l <first/validation.csv) $(wc -l <first/test.csv)" = "33 5 5" ] ||
  fail "not 80/10/10"
[ "$(find first/audio -name '*.flac' | wc -l)" = 40 ] || fail "not 40 clips"
[ "$(tail -qn +2 first/*.csv | cut -d, -f2 | grep -v '^$' | sort | uniq -d)" = "" ] || fail "a text occurs twice"
runs morse_corpus --output other --clips 10 --longest 8 --seed 2 --format wav --conditions clean --noise-share 0
[ "$(tail -qn +2 other/*.csv | grep -c ',clean$')" = 10 ] || fail "other conditions than clean"
[ "$(tail -qn +2 other/*.csv | cut -d, -f2 | grep -c .)" = 10 ] || fail "a clip without a text"
runs morse_corpus --output characters --clips 100 --characters 3 --shortest 0.5 --longest 2 --fastest 25 --noise-share 0
letters=$(tail -qn +2 characters/*.csv | cut -d, -f2 | tr -d ' ' | awk '{ print length }' | sort -n | tail -1)
[ "$letters" = 3 ] || fail "texts of up to $letters characters instead of 3"
head -c 4 other/audio/000000.wav | grep -q RIFF || fail "no WAV file"
