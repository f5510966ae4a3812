# SPDX-License-Identifier: MIT
"""What run.sh keeps of a run, and the table at its end.

table.py machine COMMIT DEVICE             a JSON object that says where a run ran
table.py job NAME RC SECONDS               a JSON object of one job; RC is an exit code or "left-out"
table.py figure NAME UNIT FILE KEY         a row with a number of a JSON file
table.py report FOLDER                     reads machine.json, tests.jsonl, jobs.jsonl and rows.jsonl, prints a table, writes
                                           results.json; exits with 1 if a test or a job failed
"""
import datetime
import json
import pathlib
import subprocess
import sys


def machine(commit, device):
    import torch

    facts = {"date": datetime.date.today().isoformat(), "commit": commit, "device": device, "libtorch": torch.__version__}
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        facts["card"], facts["driver"] = (
            text.strip() for text in subprocess.check_output(query, text=True).splitlines()[0].split(","))
    except (OSError, subprocess.CalledProcessError, IndexError):
        facts["card"] = "none"
    print(json.dumps(facts))


def job(name, rc, seconds):
    print(json.dumps({"name": name, "rc": rc if rc == "left-out" else int(rc), "seconds": int(seconds)}))


def figure(name, unit, path, key):
    value = json.loads(pathlib.Path(path).read_text()).get(key)
    if value is not None:
        print(json.dumps({"name": name, "value": value, "unit": unit}))


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def joined(rows):
    """Rows of ours, each followed by those of its peers; a peer without a row of ours stands alone, at the end."""
    ours = {row["name"]: row for row in rows if "of" not in row}
    result = []
    for name, row in ours.items():
        peers = [row] if "peer" in row else []
        peers += [row | peer | {"name": name} for peer in rows if peer.get("of") == name]
        result += peers or [row]
    result += [row for row in rows if "of" in row and row["of"] not in ours]
    for row in result:
        row.pop("of", None)
        if row.get("peer_value") and "value" in row:
            row["ratio"] = row["value"] / row["peer_value"]
    return result


def number(row, key):
    value = row.get(key)
    return "" if value is None else f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def print_table(rows):
    lines = [["", "looptorch", "unit", "peer", "", "ratio"]]
    lines += [[row["name"], number(row, "value"), row.get("unit", ""), row.get("peer", ""), number(row, "peer_value"),
               f"{row['ratio']:.2f}" if "ratio" in row else ""] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(text.rjust(width) if i in (1, 4, 5) else text.ljust(width)
                        for i, (text, width) in enumerate(zip(line, widths))).rstrip())


def report(folder):
    folder = pathlib.Path(folder)
    facts = json.loads((folder / "machine.json").read_text())
    tests, jobs = read(folder / "tests.jsonl"), read(folder / "jobs.jsonl")
    rows = joined(read(folder / "rows.jsonl"))
    (folder / "results.json").write_text(
        json.dumps({"machine": facts, "tests": tests, "jobs": jobs, "rows": rows}, indent=1) + "\n")
    print(", ".join(f"{key}: {value}" for key, value in facts.items()))
    print_table(rows)
    failed_tests = sorted(test["file"] for test in tests if test["rc"] != 0)
    if tests:
        print(f"tests: {len(tests) - len(failed_tests)} of {len(tests)} files passed"
              + (f"; failed: {', '.join(failed_tests)}" if failed_tests else ""))
    failed_jobs = [job["name"] for job in jobs if job["rc"] not in (0, "left-out")]
    if failed_jobs:
        print(f"jobs that failed: {', '.join(failed_jobs)}")
    sys.exit(bool(failed_tests or failed_jobs))


{"machine": machine, "job": job, "figure": figure, "report": report}[sys.argv[1]](*sys.argv[2:])
