#!/usr/bin/env python3
"""read_exports.py FOLDER COUNT [--decompose-all] [PROGRAM]: PyTorch reads the COUNT models that tests/unit/export wrote there, and
computes C++'s outputs to the bit. Then runs PROGRAM, a Python file, in its folder: another process would import torch again."""
import glob
import os
import sys
import warnings

warnings.filterwarnings("ignore")
import torch

folder = sys.argv[1]
torch.backends.mkldnn.enabled = False  # C++ computed without it
torch._C._set_graph_executor_optimize(False)  # TorchScript's fuser rounds bf16 elsewhere
found = sorted(os.path.basename(path)[: -len(".pt2")] for path in glob.glob(os.path.join(folder, "*.pt2")))
assert len(found) == int(sys.argv[2]), found
decomposed_too = ["mlp", "vit", "encoder"]
if "--decompose-all" in sys.argv:
    decomposed_too += ["whisper", "konkanivani", "konkanivani_decoder"]


def cases(name):
    tensors = torch.jit.load(os.path.join(folder, name + ".cases")).state_dict()
    (inputs, outputs), *tensors = (tensors[key] for key in sorted(tensors, key=int))
    size = inputs + outputs
    return [(tensors[i : i + inputs], tensors[i + inputs : i + size]) for i in range(0, len(tensors), size)]


def outputs_of(module, inputs):
    outputs = module(*inputs)
    if isinstance(outputs, dict):
        assert list(outputs) == ["scores", "a"], outputs.keys()
        outputs = list(outputs.values())
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


def same(found, wanted):
    return len(found) == len(wanted) and all(torch.equal(a, b) for a, b in zip(found, wanted))


for name in found:
    program = torch.export.load(os.path.join(folder, name + ".pt2"))
    script = torch.jit.load(os.path.join(folder, name + ".ts"))
    assert set(program.state_dict) == set(script.state_dict()), name
    for key, tensor in script.state_dict().items():
        assert torch.equal(program.state_dict[key], tensor), f"{name}: {key}"
    module = program.module()
    with torch.no_grad():
        held = cases(name)
        for inputs, wanted in held:
            shapes = [tuple(x.shape) for x in inputs]
            assert same(outputs_of(script, inputs), wanted), f"{name}: TorchScript at {shapes}"
            assert same(outputs_of(module, inputs), wanted), f"{name}: .pt2 at {shapes}"
        if name in decomposed_too and "mlp" in found:  # at real size it takes minutes
            decomposed = program.run_decompositions().module()
            for inputs, wanted in held:
                torch.testing.assert_close(outputs_of(decomposed, inputs), wanted, rtol=1e-4, atol=1e-4)
    print(f"{name}: {len(held)} cases to the bit, TorchScript and .pt2")

# What is loaded trains.
if "mlp" not in found:
    sys.exit()
module = torch.export.load(os.path.join(folder, "mlp.pt2")).module()
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
x, y = torch.randn(8, 4), torch.randn(8, 2)
losses = []
for _ in range(5):
    loss = (module(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
assert all(parameter.grad is not None for parameter in module.parameters())
print("an exported program trains in Python")

if sys.argv[-1].endswith(".py"):
    with open(sys.argv[-1]) as file:
        source = file.read()
    os.chdir(os.path.dirname(sys.argv[-1]))
    exec(compile(source, sys.argv[-1], "exec"), {"__name__": "__main__"})
    print("its Python runs")
