#!/usr/bin/env bash
# run_test.sh RUN: tests/gpu/run.sh on a machine without a GPU, with stand-ins for the programs and for Python's torch.
#
# A pack of two parts that come one by one; tests and jobs that pass, fail, exceed their limit or come too late; rows with and without
# a peer; results.json and the table.
set -euo pipefail

run=$1
gpu=$(dirname "$run")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOOPTORCH_GPU_KEEP=$work/keep

fail() {
  printf 'FAILED: %s\n' "$*"
  cat "$work"/*.log 2>/dev/null || true
  exit 1
}
has() { grep -qF -- "$2" "$1" || fail "$1 does not say \"$2\": $(cat "$1")"; }
has_not() { ! grep -qF -- "$2" "$1" || fail "$1 says \"$2\""; }

# Python's torch, and no other package.
mkdir -p "$work/python/torch"
echo '__version__ = "2.0.0+stand-in"' >"$work/python/torch/__init__.py"
export PYTHONPATH=$work/python

# A pack: two test files, one of which fails, and jobs of each kind.
mkdir -p "$work/pack/bin" "$work/pack/source/tests/parity"
cat >"$work/pack/bin/device_tests" <<'END'
#!/bin/sh
[ "$LOOPTORCH_TEST_DEVICE" = cpu ] || exit 9
case $2 in
  "[#good_test]") echo "All tests passed" ;;
  "[#empty_test]") echo "No test cases matched" ;;
  *) echo "a check failed"; exit 1 ;;
esac
END
chmod +x "$work/pack/bin/device_tests"
printf '%s\n' bad_test empty_test good_test >"$work/pack/tests.txt"
echo "$work/compiled from" >"$work/pack/source_path.txt"
echo abc1234 >"$work/pack/commit.txt"
cp "$gpu/table.py" "$work/pack"
cat >"$work/pack/jobs.sh" <<'END'
job 5 "steps" sh -c 'echo "{\"name\": \"a step\", \"value\": 2, \"unit\": \"ms\"}"; echo "{\"name\": \"alone\", \"value\": 7, \"unit\": \"MB\"}"'
peer 5 "steps, peer" torch sh -c 'echo "{\"name\": \"x\", \"of\": \"a step\", \"peer\": \"P 1\", \"peer_value\": 8}"; echo "{\"name\": \"y\", \"of\": \"a step\", \"peer\": \"Q 2\", \"peer_value\": 4}"'
peer 5 "no package" no_such_package true
job 5 "broken" sh -c 'echo "{\"name\": \"half\", \"value\": 1, \"unit\": \"\"}"; echo "why it broke" >&2; exit 3'
job 1 "endless" sleep 30
echo '{"wer": 0.25}' >"$work/summary.json"
figure "error rate" "" "$work/summary.json" wer
figure "missing" "" "$work/none.json" wer
END
tar -C "$work/pack" -c . | xz >"$work/archive"
mkdir "$work/one" "$work/two"
half=$((($(stat -c %s "$work/archive") + 1) / 2))
head -c $half "$work/archive" >"$work/one/looptorch-gpu-0a.part-1-of-2"
tail -c +$((half + 1)) "$work/archive" >"$work/two/looptorch-gpu-0a.part-2-of-2"

# Held wrong.
mkdir "$work/empty"
! "$run" --device cpu "$work/empty" >"$work/said" 2>&1 || fail "a folder without parts was taken"
has "$work/said" "has no part of a pack; make one with tests/gpu/pack.sh"
! "$run" --wrong >"$work/said" 2>&1 || fail "--wrong was taken"
has "$work/said" "there is no option --wrong"
! "$run" --seconds soon "$work/one" >"$work/said" 2>&1 || fail "--seconds soon was taken"
has "$work/said" '--seconds needs a number, not "soon"'

# One part, and a part of another pack before it, which goes.
mkdir "$work/other" && echo old >"$work/other/looptorch-gpu-ff.part-1-of-2"
"$run" --device cpu --output "$work/out" "$work/other" >"$work/said" || fail "a part alone"
"$run" --device cpu --output "$work/out" "$work/two" >"$work/said" || fail "a part alone"
has "$work/said" "1 of 2 parts are in"

# Both: everything runs, failures are named, and the exit code says so.
! LOOPTORCH_TEST_DEVICE=wrong "$run" --device cpu --output "$work/out" "$work/one" >"$work/said" 2>&1 || fail "failures were a success"
for text in "tests: 1 of 3 files passed" "failed: bad_test, empty_test" "no package: left out, python3 has no no_such_package" \
  "broken: exit code 3" "why it broke" "endless: over its limit of 1 s" "jobs that failed: broken, endless" "libtorch: 2.0.0+stand-in" \
  "commit: abc1234"; do
  has "$work/said" "$text"
done
grep -Eq '^a step +2 +ms +P 1 +8 +0\.25$' "$work/said" || fail "the row of the first peer: $(cat "$work/said")"
grep -Eq '^a step +2 +ms +Q 2 +4 +0\.50$' "$work/said" || fail "the row of the second peer: $(cat "$work/said")"
grep -Eq '^alone +7 +MB$' "$work/said" || fail "the row without a peer"
grep -Eq '^error rate +0\.25$' "$work/said" || fail "the figure of a summary"
has_not "$work/said" missing
python3 - "$work/out/results.json" <<'END' || fail "results.json: $(cat "$work/out/results.json")"
import json, sys
results = json.load(open(sys.argv[1]))
assert {test["file"]: test["rc"] for test in results["tests"]} == {"bad_test": 1, "empty_test": 1, "good_test": 0}
assert [(job["name"], job["rc"]) for job in results["jobs"]] == [("steps", 0), ("steps, peer", 0), ("broken", 3), ("endless", 124)]
assert [row["name"] for row in results["rows"]] == ["a step", "a step", "alone", "half", "error rate"], results["rows"]
assert results["rows"][1]["ratio"] == 0.5
END
tar -tzf "$work/out/logs.tgz" >"$work/listed"
has "$work/listed" logs/test_bad_test.log
[ -d "$work/compiled from/tests/parity" ] || fail "the tests' files are not where they were compiled"

# Once unpacked, no part is needed; --only; what comes too late is left out, which is no failure.
"$run" --device cpu --output "$work/again" --only "steps" "$work/empty" >"$work/said" || fail "--only steps"
has_not "$work/said" "tests:"
has "$work/said" "a step"
python3 - "$work/keep/pack/jobs.sh" <<'END'
import sys
open(sys.argv[1], "w").write('job 5 "first" sleep 2\njob 5 "second" true\n')
END
"$run" --device cpu --output "$work/late" --seconds 1 --only s "$work/empty" >"$work/said" 2>&1 || true
has "$work/said" "second: left out, the time is over"

# A library that is missing ends it at once, by its name.
cat >"$work/ldd" <<'END'
#!/bin/sh
echo "	libsndfile.so.1 => not found"
END
mkdir "$work/path" && mv "$work/ldd" "$work/path/ldd" && chmod +x "$work/path/ldd"
! PATH=$work/path:$PATH "$run" --device cpu --output "$work/none" "$work/empty" >"$work/said" 2>&1 || fail "a missing library was taken"
has "$work/said" "shared libraries are missing: libsndfile.so.1"
echo "all well"
