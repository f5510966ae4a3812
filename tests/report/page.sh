#!/usr/bin/env bash
# page.sh UNIT_REPORT: report.html in a browser without a screen: no error on the console, and its curves have the points
# that metrics.jsonl has, texts mark their errors, pictures and sound are decoded; and pictures of its curves for a README.
# Skipped (77) without chromium; LOOPTORCH_SCREENSHOTS=FOLDER leaves pictures there.
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
text=$(tr -d '\n' <"$folder/dom")
# A clip's sound is in its text's card; many distributions are behind a click.
clip='<div class="card example" data-kind="text sound"><h3>clip 2</h3><p class="said">'
[ "$(grep -oF "$clip" <<<"$text" | wc -l)" = 1 ] || { echo "sound is not beside its text" >&2; exit 1; }
for part in '<audio controls="" src="data:audio/wav;base64,' '<summary>30 in all</summary>' 'turn <del>left</del> <ins>right</ins> <del>now</del>' '<ins>two</ins> &lt;b&gt;three' 'Examples: generated</h2><p class="soft">Step 20.'; do
  grep -qF "$part" <<<"$text" || { echo "the page does not show $part" >&2; exit 1; }
done
if grep -qF 'an earlier one' "$folder/dom"; then
  echo "examples are not replaced by later ones" >&2
  exit 1
fi
# The browser itself tells what it made of the data: 256 columns, and half a second. Events come late, so the page asks.
mv "$folder/report.html" "$folder/plain.html"
{
  cat "$folder/plain.html"
  echo "<script>const told = make('p', {id: 'told'}), image = document.querySelector('.example img'), audio = document.querySelector('[data-kind=sound] audio');"
  echo "document.body.append(told); const tell = () => { told.textContent = image.naturalWidth + '|' + audio.duration; };"
  echo "audio.addEventListener('loadedmetadata', tell); audio.load(); image.decode().then(tell);</script>"
} >"$folder/report.html"
browse --virtual-time-budget=5000 --dump-dom >"$folder/dom"
told=$(grep -oE '<p id="told">[^<]*' "$folder/dom")
[ "$told" = '<p id="told">256|0.5' ] || { echo "picture and sound are not decoded: $told" >&2; exit 1; }
mv "$folder/plain.html" "$folder/report.html"
if [ -n "${LOOPTORCH_SCREENSHOTS-}" ]; then
  mkdir -p "$LOOPTORCH_SCREENSHOTS"
  browse --window-size=1200,1700 --screenshot="$LOOPTORCH_SCREENSHOTS/light.png"
  browse --window-size=1200,1700 --blink-settings=preferredColorScheme=0 --screenshot="$LOOPTORCH_SCREENSHOTS/dark.png"
  browse --window-size=500,3000 --screenshot="$LOOPTORCH_SCREENSHOTS/phone.png"
fi
! command -v python3 >/dev/null || python3 "$(dirname -- "${BASH_SOURCE[0]}")/read_picture.py" "$folder/report.html"
echo "the page shows what metrics.jsonl has"
