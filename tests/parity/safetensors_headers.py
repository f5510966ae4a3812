# SPDX-License-Identifier: MIT
"""Records what Python's safetensors makes of headers of every category, sound and unsound.

usage: python tests/parity/safetensors_headers.py  (needs torch and safetensors; writes data/safetensors_headers.json)

Each case is the header's text, the bytes of data behind it (0, 1, 2, ... modulo 256), and the tensors that Python reads
(their shape and the sum of their bytes), or null where it refuses the file.
"""
import json
import pathlib
import struct
import tempfile

import torch
from safetensors.torch import load_file

OUTPUT = pathlib.Path(__file__).parent / "data" / "safetensors_headers.json"


def tensor(name, dtype, shape, begin, end, more=""):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]{more}}}'


def cases():
    def whole(*members, data):
        yield "{" + ",".join(members) + "}", data

    widths = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
    widths |= {"U16": 2, "U32": 4, "U64": 8, "C64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
    widths |= {"F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1}
    for dtype, width in widths.items():
        yield from whole(tensor("a", dtype, "[2,3]", 0, 6 * width), data=6 * width)
        yield from whole(tensor("a", dtype, "[]", 0, width), data=width)
        yield from whole(tensor("a", dtype, "[3,0,2]", 0, 0), data=0)
        yield from whole(tensor("a", dtype, "[2,3]", 0, 6 * width - 1), data=6 * width - 1)
    for dtype in ["F31", "f32", "", "F4X", "F128", "C128", "I4"]:
        yield from whole(tensor("a", dtype, "[2]", 0, 8), data=8)
    yield from whole(tensor("a", "F4", "[2,4]", 0, 4), data=4)
    yield from whole(tensor("a", "F4", "[3]", 0, 1), data=1)
    a = tensor("a", "F32", "[2]", 0, 8)
    b = tensor("b", "F32", "[2]", 8, 16)
    yield from whole(a, b, data=16)
    yield from whole(b, a, data=16)
    for data in [0, 7, 9, 15, 17]:
        yield from whole(a, data=data)
        yield from whole(a, b, data=data)
    for begin, end in [(4, 12), (0, 8), (7, 15), (9, 17), (16, 8), (12, 20), (-8, 0), (8, 1 << 62), (8, 1 << 64)]:
        yield from whole(a, tensor("b", "F32", "[2]", begin, end), data=16)
    yield from whole(tensor("e", "F32", "[0]", 4, 4), a, data=8)
    yield from whole(tensor("e", "F32", "[0]", 8, 8), a, data=8)
    yield from whole(tensor("e", "F32", "[0]", 0, 0), a, data=8)
    for shape in ["[-2]", "[2.0]", "[2e0]", '["2"]', "2", "null", "[[2]]", "[9223372036854775808]", "[1,2,1]", "[4]", "[1]",
                  "[4611686018427387904,4,2]", str([1] * 70 + [2])]:
        yield from whole(tensor("a", "F32", shape, 0, 8), data=8)
    for offsets in ["[]", "[0]", "[0,8,8]", "[0.0,8]", '["0","8"]', "8", "null"]:
        yield f'{{"a":{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}}}', 8
    yield '{"a":{"dtype":"F32","shape":[2]}}', 8
    yield '{"a":{"dtype":"F32","data_offsets":[0,8]}}', 8
    yield '{"a":{"shape":[2],"data_offsets":[0,8]}}', 8
    yield from whole(tensor("a", "F32", "[2]", 0, 8, ',"note":1'), data=8)
    for value in ["null", "1", "[]", "{}", '""']:
        yield f'{{"a":{value}}}', 0
        yield f'{{"__metadata__":{value}}}', 0
    for text in ["", " ", "{", "}", "[]", "null", "1", '""', "{}", " {}", "{} ", "{}\n\t\r ", "{}x", "{}{}", "{,}", "{\"a\"}",
                 "\ufeff{}", "{}\0", "{'a':1}", "// c\n{}", '{"__metadata__":{"a":1}}', '{"__metadata__":{"a":"1"}}',
                 '{"__metadata__":{"a":null}}', '{"__metadata__":{"a":"\\ud83d\\ude00"}}', '{"__metadata__":{"a":"\\ud83d"}}',
                 '{"__metadata__":{"a":"\x01"}}', '{"__metadata__":{"a":"\\x"}}', '{"__metadata__":{"a":"1"},}']:
        yield text, 0
    yield from whole(tensor("", "F32", "[2]", 0, 8), data=8)
    yield from whole(tensor("\\u0915\\n", "F32", "[2]", 0, 8), data=8)


def verdict(header, data):
    text = header.encode()
    with tempfile.NamedTemporaryFile() as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(i % 256 for i in range(data)))
        file.flush()
        try:
            tensors = load_file(file.name)
        except Exception:
            return None
        return {
            name: {
                "shape": list(value.shape),
                "sum": int(value.reshape(-1).view(torch.uint8).sum()) if value.numel() else 0,
            }
            for name, value in tensors.items()
        }


if __name__ == "__main__":
    lines = [json.dumps({"header": header, "data": data, "read": verdict(header, data)}) for header, data in cases()]
    OUTPUT.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{OUTPUT}: {len(lines)} cases, {sum('null}' in line[-6:] for line in lines)} refused")
