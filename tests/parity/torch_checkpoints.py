# SPDX-License-Identifier: MIT
"""Writes small files of torch.save, as people have them, and files that do harm to whoever runs their pickles.

usage: python tests/parity/torch_checkpoints.py   (needs torch; writes data/torch_checkpoints/)

tests/unit/state/weights/torch_files/torch_checkpoint_test.cpp knows the tensors by the same formulas.
"""
import collections
import json
import os
import pathlib
import pickle
import shutil
import struct
import zipfile

import torch

FOLDER = pathlib.Path(__file__).parent / "data" / "torch_checkpoints"


def tensors(prefix=""):
    return collections.OrderedDict({
        prefix + "fc.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 8,
        prefix + "fc.bias": torch.arange(2, dtype=torch.float32) - 0.5,
        prefix + "steps": torch.tensor(7),
    })


def save(name, value, **options):
    torch.save(value, FOLDER / name, **options)


def good():
    for protocol in (2, 3, 4, 5):
        save(f"protocol_{protocol}.pt", tensors(), pickle_protocol=protocol)
    save("ddp.pth", tensors("module."))
    save("compiled.pth", tensors("_orig_mod."))
    save("bf16.bin", {name: tensor.bfloat16() for name, tensor in tensors().items()})
    shared = torch.arange(6, dtype=torch.float32).reshape(2, 3) / 8
    save("tied.pt", {"embedding.weight": shared, "head.weight": shared})
    save("views.pt", {"transposed": shared.t(), "column": shared[:, 1], "row": shared[1], "expanded": torch.ones(1).expand(3),
                      "empty": torch.zeros(2, 0)[1:]})
    save("kinds.pt", {"empty": torch.zeros(0, 4), "int8": torch.tensor([-3, 4], dtype=torch.int8), "flags": torch.tensor([True, False]),
                      "complex": torch.tensor([1 + 2j]), "half": torch.tensor([0.5], dtype=torch.float16),
                      "parameter": torch.nn.Parameter(torch.tensor([2.0])), "wide": torch.tensor([40000], dtype=torch.uint16),
                      "float8": torch.tensor([0.5]).to(torch.float8_e4m3fn)})
    save("mx.pt", {"scales": torch.tensor([0.25, 8]).to(torch.float8_e8m0fnu),
                   "float4": torch.tensor([0x21, 0x43], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)})
    number = torch.tensor([1 + 2j]).conj()
    save("conjugated.pt", {"conjugated": number})
    save("negated.pt", {"negated": number.imag})
    net = torch.nn.Linear(3, 2)
    with torch.no_grad():
        net.weight.copy_(tensors()["fc.weight"]), net.bias.copy_(tensors()["fc.bias"])
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    with torch.no_grad():
        net.weight.copy_(tensors()["fc.weight"]), net.bias.copy_(tensors()["fc.bias"])
    save("checkpoint.pt", {"epoch": 15, "best": 1.25, "name": "konkani", "nothing": None, "flags": [True, False], "big": 1 << 40, "minus": -5, "seed": (1 << 64) - 1, "frozen": frozenset("a"),
                           "config": {"sizes": (1, 2), "device": torch.device("cpu"), "dtype": torch.float32, "names": {"a"}},
                           "model_state_dict": net.state_dict(), "optimizer_state_dict": optimizer.state_dict()})
    save("plain_values.pt", {"fc.weight": tensors()["fc.weight"], "bytes": b"ab\xff", "none": b"", "array": bytearray(b"xy"), "complex": 1j,
                             "scheduler": torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 80]).state_dict()})
    save("two_keys.pt", {"first": tensors(), "second": tensors()})
    sharded = FOLDER / "sharded"
    sharded.mkdir()
    names = list(tensors())
    torch.save({names[0]: tensors()[names[0]]}, sharded / "pytorch_model-00001-of-00002.bin")
    torch.save({name: tensors()[name] for name in names[1:]}, sharded / "pytorch_model-00002-of-00002.bin")
    (sharded / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {
        name: f"pytorch_model-0000{1 if name == names[0] else 2}-of-00002.bin" for name in names}}) + "\n")
    save("legacy.pt", tensors(), _use_new_zipfile_serialization=False)
    torch.jit.save(torch.jit.script(net), str(FOLDER / "script.pt"))


