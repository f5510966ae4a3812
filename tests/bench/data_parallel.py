# SPDX-License-Identifier: MIT
"""data_parallel.py PROGRAM [ROUNDS]: starts the ranks of data_parallel.cpp's PROGRAM and of PyTorch's DistributedDataParallel by
turns, 2 processes with one thread each over Gloo on this machine, and prints one JSON object a row. Both train the same
model on the same batches and must arrive at the same parameters. `data_parallel.py MODE` is one rank of the peer."""
import contextlib
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time

MODES = {"whole": "a micro-batch a window", "accumulated": "4 micro-batches a window"}
ROUNDS, RANKS = int(sys.argv[2]) if len(sys.argv) > 2 else 5, 2
LAYERS, WIDTH, ROWS, WARM_UP, STEPS = 24, 768, 64, 3, 12  # as in data_parallel.cpp


def rank_of_peer(mode):
    import torch
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(1)
    layers = []
    for i in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH)] + ([nn.GELU()] if i + 1 < LAYERS else [])
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    sent = 0
    if mode == "counted":  # apart, since a hook in Python takes time
        def count(state, bucket):
            nonlocal sent
            sent += bucket.buffer().nbytes
            return allreduce_hook(state, bucket)

        model.register_comm_hook(None, count)

    micro_batches = 4 if mode == "accumulated" else 1
    torch.manual_seed(100 + rank)
    batches = [(torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)) for _ in range((WARM_UP + STEPS) * micro_batches)]
    ends = []
    for step in range(WARM_UP + STEPS):
        window = batches[step * micro_batches:(step + 1) * micro_batches]
        for i, (features, target) in enumerate(window):
            with contextlib.nullcontext() if i + 1 == micro_batches else model.no_sync():
                (nn.functional.mse_loss(model(features), target) / micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.perf_counter())
    if rank == 0:
        ms = [(after - before) * 1000 for before, after in zip(ends[WARM_UP - 1:], ends[WARM_UP:])]
        print(json.dumps({"ms": statistics.median(ms), "bytes": sent / (WARM_UP + STEPS),
                          "checksum": sum(p.detach().double().abs().sum().item() for p in model.parameters()),
                          "version": torch.__version__.split("+")[0]}))
    torch.distributed.destroy_process_group()


def run(*command):
    """Starts the ranks of a command, and returns what rank 0 printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = []
    for rank in range(RANKS):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), OMP_NUM_THREADS="1",
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    output = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit(f"{' '.join(command)} failed; see its words above")
    return json.loads(output[0])


def check(mode, ours, peer):
    if not math.isclose(ours["checksum"], peer["checksum"], rel_tol=1e-6):
        sys.exit(f"{mode}: the parameters' checksums are {ours['checksum']} and {peer['checksum']}: not the same training")


def print_row(name, unit, value, peer, peer_value):
    print(json.dumps({"name": name, "value": value, "unit": unit, "peer": peer, "peer_value": peer_value}), flush=True)


def measure(program):
    times = {mode: ([], []) for mode in MODES}
    late, reproducible = [], []
    for round in range(ROUNDS):
        for mode, sides in times.items():
            made = run(program, mode), run(sys.executable, __file__, mode)
            check(mode, *made)
            for side, each in zip(sides, made):
                side.append(each["ms"])
            if mode == "whole":
                ours, ddp = made[0], f"DistributedDataParallel {made[1]['version']}"
        late.append(run(program, "late")["ms"])
        reproducible.append(run(program, "reproducible")["ms"])
        print(f"    round {round}", file=sys.stderr, flush=True)
    for mode, (of_ours, of_peer) in times.items():
        print_row(MODES[mode], "ms/step", statistics.median(of_ours), ddp, statistics.median(of_peer))
    counted = run(sys.executable, __file__, "counted")
    print_row("gradients that a rank gives to sums", "bytes/step", ours["bytes"], ddp, counted["bytes"])
    print_row("sums while backward runs", "ms/step", statistics.median(times["whole"][0]), "sums after backward",
              statistics.median(late))
    print_row("4 micro-batches, reproducible", "ms/step", statistics.median(reproducible), "the same, plain",
              statistics.median(times["accumulated"][0]))
    steady = run(program, "steady")
    print_row("a reduction", "ms", steady["reduction"], "a step of one micro-batch", statistics.median(times["whole"][0]))
    print_row("the watch of the other rank", "ms of processor time a second", steady["watch"], "a second", 1000)


if os.environ.get("RANK") is None:
    measure(sys.argv[1])
else:
    rank_of_peer(sys.argv[1])
