#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""trained_exports.py write|compare PROGRAMS: for trained.sh. `write` writes four samples for each model into the current folder;
`compare` reads what finetune_exported left in the folders of the models' names."""
import json
import pathlib
import struct
import sys
import warnings

warnings.filterwarnings("ignore")
import torch

TYPES = {"F32": torch.float32, "I64": torch.int64}
SIZES = {"cnn": (3, 6, 6), "recurrent": (5, 4)}


def write(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = "F32" if tensor.dtype == torch.float32 else "I64"
        values = tensor.flatten().tolist()
        packed = struct.pack(f"<{len(values)}{'f' if kind == 'F32' else 'q'}", *values)
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    held = path.read_bytes()
    begin = 8 + struct.unpack("<Q", held[:8])[0]
    tensors = {}
    for name, entry in json.loads(held[8:begin]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        flat = torch.frombuffer(bytearray(held[begin + first : begin + last]), dtype=TYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def outputs_of(module, x):
    torch.manual_seed(5)  # dropout
    with torch.no_grad():
        return torch.utils._pytree.tree_flatten(module(x))[0]


def compare(name, programs):
    before, after = (torch.export.load(path) for path in (programs / f"{name}.pt2", pathlib.Path(name) / "model.pt2"))
    weights = read(pathlib.Path(name) / "model.safetensors")
    assert set(weights) == set(after.state_dict) == set(before.state_dict), set(weights) ^ set(after.state_dict)
    for key, tensor in after.state_dict.items():
        assert tensor.dtype == weights[key].dtype and torch.equal(tensor, weights[key]), f"{name}: {key}"
    moved = [key for key, tensor in before.state_dict.items() if not torch.equal(tensor, weights[key])]
    assert len(moved) == len(weights), f"{name}: only {moved} were trained"
    wanted, found = before.module(), after.module()
    wanted.load_state_dict(weights)
    for batch in (1, 3):
        x = torch.randn(batch, *SIZES[name])
        pairs = list(zip(outputs_of(found, x), outputs_of(wanted, x), strict=True))
        assert pairs and all(torch.equal(a, b) for a, b in pairs), f"{name}: outputs of {batch} samples"
    loss = sum(output.square().mean() for output in torch.utils._pytree.tree_flatten(found(x))[0])
    loss.backward()
    assert all(parameter.grad is not None for parameter in found.parameters()), f"{name}: does not train on"
    print(f"{name}: {len(weights)} tensors and the outputs have the bits of model.safetensors")


torch.manual_seed(1)
if sys.argv[1] == "write":
    write(pathlib.Path("cnn.safetensors"), {"image": torch.randn(4, 3, 6, 6), "labels": torch.arange(4)})
    write(pathlib.Path("recurrent.safetensors"), {"x": torch.randn(4, 5, 4), "labels": torch.randn(4, 5, 5)})
else:
    for each in SIZES:
        compare(each, pathlib.Path(sys.argv[2]))
