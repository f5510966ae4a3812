# SPDX-License-Identifier: MIT
"""Data parallel training of 8 to 1,024 GPUs on paper: prints the tables of docs/distributed_figures.md, which a test compares.

A step is a forward and a backward, twice as long. Gradients become ready at an even pace while backward runs, the last layers'
first, and leave in buckets of 25 MiB; each bucket's sum begins when it is full and the one before has ended. What is left when
backward ends, or the exchange of reductions if that takes longer, is the price of a step. Bytes and buckets are DataParallel's own,
as tests/bench/run.sh data_parallel counts them. Bandwidths are those that vendors publish; latencies and the share of the peak
that a step reaches are assumptions."""
import math

BYTES_PER_NUMBER = 4            # measured: what a rank gives to sums, by the number of parameters
BUCKET = 25 * 2**20             # DataParallel::bucket_bytes
NVLINK = 450e9                  # bytes/s and direction of an H100: 18 links of NVLink 4, 900 GB/s both ways
INFINIBAND = 50e9               # bytes/s and direction of a GPU: one adapter of NDR, 400 Gbit/s, each
GPUS_IN_NODE = 8
PEAK, REACHED = 989e12, 0.4     # bf16 operations/s of an H100, and the assumed share
HOP_IN_NODE, HOP, HOP_OF_TCP = 2e-6, 5e-6, 30e-6  # s, assumed: NVLink, InfiniBand, and Gloo's reductions
BALLOT_BYTES, TCP = 1032, 3e9   # of a rank's message, at least; 25 Gbit/s Ethernet
MEMORY = 80e9
SIZES = [8, 16, 64, 256, 1024]

# name: parameters, operations of forward and backward for a sample, samples of a GPU in a step
MODELS = {
    "Whisper tiny.en": (37_760_640, 6 * (8_208_384 * 1500 + 29_552_256 * 64), 32),
    "ViT-B/16": (85_800_194, 6 * 85_800_194 * 197, 64),
    "Whisper large-v3": (1_543_490_560, 6 * (636_967_680 * 1500 + 906_522_880 * 64), 8),
}


def sum_seconds(nbytes, gpus):
    """A sum over all: reduced and gathered in a node by a ring, over the nodes by a tree, each GPU its eighth."""
    node = min(gpus, GPUS_IN_NODE)
    seconds = 2 * (node - 1) * (nbytes / node / NVLINK + HOP_IN_NODE)
    nodes = gpus // node
    if nodes > 1:
        seconds += 2 * (nodes - 1) / nodes * nbytes / node / INFINIBAND + 2 * math.ceil(math.log2(nodes)) * HOP
    return seconds


def reduction_seconds(gpus):
    """Gloo's ring, in which each rank passes on what it got."""
    return (gpus - 1) * (HOP_OF_TCP + BALLOT_BYTES / TCP)


def store_requests(gpus):
    """Requests a second to the store in which ranks show signs of life: one's own, a failure's, those of 8 others twice."""
    return 5 * gpus * (2 + 2 * min(gpus - 1, 8))


def step(model, gpus, micro_batches):
    """Seconds of a step without a wait, then those that it waits for sums, and for reductions."""
    numbers, operations, samples = MODELS[model]
    compute = micro_batches * operations * samples / (PEAK * REACHED)
    backward = compute / micro_batches * 2 / 3  # in whose last one the gradients leave
    total = numbers * BYTES_PER_NUMBER
    full, end = 0, 0.0
    while full < total:
        nbytes = min(BUCKET, total - full)
        full += nbytes
        end = max(end, backward * full / total) + sum_seconds(nbytes, gpus)
    return compute, end - backward, reduction_seconds(gpus)


def share(model, gpus, micro_batches):
    """Of the time that computes: as it is, and if reductions were free."""
    compute, sums, reductions = step(model, gpus, micro_batches)
    return f"{100 * compute / (compute + max(sums, reductions)):.0f} ({100 * compute / (compute + sums):.0f})"


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def tables():
    lines = [row("model, micro-batches in a step", "ms", *[f"{gpus:,} GPUs, %" for gpus in SIZES]),
             "|---|---:|" + "---:|" * len(SIZES)]
    for model in MODELS:
        for micro_batches in (1, 4):
            lines.append(row(f"{model}, {micro_batches}", f"{1000 * step(model, 1, micro_batches)[0]:.1f}",
                             *[share(model, gpus, micro_batches) for gpus in SIZES]))
    lines += ["", row("quantity", *[f"{gpus:,} GPUs" for gpus in SIZES]), "|---|" + "---:|" * len(SIZES)]
    for model in MODELS:
        lines.append(row(f"wait for gradient sums, ms: {model}", *[f"{1000 * step(model, gpus, 1)[1]:.2f}" for gpus in SIZES]))
    lines.append(row("the window's reduction, ms", *[f"{1000 * reduction_seconds(gpus):.1f}" for gpus in SIZES]))
    lines.append(row("requests a second to the store", *[f"{store_requests(gpus):,}" for gpus in SIZES]))
    lines += ["", row("bytes a parameter and GPU", *[f"{gpus:,} GPUs" for gpus in SIZES], f"largest model in {MEMORY / 1e9:.0f} GB"),
              "|---|" + "---:|" * (len(SIZES) + 1)]
    for name, whole, shared in (("DataParallel", 20, 0), ("with sharded moments", 12, 8), ("fully sharded", 0, 20)):
        largest = [MEMORY / (whole + shared / gpus) for gpus in (SIZES[0], SIZES[-1])]
        text = " to ".join(dict.fromkeys(f"{numbers / 1e9:,.1f}" for numbers in largest))
        lines.append(row(name, *[f"{whole + shared / gpus:.2f}" for gpus in SIZES], f"{text} x 10^9 parameters"))
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables())
