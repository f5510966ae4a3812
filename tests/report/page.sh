#!/usr/bin/env bash
# page.sh UNIT_REPORT: report.html in a browser without a screen: no error on the console, and its curves have the points
# that metrics.jsonl has. Skipped (77) without chromium; LOOPTORCH_SCREENSHOTS=FOLDER leaves pictures there.
set -euo pipefail

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "skipped: there is no chromium"
  exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
LOOPTORCH_PAGE=$folder "$1" '[write_page]' >/dev/null

browse() { # what it prints; its console in $folder/console
  HOME=$folder timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --enable-logging=stderr \
    --user-data-dir="$folder/profile" "$@" "file://$folder/report.html" 2>"$folder/console"
}
browse --dump-dom >"$folder/dom" || {
  echo "skipped: chromium does not run here: $(tail -n 3 "$folder/console")"
  exit 77
}
if grep -E 'CONSOLE|Uncaught' "$folder/console" >&2; then
  echo "the page has errors" >&2
  exit 1
fi
for name in loss lr validation.loss; do
  drawn=$(grep -oE "data-name=\"$name\".*" "$folder/dom" | grep -oE 'data-drawn="[0-9]+"' | head -n 1 | tr -dc 0-9)
  written=$(grep -cF "\"$name\":" "$folder/metrics.jsonl")
  [ "$drawn" = "$written" ] || {
    echo "$name: $drawn points are drawn, and $written are in metrics.jsonl" >&2
    exit 1
  }
done
grep -qF 'class="bad"' "$folder/dom" || { echo "the NaN is not drawn" >&2; exit 1; }
if [ -n "${LOOPTORCH_SCREENSHOTS-}" ]; then
  mkdir -p "$LOOPTORCH_SCREENSHOTS"
  browse --window-size=1200,1100 --screenshot="$LOOPTORCH_SCREENSHOTS/light.png"
  browse --window-size=1200,1100 --blink-settings=preferredColorScheme=0 --screenshot="$LOOPTORCH_SCREENSHOTS/dark.png"
  browse --window-size=500,1400 --screenshot="$LOOPTORCH_SCREENSHOTS/phone.png"
fi
echo "the page shows what metrics.jsonl has"
