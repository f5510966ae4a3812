#!/usr/bin/env bash
# morse_cli_test.sh PROGRAMS: tests what a user sees of morse_corpus, with good and bad input. PROGRAMS is the folder
# of the programs.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
load_once

"$programs/morse_corpus" --help >help.txt || fail "morse_corpus --help"
has_flags help.txt output seed clips slowest fastest shortest longest characters noise-share conditions format jobs
refused "unknown option --wrong" morse_corpus --wrong
refused "--output" morse_corpus
refused "--clips" morse_corpus --output none --clips 3
refused "--conditions" morse_corpus --output none --conditions awful
refused "30 to 20 words a minute" morse_corpus --output none --slowest 30 --fastest 20
refused "may take 23.04 s" morse_corpus --output none --slowest 5 --longest 8
[ ! -e none ] || fail "a refused run left a folder"

"$programs/morse_corpus" --output first --clips 40 --longest 8 >said.txt || fail "morse_corpus"
"$programs/morse_corpus" --output second --clips 40 --longest 8 --jobs 1 >said.txt || fail "morse_corpus again"
diff -r first second || fail "the same flags gave another corpus"
[ "$(wc -l <first/train.csv) $(wc -l <first/validation.csv) $(wc -l <first/test.csv)" = "33 5 5" ] || fail "not 80/10/10"
[ "$(find first/audio -name '*.flac' | wc -l)" = 40 ] || fail "not 40 clips"
[ "$(tail -qn +2 first/*.csv | cut -d, -f2 | grep -v '^$' | sort | uniq -d)" = "" ] || fail "a text occurs twice"
"$programs/morse_corpus" --output other --clips 10 --longest 8 --seed 2 --format wav --conditions clean --noise-share 0 >said.txt ||
  fail "morse_corpus --format wav"
[ "$(tail -qn +2 other/*.csv | grep -c ',clean$')" = 10 ] || fail "other conditions than clean"
[ "$(tail -qn +2 other/*.csv | cut -d, -f2 | grep -c .)" = 10 ] || fail "a clip without a text"
"$programs/morse_corpus" --output characters --clips 100 --characters 3 --shortest 0.5 --longest 2 --fastest 25 --noise-share 0 >said.txt ||
  fail "morse_corpus --characters"
[ "$(tail -qn +2 characters/*.csv | cut -d, -f2 | tr -d ' ' | awk 'length > most { most = length } END { print most }')" = 3 ] ||
  fail "other texts than of one to three characters"
head -c 4 other/audio/000000.wav | grep -q RIFF || fail "no WAV file"

[ "$failures" = 0 ] || exit 1
echo "all well"
