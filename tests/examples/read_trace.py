# SPDX-License-Identifier: MIT
"""read_trace.py TRACE FIRST LAST NAME...: checks that a trace of --profile opens, has the steps FIRST to LAST and in
them ranges of each NAME, which take time, and LibTorch's operators in those. One sentence and exit code 1 if not."""
import json
import sys

path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path) as file:
    events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def ranges(name):
    return [(event["ts"], event["ts"] + event["dur"]) for event in events if event["name"] == name]


def lie_in(inner, outer):
    return any(begin >= of[0] and end <= of[1] for begin, end in inner for of in outer)


steps = {event["name"] for event in events if event["name"].startswith("ProfilerStep#")}
if steps != {f"ProfilerStep#{step}" for step in range(first, last + 1)}:
    sys.exit(f"{path} has {sorted(steps)} instead of steps {first} to {last}")
operators = [(event["ts"], event["ts"] + event["dur"]) for event in events if event["name"].startswith("aten::")]
for step in sorted(steps):
    for name in sys.argv[4:]:
        inside = [each for each in ranges(name) if lie_in([each], ranges(step))]
        if not inside or max(end - begin for begin, end in inside) <= 0:
            sys.exit(f"{path} has no {name} in {step}")
        if name.startswith(("forward", "backward")) and not lie_in(operators, inside):
            sys.exit(f"{path} has no operator in {name} of {step}")
