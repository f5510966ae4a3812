# SPDX-License-Identifier: MIT
"""Snapshots in Python: docs/snapshot_format.md's format, read, verified and written without looptorch.

usage: python tests/parity/snapshot.py                 (needs torch and safetensors; writes data/snapshot)
       python tests/parity/snapshot.py SNAPSHOT FOLDER (checks SNAPSHOT, of a module Net whose weights are tied, and writes
                                                        it into FOLDER with each weight one larger, and as weights alone)

tests/unit/state/snapshot/snapshot_python_test.cpp has the same contents by the same formulas. Exits with 77 without the packages.
"""
import json
import pathlib
import struct
import sys

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, load_model, save_file, save_model
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

REFERENCE = pathlib.Path(__file__).parent / "data" / "snapshot"
MASK, GAMMA = (1 << 64) - 1, 0x9E3779B97F4A7C15


def mix(value):
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def checksum(*pieces):
    """Of pieces of bytes in turn, as 16 hexadecimal digits."""
    state = mix(GAMMA)
    for piece in pieces:
        lanes = [state + i * GAMMA & MASK for i in range(8)]
        padded = piece + bytes(64 - len(piece) % 64)  # a whole block more where the piece fills its last one
        for words in struct.iter_unpack("<8Q", padded):
            for i, word in enumerate(words):
                lane = lanes[i] + word * 0xC2B2AE3D27D4EB4F & MASK
                lanes[i] = (lane << 31 | lane >> 33) * 0x9E3779B185EBCA87 & MASK
        state = mix(state ^ len(piece))
        for lane in lanes:
            state = mix(state * 3 + lane & MASK)
    return f"{state:016x}"


def list_file(path, tied):
    """What the manifest says of a file."""
    data = path.read_bytes()
    listed = {"bytes": len(data)}
    if path.suffix == ".json":
        return listed | {"checksum": checksum(data)}
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = entry["data_offsets"]
        tensors[name] = {"bytes": end - start, "checksum": checksum(data[begin + start:begin + end])}
    sums = [int(tensor["checksum"], 16).to_bytes(8, "little") for tensor in tensors.values()]
    listed |= {"checksum": checksum(data[:begin], *sums), "tensors": tensors}
    return listed | ({"tied": tied} if tied else {})


def write_manifest(folder, step, tied):
    names = ["model.safetensors", "model.averaged.safetensors", "optimizer.safetensors", "state.safetensors", "state.json"]
    files = {name: list_file(folder / name, tied.get(name)) for name in names if (folder / name).exists()}
    manifest = {"format": "looptorch snapshot", "version": 1, "step": step, "files": files}
    text = json.dumps(manifest, indent=2, ensure_ascii=False).removesuffix("\n}")
    (folder / "manifest.json").write_text(f'{text},\n  "checksum": "{checksum(text.encode())}"\n}}\n')


def check(folder):
    """Fails unless the manifest is what Python finds in the folder; returns it."""
    text = (folder / "manifest.json").read_text()
    manifest = json.loads(text)
    tail = f',\n  "checksum": "{manifest["checksum"]}"\n}}\n'
    assert text.endswith(tail) and checksum(text.removesuffix(tail).encode()) == manifest["checksum"]
    assert {path.name for path in folder.iterdir()} == {"manifest.json", *manifest["files"]}
    for name, listed in manifest["files"].items():
        assert list_file(folder / name, listed.get("tied")) == listed, name
    return manifest


def write_state(folder, step, optimizer, state):
    text = json.dumps({"step": step, "optimizer": optimizer, "state": state}, indent=2, ensure_ascii=False)
    (folder / "state.json").write_text(text + "\n")


def write_reference():
    folder = REFERENCE / "step-00000007"
    folder.mkdir(parents=True, exist_ok=True)
    model = {"weight": torch.arange(6).reshape(2, 3) / 8, "count": torch.tensor(3), "half": torch.arange(5).half()}
    metadata = {"format": "pt"}
    save_file(model, folder / "model.safetensors", metadata)
    save_file({"weight": model["weight"] + 1}, folder / "model.averaged.safetensors", metadata)
    save_file({"weight.exp_avg": model["weight"] * 2}, folder / "optimizer.safetensors", metadata)
    save_file({"random": torch.arange(100, dtype=torch.uint8)}, folder / "state.safetensors", metadata)
    state = {"best": {"double": "7ff0000000000000"}, "epoch": 2, "name": "नांव\t\"x\"", "none": None, "on": True,
             "raw": {"bytes": "00ff"}, "time": 0.1}
    write_state(folder, 7, {"0.lr": 0.001, "0.name": "AdamW"}, state)
    write_manifest(folder, 7, {})
    check(folder)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def exchange(snapshot, folder):
    manifest = check(snapshot)
    net = Net()
    missing, unexpected = load_model(net, snapshot / "model.safetensors")
    assert not missing and not unexpected, (missing, unexpected)
    assert net.head.weight is net.embedding.weight
    assert torch.equal(net.head.weight, torch.arange(15).reshape(5, 3) / 8)
    with safe_open(snapshot / "model.safetensors", "pt") as opened:
        assert opened.metadata()["format"] == "pt"
    assert torch.equal(load_file(snapshot / "optimizer.safetensors")["weight.exp_avg"], torch.ones(5, 3))
    assert json.loads((snapshot / "state.json").read_text())["state"]["epoch"] == 2

    changed = folder / snapshot.name
    changed.mkdir()
    for name in manifest["files"]:
        (changed / name).write_bytes((snapshot / name).read_bytes())
    with torch.no_grad():
        net.embedding.weight += 1
    save_model(net, str(changed / "model.safetensors"), metadata={"format": "pt"})
    tied = {name: listed["tied"] for name, listed in manifest["files"].items() if "tied" in listed}
    write_manifest(changed, manifest["step"], tied)
    save_model(net, str(folder / "weights.safetensors"))
    print(f"{snapshot}: verified, loaded, and written changed")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        exchange(*map(pathlib.Path, sys.argv[1:]))
    else:
        write_reference()
