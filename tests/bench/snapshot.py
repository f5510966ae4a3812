# SPDX-License-Identifier: MIT
"""snapshot.py PROGRAM: asks snapshot.cpp's PROGRAM for a snapshot of 500 MB, and PyTorch for a torch.save of as much, by
turns and on one disk, for several rounds, and prints one JSON object a row."""
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch

from support.by_turns import Program

WARM_UP, ROUNDS = 1, 9


class PyTorch:
    def __init__(self, folder):
        self.tensors = {f"p{i}": torch.randn(1 << 20) for i in range(125)}
        self.path = f"{folder}/peer.pt"

    def save(self):
        """torch.save alone, and until the disk has it."""
        begin = time.perf_counter()
        torch.save(self.tensors, self.path)
        stand_still = time.perf_counter() - begin
        file = os.open(self.path, os.O_RDWR)
        os.fsync(file)
        os.close(file)
        return {"stand_still": stand_still * 1000, "durable": (time.perf_counter() - begin) * 1000}


def print_row(name, key, saves):
    ours, peers = (statistics.median(save[key] for save in made) for made in saves)
    print(json.dumps({"name": name, "value": ours, "unit": "ms", "peer": f"torch.save {torch.__version__.split('+')[0]}",
                      "peer_value": peers}))


program = pathlib.Path(sys.argv[1])
with tempfile.TemporaryDirectory(dir=program.parent, prefix="snapshots-") as folder:
    ours, peer = Program(program, folder), PyTorch(folder)
    saves = []
    for round in range(-WARM_UP, ROUNDS):
        saves.append((ours.step("next"), peer.save()))
        print(f"    round {round}: {saves[-1]}", file=sys.stderr, flush=True)
    ours.finish()

print_row("stand-still 500 MB, the first", "stand_still", list(zip(*saves[:WARM_UP])))
print_row("stand-still 500 MB", "stand_still", list(zip(*saves[WARM_UP:])))
print_row("500 MB on the disk", "durable", list(zip(*saves[WARM_UP:])))
