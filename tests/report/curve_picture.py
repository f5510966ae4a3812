#!/usr/bin/env python3
"""curve_picture.py REPORT.html OUT.png METRIC...: a picture of some curves of a finished run's report, for a README.

The page itself draws them, in a Chromium without a screen, so that a picture has what the run's metrics.jsonl has.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

COLUMN, ROW, EDGE = 400, 236, 16  # of the page's cards, in pixels


def page_of(report, metrics):
    """Returns the report with these curves and nothing else."""
    begin = '<script type="application/json" id="run">'
    head, rest = report.split(begin)
    data, tail = rest.split("</script>", 1)
    run = json.loads(data)
    curves = {curve["name"]: curve for curve in run["curves"]}
    missing = [name for name in metrics if name not in curves]
    if missing:
        sys.exit(f"the report has no {', '.join(missing)}; it has {', '.join(sorted(curves))}")
    run["curves"] = [curves[name] for name in metrics]
    plain = "<style>body > * { display: none } #curves { display: grid !important; " \
            f"grid-template-columns: repeat({min(len(metrics), 2)}, 1fr) }} " \
            ".card h3 { font-size: 13px; white-space: nowrap }</style>"  # a name in two lines would push its curve out of the picture
    return head + plain + begin + json.dumps(run).replace("<", "\\u003c") + "</script>" + tail


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    report, out, metrics = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
    browser = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("there is no chromium")
    columns = min(len(metrics), 2)
    size = (columns * COLUMN + EDGE, -(-len(metrics) // columns) * ROW + EDGE)
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.html"
        page.write_text(page_of(report.read_text(), metrics))
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                        f"--user-data-dir={folder}/profile", f"--window-size={size[0]},{size[1]}", f"--screenshot={out}",
                        page.as_uri()], check=True, env={"HOME": folder, "PATH": "/usr/bin:/bin"}, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
