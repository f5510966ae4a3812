# SPDX-License-Identifier: MIT
"""report.py ROWS [JSON]: reads the output of a benchmark and its peers, one JSON object a line, prints it as a table and
writes it to the file JSON. A row with `of` instead of `value` is a peer of the row of that name. Other lines, such as the pages of
memory_advice, are printed as they are."""
import json
import sys


def read_rows(path):
    measured, rows, texts = {}, [], []
    with open(path) as lines:
        for line in lines:
            if not line.startswith("{"):
                texts.append(line)
                continue
            row = json.loads(line)
            if "of" in row:
                row |= measured[row["of"]]
            else:
                measured[row["name"]] = {"value": row["value"], "unit": row["unit"]}
            if "peer" in row:
                row["ratio"] = row["value"] / row["peer_value"]
                rows.append({key: row[key] for key in ("name", "value", "unit", "peer", "peer_value", "ratio")})
    return rows, texts


def cells(row):
    value, peer = row["value"], row["peer_value"]
    digits = 0 if isinstance(value, int) else 1 if value >= 10 else 3
    return [row["name"], f"{value:.{digits}f}", row["peer"], f"{peer:.{digits}f}", f"{row['ratio']:.3f}",
            f"{value - peer:+.{digits}f}", row["unit"]]


def print_table(rows):
    lines = [["", "looptorch", "peer", "", "ratio", "difference", "unit"], *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        left = {0, 2, 6}
        print("  ".join(text.ljust(width) if i in left else text.rjust(width)
                        for i, (text, width) in enumerate(zip(line, widths))).rstrip())


rows, texts = read_rows(sys.argv[1])
print("".join(texts), end="")
if not rows and (not texts or len(sys.argv) > 2):
    sys.exit("error: the benchmark printed no rows")
if rows:
    print_table(rows)
if len(sys.argv) > 2:
    with open(sys.argv[2], "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