class Calls:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def with_pickle(name, data, storage=b"\0" * 24):
    """An archive as torch.save writes it, with this pickle and one storage, "0"."""
    with zipfile.ZipFile(FOLDER / name, "w", zipfile.ZIP_STORED) as archive:
        for file, content in (("data.pkl", data), ("byteorder", b"little"), ("data/0", storage), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo("archive/" + file), content)


def tensor_pickle(numel=6, offset=0, sizes=(2, 3), strides=(3, 1)):
    def number(value):
        return b"J" + struct.pack("<i", value) if -(1 << 31) <= value < 1 << 31 else b"\x8a\x08" + struct.pack("<q", value)

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value

    return (b"\x80\x02}(" + text(b"w") + b"ctorch._utils\n_rebuild_tensor_v2\n((" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(b"0") +
            text(b"cpu") + number(numel) + b"tQ" + number(offset) + numbers(sizes) + numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtRu.")


def harmful():
    with_pickle("evil_system.pt", pickle.dumps({"w": Calls(os.system, "echo harm")}, 2))
    with_pickle("evil_eval.pt", pickle.dumps({"w": Calls(eval, "1")}, 4))
    with_pickle("evil_getattr.pt", pickle.dumps({"w": Calls(getattr, "a", "upper")}, 5))
    with_pickle("evil_popen.pt", b"\x80\x04\x8c\nsubprocess\x8c\x05Popen\x93\x8c\x04true\x85R.")
    with_pickle("evil_inst.pt", b"\x80\x02(X\x04\x00\x00\x00trueios\nsystem\n.")
    with_pickle("evil_extension.pt", b"\x80\x02\x82\x01.")
    with_pickle("evil_build.pt", b"\x80\x02ctorch\nSize\n}b.")
    with_pickle("evil_reach.pt", tensor_pickle(sizes=(2, 4), strides=(4, 1)))
    with_pickle("evil_negative.pt", tensor_pickle(offset=-4))
    with_pickle("evil_overflow.pt", tensor_pickle(sizes=((1 << 62), 8), strides=(1 << 62, 1)))
    with_pickle("evil_storage.pt", tensor_pickle(numel=1 << 40))
    with_pickle("evil_deep.pt", b"\x80\x02" + b")" + b"\x85" * 30_000 + b".")
    with_pickle("evil_text.pt", b"\x80\x02X\xff\xff\xff\x7fshort.")
    with_pickle("evil_copies.pt", b"\x80\x02](" + b"K\x01K\x02\x86" * 300 + b"eq\x01" + b"ccollections\nOrderedDict\nh\x01\x85R" * 100 + b".")
    with zipfile.ZipFile(FOLDER / "evil_overlap.pt", "w", zipfile.ZIP_STORED) as archive:
        text = lambda value: b"X" + struct.pack("<I", len(value)) + value
        pickled = b"\x80\x02]("
        for i in range(30):
            pickled += b"(" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(b"%d" % i) + text(b"cpu") + b"K\x06tQ"
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickled + b"e.")
        archive.writestr(zipfile.ZipInfo("archive/data/0"), b"\1" * 1001)
        first = archive.filelist[-1]
        for i in range(1, 30):
            other = zipfile.ZipInfo(f"archive/data/{i}")
            other.header_offset, other.file_size, other.compress_size, other.CRC = first.header_offset, first.file_size, first.compress_size, first.CRC
            archive.filelist.append(other)
    with_pickle("sound.pt", tensor_pickle(), struct.pack("<6f", *(i / 8 for i in range(6))))


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    good()
    harmful()
