# SPDX-License-Identifier: MIT
"""Records what safetensors.torch.save_model writes for a module with tied weights and buffers.

usage: python tests/parity/safetensors_model.py       (needs torch and safetensors; writes data/safetensors_model.safetensors)
       python tests/parity/safetensors_model.py FILE  (checks that load_model restores the module from FILE)

tests/unit/state/weights/save_weights_test.cpp builds the same module by the same formulas.
"""
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_model, save_model

REFERENCE = pathlib.Path(__file__).parent / "data" / "safetensors_model.safetensors"
METADATA = {"format": "pt", "head.weight": "embedding.weight"}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5)
        self.head.weight = self.embedding.weight
        self.norm = torch.nn.BatchNorm1d(3)


def reference_net():
    net = Net()
    with torch.no_grad():
        for number, (_, tensor) in enumerate(sorted(net.state_dict().items())):
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) + 100 * number)
    return net


def check(path):
    theirs = Net()
    missing, unexpected = load_model(theirs, path)
    assert not missing and not unexpected, (missing, unexpected)
    assert theirs.head.weight is theirs.embedding.weight
    for name, tensor in reference_net().state_dict().items():
        assert torch.equal(theirs.state_dict()[name], tensor), name
    with safe_open(path, "pt") as opened:
        assert opened.metadata() == METADATA, opened.metadata()
    print(f"{path}: restored by load_model")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(sys.argv[1])
    else:
        save_model(reference_net(), str(REFERENCE), metadata={"format": "pt"})
        check(REFERENCE)
