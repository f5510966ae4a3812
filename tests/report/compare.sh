#!/usr/bin/env bash
# compare.sh UNIT_REPORT RUN_COMPARE: what run_compare refuses; then its page in a browser without a screen: no error on the
# console, each run's curve has the points that its metrics.jsonl has, the pointer shows each run's value at its step, and
# dragging zooms all charts. Skipped (77) without chromium; LOOPTORCH_SCREENSHOTS=FOLDER leaves pictures there.
set -euo pipefail

fail() { echo "$*" >&2 && exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
LOOPTORCH_RUNS=$folder "$1" '[write_runs]' >/dev/null
program=$(cd -- "$(dirname -- "$2")" && pwd)/$(basename -- "$2")
cd "$folder"

"$program" --help | grep -qF 'usage: run_compare' || fail "--help"
! "$program" 2>said || fail "no folder is accepted"
! "$program" fast nowhere 2>said || fail "a folder that is not there is accepted"
grep -qF nowhere/metrics.jsonl said || fail "the missing file is not named: $(cat said)"
[ ! -e compare.html ] || fail "a page is written of runs that are not there"
for file in report.html metrics.jsonl metrics.csv; do
  ! "$program" slow fast --output fast/$file 2>said || fail "a page is written over a run's $file"
  grep -qF "run_compare: --output fast/$file would overwrite DIR's fast/$file" said || fail "$file: $(cat said)"
done
mkdir other && cp -r fast other/
"$program" fast other/fast --output twice.html >/dev/null
grep -qF '"name":"other/fast"' twice.html || fail "two folders of one name are not told apart"
[ "$("$program" fast slow broken)" = "3 runs in compare.html" ] || fail "run_compare does not say what it wrote"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "skipped: there is no chromium"
  exit 77
}
browse() { # browse PAGE OPTION...: what it prints; its console in $folder/console
  HOME=$folder timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --enable-logging=stderr \
    --user-data-dir="$folder/profile" "${@:2}" "file://$folder/$1" 2>console
}
# A reader's hand, at the end of the page.
hand=$(
  cat <<'SCRIPT'
<script>
const svg = document.querySelector('.card[data-name=loss] svg'), box = svg.getBoundingClientRect();
const at = (name, share) => svg.dispatchEvent(new PointerEvent(name, {clientX: box.left + box.width * share, clientY: box.top + 50}));
const drawn = () => document.querySelector('.card[data-name="validation.loss"] svg').dataset.drawn;
const seen = [];
at('pointermove', 0.5);
seen.push(document.querySelector('.card[data-name=loss] .legend').textContent);
at('pointerdown', 0.5), at('pointermove', 0.9), at('pointerup', 0.9);
seen.push(drawn());
svg.dispatchEvent(new Event('dblclick'));
seen.push(drawn());
document.body.append(make('p', {id: 'seen'}, seen.join('|')));
</script>
SCRIPT
)
{ cat compare.html && echo "$hand"; } >touched.html
browse touched.html --window-size=1200,1100 --dump-dom >dom || {
  echo "skipped: chromium does not run here: $(tail -n 3 console)"
  exit 77
}
! grep -E 'CONSOLE|Uncaught' console >&2 || fail "the page has errors"
card=$(tr -d '\n' <dom | grep -oE 'data-name="loss".*data-name="validation' | sed 's/data-name="validation.*//')
run=0
for name in fast slow broken; do
  drawn=$(grep -oE "class=\"series run$run\" data-drawn=\"[0-9]+\"" <<<"$card" | grep -oE '[0-9]+"$' | tr -d '"')
  written=$(grep -cF '"loss":' $name/metrics.jsonl)
  [ "$drawn" = "$written" ] || fail "$name: $drawn points are drawn, and $written are in metrics.jsonl"
  run=$((run + 1))
done
grep -qF 'class="bad"' <<<"$card" || fail "the NaN is not drawn"
grep -qE '<td class="wide">learning-rate</td><td class="wide">0.5' dom || fail "the rates are not in the table"
# The middle of the picture is step 13.6 of 1 to 30; of 12 steps the last is the nearest. Of 4 + 6 validations 2 + 3 are
# between there and step 27.4.
seen=$(grep -oE '<p id="seen">[^<]*' dom)
grep -qE 'fast 0\.125 at 14slow 0\.4167 at 14broken 0\.25 at 12\|5\|10$' <<<"$seen" || fail "the pointer: $seen"
if [ -n "${LOOPTORCH_SCREENSHOTS-}" ]; then
  mkdir -p "$LOOPTORCH_SCREENSHOTS"
  browse compare.html --window-size=1200,1000 --screenshot="$LOOPTORCH_SCREENSHOTS/compare_light.png"
  browse compare.html --window-size=1200,1000 --blink-settings=preferredColorScheme=0 \
    --screenshot="$LOOPTORCH_SCREENSHOTS/compare_dark.png"
  browse compare.html --window-size=500,1400 --screenshot="$LOOPTORCH_SCREENSHOTS/compare_phone.png"
fi
echo "the page shows what the runs' metrics.jsonl have"
