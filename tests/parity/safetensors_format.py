# SPDX-License-Identifier: MIT
"""Records a file that Python's safetensors wrote, with each dtype, 0-dim and 0-size tensors, names beyond ASCII; and a
small model that huggingface_hub cut into shards.

usage: python tests/parity/safetensors_format.py       (needs torch, safetensors, huggingface_hub; writes
                                                         data/safetensors.safetensors and data/safetensors_sharded)
       python tests/parity/safetensors_format.py FILE  (checks that Python reads FILE equal to the reference, and re-saves
                                                         it to the same bytes)

tests/unit/state/weights/safetensors_test.cpp and safetensors_index_test.cpp build the same tensors from the same formulas.
"""
import pathlib
import sys

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import safe_open
from safetensors.torch import load_file, save_file

DATA = pathlib.Path(__file__).parent / "data"
REFERENCE = DATA / "safetensors.safetensors"
# One key only: safetensors 0.8 writes several in an order that differs from run to run.
METADATA = {"author": "looptorch \u0915\u094b\u0902\u0915\u0923\u0940 \u0001\"\\\n"}
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
SIGNED = ["int8", "int16", "int32", "int64"]
FLOAT = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]
FNUZ = ["float8_e4m3fnuz", "float8_e5m2fnuz"]


def reference_tensors():
    steps = torch.arange(6, dtype=torch.float64)
    tensors = {name: steps.to(getattr(torch, name)).reshape(2, 3) for name in UNSIGNED}
    tensors |= {name: (steps - 3).to(getattr(torch, name)).reshape(2, 3) for name in SIGNED}
    tensors |= {name: (steps / 2 - 1).to(getattr(torch, name)).reshape(2, 3) for name in FLOAT + FNUZ}
    tensors["float4_e2m1fn_x2"] = steps.to(torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2)
    tensors["bool"] = (torch.arange(5) % 2).bool()
    tensors["complex64"] = torch.complex(steps, -steps).to(torch.complex64)
    tensors["float8_e8m0fnu"] = (2 ** (steps - 3)).to(torch.float8_e8m0fnu)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(3, 0, 2, dtype=torch.float16)
    tensors["\u0928\u093e\u0902\u0935 \"quoted\"\t"] = torch.tensor([7], dtype=torch.int64)
    return tensors


def save_sharded():
    layers = {f"layers.{i}.weight": torch.arange(4.0).reshape(2, 2) + i for i in range(5)}
    (DATA / "safetensors_sharded").mkdir(exist_ok=True)
    save_torch_state_dict(layers, DATA / "safetensors_sharded", max_shard_size=32)


def check(path):
    ours, theirs = load_file(path), reference_tensors()
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype and ours[name].shape == tensor.shape, name
        assert torch.equal(ours[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), name
    with safe_open(path, "pt") as opened:
        assert opened.metadata() == METADATA, opened.metadata()
    again = pathlib.Path(path).with_suffix(".again")
    save_file(ours, again, metadata=METADATA)
    assert again.read_bytes() == pathlib.Path(path).read_bytes()
    again.unlink()
    print(f"{path}: {len(ours)} tensors equal")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(sys.argv[1])
    else:
        save_file(reference_tensors(), REFERENCE, metadata=METADATA)
        check(REFERENCE)
        save_sharded()
